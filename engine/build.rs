//! Tells the linker where the rmlx binary and the engine's tests find libmlx: see `engine/mlx/build.rs`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(args) = std::env::var("DEP_MLX_SAFE_RPATHS") {
        for path in args.split(':').filter(|p| !p.is_empty()) {
            println!("cargo:rustc-link-arg=-Wl,-rpath,{path}");
        }
        // For the app's binary: src-tauri/build.rs.
        println!("cargo:rpaths={args}");
    }
}
