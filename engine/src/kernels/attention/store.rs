//! Where the keys and values of a layer are. The memory is ours, not an array: kernels run in the order in which their calls depend
//! on each other, so what has been appended is written once, where it stays.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use half::{bf16, f16};
use simd::attention::{BLOCK, PAGE, Page, key_at, padded};

use super::super::rows::Float;
use super::{Fresh, share};

/// Keys and values of one layer, in the type of the first that were appended.
#[derive(Default)]
pub struct Store {
    held: Held,
    kv_heads: usize,
    width: usize,
    /// Positions that are filled.
    len: usize,
    /// Its part of [`held_bytes`].
    bytes: usize,
}

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Bytes of all stores of the process, of which MLX does not know.
pub fn held_bytes() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// The most that [`held_bytes`] has been.
pub fn most_held_bytes() -> usize {
    MOST.load(Ordering::Relaxed)
}

impl Drop for Store {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Default)]
enum Held {
    #[default]
    Nothing,
    F32(Vec<Box<[f32]>>),
    F16(Vec<Box<[f16]>>),
    Bf16(Vec<Box<[bf16]>>),
}

/// A type that is stored. A page has, for each head, its keys and then its values, as [`Page`] wants them.
pub(super) trait Stored: Float {
    fn pages(store: &mut Store) -> Option<&mut Vec<Box<[Self]>>>;
}

macro_rules! stored {
    ($($type:ty, $variant:ident)*) => {
        $(impl Stored for $type {
            fn pages(store: &mut Store) -> Option<&mut Vec<Box<[Self]>>> {
                if let Held::Nothing = store.held {
                    store.held = Held::$variant(Vec::new());
                }
                if let Held::$variant(pages) = &mut store.held { Some(pages) } else { None }
            }
        })*
    };
}
stored!(f32, F32 f16, F16 bf16, Bf16);

/// Elements that a head has in a page.
fn head_len(width: usize) -> usize {
    PAGE * (width + padded(width))
}

impl Store {
    /// Elements that are allocated for so many tokens.
    pub fn room(tokens: usize, kv_heads: usize, width: usize) -> usize {
        tokens.div_ceil(PAGE) * kv_heads * head_len(width)
    }

    /// Writes the keys and values of new tokens.
    pub(super) fn append<T: Stored>(&mut self, new: &Fresh<'_, T>) -> Result<Pages<'_, T>, String> {
        let (kv_heads, width, tokens) = (new.plan.kv_heads, new.plan.width, new.rows.count);
        if new.before > self.len {
            return Err(format!("{} of {} tokens that came before are missing", new.before - self.len, new.before));
        }
        let end = new.before + tokens;
        let first = self.held_anything().then_some((self.kv_heads, self.width));
        if first.is_some_and(|first| first != (kv_heads, width)) {
            return Err(format!("{kv_heads} heads of {width} cannot be appended to {} of {}", self.kv_heads, self.width));
        }
        (self.kv_heads, self.width) = (kv_heads, width);
        self.grow::<T>(end)?;
        // What fails from here on leaves what came before.
        self.len = new.before;
        let Some(pages) = T::pages(self) else { return Err("the cache has no pages".into()) };
        let touched: Vec<_> =
            pages.iter_mut().enumerate().take(end.div_ceil(PAGE)).skip(new.before / PAGE).map(Mutex::new).collect();
        share(tokens * kv_heads * width * 8, touched.len(), &|i| {
            let mut page = touched[i].lock().unwrap_or_else(PoisonError::into_inner);
            let (index, page) = &mut *page;
            fill(new, *index, page);
        });
        drop(touched);
        self.len = end;
        let Some(all) = T::pages(self) else { return Err("the cache has no pages".into()) };
        Ok(Pages { all: &all[..end.div_ceil(PAGE)], width })
    }

    /// Room for so many positions.
    fn grow<T: Stored>(&mut self, positions: usize) -> Result<(), String> {
        let elements = self.kv_heads * head_len(self.width);
        loop {
            let Some(pages) = T::pages(self) else { return Err(format!("the cache is not of {}", T::DTYPE)) };
            if pages.len() * PAGE >= positions {
                return Ok(());
            }
            let mut page = Vec::new();
            page.try_reserve_exact(elements).map_err(|_| format!("no memory for {positions} positions"))?;
            page.resize(elements, T::narrow(0.0));
            pages.push(page.into());
            let bytes = elements * size_of::<T>();
            self.bytes += bytes;
            MOST.fetch_max(HELD.fetch_add(bytes, Ordering::Relaxed) + bytes, Ordering::Relaxed);
        }
    }

    fn held_anything(&self) -> bool {
        !matches!(self.held, Held::Nothing)
    }
}

/// Writes those of the new tokens that belong to this page.
fn fill<T: Float>(new: &Fresh<'_, T>, index: usize, page: &mut [T]) {
    let (plan, width, wide) = (new.plan, new.plan.width, padded(new.plan.width));
    let positions = (index * PAGE).max(new.before)..((index + 1) * PAGE).min(new.before + new.rows.count);
    let (mut spare, mut turned) = (Vec::new(), vec![0.0; width]);
    for (head, part) in page.chunks_mut(head_len(width)).enumerate() {
        let (keys, values) = part.split_at_mut(PAGE * width);
        for position in positions.clone() {
            let (token, at) = (position - new.before, position % PAGE);
            new.turned(token, plan.heads + head, &mut spare, &mut turned);
            let start = key_at(at, 0, width);
            for (to, x) in keys[start..].iter_mut().step_by(BLOCK).zip(&turned) {
                *to = T::narrow(*x);
            }
            values[at * wide..][..width].copy_from_slice(new.head(token, plan.heads + plan.kv_heads + head));
        }
    }
}

/// All pages up to the last that is filled.
pub(super) struct Pages<'a, T> {
    all: &'a [Box<[T]>],
    width: usize,
}

impl<T: Float> Pages<'_, T> {
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// One page of one head as f32, at least as much of it as lies before position `end`.
    pub fn with<R>(&self, head: usize, index: usize, end: usize, work: impl FnOnce(Page<'_>) -> R) -> R {
        let filled = (end - index * PAGE).min(PAGE).next_multiple_of(BLOCK);
        let part = &self.all[index][head * head_len(self.width)..][..head_len(self.width)];
        let (keys, values) = part.split_at(PAGE * self.width);
        let (mut wide_keys, mut wide_values) = (Vec::new(), Vec::new());
        let keys = T::wide(&keys[..filled * self.width], &mut wide_keys);
        let values = T::wide(&values[..filled * padded(self.width)], &mut wide_values);
        work(Page { keys, values, width: self.width })
    }
}
