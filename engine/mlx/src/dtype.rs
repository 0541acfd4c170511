//! Element types.

use std::fmt;

use half::{bf16, f16};
use mlx_sys as c;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Dtype {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    F32,
    F64,
    Bf16,
    C64,
}

const TABLE: [(Dtype, c::mlx_dtype, usize, &str); 14] = [
    (Dtype::Bool, c::MLX_BOOL, 1, "bool"),
    (Dtype::U8, c::MLX_UINT8, 1, "u8"),
    (Dtype::U16, c::MLX_UINT16, 2, "u16"),
    (Dtype::U32, c::MLX_UINT32, 4, "u32"),
    (Dtype::U64, c::MLX_UINT64, 8, "u64"),
    (Dtype::I8, c::MLX_INT8, 1, "i8"),
    (Dtype::I16, c::MLX_INT16, 2, "i16"),
    (Dtype::I32, c::MLX_INT32, 4, "i32"),
    (Dtype::I64, c::MLX_INT64, 8, "i64"),
    (Dtype::F16, c::MLX_FLOAT16, 2, "f16"),
    (Dtype::F32, c::MLX_FLOAT32, 4, "f32"),
    (Dtype::F64, c::MLX_FLOAT64, 8, "f64"),
    (Dtype::Bf16, c::MLX_BFLOAT16, 2, "bf16"),
    (Dtype::C64, c::MLX_COMPLEX64, 8, "complex64"),
];

impl Dtype {
    pub(crate) fn raw(self) -> c::mlx_dtype {
        TABLE[self as usize].1
    }

    pub(crate) fn from_raw(raw: c::mlx_dtype) -> Self {
        TABLE.iter().find(|row| row.1 == raw).map_or(Self::C64, |row| row.0)
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        TABLE[self as usize].2
    }

    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64 | Self::Bf16)
    }

    pub fn name(self) -> &'static str {
        TABLE[self as usize].3
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type whose values are the elements of some [`Dtype`]; any bit pattern of it is a value.
pub trait Element: bytemuck::Pod {
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $rust { const DTYPE: Dtype = Dtype::$dtype; })*
    };
}
elements!(u8 => U8, u16 => U16, u32 => U32, u64 => U64, i32 => I32, i64 => I64, f32 => F32, f64 => F64, f16 => F16, bf16 => Bf16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_variants() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, i);
            assert_eq!(Dtype::from_raw(row.0.raw()), row.0);
        }
    }
}
