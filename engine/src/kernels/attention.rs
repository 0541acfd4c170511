//! Attention with all that belongs to it, in one call: norms and rotation of the new queries and keys, their place in the cache,
//! and what the queries see there.
//!
//! A cache is made of pages of 256 positions. A page's part of a result is computed alone and joined to those before it, in order:
//! so a row depends on its position and on what it sees, bit for bit, not on how the prompt was cut or on the threads.

mod store;

use std::sync::{Arc, Mutex, PoisonError};

use mlx::cpu::{CpuKernel, Input, Output};
use mlx::{Array, Dtype};
use simd::Path;
use simd::attention::{PAGE, Page, Part, ROWS, padded};

use super::pool;
use super::rows::{Float, Rows, Shared, of_type, put, two};
pub use store::{Store, held_bytes, most_held_bytes};

/// What a layer does with its projections; fixed when it is built.
#[derive(Debug, Clone)]
pub struct Plan {
    pub heads: usize,
    /// Each belongs to heads / kv_heads of the queries' heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub width: usize,
    /// What the scores are multiplied by.
    pub scale: f32,
    pub rotation: Option<Rotation>,
    /// Where queries and keys have norms.
    pub norm_eps: Option<f32>,
}

/// Rotation of the pairs (i, i + pairs) of each head.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// Each pair's angle per position.
    pub angles: Vec<f32>,
    /// Positions are multiplied by this.
    pub position_scale: f32,
}

impl Plan {
    /// Elements of a token's projections.
    fn projected(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.width
    }

    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    fn check(&self) -> Result<(), String> {
        let turns = self.rotation.as_ref().map_or(0, |r| r.angles.len());
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) || self.width == 0 || 2 * turns > self.width {
            return Err(format!(
                "{} heads of {} on {} with {turns} rotated pairs do not fit together",
                self.heads, self.width, self.kv_heads
            ));
        }
        Ok(())
    }
}

/// Appends n tokens after the first `before` that `store` holds, whatever it holds beyond, and attends: x [1, n, heads + 2 * kv heads
/// times width] has each token's queries, keys and values; `norms` are the weights [width] of the queries' and the keys' norms.
/// Gives [1, n, heads * width], and a token of order: the next call on this store takes it as `after`, so that it runs later, in
/// whatever order results are asked for.
#[track_caller]
pub fn attend(
    plan: &Arc<Plan>,
    store: &Arc<Mutex<Store>>,
    before: usize,
    x: &Array,
    norms: Option<(&Array, &Array)>,
    after: Option<&Array>,
) -> mlx::Result<(Array, Array)> {
    let shape = [x.dim(0), x.dim(1), (plan.heads * plan.width) as i32];
    let (plan, store, has_norms) = (plan.clone(), store.clone(), norms.is_some());
    let kernel = CpuKernel::new("attention", move |inputs, outputs| {
        let norms = if has_norms { inputs.get(1).zip(inputs.get(2)) } else { None };
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        of_type!(inputs[0].dtype(), append_and_attend(&plan, &mut store, before, &inputs[0], norms, outputs))
    })?;
    let inputs = std::iter::once(x).chain(norms.into_iter().flat_map(|(q, k)| [q, k])).chain(after);
    two(kernel.call(inputs, &[(&shape, x.dtype()), (&[1], Dtype::U32)])?)
}

/// New tokens' projections and what is done to them.
struct Fresh<'a, T: Float> {
    plan: &'a Plan,
    rows: Rows<'a, T>,
    before: usize,
    norms: Option<(Vec<f32>, Vec<f32>)>,
    /// Of each token: [tokens, pairs].
    cos: Vec<f32>,
    sin: Vec<f32>,
    path: Path,
}

impl<'a, T: Float> Fresh<'a, T> {
    fn new(plan: &'a Plan, before: usize, x: &Input<'a>, norms: Option<(&Input<'_>, &Input<'_>)>) -> Result<Self, String> {
        plan.check()?;
        let rows = Rows::<T>::new(x)?;
        if rows.width != plan.projected() || norms.is_some() != plan.norm_eps.is_some() {
            let (heads, kv_heads, width) = (plan.heads, plan.kv_heads, plan.width);
            return Err(format!("{:?} does not fit {heads} heads of {width} on {kv_heads}", x.shape()));
        }
        let weight = |norm: &Input<'_>| {
            let stored = norm.dense::<T>()?;
            if stored.len() != plan.width {
                return Err(format!("{:?} is no weight of heads of {}", norm.shape(), plan.width));
            }
            let mut wide = vec![0.0; stored.len()];
            T::widen(&stored, &mut wide);
            Ok(wide)
        };
        let norms = match norms {
            Some((q, k)) => Some((weight(q)?, weight(k)?)),
            None => None,
        };
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        if let Some(rotation) = &plan.rotation {
            for token in 0..rows.count {
                let position = (before + token) as f32 * rotation.position_scale;
                for angle in &rotation.angles {
                    let (s, c) = (position * angle).sin_cos();
                    cos.push(c);
                    sin.push(s);
                }
            }
        }
        Ok(Self { plan, rows, before, norms, cos, sin, path: Path::best() })
    }

    /// A head's part of a token's projections as it is stored: the queries' heads, then the keys', then the values'.
    fn head(&self, token: usize, head: usize) -> &[T] {
        &self.rows.row(token)[head * self.plan.width..][..self.plan.width]
    }

    /// A query's or key's head, normed and rotated.
    fn turned(&self, token: usize, head: usize, spare: &mut Vec<f32>, to: &mut [f32]) {
        let norm = self.norms.as_ref().map(|(q, k)| if head < self.plan.heads { q } else { k });
        match (norm, self.plan.norm_eps) {
            (Some(weight), Some(eps)) => self.path.rms_norm(T::wide(self.head(token, head), spare), weight, eps, to),
            _ => T::widen(self.head(token, head), to),
        }
        let pairs = self.plan.rotation.as_ref().map_or(0, |r| r.angles.len());
        let at = token * pairs..(token + 1) * pairs;
        self.path.rotate(to, &self.cos[at.clone()], &self.sin[at]);
    }

    /// The queries of some tokens that belong to one head of the keys: [tokens, group, width], scaled.
    fn queries(&self, tokens: std::ops::Range<usize>, kv_head: usize) -> Vec<f32> {
        let (group, width) = (self.plan.group(), self.plan.width);
        let mut all = vec![0.0; tokens.len() * group * width];
        let mut spare = Vec::new();
        for (row, to) in all.chunks_mut(width).enumerate() {
            self.turned(tokens.start + row / group, kv_head * group + row % group, &mut spare, to);
            to.iter_mut().for_each(|x| *x *= self.plan.scale);
        }
        all
    }

    /// How much of a page each query of some rows sees; `rows` count from `tokens`' first, `group` a token.
    fn seen(&self, page: usize, first_token: usize, rows: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
        rows.map(move |row| {
            let end = self.before + first_token + row / self.plan.group() + 1;
            end.saturating_sub(page * PAGE).min(PAGE)
        })
    }
}

fn append_and_attend<T: store::Stored>(
    plan: &Plan,
    store: &mut Store,
    before: usize,
    x: &Input<'_>,
    norms: Option<(&Input<'_>, &Input<'_>)>,
    outputs: &mut [Output<'_>],
) -> Result<(), String> {
    let new = Fresh::<T>::new(plan, before, x, norms)?;
    let pages = store.append(&new)?;
    let [out, _order] = outputs else { return Err("gives two outputs".into()) };
    // SAFETY: each head of each token below is written, and there are no others.
    let out = Shared::new(unsafe { out.unwritten::<T>()? });
    if new.rows.count == 0 {
        return Ok(());
    }
    if new.rows.count <= FEW {
        by_pages(&new, pages, &out);
    } else {
        by_tokens(&new, pages, &out);
    }
    Ok(())
}

/// New tokens of which each page is looked at alone: with more there is enough to share among threads.
const FEW: usize = 4;
/// New tokens that look at the cache together.
const TOGETHER: usize = 32;
/// Multiplications that are worth a second thread.
const SHARE: usize = 1 << 17;

/// Runs a loop of `count` on the pool if it is worth it.
fn share(multiplications: usize, count: usize, work: &(dyn Fn(usize) + Sync)) {
    if multiplications < SHARE { (0..count).for_each(work) } else { pool::current().run(count, work) }
}

/// Some rows' view of one page: parts and, [rows, padded(width)], sums, to `each` with the row.
fn look<T: store::Stored>(
    new: &Fresh<'_, T>,
    page: Page<'_>,
    index: usize,
    first_token: usize,
    q: &[f32],
    mut each: impl FnMut(usize, Part, &[f32]),
) {
    let (width, wide) = (new.plan.width, padded(new.plan.width));
    let mut sums = vec![0.0; ROWS * wide];
    let count = q.len() / width;
    for start in (0..count).step_by(ROWS) {
        let rows = start..count.min(start + ROWS);
        let (mut seen, mut parts) = ([0; ROWS], [Part::NONE; ROWS]);
        seen.iter_mut().zip(new.seen(index, first_token, rows.clone())).for_each(|(to, n)| *to = n);
        let (n, sums) = (rows.len(), &mut sums[..rows.len() * wide]);
        new.path.attend(&q[rows.start * width..rows.end * width], page, &seen[..n], &mut parts[..n], sums);
        for ((row, part), sums) in rows.zip(parts).zip(sums.chunks(wide)) {
            each(row, part, sums);
        }
    }
}

/// What has been seen so far, of some rows.
struct Totals {
    parts: Vec<Part>,
    sums: Vec<f32>,
    wide: usize,
}

impl Totals {
    fn new(rows: usize, width: usize) -> Self {
        let wide = padded(width);
        Self { parts: vec![Part::NONE; rows], sums: vec![0.0; rows * wide], wide }
    }

    fn join(&mut self, path: Path, row: usize, part: Part, sums: &[f32]) {
        path.merge(&mut self.parts[row], &mut self.sums[row * self.wide..][..self.wide], part, sums);
    }

    /// Writes the rows of some tokens and one head of the keys.
    fn finish<T: Float>(mut self, plan: &Plan, first_token: usize, kv_head: usize, out: &Shared<T>) {
        let (group, width) = (plan.group(), plan.width);
        for ((row, part), sums) in self.parts.iter().enumerate().zip(self.sums.chunks_mut(self.wide)) {
            sums.iter_mut().for_each(|sum| *sum /= part.sum);
            let head = (first_token + row / group) * plan.heads + kv_head * group + row % group;
            // SAFETY: a token's head belongs to one call.
            put(&sums[..width], unsafe { out.part(head * width, width) });
        }
    }
}

/// Every page of every head alone, then joined.
fn by_pages<T: store::Stored>(new: &Fresh<'_, T>, pages: store::Pages<'_, T>, out: &Shared<T>) {
    let (plan, tokens) = (new.plan, new.rows.count);
    let (count, rows) = (pages.count(), tokens * plan.group());
    let queries: Vec<Vec<f32>> = (0..plan.kv_heads).map(|head| new.queries(0..tokens, head)).collect();
    let found: Vec<_> = (0..plan.kv_heads * count).map(|_| Mutex::new(Totals::new(rows, plan.width))).collect();
    let work = 2 * plan.heads * tokens * (new.before + tokens) * plan.width;
    share(work, found.len(), &|unit| {
        let (head, index) = (unit / count, unit % count);
        let mut totals = found[unit].lock().unwrap_or_else(PoisonError::into_inner);
        pages.with(head, index, new.before + tokens, |page| {
            look(new, page, index, 0, &queries[head], |row, part, sums| totals.join(new.path, row, part, sums));
        });
    });
    for (head, found) in found.chunks(count).enumerate() {
        let mut totals = Totals::new(rows, plan.width);
        for page in found {
            let page = page.lock().unwrap_or_else(PoisonError::into_inner);
            for (row, (part, sums)) in page.parts.iter().zip(page.sums.chunks(page.wide)).enumerate() {
                totals.join(new.path, row, *part, sums);
            }
        }
        totals.finish(plan, 0, head, out);
    }
}

/// Some tokens and one head at a time, over all pages that they see.
fn by_tokens<T: store::Stored>(new: &Fresh<'_, T>, pages: store::Pages<'_, T>, out: &Shared<T>) {
    let (plan, tokens) = (new.plan, new.rows.count);
    let tiles = tokens.div_ceil(TOGETHER);
    let work = 2 * plan.heads * tokens * (new.before + tokens) * plan.width;
    share(work, plan.kv_heads * tiles, &|unit| {
        // The last tokens see most: they come first, so that no thread is late.
        let (tile, head) = (tiles - 1 - unit / plan.kv_heads, unit % plan.kv_heads);
        let range = tile * TOGETHER..tokens.min((tile + 1) * TOGETHER);
        let q = new.queries(range.clone(), head);
        let mut totals = Totals::new(range.len() * plan.group(), plan.width);
        let end = new.before + range.end;
        for index in 0..end.div_ceil(PAGE) {
            pages.with(head, index, end, |page| {
                look(new, page, index, range.start, &q, |row, part, sums| totals.join(new.path, row, part, sums));
            });
        }
        totals.finish(plan, range.start, head, out);
    });
}

#[cfg(test)]
mod tests;
