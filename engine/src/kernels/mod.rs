//! Kernels of our own: Rust functions that MLX's graph calls on the CPU ([`mlx::cpu::CpuKernel`]).
//!
//! Each way of storing a matrix has a file with `matmul` and, for embeddings, `take`, and a line here; `nn::weights` chooses between
//! them. Their inner loops are in the crate `simd`.
//!
//! | stored as | file | of which | computes in |
//! |---|---|---|---|
//! | affine | [`affine`] | 2, 3, 4, 5, 6 or 8 bits, groups of 32, 64 or 128; scales and biases f32, f16 or bf16 | f32, or whole numbers |
//! | floats | [`dense`] | f32, f16, bf16 | f32 |

pub mod activation;
pub mod affine;
pub mod attention;
pub mod dense;
mod floats;
pub mod norm;
pub mod pool;
mod rows;

/// How products with packed matrices are computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precision {
    /// In f32.
    Exact,
    /// With what they multiply rounded to 16 bits, in groups of 32 elements, where that is quicker.
    #[default]
    Fast,
}
