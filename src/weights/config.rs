//! Model configuration.

use serde::{Deserialize, Serialize};

use crate::contract::Constants;
use crate::contract::rope::{RopeScaling, YarnRange};

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

/// Most decoder layers.
const LAYERS_MAX: usize = 1 << 10;
/// Widest residual, feed-forward or head row, in elements.
const WIDTH_MAX: usize = 1 << 18;
/// Largest vocabulary.
const VOCAB_MAX: usize = 1 << 21;
/// Longest context, in positions.
const CONTEXT_MAX: usize = 1 << 21;
/// Most parameters.
const PARAMETERS_MAX: u128 = 1 << 38;

impl ModelConfig {
    /// Block size of models from files, in positions.
    pub const DEFAULT_BLOCK_SIZE: usize = 16;

    /// Constants of models from files.
    pub fn default_constants(hidden: usize) -> Constants {
        if hidden < 1024 { Constants::SMALL } else { Constants::REAL }
    }

    /// Whether this can be a decoder that the fixture runs; says what cannot be.
    pub fn check(&self) -> Result<(), String> {
        let sizes = [
            ("layers", self.layers, LAYERS_MAX),
            ("hidden width", self.hidden, WIDTH_MAX),
            ("heads", self.heads, WIDTH_MAX),
            ("kv heads", self.kv_heads, WIDTH_MAX),
            ("head size", self.head_dim, WIDTH_MAX),
            ("feed-forward width", self.ffn, WIDTH_MAX),
            ("query width", self.heads.saturating_mul(self.head_dim), WIDTH_MAX),
            ("vocabulary", self.vocab, VOCAB_MAX),
            ("context", self.context, CONTEXT_MAX),
            ("block size", self.block_size, CONTEXT_MAX),
        ];
        if let Some((what, n, most)) = sizes.iter().find(|(_, n, most)| *n == 0 || n > most) {
            return Err(format!("{what} {n} is not in 1..={most}"));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(format!("{} heads over {} kv heads", self.heads, self.kv_heads));
        }
        if !self.head_dim.is_multiple_of(16) {
            return Err(format!("head size {} is not a multiple of 16", self.head_dim));
        }
        let widths = (2 * self.heads + 2 * self.kv_heads) * self.head_dim + 3 * self.ffn;
        let parameters =
            self.hidden as u128 * (self.layers as u128 * widths as u128 + 2 * self.vocab as u128);
        if parameters > PARAMETERS_MAX {
            return Err(format!("{parameters} parameters, more than {PARAMETERS_MAX}"));
        }
        if !(self.norm_eps > 0.0 && self.norm_eps < 1.0) {
            return Err(format!("norm epsilon {}", self.norm_eps));
        }
        if !(self.rope_base > 0.0 && self.rope_base.is_finite()) {
            return Err(format!("RoPE base {}", self.rope_base));
        }
        self.check_scaling()?;
        match self.eos.iter().chain(&self.bos).find(|&&id| id as usize >= self.vocab) {
            Some(id) => Err(format!("id {id} in a vocabulary of {}", self.vocab)),
            None => Ok(()),
        }
    }

    fn check_scaling(&self) -> Result<(), String> {
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let good = match self.rope_scaling {
            RopeScaling::None => true,
            RopeScaling::Linear { factor } => positive(factor),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                [factor, low_freq_factor, high_freq_factor, original_context]
                    .into_iter()
                    .all(positive)
                    && high_freq_factor > low_freq_factor
            }
            RopeScaling::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_context,
                attention_factor,
                ..
            } => {
                let range = YarnRange::new(self.rope_scaling, self.head_dim, self.rope_base);
                let ascends = |range: YarnRange| range.high > range.low && range.low.is_finite();
                [factor, beta_fast, beta_slow, original_context, attention_factor]
                    .into_iter()
                    .all(positive)
                    && range.is_some_and(ascends)
            }
        };
        if good { Ok(()) } else { Err(format!("RoPE scaling {:?}", self.rope_scaling)) }
    }
}
