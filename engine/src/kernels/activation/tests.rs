use mlx::{Array, Dtype};

use super::*;
use crate::kernels::rows::testing::{close, numbers, typed, views};

#[test]
fn as_mlx_computes_it() {
    let kernel = SwiGlu::new().unwrap();
    for (dtype, allowed) in [(Dtype::F32, 1e-5), (Dtype::F16, 3e-2), (Dtype::Bf16, 3e-1)] {
        for shape in [&[1, 1, 3072][..], &[2, 3, 34], &[300, 200], &[0, 8]] {
            let x = numbers(shape.iter().product(), 1).iter().map(|x| x * 3.0).collect::<Vec<_>>();
            let x = typed(&x, shape, dtype);
            for x in std::iter::once(x.clone()).chain(views(&x)).filter(|x| x.dim(-1) % 2 == 0) {
                let half = x.dim(-1) / 2;
                let (gate, up) = (x.slice(-1, 0, half).unwrap(), x.slice(-1, half, 2 * half).unwrap());
                let y = kernel.forward(&x).unwrap();
                assert_eq!((y.shape(), y.dtype()), (up.shape(), dtype));
                close(&y, &gate.mul(&gate.sigmoid().unwrap()).unwrap().mul(&up).unwrap(), allowed);
            }
        }
    }
}

#[test]
fn halves_that_are_none_are_refused() {
    let e = SwiGlu::new().unwrap().forward(&Array::zeros(&[2, 7], Dtype::F32).unwrap()).unwrap().eval().unwrap_err();
    assert!(e.to_string().contains("[2, 7] has no two halves"), "{e}");
}
