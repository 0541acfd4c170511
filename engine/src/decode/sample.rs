//! Choosing the next token on the device: logits in, a token id out. Nothing but the id crosses to the host.
//!
//! Order: bias, repetition, presence and frequency penalties, temperature, then top-p, min-p and top-k on the distribution sorted
//! downwards, then one draw. Each of the three keeps a prefix of the sorted distribution, so the shortest prefix wins.

use mlx::{Array, Dtype, concatenate, random};

use crate::api::Sampling;
use crate::error::{Error, Result};

/// Generated tokens that the repetition penalty looks back on (as mlx-lm).
const REPETITION_WINDOW: i32 = 20;
/// What a token reads as when the logits were not all finite.
pub const NON_FINITE: u32 = u32::MAX;
/// The most alternatives that log probabilities list.
pub const MAX_LOGPROBS: usize = 20;
/// Temperatures below are greedy: divided by them, logits overflow.
const LEAST_TEMPERATURE: f32 = 1e-5;
/// Where nobody names a seed: what is not told to vary repeats.
const DEFAULT_SEED: u64 = 0xA7A7;

/// A request's sampling with every field settled and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    pub temperature: f32,
    pub top_p: f32,
    /// 0 is off.
    pub top_k: u32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub logit_bias: Vec<(u32, f32)>,
    pub seed: u64,
    pub logprobs: Option<usize>,
}

impl Resolved {
    /// # Errors
    /// [`Error::BadRequest`] naming the field, its value and what it may be.
    pub fn new(s: &Sampling, logprobs: Option<usize>, vocabulary: usize) -> Result<Self> {
        let within = |name: &str, value: Option<f32>, default: f32, low: f32, high: f32| {
            let v = value.unwrap_or(default);
            if v.is_finite() && (low..=high).contains(&v) {
                Ok(v)
            } else {
                Err(Error::BadRequest(format!("{name} is {v}, not a number from {low} to {high}")))
            }
        };
        if let Some(&(id, _)) = s.logit_bias.iter().find(|(id, _)| *id as usize >= vocabulary) {
            return Err(Error::BadRequest(format!("logit_bias names token {id}; the vocabulary has {vocabulary}")));
        }
        if let Some(&(id, v)) = s.logit_bias.iter().find(|(_, v)| !v.is_finite()) {
            return Err(Error::BadRequest(format!("logit_bias of token {id} is {v}")));
        }
        if logprobs.is_some_and(|n| n > MAX_LOGPROBS) {
            return Err(Error::BadRequest(format!("logprobs is over {MAX_LOGPROBS}")));
        }
        Ok(Self {
            temperature: within("temperature", s.temperature, 1.0, 0.0, 1e3)?,
            top_p: within("top_p", s.top_p, 1.0, 0.0, 1.0)?,
            top_k: s.top_k.unwrap_or(0),
            min_p: within("min_p", s.min_p, 0.0, 0.0, 1.0)?,
            // 1 over it is finite, and so is what it does to a logit.
            repetition_penalty: within("repetition_penalty", s.repetition_penalty, 1.0, 1e-3, 1e3)?,
            presence_penalty: within("presence_penalty", s.presence_penalty, 0.0, -100.0, 100.0)?,
            frequency_penalty: within("frequency_penalty", s.frequency_penalty, 0.0, -100.0, 100.0)?,
            logit_bias: s.logit_bias.clone(),
            seed: s.seed.unwrap_or(DEFAULT_SEED),
            logprobs,
        })
    }

    fn greedy(&self) -> bool {
        self.temperature < LEAST_TEMPERATURE
    }
}

/// The sampling state of one sequence.
pub struct Sampler {
    settings: Resolved,
    /// Tokens drawn: the counter of the random stream.
    step: u64,
    /// [1, vocabulary]: `logit_bias` as a dense row.
    bias: Option<Array>,
    /// [1, vocabulary]: how often each token was generated.
    counts: Option<Array>,
    /// [1, up to 20]: the latest generated tokens.
    recent: Option<Array>,
}

/// A token on its way.
pub struct Drawn {
    /// [1, 1] u32, always an id of the vocabulary: what the next step is built on.
    pub token: Array,
    /// [1, 1] u32, for the host: the token, or [`NON_FINITE`]. It never goes into an operation, which would look up what is not
    /// there.
    pub outcome: Array,
    pub logprobs: Option<Logprobs>,
}

/// Log probabilities under the unmodified distribution.
pub struct Logprobs {
    /// [1, 1], of the drawn token.
    pub chosen: Array,
    /// [1, n] ids and values of the most probable tokens, best first, the lower id first among equals.
    pub top: Option<(Array, Array)>,
}

impl Drawn {
    /// What has to be evaluated for it.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        let logprobs =
            self.logprobs.iter().flat_map(|l| std::iter::once(&l.chosen).chain(l.top.iter().flat_map(|(i, v)| [i, v])));
        [&self.token, &self.outcome].into_iter().chain(logprobs)
    }
}

impl Sampler {
    pub fn new(settings: Resolved) -> Self {
        Self { settings, step: 0, bias: None, counts: None, recent: None }
    }

    /// Draws from logits [1, vocabulary].
    pub fn draw(&mut self, raw: &Array) -> Result<Drawn> {
        let raw = raw.astype(Dtype::F32)?;
        let adjusted = self.adjust(&raw)?;
        let token = if self.settings.greedy() { adjusted.argmax(-1, true)? } else { self.sample(&adjusted)? };
        // A sum is finite only if every term is (infinities do not cancel: they give NaN).
        let finite = raw.sum(-1, true)?.is_finite()?;
        let outcome = token.where_(&finite, &Array::from_slice(&[NON_FINITE], &[1, 1])?)?;
        self.remember(&token, raw.dim(-1))?;
        self.step += 1;
        let logprobs = match self.settings.logprobs {
            Some(n) => Some(logprobs(&raw, &token, n as i32)?),
            None => None,
        };
        Ok(Drawn { token, outcome, logprobs })
    }

    fn penalizes_counts(&self) -> bool {
        self.settings.presence_penalty != 0.0 || self.settings.frequency_penalty != 0.0
    }

    fn adjust(&mut self, logits: &Array) -> Result<Array> {
        let s = &self.settings;
        let vocabulary = logits.dim(-1) as usize;
        let mut x = logits.clone();
        if !s.logit_bias.is_empty() {
            if self.bias.is_none() {
                let mut row = vec![0f32; vocabulary];
                for &(id, v) in &s.logit_bias {
                    row[id as usize] += v;
                }
                self.bias = Some(Array::from_slice(&row, &[1, vocabulary])?);
            }
            if let Some(bias) = &self.bias {
                x = x.add(bias)?;
            }
        }
        if let Some(recent) = self.recent.as_ref().filter(|_| s.repetition_penalty != 1.0) {
            let seen = x.take_along(recent, -1)?;
            let (weaker, stronger) = (seen.mul_scalar(1.0 / s.repetition_penalty)?, seen.mul_scalar(s.repetition_penalty)?);
            let penalized = stronger.where_(&seen.less(&Array::scalar(0.0, Dtype::F32)?)?, &weaker)?;
            x = x.put_along(recent, &penalized, -1)?;
        }
        if let Some(counts) = self.counts.as_ref().filter(|_| self.penalizes_counts()) {
            let present = counts.greater(&Array::scalar(0.0, Dtype::F32)?)?.astype(Dtype::F32)?;
            x = x.sub(&present.mul_scalar(s.presence_penalty)?)?.sub(&counts.mul_scalar(s.frequency_penalty)?)?;
        }
        Ok(x)
    }

    fn sample(&self, logits: &Array) -> Result<Array> {
        let s = &self.settings;
        let logits = logits.mul_scalar(1.0 / s.temperature)?;
        let key = random::key(s.seed, self.step)?;
        let vocabulary = logits.dim(-1);
        let top_k = if s.top_k == 0 { vocabulary } else { (s.top_k.min(vocabulary as u32)) as i32 };
        if s.top_p >= 1.0 && s.min_p == 0.0 && top_k == vocabulary {
            return Ok(random::categorical(&logits, -1, &key)?.reshape(&[1, 1])?);
        }
        // Stable, so that equal logits keep the order of their ids.
        let order = logits.negative()?.argsort(-1)?.slice(-1, 0, top_k)?;
        let sorted = logits.take_along(&order, -1)?;
        let mut kept = sorted.clone();
        let nothing = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
        if s.top_p < 1.0 || s.min_p > 0.0 {
            // Probabilities within the whole vocabulary, whatever top_k cut off.
            let p = sorted.sub(&logits.logsumexp(-1, true)?)?.exp()?;
            if s.top_p < 1.0 {
                let before = p.cumsum(-1)?.sub(&p)?;
                kept = kept.where_(&before.less(&Array::scalar(s.top_p, Dtype::F32)?)?, &nothing)?;
            }
            if s.min_p > 0.0 {
                let least = p.slice(-1, 0, 1)?.mul_scalar(s.min_p)?;
                kept = kept.where_(&p.greater_equal(&least)?, &nothing)?;
            }
            // The best token stays, whatever rounding says (top_p 0 asks for it alone).
            kept = concatenate([&sorted.slice(-1, 0, 1)?, &kept.slice(-1, 1, top_k)?], -1)?;
        }
        let place = random::categorical(&kept, -1, &key)?.reshape(&[1, 1])?;
        Ok(order.take_along(&place, -1)?)
    }

    fn remember(&mut self, token: &Array, vocabulary: i32) -> Result<()> {
        if self.settings.repetition_penalty != 1.0 {
            let recent = match self.recent.take() {
                None => token.clone(),
                Some(r) => concatenate([&r, token], -1)?,
            };
            let n = recent.dim(-1);
            self.recent = Some(if n > REPETITION_WINDOW { recent.slice(-1, n - REPETITION_WINDOW, n)? } else { recent });
        }
        if self.penalizes_counts() {
            let counts = match self.counts.take() {
                None => Array::zeros(&[1, vocabulary], Dtype::F32)?,
                Some(c) => c,
            };
            self.counts = Some(counts.scatter_add(token, &Array::from_slice(&[1f32], &[1, 1])?, -1)?);
        }
        Ok(())
    }
}

fn logprobs(raw: &Array, token: &Array, n: i32) -> Result<Logprobs> {
    let log_p = raw.sub(&raw.logsumexp(-1, true)?)?;
    let top = if n == 0 {
        None
    } else {
        let ids = log_p.negative()?.argsort(-1)?.slice(-1, 0, n)?;
        Some((ids.clone(), log_p.take_along(&ids, -1)?))
    };
    Ok(Logprobs { chosen: log_p.take_along(token, -1)?, top })
}
