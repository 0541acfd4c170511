//! The gated feed-forward layer: down(silu(gate(x)) * up(x)).

use mlx::{Array, Compiled};

use super::linear::Linear;
use super::weights::Weights;
use crate::error::Result;

pub struct SwiGlu {
    gate: Linear,
    up: Linear,
    down: Linear,
    activate: Compiled,
}

/// silu(gate) * up
fn swiglu(x: &[Array]) -> mlx::Result<Array> {
    let (gate, up) = (&x[0], &x[1]);
    gate.mul(&gate.sigmoid()?)?.mul(up)
}

impl SwiGlu {
    /// `gate_proj`, `up_proj` [inner, width], `down_proj` [width, inner].
    pub fn new(w: &Weights<'_>, width: usize, inner: usize, bias: bool) -> Result<Self> {
        Ok(Self {
            gate: Linear::new(&w.at("gate_proj"), width, inner, bias)?,
            up: Linear::new(&w.at("up_proj"), width, inner, bias)?,
            down: Linear::new(&w.at("down_proj"), inner, width, bias)?,
            activate: Compiled::new(swiglu)?,
        })
    }

    pub fn forward(&self, x: &Array) -> Result<Array> {
        let h = self.activate.call(&[self.gate.forward(x)?, self.up.forward(x)?])?;
        self.down.forward(&h)
    }
}
