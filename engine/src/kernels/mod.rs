//! Kernels of our own: Rust functions that MLX's graph calls on the CPU ([`mlx::cpu::CpuKernel`]).

pub mod affine;
pub mod pool;
