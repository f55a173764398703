//! Presets, and their weights made from a seed (docs/contract.md section 12).
//!
//! Element `e` of tensor `t` is `r16(f32(i32(x0) >> 8) * scale)`, where `x0` is the first word of Philox4x32-10
//! over the counter `(e low, e high, t, 0)` under the weight seed; a norm weight is that value plus one. Each
//! element is a function of its own index, so a device can make a model of any size in place: [`tensors`] lists
//! what to make.
//!
//! Scales are uniform weights' standard deviations over `sqrt(fan_in)`, with gains that keep the model lively:
//! attention scores have a standard deviation near two, each block adds to the residual about as much as is
//! there, and logits spread by about two, so that greedy outputs follow the prompt and sampling stays diverse.

use super::config::{Family, ModelConfig};
use super::layout::{Part, Slot};
use super::{Model, Synthetic};
use crate::contract::philox::philox4x32_10;
use crate::contract::rope::RopeScaling;
use crate::contract::{Constants, Dtype};

/// Bytes of the synthetic vocabulary; the ids past them are specials.
pub const BYTE_TOKENS: u32 = 256;
/// End of text in the synthetic vocabulary.
pub const EOS: u32 = 256;
/// Begin of text in the synthetic vocabulary.
pub const BOS: u32 = 257;

/// A built-in model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Preset {
    /// Two layers, a byte vocabulary, an untied head with duplicated rows: Llama family.
    Tiny,
    /// Eight layers, a byte vocabulary, a tied head: Qwen3 family.
    Small,
    /// The shapes of Qwen3-0.6B.
    Qwen3_06B,
    /// The shapes of Qwen3-8B.
    Qwen3_8B,
}

impl Preset {
    /// All of them, smallest first.
    pub const ALL: [Preset; 4] = [Preset::Tiny, Preset::Small, Preset::Qwen3_06B, Preset::Qwen3_8B];

    /// Name as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Tiny => "tiny",
            Preset::Small => "small",
            Preset::Qwen3_06B => "qwen3-0.6b",
            Preset::Qwen3_8B => "qwen3-8b",
        }
    }

    /// The preset of that name.
    pub fn from_name(name: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|p| p.name() == name)
    }

    /// Shapes and constants.
    pub fn config(self) -> ModelConfig {
        let name = self.name().to_owned();
        let rope_scaling = RopeScaling::None;
        match self {
            Preset::Tiny => ModelConfig {
                name,
                family: Family::Llama,
                layers: 2,
                hidden: 64,
                heads: 4,
                kv_heads: 2,
                head_dim: 16,
                ffn: 176,
                vocab: 264,
                norm_eps: 1e-5,
                rope_base: 1e4,
                rope_scaling,
                context: 1024,
                eos: vec![EOS],
                bos: None,
                constants: Constants::TINY,
                block_size: 4,
            },
            Preset::Small => ModelConfig {
                name,
                family: Family::Qwen3,
                layers: 8,
                hidden: 256,
                heads: 4,
                kv_heads: 2,
                head_dim: 64,
                ffn: 704,
                vocab: 264,
                norm_eps: 1e-6,
                rope_base: 1e6,
                rope_scaling,
                context: 4096,
                eos: vec![EOS],
                bos: Some(BOS),
                constants: Constants::SMALL,
                block_size: 16,
            },
            Preset::Qwen3_06B => {
                ModelConfig { layers: 28, hidden: 1024, heads: 16, ffn: 3072, ..qwen3(name) }
            }
            Preset::Qwen3_8B => {
                ModelConfig { layers: 36, hidden: 4096, heads: 32, ffn: 12288, ..qwen3(name) }
            }
        }
    }

    /// Whether the head is the embedding.
    pub fn tied(self) -> bool {
        matches!(self, Preset::Small | Preset::Qwen3_06B)
    }

    /// Whether the weights are too many to make them for a digest's sake.
    pub fn is_large(self) -> bool {
        matches!(self, Preset::Qwen3_06B | Preset::Qwen3_8B)
    }

    /// The row that the head's row `id` is a copy of, where the preset wants exact ties.
    pub(super) fn head_row(self, id: usize) -> usize {
        match self {
            // Neighbours, and pairs two blocks of the log-softmax apart.
            Preset::Tiny if id < 192 && id % 8 == 7 => id - 1,
            Preset::Tiny if (192..256).contains(&id) && id.is_multiple_of(4) => id - 128,
            _ => id,
        }
    }

    /// Standard deviations and gains of the preset's weights.
    fn gains(self) -> Gains {
        match self {
            Preset::Tiny => {
                Gains { embedding: 0.5, qk: 1.5, head_norm: 0.0, o: 1.5, down: 1.5, head: 2.25 }
            }
            Preset::Small => {
                Gains { embedding: 0.125, qk: 1.0, head_norm: 1.5, o: 1.0, down: 1.5, head: 0.0 }
            }
            Preset::Qwen3_06B => {
                Gains { embedding: 0.0625, qk: 1.0, head_norm: 1.5, o: 1.0, down: 1.5, head: 0.0 }
            }
            Preset::Qwen3_8B => {
                Gains { embedding: 0.0625, qk: 1.0, head_norm: 1.5, o: 1.0, down: 1.5, head: 2.5 }
            }
        }
    }
}

/// What the published configurations of the family share.
fn qwen3(name: String) -> ModelConfig {
    ModelConfig {
        name,
        family: Family::Qwen3,
        layers: 0,
        hidden: 0,
        heads: 0,
        kv_heads: 8,
        head_dim: 128,
        ffn: 0,
        vocab: 151_936,
        norm_eps: 1e-6,
        rope_base: 1e6,
        rope_scaling: RopeScaling::None,
        context: 40_960,
        eos: vec![151_645],
        bos: None,
        constants: Constants::REAL,
        block_size: 16,
    }
}

/// Standard deviations of the outputs of each kind of tensor, for inputs of unit variance.
struct Gains {
    /// Of an embedding element.
    embedding: f32,
    /// Of q and k.
    qk: f32,
    /// Half range of the q and k norm weights around one.
    head_norm: f32,
    /// Of the output projection.
    o: f32,
    /// Of the down projection.
    down: f32,
    /// Of the logits (untied).
    head: f32,
}

/// One tensor of a preset, before fusion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tensor {
    /// Its number, the third counter word.
    pub t: u32,
    /// Rows, 1 for a norm.
    pub n: usize,
    /// Columns.
    pub k: usize,
    /// Scale of a 24-bit integer.
    pub scale: f32,
    /// Whether one is added (norm weights).
    pub norm: bool,
}

/// The tensors of a preset: what a device needs to make its weights in place.
pub struct Tensors {
    config: ModelConfig,
    gains: Gains,
}

/// The tensors of a preset.
pub fn tensors(preset: Preset) -> Tensors {
    Tensors { config: preset.config(), gains: preset.gains() }
}

/// Half range of ordinary norm weights around one.
const NORM_RANGE: f32 = 0.25;

impl Tensors {
    /// Tensor 0 is the embedding, 1 the final norm, 2 the head of an untied preset before rows are duplicated,
    /// `16 (layer + 1) + part` a part of a layer.
    pub fn tensor(&self, slot: Slot) -> Tensor {
        let (rows, k) = self.config.shape(slot);
        let g = &self.gains;
        let per_input = |gain: f32| gain / (k as f32).sqrt();
        let (t, deviation) = match slot {
            Slot::Embedding => (0, g.embedding),
            Slot::FinalNorm => (1, 0.0),
            Slot::Head => (2, per_input(g.head)),
            Slot::Layer(layer, part) => {
                let deviation = match part {
                    Part::AttentionNorm | Part::QNorm | Part::KNorm | Part::FfnNorm => 0.0,
                    Part::Q | Part::K => per_input(g.qk),
                    Part::V | Part::Gate | Part::Up => per_input(1.0),
                    Part::O => per_input(g.o),
                    Part::Down => per_input(g.down),
                };
                (16 * (layer as u32 + 1) + part as u32, deviation)
            }
        };
        // A uniform variable in [-1, 1) has the standard deviation 1/sqrt(3); integers reach 2^23.
        let range = match slot {
            Slot::Layer(_, Part::QNorm | Part::KNorm) => g.head_norm,
            _ if rows.is_none() => NORM_RANGE,
            _ => deviation * 3f32.sqrt(),
        };
        Tensor { t, n: rows.unwrap_or(1), k, scale: range / 8_388_608.0, norm: rows.is_none() }
    }
}

impl Tensor {
    /// Element `e` before rounding.
    #[inline]
    fn value(&self, key: [u32; 2], e: u64) -> f32 {
        let x0 = philox4x32_10([e as u32, (e >> 32) as u32, self.t, 0], key)[0];
        let value = (x0 as i32 >> 8) as f32 * self.scale;
        if self.norm { 1.0 + value } else { value }
    }

    /// `len` elements from `start` on.
    pub(super) fn slice(&self, dtype: Dtype, key: [u32; 2], start: usize, len: usize) -> Vec<u16> {
        (start..start + len).map(|e| dtype.round(self.value(key, e as u64))).collect()
    }

    /// Appends all elements to `out`.
    pub(super) fn append(&self, dtype: Dtype, key: [u32; 2], out: &mut Vec<u16>) {
        out.extend((0..(self.n * self.k) as u64).map(|e| dtype.round(self.value(key, e))));
    }
}

impl Model {
    /// Makes the weights of a preset from a seed, in host memory.
    pub fn synthetic(preset: Preset, dtype: Dtype, weight_seed: u64) -> Model {
        Synthetic { preset, dtype, seed: weight_seed }.model()
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::contract::hex;

    /// Goal: the formula, not the code, decides the weights. Method: the published Philox block of counter 0
    /// and key 0 begins with 6627e8d5; 6627e8d5 >> 8 = 6694888, times the scale of tiny's embedding.
    #[test]
    fn the_first_embedding_element_follows_from_the_published_philox_block() {
        let model = Model::synthetic(Preset::Tiny, Dtype::F16, 0);
        let scale = 0.5 * 3f32.sqrt() / 8_388_608.0;
        let expected = half::f16::from_f32(6_694_888.0 * scale);
        assert_eq!(model.embedding.data[0], expected.to_bits());
    }

    /// Goal: every weight is the one that the contract names. Method: sha256 over all tensors in order, as made
    /// by a second implementation in Python from the formula and the gains alone.
    #[test]
    fn all_weights_are_those_of_a_second_implementation() {
        let golden = [
            (Preset::Tiny, "b8afd5573a6793b974fbab84b06b158d69782a58570b7e462af807655032db12"),
            (Preset::Small, "dca5089cc9407bd378027a28d255aeaf7a98490b48bad50f44b4bc57837b9d2f"),
        ];
        for (preset, expected) in golden {
            let model = Model::synthetic(preset, Dtype::F16, 0x0123_4567_89ab_cdef);
            let mut hasher = Sha256::new();
            for (_, values) in model.tensors() {
                hasher.update(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
            }
            assert_eq!(hex(&hasher.finalize()), expected, "{}", preset.name());
        }
    }

    #[test]
    fn names_and_presets_correspond() {
        for preset in Preset::ALL {
            assert_eq!(Preset::from_name(preset.name()), Some(preset));
            assert_eq!(preset.config().check(), Ok(()));
        }
        assert_eq!(Preset::from_name("large"), None);
    }

    #[test]
    fn the_head_of_tiny_has_equal_rows_near_and_far_and_eos_is_not_among_them() {
        let head = Model::synthetic(Preset::Tiny, Dtype::Bf16, 7).head.expect("tiny is untied");
        let row = |id: usize| &head.data[id * head.k..(id + 1) * head.k];
        let twins = |id: usize| (0..head.n).filter(|&j| j != id && row(j) == row(id)).count();
        assert_eq!(row(15), row(14));
        assert_eq!(row(196), row(68));
        assert_eq!((0..head.n).filter(|&id| twins(id) > 0).count(), 80);
        assert_eq!(twins(EOS as usize), 0);
    }

    #[test]
    fn weights_depend_on_every_bit_of_the_seed() {
        let base = Model::synthetic(Preset::Tiny, Dtype::F16, 0).digest;
        for bit in [0, 31, 32, 63] {
            assert_ne!(Model::synthetic(Preset::Tiny, Dtype::F16, 1 << bit).digest, base, "{bit}");
        }
    }
}
