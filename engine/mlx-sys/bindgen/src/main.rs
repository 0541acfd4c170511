//! Regenerates `engine/mlx-sys/src/bindings.rs` from mlx-c's headers. Run by hand (needs libclang); the output is checked in,
//! so that a build never needs libclang and every target uses one file.
//!
//!     cargo run --manifest-path engine/mlx-sys/bindgen/Cargo.toml -- MLX_C_FOLDER engine/mlx-sys/src/bindings.rs

fn main() {
    let mut args = std::env::args().skip(1);
    let (mlx_c, out) = (args.next().expect("the folder of mlx-c"), args.next().expect("the file to write"));
    bindgen::Builder::default()
        .rust_target("1.85.0".parse().expect("a version"))
        .header(format!("{mlx_c}/mlx/c/mlx.h"))
        .clang_arg(format!("-I{mlx_c}"))
        .allowlist_function("_?mlx_.*")
        .allowlist_type("mlx_.*")
        .allowlist_var("MLX_.*")
        // Declared only where the C compiler has the type, which differs between targets.
        .blocklist_function("mlx_array_(item|data)_b?float16")
        .blocklist_function("mlx_.*distributed.*|mlx_linalg.*|mlx_fft.*|mlx_export.*|mlx_import.*|mlx_imported.*|mlx_node_namer.*|mlx_export_to_dot")
        .blocklist_var("mlx_.*_empty")
        .blocklist_type("FILE|_IO_.*|__sFILE.*")
        .raw_line("pub type FILE = ::std::ffi::c_void; // only behind pointers")
        .layout_tests(false)
        .generate_comments(false)
        .derive_default(false)
        .prepend_enum_name(false)
        .generate()
        .expect("mlx-c's headers are read")
        .write_to_file(out)
        .expect("the bindings are written");
}
