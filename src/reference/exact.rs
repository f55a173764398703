//! The forward pass in f64, without any rounding between operators: what the engine's f32 and 16-bit results are
//! measured against (F1).
//!
//! It shares no code with the devices: plain loops over weights widened to f64, `exp` and `cos` of the standard
//! library, one request, one position at a time. Nothing here is fast, and nothing is to the bit.

use crate::contract::rope::RopeScaling;
use crate::weights::{Layer, Matrix16, Model, ModelConfig};

/// What one position came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    /// The residual stream, `[hidden]`: after the embedding, then after each layer.
    pub residual: Vec<Vec<f64>>,
    /// Logits, `[vocab]`.
    pub logits: Vec<f64>,
}

/// A forward pass over one sequence.
pub struct Exact<'m> {
    model: &'m Model,
    /// Radians per position of each pair.
    theta: Vec<f64>,
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
        let config = &model.config;
        let half = config.head_dim / 2;
        let theta = (0..half).map(|i| theta(config, i)).collect();
        let empty = vec![Vec::new(); config.layers];
        Exact { model, theta, k: empty.clone(), v: empty, len: 0 }
    }

    /// Computes the next position.
    ///
    /// # Panics
    /// If `token` is outside the vocabulary.
    pub fn next(&mut self, token: u32) -> Position {
        let model = self.model;
        let config = &model.config;
        let mut h: Vec<f64> = row(model, &model.embedding, token as usize).collect();
        let mut residual = vec![h.clone()];
        for (index, layer) in model.layers.iter().enumerate() {
            let x = norm(model, &h, &layer.attention_norm);
            let attention = self.attention(index, layer, &x);
            add(&mut h, &multiply(model, &layer.o, &attention));
            let x = norm(model, &h, &layer.ffn_norm);
            let gate_up = multiply(model, &layer.gate_up, &x);
            let (gate, up) = gate_up.split_at(config.ffn);
            let z: Vec<f64> =
                gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            add(&mut h, &multiply(model, &layer.down, &z));
            residual.push(h.clone());
        }
        let x = norm(model, &h, &model.final_norm);
        let logits = multiply(model, model.head.as_ref().unwrap_or(&model.embedding), &x);
        self.len += 1;
        Position { residual, logits }
    }

    /// Attention of the newest position over all positions.
    fn attention(&mut self, index: usize, layer: &Layer, x: &[f64]) -> Vec<f64> {
        let model = self.model;
        let ModelConfig { heads, kv_heads, head_dim, .. } = model.config;
        let mut qkv = multiply(model, &layer.qkv, x);
        let (q, rest) = qkv.split_at_mut(heads * head_dim);
        let (k, v) = rest.split_at_mut(kv_heads * head_dim);
        for (rows, weight) in [(&mut *q, &layer.q_norm), (&mut *k, &layer.k_norm)] {
            for head in rows.chunks_exact_mut(head_dim) {
                if let Some(weight) = weight {
                    head.copy_from_slice(&norm(model, head, weight));
                }
                self.rotate(head);
            }
        }
        self.k[index].extend_from_slice(k);
        self.v[index].extend_from_slice(v);
        let width = kv_heads * head_dim;
        let mut out = Vec::with_capacity(heads * head_dim);
        for (head, q) in q.chunks_exact(head_dim).enumerate() {
            let column = head / (heads / kv_heads) * head_dim;
            let part = |rows: &[f64], p: usize| rows[p * width + column..][..head_dim].to_vec();
            let scores: Vec<f64> = (0..=self.len)
                .map(|p| dot(q, &part(&self.k[index], p)) / (head_dim as f64).sqrt())
                .collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let total: f64 = weights.iter().sum();
            let mut sum = vec![0.0; head_dim];
            for (p, weight) in weights.iter().enumerate() {
                for (sum, v) in sum.iter_mut().zip(part(&self.v[index], p)) {
                    *sum += weight / total * v;
                }
            }
            out.extend(sum);
        }
        out
    }

    /// Rotates the pairs (i, i + dim/2) of a head at the newest position.
    fn rotate(&self, head: &mut [f64]) {
        let half = head.len() / 2;
        for i in 0..half {
            let (sin, cos) = (self.len as f64 * self.theta[i]).sin_cos();
            let (a, b) = (head[i], head[i + half]);
            head[i] = a * cos - b * sin;
            head[i + half] = b * cos + a * sin;
        }
    }
}

/// Radians per position of pair `i`, with the configuration's scaling.
fn theta(config: &ModelConfig, i: usize) -> f64 {
    let plain = config.rope_base.powf(-2.0 * i as f64 / config.head_dim as f64);
    match config.rope_scaling {
        RopeScaling::None => plain,
        RopeScaling::Linear { factor } => plain / factor,
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            // Turns over the original context: few turns are slowed down, many are left alone.
            let turns = original_context * plain / std::f64::consts::TAU;
            let kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
            let kept = kept.clamp(0.0, 1.0);
            kept * plain + (1.0 - kept) * plain / factor
        }
    }
}

/// A row of a matrix, widened.
fn row<'a>(model: &'a Model, matrix: &'a Matrix16, n: usize) -> impl Iterator<Item = f64> + 'a {
    let row = &matrix.data[n * matrix.k..(n + 1) * matrix.k];
    row.iter().map(|w| f64::from(model.dtype.widen(*w)))
}

/// `y[n] = W[n][k] . x[k]`.
fn multiply(model: &Model, matrix: &Matrix16, x: &[f64]) -> Vec<f64> {
    (0..matrix.n).map(|n| row(model, matrix, n).zip(x).map(|(w, x)| w * x).sum()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(h: &mut [f64], y: &[f64]) {
    h.iter_mut().zip(y).for_each(|(h, y)| *h += y);
}

/// RMS norm with the model's epsilon.
fn norm(model: &Model, x: &[f64], weight: &[u16]) -> Vec<f64> {
    let mean = dot(x, x) / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(model.config.norm_eps)).sqrt();
    x.iter().zip(weight).map(|(x, w)| x * scale * f64::from(model.dtype.widen(*w))).collect()
}
