//! The gated feed-forward layer: down(silu(gate(x)) * up(x)).

use mlx::{Array, Compiled};

use super::linear::{Fan, Linear};
use super::weights::{Compute, Weights};
use crate::error::Result;
use crate::kernels::activation;

pub struct SwiGlu {
    gate_up: Fan,
    down: Linear,
    activate: Activation,
}

enum Activation {
    Mlx(Compiled),
    Own(activation::SwiGlu),
}

/// silu(gate) * up
fn swiglu(x: &[Array]) -> mlx::Result<Array> {
    let (gate, up) = (&x[0], &x[1]);
    gate.mul(&gate.sigmoid()?)?.mul(up)
}

impl SwiGlu {
    /// `gate_proj`, `up_proj` [inner, width], `down_proj` [width, inner].
    pub fn new(w: &Weights<'_>, width: usize, inner: usize, bias: bool) -> Result<Self> {
        let activate = match w.storage().compute {
            Compute::Own(_) => Activation::Own(activation::SwiGlu::new()?),
            Compute::Mlx | Compute::Plain => Activation::Mlx(Compiled::new(swiglu)?),
        };
        Ok(Self {
            gate_up: Fan::new(w, width, &[("gate_proj", inner), ("up_proj", inner)], bias)?,
            down: Linear::new(&w.at("down_proj"), inner, width, bias)?,
            activate,
        })
    }

    pub fn forward(&self, x: &Array) -> Result<Array> {
        let h = match &self.activate {
            Activation::Mlx(f) => f.call(&self.gate_up.forward(x)?)?,
            Activation::Own(f) => f.forward(&self.gate_up.in_one(x)?)?,
        };
        self.down.forward(&h)
    }
}
