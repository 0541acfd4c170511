//! Raw bindings to mlx-c 0.7.0 over MLX 0.32.2. Only the crate `mlx` may use them.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]

mod bindings;
mod cpu_kernel;
pub use bindings::*;
pub use cpu_kernel::*;

/// The version of MLX whose headers these bindings were compiled against.
pub const MLX_VERSION: &str = env!("RMLX_MLX_VERSION");

#[cfg(test)]
#[path = "../build/version.rs"]
mod version;

#[cfg(test)]
mod tests {
    use super::version::check;

    fn header(patch: u32) -> String {
        format!("#pragma once\n#define MLX_VERSION_MAJOR 0\n#define MLX_VERSION_MINOR 32\n#define MLX_VERSION_PATCH {patch}\n")
    }

    #[test]
    fn another_version_of_mlx_is_refused() {
        assert_eq!(check(&header(2), "here"), Ok(()));
        let refused = check(&header(4), "/opt/mlx/include").unwrap_err();
        assert!(refused.contains("/opt/mlx/include is MLX 0.32.4") && refused.contains("built against MLX 0.32.2"), "{refused}");
        assert!(refused.contains("scripts/setup") && refused.contains("MLX_ROOT"), "{refused}");
        assert!(check("", "here").unwrap_err().contains("MLX ?.?.?"));
    }
}
