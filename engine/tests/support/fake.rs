//! A model made of a function: the test decides what comes next, and where it fails.

use mlx::{Array, Dtype, concatenate};
use rmlx_engine::arch::Model;
use rmlx_engine::error::Result;
use rmlx_engine::kv::LayerState;

/// What the scores after a token may depend on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Of the token, from 0.
    pub position: usize,
    pub token: u32,
    /// The mean of all ids up to this one, read from the last layer's cache: wrong when anything in it is.
    pub mean: f32,
}

/// A layer is about to take `tokens` tokens from `position` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    pub layer: usize,
    pub position: usize,
    pub tokens: usize,
}

pub struct Fake {
    pub layers: usize,
    pub scores: Box<dyn Fn(Seen) -> Result<Vec<f32>>>,
    pub visit: Box<dyn Fn(Visit) -> Result<()>>,
}

/// The width of a head.
const WIDTH: i32 = 8;

impl Fake {
    pub fn new(scores: impl Fn(Seen) -> Vec<f32> + 'static) -> Self {
        Self { layers: 3, scores: Box::new(move |seen| Ok(scores(seen))), visit: Box::new(|_| Ok(())) }
    }

    /// Writes `ids` after a prompt of `prompt` tokens, then the last of them for ever.
    pub fn writing(vocabulary: usize, prompt: usize, ids: Vec<u32>) -> Self {
        Self::new(move |seen| {
            let next = (seen.position + 1).saturating_sub(prompt).min(ids.len() - 1);
            one_hot(vocabulary, ids[next])
        })
    }

    pub fn visited(self, visit: impl Fn(Visit) -> Result<()> + 'static) -> Self {
        Self { visit: Box::new(visit), ..self }
    }
}

/// Scores that leave no choice.
pub fn one_hot(vocabulary: usize, id: u32) -> Vec<f32> {
    let mut row = vec![-40.0; vocabulary];
    row[id as usize] = 40.0;
    row
}

impl Model for Fake {
    fn forward(&self, tokens: &Array, states: &mut [LayerState]) -> Result<Array> {
        let n = tokens.dim(1);
        let position = states[0].len();
        let ids = tokens.astype(Dtype::F32)?.reshape(&[1, 1, n, 1])?;
        let values = ids.mul(&Array::from_slice(&[1f32; WIDTH as usize], &[WIDTH as usize])?)?;
        // Queries of zero look at everything alike.
        let queries = Array::zeros(&[1, 1, n, WIDTH], Dtype::F32)?;
        let mut mean = values.clone();
        for (layer, state) in states.iter_mut().enumerate() {
            (self.visit)(Visit { layer, position, tokens: n as usize })?;
            mean = state.attend(&queries, &values, &values, 1.0)?;
        }
        let positions = Array::arange(position as i32, position as i32 + n, Dtype::F32)?.reshape(&[1, 1, n, 1])?;
        Ok(concatenate([&positions, &ids, &mean.slice(-1, 0, 1)?], -1)?.reshape(&[1, n, 3])?)
    }

    fn logits(&self, hidden: &Array) -> Result<Array> {
        let n = hidden.dim(1) as usize;
        let mut all = Vec::new();
        for seen in hidden.to_vec::<f32>()?.chunks_exact(3) {
            all.extend((self.scores)(Seen { position: seen[0] as usize, token: seen[1] as u32, mean: seen[2] })?);
        }
        Ok(Array::from_slice(&all, &[1, n, all.len() / n])?)
    }

    fn states(&self) -> Vec<LayerState> {
        (0..self.layers).map(|_| LayerState::full()).collect()
    }
}
