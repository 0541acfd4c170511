//! Kernels of our own: Rust functions that MLX's graph calls on the CPU ([`mlx::cpu::CpuKernel`]).
//!
//! Each way of storing a matrix has a file with what it `supports`, `matmul` and, for embeddings, `take`; `nn::weights` chooses
//! between them. Their inner loops are in the crate `simd`.

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
