//! Which operations ran: for tests that look at every intermediate result, not only at the last.

use std::cell::{Cell, RefCell};
use std::panic::Location;

use crate::array::Array;
use crate::dtype::Dtype;

/// The result of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub dtype: Dtype,
    pub shape: Vec<i32>,
    /// Who asked for it.
    pub at: &'static Location<'static>,
}

thread_local! {
    // Apart from the list, so that an operation costs one look where nothing records.
    static ON: Cell<bool> = const { Cell::new(false) };
    static RESULTS: RefCell<Vec<Recorded>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` and lists the results of all operations that it builds on this thread, in order. What happens inside an operation is
/// MLX's; arrays made from data are not operations. Not to be nested: the inner call would take the outer's list.
pub fn record<R>(work: impl FnOnce() -> R) -> (R, Vec<Recorded>) {
    /// Also on a panic.
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            ON.set(false);
        }
    }
    RESULTS.take();
    ON.set(true);
    let off = Off;
    let result = work();
    drop(off);
    (result, RESULTS.take())
}

#[inline]
#[track_caller]
pub(crate) fn note(result: &Array) {
    if ON.get() {
        let recorded = Recorded { dtype: result.dtype(), shape: result.shape().to_vec(), at: Location::caller() };
        RESULTS.with_borrow_mut(|all| all.push(recorded));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_listed_with_their_place() {
        let two = Array::scalar(2.0, Dtype::Bf16).unwrap();
        let before = two.add(&two).unwrap();
        let (line, results) = record(|| {
            before.mul_scalar(3.0).unwrap().astype(Dtype::F32).unwrap();
            two.mul(&Array::from_slice(&[1f32, 2.0], &[2]).unwrap()).unwrap();
            line!() - 1
        });
        let facts: Vec<_> = results.iter().map(|r| (r.dtype, r.shape.as_slice(), r.at.line())).collect();
        assert_eq!(facts, [(Dtype::Bf16, &[][..], line - 1), (Dtype::F32, &[], line - 1), (Dtype::F32, &[2], line)]);
        assert!(results.iter().all(|r| r.at.file().ends_with("record.rs")));
        // Neither what came before nor what comes after, nor other threads' work.
        two.add(&two).unwrap();
        let elsewhere = || {
            let one = Array::scalar(1.0, Dtype::F32).unwrap();
            one.add(&one).unwrap();
        };
        assert_eq!(record(|| std::thread::spawn(elsewhere).join().unwrap()).1, []);
    }

    #[test]
    fn a_panic_ends_the_recording() {
        let panicked = std::panic::catch_unwind(|| record(|| panic!("in the middle")));
        assert!(panicked.is_err());
        let one = Array::scalar(1.0, Dtype::F32).unwrap();
        one.add(&one).unwrap();
        assert_eq!(record(|| ()).1, []);
    }
}
