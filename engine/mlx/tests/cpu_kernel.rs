//! Rust functions as nodes of MLX's graph.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use mlx::cpu::CpuKernel;
use mlx::{Array, Dtype, async_eval, record};

fn array(data: &[f32], shape: &[usize]) -> Array {
    Array::from_slice(data, shape).unwrap()
}

/// y = x², and how often it ran.
fn square() -> (CpuKernel, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let kernel = CpuKernel::new("square", move |inputs, outputs| {
        counted.fetch_add(1, Ordering::SeqCst);
        let x = inputs[0].dense::<f32>()?;
        outputs[0].slice::<f32>()?.iter_mut().zip(&*x).for_each(|(y, x)| *y = x * x);
        Ok(())
    });
    (kernel.unwrap(), runs)
}

fn apply(kernel: &CpuKernel, x: &Array) -> Array {
    kernel.call([x], &[(x.shape(), x.dtype())]).unwrap().pop().unwrap()
}

fn failing(text: &'static str) -> CpuKernel {
    CpuKernel::new("failing", move |_, outputs| {
        outputs[0].slice::<f32>()?.fill(7.0);
        Err(text.into())
    })
    .unwrap()
}

#[test]
fn it_runs_when_it_is_evaluated_between_operations_of_mlx() {
    let (kernel, runs) = square();
    let x = array(&[1.0, 2.0, 3.0], &[3]);
    let y = apply(&kernel, &x.add_scalar(1.0).unwrap()).mul_scalar(0.5).unwrap();
    let z = apply(&kernel, &y);
    assert_eq!((z.shape(), z.dtype()), (&[3][..], Dtype::F32));
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert_eq!(z.to_vec::<f32>().unwrap(), [4.0, 20.25, 64.0]);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    // What is evaluated stays so.
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 4.5, 8.0]);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// A long chain, so that a task that ran early or late would show.
#[test]
fn it_keeps_to_the_order_of_the_stream() {
    let step = CpuKernel::new("step", |inputs, outputs| {
        let (y, x) = (outputs[0].slice::<f32>()?, inputs[0].dense::<f32>()?);
        // Some run longer than others.
        std::thread::sleep(std::time::Duration::from_micros(x[0] as u64 % 7 * 30));
        y.iter_mut().zip(&*x).for_each(|(y, x)| *y = x + 1.0);
        Ok(())
    })
    .unwrap();
    let mut x = Array::zeros(&[1000], Dtype::F32).unwrap();
    for i in 0..100 {
        x = apply(&step, &x).add_scalar(1.0).unwrap();
        if i % 10 == 0 {
            async_eval([&x]).unwrap();
        }
    }
    assert_eq!(x.to_vec::<f32>().unwrap(), [200.0; 1000]);
}

#[test]
fn inputs_come_as_they_lie() {
    type Seen = (Vec<i32>, Vec<i64>, bool, f32);
    let seen: Arc<std::sync::Mutex<Option<Seen>>> = Arc::default();
    let to = seen.clone();
    let kernel = CpuKernel::new("look", move |inputs, outputs| {
        let x = &inputs[0];
        let (all, first) = x.span::<f32>()?;
        // The last element by its strides, the others through the copy.
        let last = x.shape().iter().zip(x.strides()).map(|(&d, s)| (i64::from(d) - 1) * s).sum::<i64>() + first as i64;
        *to.lock().unwrap() = Some((x.shape().into(), x.strides().into(), x.is_dense(), all[last as usize]));
        outputs[0].slice::<f32>()?.copy_from_slice(&x.dense::<f32>()?);
        Ok(())
    })
    .unwrap();
    let data: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let x = array(&data, &[4, 6]);
    let row = array(&data[..3], &[3]).reshape(&[1, 3]).unwrap();
    let cases: [(Array, &[i64], bool); 6] = [
        (x.clone(), &[6, 1], true),
        (x.t().unwrap(), &[1, 6], false),
        (x.slice(1, 1, 4).unwrap(), &[6, 1], false),
        (x.slice(0, 1, 3).unwrap(), &[6, 1], true),
        (x.slice(1, 2, 5).unwrap().t().unwrap(), &[1, 6], false),
        (row.broadcast_to(&[4, 3]).unwrap(), &[0, 1], false),
    ];
    for (view, strides, dense) in cases {
        let expected = view.to_vec::<f32>().unwrap();
        // Anew, so that the kernel meets it unevaluated in the graph.
        let y = apply(&kernel, &view);
        assert_eq!(y.to_vec::<f32>().unwrap(), expected, "{view:?}");
        let (shape, found, is_dense, last) = seen.lock().unwrap().take().unwrap();
        assert_eq!((&*shape, &*found, is_dense), (view.shape(), strides, dense));
        assert_eq!(last, *expected.last().unwrap());
    }
}

#[test]
fn empty_arrays_and_scalars() {
    let (kernel, runs) = square();
    let empty = apply(&kernel, &Array::zeros(&[3, 0, 2], Dtype::F32).unwrap());
    assert_eq!(empty.to_vec::<f32>().unwrap(), [0f32; 0]);
    assert_eq!(empty.shape(), [3, 0, 2]);
    assert_eq!(apply(&kernel, &Array::scalar(3.0, Dtype::F32).unwrap()).item::<f32>().unwrap(), 9.0);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    // No inputs at all.
    let source = CpuKernel::new("source", |inputs, outputs| {
        assert!(inputs.is_empty());
        outputs[0].slice::<u32>()?.copy_from_slice(&[1, 2]);
        Ok(())
    });
    let made = source.unwrap().call([], &[(&[2], Dtype::U32)]).unwrap();
    assert_eq!(made[0].to_vec::<u32>().unwrap(), [1, 2]);
}

#[test]
fn several_outputs_of_several_types() {
    let kernel = CpuKernel::new("split", |inputs, outputs| {
        let x = inputs[0].dense::<f32>()?;
        let [whole, rest] = outputs else { return Err("two outputs".into()) };
        whole.slice::<i32>()?.iter_mut().zip(&*x).for_each(|(y, x)| *y = x.floor() as i32);
        rest.slice::<f32>()?[0] = x.iter().map(|x| x.fract()).sum();
        Ok(())
    })
    .unwrap();
    let x = array(&[1.5, 2.25], &[2]);
    let outputs: [(&[i32], Dtype); 2] = [(&[2, 1], Dtype::I32), (&[], Dtype::F32)];
    let (parts, results) = record(|| kernel.call([&x], &outputs).unwrap());
    let noted: Vec<_> = results.iter().map(|r| (r.dtype, &*r.shape)).collect();
    assert_eq!(noted, [(Dtype::I32, &[2, 1][..]), (Dtype::F32, &[])]);
    // One of them alone, and the other later.
    assert_eq!(parts[1].item::<f32>().unwrap(), 0.75);
    assert_eq!(parts[0].to_vec::<i32>().unwrap(), [1, 2]);
    // The second is dropped unevaluated.
    let first = kernel.call([&x], &outputs).unwrap().swap_remove(0);
    assert_eq!(first.add(&first).unwrap().to_vec::<i32>().unwrap(), [2, 4]);
}

#[test]
fn an_error_is_that_of_the_evaluation() {
    let x = array(&[1.0, 2.0], &[2]);
    let (fine, runs) = square();
    for _ in 0..20 {
        let y = apply(&failing("50 % of nothing: {}"), &x.add_scalar(1.0).unwrap());
        let z = y.add_scalar(1.0).unwrap();
        let e = z.to_vec::<f32>().unwrap_err();
        assert!(e.message().contains("[failing] 50 % of nothing: {}"), "{e}");
        assert!(e.to_string().contains("cpu_kernel.rs"), "{e}");
        // The stream goes on.
        assert_eq!(apply(&fine, &x).to_vec::<f32>().unwrap(), [1.0, 4.0]);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 20);
}

#[test]
fn a_panic_is_an_error_too() {
    let x = array(&[1.0, 2.0], &[2]);
    for _ in 0..3 {
        let panicking = CpuKernel::new("panicking", |inputs, _| panic!("index {}", inputs[0].size())).unwrap();
        let e = apply(&panicking, &x).eval().unwrap_err();
        assert!(e.message().contains("[panicking] panicked: index 2"), "{e}");
    }
    assert_eq!(x.add(&x).unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
}

#[test]
fn a_wrong_type_is_an_error() {
    let (kernel, _) = square();
    let e = apply(&kernel, &Array::zeros(&[2], Dtype::Bf16).unwrap()).eval().unwrap_err();
    assert!(e.message().contains("[square] an array of bf16 was taken as f32"), "{e}");
    let x = array(&[1.0], &[1]);
    assert!(kernel.call([&x], &[(&[-1], Dtype::F32)]).is_err());
    assert!(kernel.call([&x], &[(&[i32::MAX, i32::MAX, i32::MAX], Dtype::F32)]).is_err());
}

/// An error is told once. What it leaves behind must not look like a result to the others that wait.
#[test]
fn an_error_of_what_was_submitted_ahead_is_not_lost() {
    let x = array(&[1.0, 2.0], &[2]);
    let spoilt = |y: &Array| y.to_vec::<f32>().unwrap().iter().all(|v| v.is_nan());
    for _ in 0..20 {
        let y = apply(&failing("too early"), &x);
        let z = y.add_scalar(1.0).unwrap();
        async_eval([&z]).unwrap();
        let next = z.mul_scalar(2.0).unwrap();
        async_eval([&next]).unwrap();
        let e = next.to_vec::<f32>().unwrap_err();
        assert!(e.message().contains("too early"), "{e}");
        assert!(spoilt(&next) && spoilt(&z) && spoilt(&y));
        assert_eq!(x.add(&x).unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
    }
    // Nobody reads it: whoever waits next is told.
    async_eval([&apply(&failing("forgotten"), &x)]).unwrap();
    let told = mlx::synchronize().unwrap_err();
    assert!(told.message().contains("forgotten"), "{told}");
    assert!(mlx::synchronize().is_ok());
    // Of several, the first.
    let two = apply(&failing("two"), &apply(&failing("one"), &x));
    assert!(mlx::eval([&two]).unwrap_err().message().contains("] one"));
    assert!(mlx::eval([&two]).is_ok());
}

#[test]
fn what_a_failure_leaves_is_no_result() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let kernel = CpuKernel::new("late", |_, _| Err("late".into())).unwrap();
        let outputs = kernel.call([], &[(&[3], dtype), (&[3], Dtype::U32)]).unwrap();
        assert!(outputs[0].eval().is_err());
        assert!(outputs[0].to_f32().unwrap().iter().all(|v| v.is_nan()));
        assert_eq!(outputs[1].to_vec::<u32>().unwrap(), [0; 3]);
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_function_is_dropped_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let x = array(&[1.0, 2.0], &[2]);
    let kernel = |fails: bool| {
        let counted = Counted(drops.clone());
        CpuKernel::new("counted", move |_, outputs| {
            let _ = &counted;
            outputs[0].slice::<f32>()?.fill(1.0);
            if fails { Err("no".into()) } else { Ok(()) }
        })
        .unwrap()
    };
    let count = || drops.load(Ordering::SeqCst);
    // Never evaluated, some of them in graphs of several.
    for _ in 0..500 {
        let k = kernel(false);
        let _ = apply(&k, &apply(&k, &x)).add_scalar(1.0).unwrap();
    }
    assert_eq!(count(), 500);
    let outputs: [(&[i32], Dtype); 2] = [(&[2], Dtype::F32), (&[2], Dtype::F32)];
    for _ in 0..500 {
        drop(kernel(false).call([&x], &outputs).unwrap());
    }
    assert_eq!(count(), 1000);
    // Evaluated, failed, and refused when they were made.
    for fails in [false, true] {
        for _ in 0..50 {
            assert_eq!(apply(&kernel(fails), &x).eval().is_err(), fails);
        }
    }
    assert!(kernel(false).call([&x], &[(&[-1], Dtype::F32)]).is_err());
    // A task may outlive its evaluation's end by a moment.
    mlx::synchronize().unwrap();
    assert_eq!(count(), 1101);
    // Submitted, then forgotten.
    for _ in 0..50 {
        async_eval([&apply(&kernel(false), &x)]).unwrap();
    }
    mlx::synchronize().unwrap();
    assert_eq!(count(), 1151);
}

#[test]
fn threads_have_streams_of_their_own() {
    // Both functions must be running at one time to pass.
    let meet = Arc::new(Barrier::new(2));
    let threads: Vec<_> = (0..2)
        .map(|i| {
            let meet = meet.clone();
            std::thread::spawn(move || {
                mlx::use_device(mlx::Device::Cpu).unwrap();
                let kernel = CpuKernel::new("meet", move |inputs, outputs| {
                    meet.wait();
                    let x = inputs[0].dense::<f32>()?[0];
                    outputs[0].slice::<f32>()?[0] = x * 2.0;
                    if x == 8.0 { Err(format!("thread {i}")) } else { Ok(()) }
                })
                .unwrap();
                for x in 0..9 {
                    let y = apply(&kernel, &array(&[x as f32], &[1])).to_vec::<f32>();
                    match x {
                        8 => assert!(y.unwrap_err().message().contains(&format!("thread {i}"))),
                        _ => assert_eq!(y.unwrap(), [2.0 * x as f32]),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}
