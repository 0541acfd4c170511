use mlx::{Array, Dtype, fast};

use super::*;
use crate::kernels::rows::testing::{close, numbers, typed, views};

/// MLX rounds to the type on the way; in f32 there is the order of a sum between us.
fn allowed(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 => 1e-5,
        Dtype::F16 => 8e-3,
        _ => 6e-2,
    }
}

#[test]
fn as_mlx_computes_it() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        for (shape, eps) in [(&[1, 1, 576][..], 1e-5f32), (&[2, 3, 33], 1e-6), (&[7], 1e-5), (&[70, 600], 1e-2), (&[0, 8], 1e-5)]
        {
            let width = *shape.last().unwrap();
            let kernel = RmsNorm::new(eps).unwrap();
            let weight = typed(&numbers(width, 3), &[width], dtype);
            let (x, delta) = (
                typed(&numbers(shape.iter().product(), 1), shape, dtype),
                typed(&numbers(shape.iter().product(), 2), shape, dtype),
            );
            let reference = fast::rms_norm(&x, Some(&weight), eps).unwrap();
            let y = kernel.forward(&x, &weight).unwrap();
            assert_eq!((y.shape(), y.dtype()), (x.shape(), dtype));
            close(&y, &reference, allowed(dtype));
            let (sum, normed) = kernel.after_sum(&x, &delta, &weight).unwrap();
            let exact = x.add(&delta).unwrap();
            assert_eq!(sum.to_f32().unwrap(), exact.to_f32().unwrap());
            close(&normed, &fast::rms_norm(&exact, Some(&weight), eps).unwrap(), allowed(dtype));
            for view in views(&x) {
                let dense = view.contiguous().unwrap();
                let weight = typed(&numbers(view.dim(-1) as usize, 3), &[view.dim(-1) as usize], dtype);
                let (of_view, of_dense) = (kernel.forward(&view, &weight).unwrap(), kernel.forward(&dense, &weight).unwrap());
                assert_eq!(of_view.to_f32().unwrap(), of_dense.to_f32().unwrap());
                let (sum, _) = kernel.after_sum(&view, &view, &weight).unwrap();
                assert_eq!(sum.to_f32().unwrap(), dense.add(&dense).unwrap().to_f32().unwrap());
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let kernel = RmsNorm::new(1e-5).unwrap();
    let zeros = |shape: &[i32], dtype| Array::zeros(shape, dtype).unwrap();
    let told = |y: mlx::Result<Array>| y.and_then(|y| y.eval()).unwrap_err().to_string();
    let x = zeros(&[2, 8], Dtype::F32);
    assert!(told(kernel.forward(&x, &zeros(&[7], Dtype::F32))).contains("is no weight of rows of 8"));
    assert!(told(kernel.forward(&x, &zeros(&[8], Dtype::F16))).contains("of one type, not f32 and f16"));
    assert!(told(kernel.forward(&zeros(&[2], Dtype::U32), &zeros(&[2], Dtype::U32))).contains("takes floats, not u32"));
    let sum = kernel.after_sum(&x, &zeros(&[8], Dtype::F32), &zeros(&[8], Dtype::F32)).map(|(sum, _)| sum);
    assert!(told(sum).contains("cannot add [8] to [2, 8]"));
    assert!(told(kernel.forward(&zeros(&[], Dtype::F32), &zeros(&[1], Dtype::F32))).contains("not a scalar"));
}
