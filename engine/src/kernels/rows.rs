//! What kernels that work row by row share: the float types, views as rows, outputs that several threads write.

use std::borrow::Cow;
use std::cell::Cell;
use std::mem::MaybeUninit;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use mlx::cpu::{Input, Output};
use mlx::{Array, Dtype, Element};

use super::pool;

/// A type that a stream of activations may have; computed with as f32.
pub(super) trait Float: Element + Send + Sync {
    fn narrow(x: f32) -> Self;
    /// `from` as f32, of the same length.
    fn widen(from: &[Self], to: &mut [f32]);
    /// As f32, in `spare` unless they lie so.
    fn wide<'a>(from: &'a [Self], spare: &'a mut Vec<f32>) -> &'a [f32] {
        spare.resize(from.len(), 0.0);
        Self::widen(from, spare);
        spare
    }
}

impl Float for f32 {
    fn narrow(x: f32) -> Self {
        x
    }

    fn widen(from: &[Self], to: &mut [f32]) {
        to.copy_from_slice(from);
    }

    fn wide<'a>(from: &'a [Self], _: &'a mut Vec<f32>) -> &'a [f32] {
        from
    }
}

impl Float for f16 {
    fn narrow(x: f32) -> Self {
        Self::from_f32(x)
    }

    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }
}

impl Float for bf16 {
    fn narrow(x: f32) -> Self {
        Self::from_f32(x)
    }

    fn widen(from: &[Self], to: &mut [f32]) {
        // Its bits are the upper half of an f32's.
        to.iter_mut().zip(from).for_each(|(to, x)| *to = f32::from_bits(u32::from(x.to_bits()) << 16));
    }
}

/// Calls a function that is generic over the stream's type.
macro_rules! of_type {
    ($dtype:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $dtype {
            mlx::Dtype::F32 => $function::<f32>($($argument),*),
            mlx::Dtype::F16 => $function::<half::f16>($($argument),*),
            mlx::Dtype::Bf16 => $function::<half::bf16>($($argument),*),
            other => Err(format!("takes floats, not {other}")),
        }
    };
}
pub(super) use of_type;

/// Writes all of `to`.
pub(super) fn put<T: Float>(from: &[f32], to: &mut [MaybeUninit<T>]) {
    assert!(from.len() == to.len());
    for (to, x) in to.iter_mut().zip(from) {
        to.write(T::narrow(*x));
    }
}

/// An array [.., width] as rows, where they lie.
pub(super) struct Rows<'a, T: Element> {
    all: Cow<'a, [T]>,
    first: i64,
    /// Length and stride of each axis but the last.
    axes: Vec<(usize, i64)>,
    pub count: usize,
    pub width: usize,
}

impl<'a, T: Element> Rows<'a, T> {
    /// Copies where the elements of a row do not lie side by side.
    pub fn new(input: &Input<'a>) -> Result<Self, String> {
        let Some((&width, outer)) = input.shape().split_last() else { return Err("takes rows, not a scalar".into()) };
        let (width, outer) = (width as usize, outer.iter().map(|&n| n as usize));
        let count = outer.clone().product();
        if width <= 1 || input.strides().last() == Some(&1) {
            let (all, first) = input.span()?;
            let axes = outer.zip(input.strides().iter().copied()).collect();
            return Ok(Self { all: Cow::Borrowed(all), first: first as i64, axes, count, width });
        }
        let axes = vec![(count, width as i64)];
        Ok(Self { all: input.dense()?, first: 0, axes, count, width })
    }

    /// `index` is below `count`, in row-major order.
    pub fn row(&self, index: usize) -> &[T] {
        let (mut place, mut index) = (self.first, index);
        for (n, stride) in self.axes.iter().rev() {
            place += (index % n) as i64 * stride;
            index /= n;
        }
        &self.all[place as usize..][..self.width]
    }
}

/// An output that several threads write, each a part of its own.
pub(super) struct Shared<T>(*mut MaybeUninit<T>, usize);

// SAFETY: `part` is only called for elements that no other thread writes or reads.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub fn new(all: &mut [MaybeUninit<T>]) -> Self {
        Self(all.as_mut_ptr(), all.len())
    }

    /// # Safety
    /// Nobody else uses these elements now, and what this was made from is still borrowed.
    #[allow(clippy::mut_from_ref, reason = "parts do not overlap")]
    pub unsafe fn part(&self, start: usize, len: usize) -> &mut [MaybeUninit<T>] {
        assert!(start <= self.1 && len <= self.1 - start);
        // SAFETY: in bounds, and the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}

thread_local! {
    static SPARE: Cell<[Vec<f32>; 3]> = const { Cell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

/// Room for rows, which each thread keeps, because allocating it is as much work as a short row.
pub(super) fn with_spare(work: impl FnOnce(&mut [Vec<f32>; 3])) {
    let mut spare = SPARE.take();
    work(&mut spare);
    SPARE.set(spare);
}

/// Elements that are worth a second thread.
const SHARE: usize = 1 << 15;

/// Calls `work` with ranges that make up 0..count, on several threads where `elements` are many.
pub(super) fn in_blocks(count: usize, elements: usize, work: &(dyn Fn(std::ops::Range<usize>) + Sync)) {
    let pool = pool::current();
    let block = if elements < SHARE { count } else { count.div_ceil(pool.threads() * 4) }.max(1);
    pool.run(count.div_ceil(block), &|i| work(i * block..count.min((i + 1) * block)));
}

/// Refuses outputs whose type is not the inputs'.
pub(super) fn of_one_type(inputs: &[Input<'_>], outputs: &[Output<'_>]) -> Result<Dtype, String> {
    let dtype = outputs[0].dtype();
    match inputs.iter().find(|input| input.dtype() != dtype) {
        Some(other) => Err(format!("takes arrays of one type, not {dtype} and {}", other.dtype())),
        None => Ok(dtype),
    }
}

#[track_caller]
pub(super) fn one(mut outputs: Vec<Array>) -> mlx::Result<Array> {
    Ok(outputs.pop().expect("a kernel has the outputs that it was called for"))
}

#[track_caller]
pub(super) fn two(outputs: Vec<Array>) -> mlx::Result<(Array, Array)> {
    let [first, second] = <[Array; 2]>::try_from(outputs).expect("a kernel has the outputs that it was called for");
    Ok((first, second))
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Numbers in [-1, 1) that anybody gets again.
    pub fn numbers(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    pub fn typed(data: &[f32], shape: &[usize], dtype: Dtype) -> Array {
        Array::from_slice(data, shape).unwrap().astype(dtype).unwrap()
    }

    /// Views of an array that is not a list: other orders of its axes, parts of each.
    pub fn views(x: &Array) -> Vec<Array> {
        let n = x.ndim();
        if n < 2 || x.size() == 0 {
            return Vec::new();
        }
        let part = |axis: i32| x.slice(axis, x.dim(axis) / 3, x.dim(axis)).unwrap();
        let mut all = vec![part(0), part(-1), part(-2)];
        let mut order: Vec<i32> = (0..n as i32).collect();
        order.swap(n - 1, n - 2);
        all.push(x.transpose(&order).unwrap());
        if n > 2 {
            order.swap(n - 1, n - 2);
            order.swap(0, n - 2);
            all.push(x.transpose(&order).unwrap());
        }
        all
    }

    #[track_caller]
    pub fn close(a: &Array, b: &Array, allowed: f32) {
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()));
        for (a, b) in a.to_f32().unwrap().into_iter().zip(b.to_f32().unwrap()) {
            assert!((a - b).abs() <= allowed, "{a} is not {b} +- {allowed}");
        }
    }
}
