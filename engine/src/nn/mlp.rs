//! The gated feed-forward layer: down(silu(gate(x)) * up(x)).

use mlx::{Array, Compiled};

use super::linear::{Fan, Linear};
use super::weights::Weights;
use crate::error::Result;

pub struct SwiGlu {
    gate_up: Fan,
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
            gate_up: Fan::new(w, width, &[("gate_proj", inner), ("up_proj", inner)], bias)?,
            down: Linear::new(&w.at("down_proj"), inner, width, bias)?,
            activate: Compiled::new(swiglu)?,
        })
    }

    pub fn forward(&self, x: &Array) -> Result<Array> {
        let h = self.activate.call(&self.gate_up.forward(x)?)?;
        self.down.forward(&h)
    }
}
