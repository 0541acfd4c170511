use std::collections::BTreeMap;

use super::*;
use crate::config::QuantMode;

/// A checkpoint in memory.
#[derive(Default)]
struct Memory(BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>);

impl Memory {
    fn with(mut self, name: &str, a: &Array) -> Self {
        let shape = a.shape().iter().map(|d| *d as usize).collect();
        let bytes = match a.dtype() {
            Dtype::U8 => a.to_vec::<u8>().unwrap(),
            Dtype::U32 => bytemuck::cast_slice(&a.to_vec::<u32>().unwrap()).to_vec(),
            Dtype::F16 => bytemuck::cast_slice(&a.to_vec::<half::f16>().unwrap()).to_vec(),
            Dtype::Bf16 => bytemuck::cast_slice(&a.to_vec::<half::bf16>().unwrap()).to_vec(),
            Dtype::F32 => bytemuck::cast_slice(&a.to_vec::<f32>().unwrap()).to_vec(),
            other => panic!("{other}"),
        };
        self.0.insert(name.into(), (a.dtype(), shape, bytes));
        self
    }
}

impl Tensors for Memory {
    fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn meta(&self, name: &str) -> Option<(Dtype, &[usize])> {
        self.0.get(name).map(|(dtype, shape, _)| (*dtype, shape.as_slice()))
    }

    fn read(&self, name: &str) -> Result<TensorView<'_>> {
        let (dtype, shape, bytes) = &self.0[name];
        Ok(TensorView { dtype: *dtype, shape, bytes })
    }

    fn quant_of(&self, quantization: &Quantization, module: &str) -> Option<Quant> {
        quantization.of(module)
    }
}

fn four_bits() -> Quantization {
    Quantization { default: Some(Quant { bits: 4, group_size: 32, mode: QuantMode::Affine }), overrides: BTreeMap::new() }
}

fn built<M>(memory: &Memory, storage: Storage, construct: impl Fn(&Weights<'_>) -> Result<M>) -> Result<M> {
    let quantization = four_bits();
    let mut quiet = |_| ControlFlow::Continue(());
    Weights::build(memory, Some(&quantization), storage, &mut quiet, construct)
}

/// Every bit pattern of a packed weight, those of NaN among them.
fn packed() -> Memory {
    let words: Vec<u32> = (0..64 * 4u32).map(|i| i.wrapping_mul(0x9E37_79B9) ^ 0x7FC0_0001).collect();
    let scales: Vec<half::f16> = (0..64).map(|i| half::f16::from_f32(0.01 * (i as f32 - 30.0))).collect();
    Memory::default()
        .with("m.weight", &Array::from_slice(&words, &[64, 4]).unwrap())
        .with("m.scales", &Array::from_slice(&scales, &[64, 1]).unwrap())
        .with("m.biases", &Array::from_slice(&scales, &[64, 1]).unwrap())
}

/// The stream's type is for floats: packed weights come through bit for bit, whatever it is.
#[test]
fn packed_weights_are_never_cast() {
    let memory = packed();
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        for (compute, scales) in [(Compute::Mlx, dtype), (Compute::Own(Precision::Exact), Dtype::F16)] {
            let matrix = built(&memory, Storage { dtype, compute }, |w| w.at("m").matrix(64, 32)).unwrap();
            let Matrix::Packed(Packed { q, format, compute: kept }) = matrix else { panic!("it was unpacked") };
            assert_eq!((format, kept), (Affine { bits: 4, group_size: 32 }, compute));
            let words: Vec<u32> = q.weight.to_vec().unwrap();
            assert_eq!(bytemuck::cast_slice::<u32, u8>(&words), memory.0["m.weight"].2);
            assert_eq!((q.scales.dtype(), q.biases.dtype()), (scales, scales));
        }
    }
}

/// Nor are matrices of floats that our kernels compute with; what they give is of the stream's type.
#[test]
fn stored_matrices_are_never_cast() {
    use crate::nn::{Embedding, Fan, Linear};
    for stored in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let values: Vec<f32> = (0..12).map(|i| i as f32 / 4.0).collect();
        let w = Array::from_slice(&values, &[4, 3]).unwrap().astype(stored).unwrap();
        let memory = Memory::default().with("m.weight", &w);
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let storage = Storage { dtype, compute: Compute::Own(Precision::Fast) };
            let Matrix::Stored(kept) = built(&memory, storage, |w| w.at("m").matrix(4, 3)).unwrap() else {
                panic!("not as it is stored")
            };
            assert_eq!((kept.dtype(), kept.to_f32().unwrap()), (stored, values.clone()));
            let ids = Array::from_slice(&[2u32, 0], &[1, 2]).unwrap();
            let embedding = built(&memory, storage, |w| Embedding::new(&w.at("m"), 4, 3)).unwrap();
            let rows = embedding.forward(&ids).unwrap();
            assert_eq!((rows.dtype(), rows.to_f32().unwrap()), (dtype, vec![1.5, 1.75, 2.0, 0.0, 0.25, 0.5]));
            let x = Array::from_slice(&[1f32, 0.0, 2.0], &[1, 1, 3]).unwrap().astype(dtype).unwrap();
            let expected = vec![1.0, 3.25, 5.5, 7.75];
            let one = built(&memory, storage, |w| Linear::new(&w.at("m"), 3, 4, false)).unwrap().forward(&x).unwrap();
            assert_eq!((one.dtype(), one.to_f32().unwrap()), (dtype, expected.clone()));
            let tied = embedding.as_linear().unwrap().forward(&x).unwrap();
            assert_eq!(tied.to_f32().unwrap(), expected);
            // In one matrix, and for several rows in its parts.
            let fan = built(&memory, storage, |w| Fan::new(w, 3, &[("m", 4)], false)).unwrap();
            assert_eq!(fan.forward(&x).unwrap()[0].to_f32().unwrap(), expected);
        }
    }
}

#[test]
fn floats_take_the_streams_type() {
    for stored in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let memory = Memory::default().with("norm", &Array::scalar(1.5, stored).unwrap().reshape(&[1]).unwrap());
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let tensor = built(&memory, Storage { dtype, compute: Compute::Mlx }, |w| w.tensor("norm", &[1])).unwrap();
            assert_eq!((tensor.dtype(), tensor.to_f32().unwrap()), (dtype, vec![1.5]));
        }
    }
}

/// What is no float where a float belongs (8-bit scales of a mode that this version lacks, say) is refused, not cast.
#[test]
fn integers_are_refused_where_floats_belong() {
    let bytes = Array::from_slice(&[200u8; 64], &[64, 1]).unwrap();
    let storage = Storage { dtype: Dtype::Bf16, compute: Compute::Mlx };
    for name in ["m.scales", "m.biases"] {
        let e = built(&packed().with(name, &bytes), storage, |w| w.at("m").matrix(64, 32)).unwrap_err();
        assert!(e.to_string().contains(&format!("{name} has type u8")), "{e}");
    }
    let memory = Memory::default().with("norm", &bytes);
    let e = built(&memory, storage, |w| w.tensor("norm", &[64, 1])).unwrap_err();
    assert!(e.to_string().contains("norm has type u8"), "{e}");
    // And a float where packed words belong.
    let floats = Array::zeros(&[64, 4], Dtype::F32).unwrap();
    let e = built(&packed().with("m.weight", &floats), storage, |w| w.at("m").matrix(64, 32)).unwrap_err();
    assert!(e.to_string().contains("m.weight has type f32"), "{e}");
}

/// Nothing is read while the rehearsal has a complaint, and all complaints come at once.
#[test]
fn all_problems_are_named_before_anything_is_read() {
    let memory = packed().with("extra", &Array::zeros(&[1], Dtype::F32).unwrap());
    let quantization = four_bits();
    let mut reads = 0;
    let mut count = |_| {
        reads += 1;
        ControlFlow::Continue(())
    };
    let storage = Storage { dtype: Dtype::F32, compute: Compute::Plain };
    let result = Weights::build(&memory, Some(&quantization), storage, &mut count, |w| {
        w.tensor("gone", &[3])?;
        w.at("m").matrix(64, 64)
    });
    let text = result.unwrap_err().to_string();
    for problem in ["missing: gone", "m.weight has shape [64, 4], not [64, 8]", "m.scales has shape", "unexpected: extra"] {
        assert!(text.contains(problem), "{text}");
    }
    assert_eq!(reads, 0);
}

#[test]
fn a_load_stops_where_it_is_told() {
    let memory = packed();
    let quantization = four_bits();
    for stop in 1..4 {
        let mut reads = 0;
        let mut last = 0;
        let mut count = |bytes| {
            assert!(bytes > last);
            last = bytes;
            reads += 1;
            if reads == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let storage = Storage { dtype: Dtype::F32, compute: Compute::Plain };
        let result = Weights::build(&memory, Some(&quantization), storage, &mut count, |w| w.at("m").matrix(64, 32));
        assert!(matches!(result, Err(Error::Cancelled)));
        assert_eq!(reads, stop);
    }
}
