//! Model configuration.

use serde::{Deserialize, Serialize};

use crate::contract::Constants;
use crate::contract::rope::RopeScaling;

/// Architectures of the fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Llama: no q/k norm.
    Llama,
    /// Qwen3: RMS norm on each head of q and k.
    Qwen3,
}

/// Shapes and constants of a decoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Name shown in reports: a preset's, or the file's.
    pub name: String,
    /// Architecture.
    pub family: Family,
    /// Decoder layers.
    pub layers: usize,
    /// Residual width.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Feed-forward width.
    pub ffn: usize,
    /// Vocabulary size.
    pub vocab: usize,
    /// Epsilon of every norm.
    pub norm_eps: f32,
    /// RoPE base.
    pub rope_base: f64,
    /// RoPE scaling.
    pub rope_scaling: RopeScaling,
    /// Longest sequence in positions.
    pub context: usize,
    /// Ids that end a sequence.
    pub eos: Vec<u32>,
    /// Id put before a prompt, if the model wants one.
    pub bos: Option<u32>,
    /// Where reductions are cut.
    pub constants: Constants,
    /// Default KV block size in positions.
    pub block_size: usize,
}
