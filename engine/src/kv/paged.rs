//! Keys and values of all tokens in memory of our own ([`Store`]), which the attention kernel fills and reads.

use std::sync::{Arc, Mutex};

use mlx::{Array, Dtype, concatenate};

use crate::error::{Error, Result};
use crate::kernels::attention::{self, Plan, Store};

/// What is appended is written in place: nothing but this cache and the calls that it has made know the store, and each of those
/// depends on the one before it.
#[derive(Default)]
pub struct PagedCache {
    store: Arc<Mutex<Store>>,
    len: usize,
    /// The most that it has held, for which there is room.
    most: usize,
    /// Type, heads and elements of a head of what is held.
    kind: Option<(Dtype, usize, usize)>,
    /// What the latest call gave for the next to wait for.
    order: Option<Array>,
}

impl PagedCache {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn dtype(&self) -> Option<Dtype> {
        self.kind.map(|(dtype, ..)| dtype)
    }

    pub(super) fn nbytes(&self) -> usize {
        self.kind.map_or(0, |(dtype, heads, width)| Store::room(self.most, heads, width) * dtype.size())
    }

    pub(super) fn order(&self) -> Option<&Array> {
        self.order.as_ref()
    }

    pub(super) fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len {
            return Err(Error::Internal(format!("a cache of {} tokens cannot be cut to {len}", self.len)));
        }
        self.len = len;
        Ok(())
    }

    pub(super) fn attend_in_one(&mut self, plan: &Arc<Plan>, x: &Array, norms: Option<(&Array, &Array)>) -> Result<Array> {
        let projected = (plan.heads + 2 * plan.kv_heads) * plan.width;
        let kind = (x.dtype(), plan.kv_heads, plan.width);
        if x.ndim() != 3 || x.dim(0) != 1 || x.dim(2) as usize != projected || self.kind.is_some_and(|held| held != kind) {
            return Err(Error::Internal(format!("{x:?} cannot be appended as {plan:?} to a cache of {:?}", self.kind)));
        }
        let (y, order) = attention::attend(plan, &self.store, self.len, x, norms, self.order.as_ref())?;
        self.len += x.dim(1) as usize;
        self.most = self.most.max(self.len);
        (self.kind, self.order) = (Some(kind), Some(order));
        Ok(y)
    }

    /// Lays the three side by side first: for models that have use for them apart.
    pub(super) fn attend(&mut self, q: &Array, k: &Array, v: &Array, scale: f32) -> Result<Array> {
        let facts = |a: &Array| (a.ndim() == 4).then(|| (a.dtype(), a.dim(0), a.dim(2), a.dim(3)));
        let alike = facts(q).is_some() && facts(q) == facts(k) && k.shape() == v.shape() && k.dtype() == v.dtype();
        let grouped = alike && k.dim(1) > 0 && q.dim(1) % k.dim(1) == 0;
        if !grouped {
            return Err(Error::Internal(format!("{q:?}, {k:?} and {v:?} do not belong together")));
        }
        let (heads, n, width) = (q.dim(1), q.dim(2), q.dim(3));
        let (sizes, kv_heads) = ((heads as usize, width as usize), k.dim(1) as usize);
        let plan = Plan { heads: sizes.0, kv_heads, width: sizes.1, scale, rotation: None, norm_eps: None };
        let flat = |a: &Array| a.transpose(&[0, 2, 1, 3])?.reshape(&[1, n, -1]);
        let y = self.attend_in_one(&Arc::new(plan), &concatenate([&flat(q)?, &flat(k)?, &flat(v)?], -1)?, None)?;
        Ok(y.reshape(&[1, n, heads, width])?.transpose(&[0, 2, 1, 3])?)
    }
}
