//! The forward pass in f64, without any rounding between operators: what the engine's f32 and 16-bit results are
//! measured against (F1). With the roundings of 16-bit storage and no others, it estimates how far they may be.
//!
//! It shares no code with the devices: plain loops over weights widened to f64, one request, all positions of a layer at a
//! time. Nothing here is fast, and nothing is to the bit.

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

/// The forward pass over the tokens of one sequence: one entry a position.
///
/// # Panics
/// If a token is outside the vocabulary.
pub fn pass(model: &Model, tokens: &[u32], storage: Storage) -> Vec<Position> {
    let operators = Operators::new(model);
    let pass = Pass { operators, storage };
    let ops = &pass.operators;
    let mut h: Vec<Vec<f64>> = tokens.iter().map(|token| ops.embed(*token)).collect();
    let mut residual: Vec<Vec<Vec<f64>>> = h.iter().map(|h| vec![h.clone()]).collect();
    for layer in &model.layers {
        let x = pass.norm(&h, &layer.attention_norm);
        let attention = pass.attention(layer, &x);
        add(&mut h, &ops.multiply(&layer.o, &attention));
        let x = pass.norm(&h, &layer.ffn_norm);
        let gate_up = pass.stored(ops.multiply(&layer.gate_up, &x));
        let z = pass.stored(gate_up.iter().map(|row| ops.swiglu(row)).collect());
        add(&mut h, &ops.multiply(&layer.down, &z));
        residual.iter_mut().zip(&h).for_each(|(all, h)| all.push(h.clone()));
    }
    let logits = ops.head(&pass.norm(&h, &model.final_norm));
    let positions = residual.into_iter().zip(logits);
    positions.map(|(residual, logits)| Position { residual, logits }).collect()
}

/// What all layers share.
struct Pass<'m> {
    operators: Operators<'m>,
    storage: Storage,
}

impl Pass<'_> {
    fn norm(&self, rows: &[Vec<f64>], weight: &[u16]) -> Vec<Vec<f64>> {
        self.stored(rows.iter().map(|row| self.operators.norm(row, weight)).collect())
    }

    /// Attention of each position over those up to it.
    fn attention(&self, layer: &Layer, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let ops = &self.operators;
        let qkv = self.stored(ops.multiply(&layer.qkv, x));
        let (mut k, mut v) = (Vec::new(), Vec::new());
        let scale = 1.0 / (ops.model.config.head_dim as f64).sqrt();
        let rows = qkv.iter().enumerate().map(|(position, qkv)| {
            let [q, new_k] = ops.rotated(layer, qkv, position).map(|row| self.stored_row(row));
            v.extend_from_slice(&qkv[q.len() + new_k.len()..]);
            k.extend(new_k);
            ops.attention(&q, &k, &v, scale, |weight| self.stored_value(weight))
        });
        let rows = rows.collect();
        self.stored(rows)
    }

    fn stored(&self, rows: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
        rows.into_iter().map(|row| self.stored_row(row)).collect()
    }

    fn stored_row(&self, row: Vec<f64>) -> Vec<f64> {
        row.into_iter().map(|x| self.stored_value(x)).collect()
    }

    fn stored_value(&self, x: f64) -> f64 {
        match self.storage {
            Storage::Exact => x,
            Storage::Rounded => self.operators.round(x),
        }
    }
}
