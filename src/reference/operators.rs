//! The operators of a decoder in f64, from the equations: no order of summation, no rounding in between, no code of a
//! device.
//!
//! Rows are slices of f64. `exp` and `cos` are the standard library's.

use half::{bf16, f16};

use crate::contract::Dtype;
use crate::contract::rope::RopeScaling;
use crate::weights::{Layer, Matrix16, Model, ModelConfig};

/// A model's operators.
pub(super) struct Operators<'m> {
    pub(super) model: &'m Model,
    /// Each 16-bit pattern widened.
    wide: Vec<f64>,
    /// Radians per position of each pair.
    theta: Vec<f64>,
    /// Length of a pair of length 1 after rotation.
    length: f64,
}

impl<'m> Operators<'m> {
    pub(super) fn new(model: &'m Model) -> Operators<'m> {
        let half = model.config.head_dim / 2;
        Operators {
            model,
            wide: (0..=u16::MAX).map(|w| f64::from(model.dtype.widen(w))).collect(),
            theta: (0..half).map(|i| theta(&model.config, i)).collect(),
            length: match model.config.rope_scaling {
                RopeScaling::Yarn { attention_factor, .. } => attention_factor,
                _ => 1.0,
            },
        }
    }

    /// 16-bit values, widened.
    pub(super) fn widen(&self, values: &[u16]) -> impl Iterator<Item = f64> {
        values.iter().map(|w| self.wide[usize::from(*w)])
    }

    /// The value that 16 bits hold of this one; by the `half` crate, not by the contract's code. By way of f32, which the
    /// engine's values are: `bf16::from_f64` of half 2.7 drops low bits before it rounds, and takes for a tie what is not.
    pub(super) fn round(&self, x: f64) -> f64 {
        match self.model.dtype {
            Dtype::Bf16 => bf16::from_f32(x as f32).to_f64(),
            Dtype::F16 => f16::from_f32(x as f32).to_f64(),
        }
    }

    /// The embedding of a token.
    ///
    /// # Panics
    /// If `token` is outside the vocabulary.
    pub(super) fn embed(&self, token: u32) -> Vec<f64> {
        let Matrix16 { k, data, .. } = &self.model.embedding;
        self.widen(&data[token as usize * k..][..*k]).collect()
    }

    /// RMS norm with the model's epsilon.
    pub(super) fn norm(&self, x: &[f64], weight: &[u16]) -> Vec<f64> {
        let mean = dot(x, x) / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(self.model.config.norm_eps)).sqrt();
        x.iter().zip(self.widen(weight)).map(|(x, w)| x * scale * w).collect()
    }

    /// `y[m][n] = x[m][k] . W[n][k]`.
    pub(super) fn multiply(&self, matrix: &Matrix16, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let mut y = vec![Vec::with_capacity(matrix.n); rows.len()];
        let mut wide = vec![0.0; matrix.k];
        for weights in matrix.data.chunks_exact(matrix.k) {
            wide.iter_mut().zip(self.widen(weights)).for_each(|(wide, w)| *wide = w);
            y.iter_mut().zip(rows).for_each(|(y, x)| y.push(dot(&wide, x)));
        }
        y
    }

    /// The logits of normalised rows.
    pub(super) fn head(&self, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
        self.multiply(self.model.head.as_ref().unwrap_or(&self.model.embedding), rows)
    }

    /// q and k at a position: normalised if the layer does that, and rotated. `qkv` is `[q; k; v]`.
    pub(super) fn rotated(&self, layer: &Layer, qkv: &[f64], position: usize) -> [Vec<f64>; 2] {
        let ModelConfig { heads, kv_heads, head_dim, .. } = self.model.config;
        let (q, rest) = qkv.split_at(heads * head_dim);
        let k = &rest[..kv_heads * head_dim];
        [(q, &layer.q_norm), (k, &layer.k_norm)].map(|(rows, weight)| {
            let heads = rows.chunks_exact(head_dim).flat_map(|head| {
                let mut head = match weight {
                    Some(weight) => self.norm(head, weight),
                    None => head.to_vec(),
                };
                self.rotate(&mut head, position);
                head
            });
            heads.collect()
        })
    }

    /// Rotates the pairs (i, i + dim/2) of a head.
    fn rotate(&self, head: &mut [f64], position: usize) {
        let half = head.len() / 2;
        for i in 0..half {
            let (sin, cos) = (position as f64 * self.theta[i]).sin_cos();
            let (sin, cos) = (sin * self.length, cos * self.length);
            let (a, b) = (head[i], head[i + half]);
            head[i] = a * cos - b * sin;
            head[i + half] = b * cos + a * sin;
        }
    }

    /// Attention of one row over all positions of `k` and `v`, each `[position][kv head][dim]`. A score is
    /// `q . k * scale`, and weights are in proportion to its exponential; `round` is what becomes of the weight of the best
    /// score, 1, and of those below it before they are multiplied with V.
    pub(super) fn attention(
        &self,
        q: &[f64],
        k: &[f64],
        v: &[f64],
        scale: f64,
        round: impl Fn(f64) -> f64,
    ) -> Vec<f64> {
        let ModelConfig { heads, kv_heads, head_dim, .. } = self.model.config;
        let width = kv_heads * head_dim;
        let mut out = Vec::with_capacity(heads * head_dim);
        for (head, q) in q.chunks_exact(head_dim).enumerate() {
            let column = head / (heads / kv_heads) * head_dim;
            let part = column..column + head_dim;
            let scores: Vec<f64> =
                k.chunks_exact(width).map(|k| dot(q, &k[part.clone()]) * scale).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let total: f64 = weights.iter().sum();
            let mut sum = vec![0.0; head_dim];
            for (weight, v) in weights.iter().zip(v.chunks_exact(width)) {
                for (sum, v) in sum.iter_mut().zip(&v[part.clone()]) {
                    *sum += round(*weight) / total * v;
                }
            }
            out.extend(sum);
        }
        out
    }

    /// `silu(gate) * up` of `[gate; up]`.
    pub(super) fn swiglu(&self, gate_up: &[f64]) -> Vec<f64> {
        let (gate, up) = gate_up.split_at(self.model.config.ffn);
        gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect()
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
        RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context, truncate, .. } => {
            // The pair that turns so often over the original context, as if pairs were real numbers.
            let at = |turns: f64| {
                let wavelength = original_context / turns;
                let pairs = (wavelength / std::f64::consts::TAU).log(config.rope_base);
                pairs * config.head_dim as f64 / 2.0
            };
            let (mut first, mut last) = (at(beta_fast), at(beta_slow));
            if truncate {
                (first, last) = (first.floor(), last.ceil());
            }
            let (first, last) = (first.max(0.0), last.min(config.head_dim as f64 - 1.0));
            // A step where the two are one pair.
            let width = if first == last { 0.001 } else { last - first };
            let slowed = ((i as f64 - first) / width).clamp(0.0, 1.0);
            plain * (slowed / factor + 1.0 - slowed)
        }
    }
}

/// Sums over eight lanes, so that an addition does not wait for the one before it.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, rest_a) = a.as_chunks::<8>();
    let (b, rest_b) = b.as_chunks::<8>();
    let mut lanes = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    let rest: f64 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f64>() + rest
}

/// `h + y` row by row, in place.
pub(super) fn add(h: &mut [Vec<f64>], y: &[Vec<f64>]) {
    h.iter_mut().flatten().zip(y.iter().flatten()).for_each(|(h, y)| *h += y);
}
