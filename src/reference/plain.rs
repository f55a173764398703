//! The plain engine: one request at a time, one position at a time, contiguous K and V, its own loops for stopping and
//! drawing (D1).
//!
//! It has no scheduler, no blocks, no plan and no step of several rows. What it shares with the engine is the device's
//! operators, in the contract's order of reduction, so it gives the same bits; what the engine does around them, it does
//! a second time.

mod generate;
mod logprobs;
mod watch;

use std::sync::Arc;

use crate::contract::digest;
use crate::contract::rope::RopeTable;
use crate::contract::simd::Simd;
use crate::contract::tree::norm_lanes;
use crate::device::{
    AttentionLaunch, Device, DeviceError, GemmLaunch, GemmOutput, Heads, KvShape, Layout,
    NormLaunch, QkNorm, RowTile, Sequence, Splits,
};
use crate::record::KvDigest;
use crate::weights::{Layer, Matrix16, Model, ModelConfig};

pub use generate::{Generated, Score};
pub use watch::Watched;

/// A model on a device, for one request at a time.
pub struct Plain<D: Device> {
    model: Arc<Model>,
    device: D,
    embedding: D::Matrix,
    layers: Vec<PlainLayer<D>>,
    final_norm: D::T16,
    head: Option<D::Matrix>,
    rope: D::Rope,
    /// Positions that the RoPE table covers.
    positions: usize,
}

struct PlainLayer<D: Device> {
    attention_norm: D::T16,
    qkv: D::Matrix,
    q_norm: Option<D::T16>,
    k_norm: Option<D::T16>,
    o: D::Matrix,
    ffn_norm: D::T16,
    gate_up: D::Matrix,
    down: D::Matrix,
}

/// A sequence in the plain engine: K and V in one piece.
pub struct Text<D: Device> {
    kv: D::Kv,
    len: u32,
    capacity: u32,
}

/// What one position came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Logits {
    /// f32 logits, `[vocab]`.
    pub values: Vec<f32>,
    /// Their digest (docs/contract.md section 13).
    pub digest: u64,
}

/// Launches of a position: one row, its splits walked in the contract's order.
struct Launches {
    norm: NormLaunch,
    qkv: GemmLaunch,
    o: GemmLaunch,
    gate_up: GemmLaunch,
    down: GemmLaunch,
    head: GemmLaunch,
    attention: AttentionLaunch,
}

impl Launches {
    fn new(config: &ModelConfig) -> Launches {
        let (hidden, ffn) = (config.hidden, config.ffn);
        let heads = heads(config);
        let gemm = |n: usize, k: usize| GemmLaunch {
            rows: RowTile::Skinny,
            splits: Splits::Walk,
            cuts: Arc::from(config.constants.cuts(k, config.constants.splits(n, k))),
        };
        Launches {
            norm: NormLaunch { lanes: norm_lanes(hidden), fused: false },
            qkv: gemm(heads.qkv_columns(), hidden),
            o: gemm(hidden, heads.q * heads.dim),
            gate_up: gemm(2 * ffn, hidden),
            down: gemm(hidden, ffn),
            head: gemm(config.vocab, hidden),
            attention: AttentionLaunch { splits: Splits::Walk, split: config.constants.split },
        }
    }
}

fn heads(config: &ModelConfig) -> Heads {
    Heads { q: config.heads, kv: config.kv_heads, dim: config.head_dim }
}

impl<D: Device> Plain<D> {
    /// Puts `model` on `device`, which runs under the model's contract with this table.
    pub fn new(model: Arc<Model>, device: D, rope: &RopeTable) -> Result<Plain<D>, DeviceError> {
        let matrix = |m: &Matrix16| device.upload_matrix(m.n, m.k, &m.data);
        let optional = |w: &Option<Vec<u16>>| w.as_ref().map(|w| device.upload(w)).transpose();
        let layer = |layer: &Layer| -> Result<PlainLayer<D>, DeviceError> {
            Ok(PlainLayer {
                attention_norm: device.upload(&layer.attention_norm)?,
                qkv: matrix(&layer.qkv)?,
                q_norm: optional(&layer.q_norm)?,
                k_norm: optional(&layer.k_norm)?,
                o: matrix(&layer.o)?,
                ffn_norm: device.upload(&layer.ffn_norm)?,
                gate_up: matrix(&layer.gate_up)?,
                down: matrix(&layer.down)?,
            })
        };
        Ok(Plain {
            embedding: matrix(&model.embedding)?,
            layers: model.layers.iter().map(layer).collect::<Result<_, _>>()?,
            final_norm: device.upload(&model.final_norm)?,
            head: model.head.as_ref().map(matrix).transpose()?,
            rope: device.upload_rope(rope)?,
            positions: rope.positions,
            model,
            device,
        })
    }

    /// An empty text with room for `positions`.
    pub fn text(&self, positions: usize) -> Result<Text<D>, DeviceError> {
        let config = &self.model.config;
        if positions == 0 || positions > self.positions {
            let why = format!("a text of {positions} positions, the model has {}", self.positions);
            return Err(DeviceError::Launch(why));
        }
        let kv = self.device.alloc_kv(KvShape {
            layers: config.layers,
            blocks: 1,
            block_size: positions,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
        })?;
        Ok(Text { kv, len: 0, capacity: positions as u32 })
    }

    /// Computes the next position of a text.
    pub fn next(&mut self, text: &mut Text<D>, token: u32) -> Result<Logits, DeviceError> {
        let model = Arc::clone(&self.model);
        let config = &model.config;
        let (hidden, ffn, eps) = (config.hidden, config.ffn, config.norm_eps);
        let heads = heads(config);
        let launch = Launches::new(config);
        let sequence = Sequence { blocks: vec![0], start: text.len, len: 1 };
        let layout = Layout { block_size: text.capacity, sequences: vec![sequence] };
        let norm = launch.norm;
        let width = heads.q * heads.dim;
        let d = &mut self.device;
        let mut h = d.alloc_f32(hidden)?;
        let mut x = d.alloc_t16(hidden)?;
        let mut qkv = d.alloc_t16(heads.qkv_columns())?;
        let (mut q, mut out) = (d.alloc_t16(width)?, d.alloc_t16(width)?);
        let (mut gate_up, mut z) = (d.alloc_t16(2 * ffn)?, d.alloc_t16(ffn)?);
        let mut logits = d.alloc_f32(config.vocab)?;
        d.embed(&self.embedding, &[token], &mut h)?;
        for (index, layer) in self.layers.iter().enumerate() {
            d.rmsnorm(norm, 1, hidden, &h, &layer.attention_norm, eps, &mut x)?;
            d.gemm(&launch.qkv, 1, &x, &layer.qkv, GemmOutput::Round(&mut qkv))?;
            let qk_norm = match (&layer.q_norm, &layer.k_norm) {
                (Some(q), Some(k)) => Some(QkNorm { q, k, eps }),
                _ => None,
            };
            let kv = &mut text.kv;
            d.rope_and_store(index, heads, &layout, &qkv, qk_norm, &self.rope, &mut q, kv)?;
            d.attention(launch.attention, index, heads, &layout, &q, kv, &mut out)?;
            d.gemm(&launch.o, 1, &out, &layer.o, GemmOutput::Residual(&mut h))?;
            d.rmsnorm(norm, 1, hidden, &h, &layer.ffn_norm, eps, &mut x)?;
            d.gemm(&launch.gate_up, 1, &x, &layer.gate_up, GemmOutput::Round(&mut gate_up))?;
            d.swiglu(1, ffn, &gate_up, &mut z)?;
            d.gemm(&launch.down, 1, &z, &layer.down, GemmOutput::Residual(&mut h))?;
        }
        d.rmsnorm(norm, 1, hidden, &h, &self.final_norm, eps, &mut x)?;
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        d.gemm(&launch.head, 1, &x, head, GemmOutput::Store(&mut logits))?;
        text.len += 1;
        let values = d.read_f32(&logits, config.vocab)?;
        let digest = digest::row(Simd::all()[0], &values);
        Ok(Logits { values, digest })
    }

    /// K and V of every position of a text: one list of layers a position.
    fn kv(&mut self, text: &Text<D>) -> Result<Vec<Vec<KvDigest>>, DeviceError> {
        let mut positions = vec![Vec::new(); text.len as usize];
        for layer in 0..self.layers.len() {
            let digests = self.device.digest_kv(layer, &text.kv, &[0], 0, text.len)?;
            positions.iter_mut().zip(digests).for_each(|(layers, d)| layers.push(d));
        }
        Ok(positions)
    }
}
