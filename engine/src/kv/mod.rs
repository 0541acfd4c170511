//! What a layer remembers of the tokens it has seen.

mod paged;

use std::sync::Arc;

use mlx::fast::{self, Mask};
use mlx::{Array, Dtype};

use crate::error::{Error, Result};
use crate::kernels::attention::Plan;
pub use paged::PagedCache;

/// Positions by which a cache grows. Attention reads only the filled part; MLX's fast decode kernels want room in steps of 256.
const STEP: usize = 256;

/// The memory of one layer of one sequence.
pub enum LayerState {
    Full(FullCache),
    Paged(PagedCache),
}

impl LayerState {
    /// Full attention with keys and values in the stream's own type.
    pub fn full() -> Self {
        Self::Full(FullCache::default())
    }

    /// The same in memory of our own, for our kernels.
    pub fn paged() -> Self {
        Self::Paged(PagedCache::default())
    }

    /// Tokens held.
    pub fn len(&self) -> usize {
        match self {
            Self::Full(c) => c.len,
            Self::Paged(c) => c.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the keys and values of new tokens and attends to all: q [1, heads, n, d], k and v [1, kv heads, n, d] ->
    /// [1, heads, n, d]. Each new token sees itself and what came before.
    pub fn attend(&mut self, q: &Array, k: &Array, v: &Array, scale: f32) -> Result<Array> {
        match self {
            Self::Full(c) => c.attend(q, k, v, scale),
            Self::Paged(c) => c.attend(q, k, v, scale),
        }
    }

    /// The same of projections [1, n, ..] that lie side by side, normed and rotated on the way as the plan says: [1, n, heads * d].
    /// Only of [`Self::paged`].
    pub fn attend_in_one(&mut self, plan: &Arc<Plan>, x: &Array, norms: Option<(&Array, &Array)>) -> Result<Array> {
        match self {
            Self::Full(_) => Err(Error::Internal("projections in one are for a paged cache".into())),
            Self::Paged(c) => c.attend_in_one(plan, x, norms),
        }
    }

    /// Forgets all but the first `len` tokens.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        match self {
            Self::Full(c) => c.truncate(len),
            Self::Paged(c) => c.truncate(len),
        }
    }

    /// Bytes allocated.
    pub fn nbytes(&self) -> usize {
        match self {
            Self::Full(c) => c.store.as_ref().map_or(0, |(k, v)| k.nbytes() + v.nbytes()),
            Self::Paged(c) => c.nbytes(),
        }
    }

    /// What has to be evaluated so that all that was appended is there.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        let (pair, single) = match self {
            Self::Full(c) => (c.store.as_ref(), None),
            Self::Paged(c) => (None, c.order()),
        };
        pair.into_iter().flat_map(|(k, v)| [k, v]).chain(single)
    }

    /// The type of what is held; `None` while empty.
    pub fn dtype(&self) -> Option<Dtype> {
        match self {
            Self::Full(c) => c.store.as_ref().map(|(k, _)| k.dtype()),
            Self::Paged(c) => c.dtype(),
        }
    }
}

/// Keys and values of all tokens, unquantized: [1, kv heads, capacity, d], the first `len` positions filled.
#[derive(Default)]
pub struct FullCache {
    store: Option<(Array, Array)>,
    len: usize,
}

impl FullCache {
    fn attend(&mut self, q: &Array, k: &Array, v: &Array, scale: f32) -> Result<Array> {
        self.fits(k, v)?;
        let (before, new) = (self.len, k.dim(2) as usize);
        self.reserve(before + new, k, v)?;
        // The handles are given up, so that MLX writes in place; nothing below fails on data that `fits`.
        let Some((keys, values)) = self.store.take() else {
            return Err(Error::Internal("a cache without a store".into()));
        };
        let keys = keys.slice_update(k, 2, before as i32)?;
        let values = values.slice_update(v, 2, before as i32)?;
        self.len = before + new;
        let end = self.len as i32;
        let (seen_k, seen_v) = (keys.slice(2, 0, end)?, values.slice(2, 0, end)?);
        self.store = Some((keys, values));
        let mask = if new == 1 { Mask::None } else { Mask::Causal };
        Ok(fast::attention(q, &seen_k, &seen_v, scale, mask)?)
    }

    /// Refuses what cannot be appended, while the store is still whole.
    fn fits(&self, k: &Array, v: &Array) -> Result<()> {
        let rows = |a: &Array| (a.ndim() == 4).then(|| (a.dim(0), a.dim(1), a.dim(2)));
        if rows(k).is_none() || rows(k) != rows(v) || k.dtype() != v.dtype() {
            return Err(Error::Internal(format!("keys {k:?} and values {v:?} do not belong together")));
        }
        let Some((keys, values)) = &self.store else { return Ok(()) };
        for (held, new) in [(keys, k), (values, v)] {
            let apart_from_length = |a: &Array| (a.dtype(), a.dim(0), a.dim(1), a.dim(3));
            if apart_from_length(held) != apart_from_length(new) {
                return Err(Error::Internal(format!("{new:?} cannot be appended to a cache of {held:?}")));
            }
        }
        Ok(())
    }

    fn reserve(&mut self, tokens: usize, k: &Array, v: &Array) -> Result<()> {
        let capacity = self.store.as_ref().map_or(0, |(keys, _)| keys.dim(2) as usize);
        if tokens <= capacity {
            return Ok(());
        }
        let grow = |like: &Array, old: Option<&Array>| -> Result<Array> {
            let mut shape = like.shape().to_vec();
            shape[2] = tokens.next_multiple_of(STEP) as i32;
            let room = Array::zeros(&shape, like.dtype())?;
            Ok(match old {
                Some(old) if self.len > 0 => room.slice_update(&old.slice(2, 0, self.len as i32)?, 2, 0)?,
                _ => room,
            })
        };
        let old = self.store.as_ref();
        self.store = Some((grow(k, old.map(|o| &o.0))?, grow(v, old.map(|o| &o.1))?));
        Ok(())
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len {
            return Err(Error::Internal(format!("a cache of {} tokens cannot be cut to {len}", self.len)));
        }
        self.len = len;
        Ok(())
    }
}
