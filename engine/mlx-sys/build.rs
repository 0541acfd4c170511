//! Compiles mlx-c and our own node of its graph (`cxx/cpu_kernel.cpp`), as one C++ file, against a prebuilt MLX.
//!
//! Inputs, which `scripts/setup` fetches (pinned) into the build cache:
//! * MLX's headers and library: `MLX_ROOT`, else `<cache>/mlx/<flavour>-<version>/mlx`
//! * mlx-c's sources: `MLX_C_ROOT`, else `<cache>/mlxc/vendor/mlx-sys-0.7.0/src/mlx-c`

#[path = "build/version.rs"]
mod version;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use version::MLX_VERSION;

const MLX_C: &str = "mlxc/vendor/mlx-sys-0.7.0/src/mlx-c";

fn main() {
    for var in ["MLX_ROOT", "MLX_C_ROOT", "RMLX_BUILD_CACHE", "XDG_CACHE_HOME"] {
        println!("cargo:rerun-if-env-changed={var}");
    }
    println!("cargo:rerun-if-changed=cxx");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    if let Err(reason) = build() {
        // A build script has no other way to show a text than to fail with it.
        eprintln!("\n{reason}\n");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let macos = env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("macos");
    let root = match env::var_os("MLX_ROOT") {
        Some(root) => PathBuf::from(root),
        None => {
            let flavour = if macos { "metal" } else { "cpu" };
            build_cache()?.join(format!("mlx/{flavour}-{MLX_VERSION}/mlx"))
        }
    };
    let mlx_c = match env::var_os("MLX_C_ROOT") {
        Some(root) => PathBuf::from(root),
        None => build_cache()?.join(MLX_C),
    };
    let include = root.join("include");
    let lib = root.join("lib");
    let library = lib.join(if macos { "libmlx.dylib" } else { "libmlx.so" });
    for needed in [&library, &mlx_c.join("mlx/c/mlx.h")] {
        println!("cargo:rerun-if-changed={}", needed.display());
        if !needed.exists() {
            return Err(format!(
                "{} is missing.\nRun scripts/setup (make build does), or set MLX_ROOT to an MLX {MLX_VERSION}.",
                needed.display()
            ));
        }
    }
    check_version(&include)?;

    // One translation unit: MLX's headers are parsed once, 15 s of CPU instead of some three minutes.
    let mut sources: Vec<PathBuf> = fs::read_dir(mlx_c.join("mlx/c"))
        .map_err(|e| format!("{}: {e}", mlx_c.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "cpp"))
        .collect();
    sources.sort();
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("CARGO_MANIFEST_DIR is not set")?);
    sources.push(here.join("cxx/cpu_kernel.cpp"));
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let unity = out.join("mlx_c.cpp");
    let text: String = sources.iter().map(|s| format!("#include \"{}\"\n", s.display())).collect();
    fs::write(&unity, text).map_err(|e| format!("{}: {e}", unity.display()))?;

    let mut cxx = cc::Build::new();
    cxx.cpp(true)
        .std("c++20")
        .warnings(false)
        .opt_level(2)
        .debug(false)
        .include(&mlx_c)
        .flag("-isystem")
        .flag(&include)
        .flag("-include")
        .flag(here.join("cxx/compat.h"))
        .file(&unity);
    if macos {
        cxx.flag("-isystem").flag(include.join("metal_cpp")).define("_METAL_", None).define("ACCELERATE_NEW_LAPACK", None);
    }
    cxx.compile("mlxc");

    println!("cargo:rustc-link-search=native={}", lib.display());
    println!("cargo:rustc-link-lib=dylib=mlx");
    println!("cargo:lib_dir={}", lib.display());
    println!("cargo:rustc-env=RMLX_MLX_VERSION={MLX_VERSION}");
    Ok(())
}

/// The same rule as in `scripts/lib.sh`.
fn build_cache() -> Result<PathBuf, String> {
    if let Some(cache) = env::var_os("RMLX_BUILD_CACHE") {
        return Ok(cache.into());
    }
    let home = env::var_os("HOME").map(PathBuf::from).ok_or("HOME is not set: set RMLX_BUILD_CACHE or MLX_ROOT")?;
    Ok(if cfg!(target_os = "macos") {
        home.join("Library/Caches/rmlx-build")
    } else {
        env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from).join("rmlx-build")
    })
}

fn check_version(include: &Path) -> Result<(), String> {
    let header = include.join("mlx/version.h");
    let text = fs::read_to_string(&header).map_err(|e| format!("{}: {e}", header.display()))?;
    version::check(&text, &include.display().to_string())
}
