//! Models on the host: configuration and 16-bit tensors, from presets, GGUF or safetensors.
//!
//! Every tensor is stored as T16, rounded once at load. Fused matrices are fused here: one `[q;k;v]`, one
//! `[gate;up]`. q and k rows are in the half-split order that the contract's RoPE expects.

mod assemble;
pub mod config;
mod digest;
mod error;
pub(crate) mod gguf;
mod gguf_model;
mod gguf_rope;
mod gguf_split;
mod hf;
mod hf_config;
mod hf_rope;
mod hf_tokenizer;
pub(crate) mod keys;
mod layout;
mod load;
mod open;
mod quant;
mod recipe;
pub mod synthetic;

use crate::contract::Dtype;

pub use config::{Family, ModelConfig};
pub use error::WeightsError;
pub(crate) use error::{Origin, quoted};
pub use layout::{Part, Slot};
pub use open::{PRESET_DTYPE, WEIGHT_SEED, open, source};
pub use recipe::{LayerRecipes, Recipe, Source, Synthetic};
pub use synthetic::Preset;

/// A row-major 16-bit matrix `[n][k]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix16 {
    /// Rows (output features).
    pub n: usize,
    /// Columns (input features).
    pub k: usize,
    /// `n * k` values.
    pub data: Vec<u16>,
}

/// Tensors of one decoder layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Norm before attention, `[hidden]`.
    pub attention_norm: Vec<u16>,
    /// `[q;k;v]`, `[(q_heads + 2 kv_heads) * head_dim][hidden]`.
    pub qkv: Matrix16,
    /// q norm, `[head_dim]` (Qwen3).
    pub q_norm: Option<Vec<u16>>,
    /// k norm, `[head_dim]` (Qwen3).
    pub k_norm: Option<Vec<u16>>,
    /// Output projection, `[hidden][q_heads * head_dim]`.
    pub o: Matrix16,
    /// Norm before the feed-forward, `[hidden]`.
    pub ffn_norm: Vec<u16>,
    /// `[gate;up]`, `[2 ffn][hidden]`.
    pub gate_up: Matrix16,
    /// Down projection, `[hidden][ffn]`.
    pub down: Matrix16,
}

/// A model in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Shapes and constants.
    pub config: ModelConfig,
    /// Storage dtype.
    pub dtype: Dtype,
    /// Embedding, `[vocab][hidden]`.
    pub embedding: Matrix16,
    /// Layers in order.
    pub layers: Vec<Layer>,
    /// Final norm, `[hidden]`.
    pub final_norm: Vec<u16>,
    /// LM head `[vocab][hidden]`; `None` when tied to the embedding.
    pub head: Option<Matrix16>,
    /// sha256 (hex) over configuration and tensors.
    pub digest: String,
}

impl Model {
    /// Every tensor with a name of its own, in a fixed order.
    pub fn tensors(&self) -> impl Iterator<Item = (String, &[u16])> {
        let layers = self.layers.iter().enumerate().flat_map(|(l, layer)| {
            layer.tensors().into_iter().map(move |(name, data)| (format!("layer.{l}.{name}"), data))
        });
        let head = self.head.as_ref().map(|m| ("head".to_owned(), &m.data[..]));
        [("embedding".to_owned(), &self.embedding.data[..])]
            .into_iter()
            .chain(layers)
            .chain([("final_norm".to_owned(), &self.final_norm[..])])
            .chain(head)
    }

    /// sha256 (hex) over configuration, dtype and the tensors as they are in memory, whatever `digest` says that they are:
    /// a synthetic model's is that of its recipes.
    pub fn tensors_digest(&self) -> String {
        digest::of(self)
    }
}

impl Layer {
    fn tensors(&self) -> Vec<(&'static str, &[u16])> {
        let mut all = vec![
            ("attention_norm", &self.attention_norm[..]),
            ("qkv", &self.qkv.data),
            ("o", &self.o.data),
            ("ffn_norm", &self.ffn_norm),
            ("gate_up", &self.gate_up.data),
            ("down", &self.down.data),
        ];
        all.extend(self.q_norm.as_deref().map(|w| ("q_norm", w)));
        all.extend(self.k_norm.as_deref().map(|w| ("k_norm", w)));
        all
    }
}
