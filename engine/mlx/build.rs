//! Passes the run-time search paths of libmlx on to every binary that links it, so that none needs an environment variable.
//!
//! A bundle's own copy comes first (`lib` beside `bin` on Linux, `Frameworks` on macOS), then the copy that set-up fetched.
//! The linker writes DT_RUNPATH, so LD_LIBRARY_PATH still wins: that is how the same binary runs on MLX's CUDA build.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let lib = std::env::var("DEP_MLX_LIB_DIR").expect("mlx-sys names the folder of libmlx");
    let own = match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") => "@executable_path/../Frameworks",
        _ => "$ORIGIN/../lib/rmlx",
    };
    println!("cargo:rustc-link-arg=-Wl,-rpath,{own}");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    println!("cargo:rpaths={own}:{lib}");
}
