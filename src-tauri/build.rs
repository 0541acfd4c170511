use std::path::Path;

include!("ipc/list.rs");

macro_rules! names {
    ($($topic:ident::$name:ident),* $(,)?) => { &[$(stringify!($name)),*] };
}

const COMMANDS: &[&str] = commands!(names);

fn main() {
    for path in ["src-tauri/build.rs", "src-tauri/ipc/list.rs", "src-tauri/capabilities", "tauri.conf.json", "ui/dist", "icons"] {
        println!("cargo:rerun-if-changed={path}");
    }
    if !Path::new("ui/dist/index.html").exists() {
        eprintln!("error: ui/dist/index.html is missing: the app carries its pages inside");
        eprintln!("hint: `cd ui && npm ci --ignore-scripts && npm run build` makes them");
        std::process::exit(1);
    }
    let attributes = tauri_build::Attributes::new()
        .capabilities_path_pattern("src-tauri/capabilities/*.json")
        // With a manifest, a window may call only the commands that its capability file names.
        .app_manifest(tauri_build::AppManifest::new().commands(COMMANDS));
    if let Err(error) = tauri_build::try_build(attributes) {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
    if let Ok(args) = std::env::var("DEP_RMLX_ENGINE_RPATHS") {
        for path in args.split(':').filter(|p| !p.is_empty()) {
            println!("cargo:rustc-link-arg=-Wl,-rpath,{path}");
        }
    }
}
