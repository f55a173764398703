//! The forward pass in f64, without any rounding between operators: what the engine's f32 and 16-bit results are
//! measured against (F1). With the roundings of 16-bit storage and no others, it estimates how far they may be.
//!
//! It shares no code with the devices: plain loops over weights widened to f64, one request, one position at a time.
//! Nothing here is fast, and nothing is to the bit.

use super::operators::{Operators, add};
use crate::weights::{Layer, Model};

/// What one position came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    /// The residual stream, `[hidden]`: after the embedding, then after each layer.
    pub residual: Vec<Vec<f64>>,
    /// Logits, `[vocab]`.
    pub logits: Vec<f64>,
}

/// What becomes of a value that the contract stores in 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Nothing: the pass of the equations.
    Exact,
    /// It is rounded (docs/contract.md section 3), which is the one error of this pass: how far it is from the exact one
    /// says how far an engine without a fault will be.
    Rounded,
}

/// A forward pass over one sequence.
pub struct Exact<'m> {
    operators: Operators<'m>,
    storage: Storage,
    /// K of each layer, `[position][kv head][dim]`.
    k: Vec<Vec<f64>>,
    /// V of each layer.
    v: Vec<Vec<f64>>,
    /// Positions so far.
    len: usize,
}

impl<'m> Exact<'m> {
    /// An empty sequence.
    pub fn new(model: &'m Model) -> Exact<'m> {
        Exact::with(model, Storage::Exact)
    }

    /// An empty sequence, of a pass that stores values in this way.
    pub fn with(model: &'m Model, storage: Storage) -> Exact<'m> {
        let empty = vec![Vec::new(); model.config.layers];
        Exact { operators: Operators::new(model), storage, k: empty.clone(), v: empty, len: 0 }
    }

    /// Computes the next position.
    ///
    /// # Panics
    /// If `token` is outside the vocabulary.
    pub fn next(&mut self, token: u32) -> Position {
        let model = self.operators.model;
        let mut h = self.operators.embed(token);
        let mut residual = vec![h.clone()];
        for (index, layer) in model.layers.iter().enumerate() {
            let x = self.stored(self.operators.norm(&h, &layer.attention_norm));
            let attention = self.attention(index, layer, &x);
            let ops = &self.operators;
            add(&mut h, &ops.multiply(&layer.o, &attention));
            let x = self.stored(ops.norm(&h, &layer.ffn_norm));
            let gate_up = self.stored(ops.multiply(&layer.gate_up, &x));
            let z = self.stored(ops.swiglu(&gate_up));
            add(&mut h, &ops.multiply(&layer.down, &z));
            residual.push(h.clone());
        }
        let x = self.stored(self.operators.norm(&h, &model.final_norm));
        let logits = self.operators.head(&x);
        self.len += 1;
        Position { residual, logits }
    }

    /// Attention of the newest position over all positions.
    fn attention(&mut self, index: usize, layer: &Layer, x: &[f64]) -> Vec<f64> {
        let ops = &self.operators;
        let qkv = self.stored(ops.multiply(&layer.qkv, x));
        let [q, k] = ops.rotated(layer, &qkv, self.len).map(|rows| self.stored(rows));
        self.k[index].extend_from_slice(&k);
        self.v[index].extend_from_slice(&qkv[q.len() + k.len()..]);
        let scale = 1.0 / (ops.model.config.head_dim as f64).sqrt();
        let weight = |x| self.stored_one(x);
        self.stored(ops.attention(&q, &self.k[index], &self.v[index], scale, weight))
    }

    fn stored(&self, values: Vec<f64>) -> Vec<f64> {
        values.into_iter().map(|x| self.stored_one(x)).collect()
    }

    fn stored_one(&self, x: f64) -> f64 {
        match self.storage {
            Storage::Exact => x,
            Storage::Rounded => self.operators.round(x),
        }
    }
}
