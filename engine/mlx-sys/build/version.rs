//! Which MLX the bindings are for. Part of the build script, and of the crate's tests.

/// The version that mlx-c 0.7.0 is written for. MLX's C++ ABI changes between versions.
pub const MLX_VERSION: &str = "0.32.2";

/// Refuses the header `version.h` of another version, with what to do. `place` is where it lies.
pub fn check(header: &str, place: &str) -> Result<(), String> {
    let part = |name: &str| {
        header
            .lines()
            .find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name)?.trim().parse::<u32>().ok())
            .map_or_else(|| "?".into(), |n| n.to_string())
    };
    let found = [part("MLX_VERSION_MAJOR"), part("MLX_VERSION_MINOR"), part("MLX_VERSION_PATCH")].join(".");
    if found == MLX_VERSION {
        return Ok(());
    }
    Err(format!(
        "{place} is MLX {found}; rMLX is built against MLX {MLX_VERSION}.\nRun scripts/setup, or set MLX_ROOT to that version."
    ))
}
