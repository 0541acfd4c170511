//! Rotary position embedding and its stretchings for long contexts.
//!
//! Sources: Su et al. 2021 (RoPE); Peng et al. 2023 (YaRN); `modeling_rope_utils.py` of transformers for Llama 3's rule.

use mlx::fast::{self, Frequencies};
use mlx::{Array, Dtype};

use crate::config::{self, RopeConfig};
use crate::error::{Error, Result};
use crate::kernels::attention::Rotation;

/// Rotates pairs (i, i + dims/2) of each head.
pub struct Rope {
    dims: i32,
    frequencies: Frequencies,
    /// The angle per position of each pair, which `frequencies` say in MLX's way.
    angles: Vec<f32>,
    /// Positions are multiplied by this.
    position_scale: f32,
    /// What YaRN multiplies cos and sin by, squared: queries and keys both carry it, so it belongs to the attention's scale.
    pub score_factor: f32,
}

impl Rope {
    /// For heads of `head_dim` elements of which `config` may rotate only a part.
    pub fn new(config: &config::Rope, head_dim: usize) -> Result<Self> {
        let dims = (head_dim as f64 * config.partial_rotary_factor) as usize / 2 * 2;
        if dims == 0 {
            return Err(Error::Unsupported(format!("rotary positions in none of a head's {head_dim} elements")));
        }
        let mut rope = Self {
            dims: dims as i32,
            frequencies: Frequencies::Base(config.theta as f32),
            angles: (0..dims / 2).map(|i| plain(config, dims, i) as f32).collect(),
            position_scale: 1.0,
            score_factor: 1.0,
        };
        match config.scaling {
            RopeConfig::Default => {}
            RopeConfig::Linear { factor } => rope.position_scale = (1.0 / factor) as f32,
            RopeConfig::Llama3 { .. } | RopeConfig::Yarn { .. } => {
                let periods: Vec<f32> = inverse_frequencies(config, dims).iter().map(|f| (1.0 / f) as f32).collect();
                rope.angles = periods.iter().map(|period| 1.0 / period).collect();
                rope.frequencies = Frequencies::Periods(Array::from_slice(&periods, &[periods.len()])?);
                if let RopeConfig::Yarn { attention_factor, .. } = config.scaling {
                    rope.score_factor = (attention_factor * attention_factor) as f32;
                }
            }
        }
        Ok(rope)
    }

    /// x [batch, heads, positions, head_dim]; the first position is `offset`.
    pub fn forward(&self, x: &Array, offset: usize) -> Result<Array> {
        debug_assert!(x.dtype() != Dtype::U32);
        Ok(fast::rope(x, self.dims, &self.frequencies, self.position_scale, offset as i32)?)
    }

    /// The same for our own kernels.
    pub fn rotation(&self) -> Rotation {
        Rotation { angles: self.angles.clone(), position_scale: self.position_scale }
    }
}

/// The angle per position of pair i before any stretching.
fn plain(config: &config::Rope, dims: usize, i: usize) -> f64 {
    config.theta.powf(-2.0 * i as f64 / dims as f64)
}

/// The angle per position of each of the dims/2 pairs.
fn inverse_frequencies(config: &config::Rope, dims: usize) -> Vec<f64> {
    let plain = |i: usize| plain(config, dims, i);
    let pairs = 0..dims / 2;
    match config.scaling {
        RopeConfig::Default => pairs.map(plain).collect(),
        RopeConfig::Linear { factor } => pairs.map(|i| plain(i) / factor).collect(),
        RopeConfig::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => pairs
            .map(|i| {
                let inv = plain(i);
                let turns = original_context as f64 * inv / std::f64::consts::TAU;
                // Slow pairs are stretched, fast ones kept, those between blended.
                let kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
                inv / factor * (1.0 - kept) + inv * kept
            })
            .collect(),
        RopeConfig::Yarn { factor, beta_fast, beta_slow, original_context, truncate, .. } => {
            // The pair that turns `beta` times within the trained context.
            let pair_of = |beta: f64| {
                dims as f64 * (original_context as f64 / (beta * std::f64::consts::TAU)).ln() / (2.0 * config.theta.ln())
            };
            let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
            if truncate {
                (low, high) = (low.floor(), high.ceil());
            }
            let (low, mut high) = (low.max(0.0), high.min(dims as f64 - 1.0));
            if low == high {
                high += 0.001;
            }
            pairs
                .map(|i| {
                    let stretched = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    plain(i) / factor * stretched + plain(i) * (1.0 - stretched)
                })
                .collect()
        }
    }
}
