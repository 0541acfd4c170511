fn main() {
    println!("cargo:rerun-if-changed=src-tauri/build.rs");
    if let Ok(args) = std::env::var("DEP_RMLX_ENGINE_RPATHS") {
        for path in args.split(':').filter(|p| !p.is_empty()) {
            println!("cargo:rustc-link-arg=-Wl,-rpath,{path}");
        }
    }
}
