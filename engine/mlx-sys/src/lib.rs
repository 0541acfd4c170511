//! Raw bindings to mlx-c 0.7.0 over MLX 0.32.2. Only the crate `mlx` may use them.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]

mod bindings;
pub use bindings::*;

/// The version of MLX whose headers these bindings were compiled against.
pub const MLX_VERSION: &str = env!("RMLX_MLX_VERSION");
