//! The safe layer over MLX: arrays, operations, devices; errors as values.
//!
//! * Every operation is lazy: it adds a node to a graph. Reading an array ([`Array::to_vec`]) evaluates it first.
//! * Arrays belong to the thread that made them (MLX streams are per thread, and a lazy array evaluated elsewhere fails), so
//!   [`Array`] is neither `Send` nor `Sync`. What crosses threads is plain data.
//! * Operations run on the thread's device, chosen once by [`use_device`]; the CPU unless told otherwise.
//! * Only this crate names `mlx_sys`.

mod array;
mod compile;
pub mod cpu;
mod device;
mod dtype;
mod error;
pub mod fast;
pub mod kernel;
pub mod memory;
mod ops;
pub mod quant;
pub mod random;
mod record;

pub use array::{Array, async_eval, eval};
pub use compile::Compiled;
pub use device::{
    Device, cpu_matrix_library, current_device, device_name, gpu_available, gpu_budget, gpu_memory, set_cpu_threads, synchronize,
    use_device, version,
};
pub use dtype::{Dtype, Element};
pub use error::{Error, Result};
pub use ops::concatenate;
pub use record::{Recorded, record};

/// The version of MLX that this program was built against.
pub const BUILT_AGAINST: &str = mlx_sys::MLX_VERSION;
