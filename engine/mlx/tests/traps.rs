//! The traps of calling MLX from Rust, each as a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mlx::{Array, Dtype};

/// mlx-c's default error handler exits the process; ours makes an error that names the place in Rust.
#[test]
fn an_error_is_a_value_that_says_where() {
    let a = Array::from_slice(&[1f32, 2.0], &[1, 2]).unwrap();
    let e = a.matmul(&a).unwrap_err();
    assert!(e.message().contains("(1,2)"), "{e}");
    assert!(e.to_string().contains("traps.rs"), "{e}");
}

#[test]
fn errors_stay_on_their_thread() {
    let threads: Vec<_> = (2..6)
        .map(|n: usize| {
            std::thread::spawn(move || {
                let a = Array::from_slice(&vec![0f32; n], &[1, n]).unwrap();
                for _ in 0..200 {
                    let e = a.matmul(&a).unwrap_err();
                    assert!(e.message().contains(&format!("(1,{n})")), "{e}");
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
}

/// `Array` is not `Send`, so the compiler refuses what MLX could only refuse at run time. The control shows that the check works.
#[test]
fn arrays_cannot_leave_their_thread() {
    trait Probe {
        fn is_send(&self) -> bool;
    }
    struct Holder<T>(std::marker::PhantomData<T>);
    // An inherent method wins over the trait's: it exists only for types that are Send.
    impl<T: Send> Holder<T> {
        fn is_send(&self) -> bool {
            true
        }
    }
    impl<T> Probe for Holder<T> {
        fn is_send(&self) -> bool {
            false
        }
    }
    assert!(!Holder::<Array>(std::marker::PhantomData).is_send());
    assert!(Holder::<Vec<f32>>(std::marker::PhantomData).is_send());
}

#[test]
fn reading_evaluates_and_honours_strides() {
    let a = Array::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    assert_eq!(a.t().unwrap().to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let e = a.to_vec::<u32>().unwrap_err();
    assert!(e.message().contains("f32 was read as u32"), "{e}");
}

#[test]
fn bytes_must_fill_the_shape() {
    assert!(Array::from_bytes(&[0; 7], &[2], Dtype::F32).is_err());
    assert!(Array::from_bytes(&[0; 8], &[usize::MAX, usize::MAX], Dtype::F32).is_err());
    assert!(Array::from_bytes(&[], &[1 << 40, 0], Dtype::F32).is_err());
}

#[test]
fn scalars_adopt_the_operands_type() {
    for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32] {
        let x = Array::from_slice(&[2f32; 4], &[4]).unwrap().astype(dtype).unwrap();
        assert_eq!(x.mul_scalar(0.5).unwrap().add_scalar(1.0).unwrap().dtype(), dtype);
    }
    // The control: a strong f32 scalar widens the stream.
    let x = Array::from_slice(&[2f32; 4], &[4]).unwrap().astype(Dtype::Bf16).unwrap();
    assert_eq!(x.mul(&Array::scalar(0.5, Dtype::F32).unwrap()).unwrap().dtype(), Dtype::F32);
}

struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn external_memory_is_dropped_exactly_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    for _ in 0..50 {
        let a = Array::from_owner(Counted(vec![1; 64], drops.clone()), |o| &o.0, &[64], Dtype::U8).unwrap();
        let twice = a.clone();
        drop(a);
        assert_eq!(twice.to_vec::<u8>().unwrap(), vec![1; 64]);
    }
    assert_eq!(drops.load(Ordering::SeqCst), 50);
    // A construction that fails drops its owner once, too.
    assert!(Array::from_owner(Counted(vec![1; 64], drops.clone()), |o| &o.0, &[65], Dtype::U8).is_err());
    assert_eq!(drops.load(Ordering::SeqCst), 51);
}

/// Where there is no GPU backend, a kernel cannot be constructed: an error each time, and memory does not grow.
#[test]
#[cfg(target_os = "linux")]
fn a_failed_kernel_construction_leaks_nothing() {
    use mlx::kernel;

    if mlx::gpu_available() {
        return;
    }
    let resident = || {
        let pages: usize = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    };
    let body = "x".repeat(100_000);
    let names: Vec<String> = (0..100).map(|i| format!("input_{i}_{}", "y".repeat(100))).collect();
    let inputs: Vec<&str> = names.iter().map(String::as_str).collect();
    let construct = || {
        let source = kernel::Source { name: "k", inputs: &inputs, outputs: &["out"], header: "", body: &body };
        assert!(kernel::Kernel::new(source).is_err());
    };
    (0..200).for_each(|_| construct());
    let before = resident();
    (0..2000).for_each(|_| construct()); // 2,000 x 110 kB would be 220 MB
    let grown = resident().saturating_sub(before);
    assert!(grown < 20 << 20, "{grown} bytes");
}

#[test]
fn greedy_ties_go_to_the_lowest_index() {
    let mut logits = vec![0f32; 5000];
    for i in [4999, 3000, 77, 78] {
        logits[i] = 5.0;
    }
    let a = Array::from_slice(&logits, &[1, 5000]).unwrap();
    assert_eq!(a.argmax(-1, false).unwrap().item::<u32>().unwrap(), 77);
}
