//! GGUF as a model: architectures `llama` and `qwen3`.

use std::io::{Read, Seek};

use super::assemble::{Source, assemble};
use super::config::Family;
use super::gguf::{Gguf, Value};
use super::layout::{Part, Slot};
use super::{Model, ModelConfig, Origin, WeightsError, quoted};
use crate::contract::Dtype;
use crate::contract::rope::RopeScaling;

/// Factors of Llama 3's RoPE scaling, one per pair; the only auxiliary tensor that is read.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Loads a model whose header has been read.
pub(super) fn load<R: Read + Seek>(
    mut gguf: Gguf<R>,
    name: String,
    dtype: Option<Dtype>,
) -> Result<Model, WeightsError> {
    gguf.check_data()?;
    let config = config(&mut gguf, name)?;
    let tied = gguf.shape("output.weight").is_none();
    let interleaved = config.family == Family::Llama;
    let mut source = GgufSource { gguf, interleaved };
    assemble(&mut source, config, dtype.unwrap_or(Dtype::F16), tied, &[ROPE_FACTORS])
}

struct GgufSource<R> {
    gguf: Gguf<R>,
    interleaved: bool,
}

impl<R: Read + Seek> Source for GgufSource<R> {
    fn origin(&self, _tensor: &str) -> &Origin {
        self.gguf.origin()
    }

    fn names(&self) -> Vec<String> {
        self.gguf.tensors().cloned().collect()
    }

    fn name(&self, slot: Slot) -> String {
        match slot {
            Slot::Embedding => "token_embd.weight".to_owned(),
            Slot::FinalNorm => "output_norm.weight".to_owned(),
            Slot::Head => "output.weight".to_owned(),
            Slot::Layer(l, part) => {
                let part = match part {
                    Part::AttentionNorm => "attn_norm",
                    Part::Q => "attn_q",
                    Part::K => "attn_k",
                    Part::V => "attn_v",
                    Part::QNorm => "attn_q_norm",
                    Part::KNorm => "attn_k_norm",
                    Part::O => "attn_output",
                    Part::FfnNorm => "ffn_norm",
                    Part::Gate => "ffn_gate",
                    Part::Up => "ffn_up",
                    Part::Down => "ffn_down",
                };
                format!("blk.{l}.{part}.weight")
            }
        }
    }

    fn shape(&self, tensor: &str) -> Option<Vec<u64>> {
        self.gguf.shape(tensor)
    }

    fn read(
        &mut self,
        tensor: &str,
        each: &mut dyn FnMut(&[f32]) -> Result<(), WeightsError>,
    ) -> Result<(), WeightsError> {
        self.gguf.values(tensor, each)
    }

    fn interleaved(&self) -> bool {
        self.interleaved
    }
}

/// The configuration that the metadata states.
fn config<R: Read + Seek>(gguf: &mut Gguf<R>, name: String) -> Result<ModelConfig, WeightsError> {
    let origin = gguf.origin().clone();
    let family = match gguf.text("general.architecture")? {
        Some("llama") => Family::Llama,
        Some("qwen3") => Family::Qwen3,
        Some(other) => {
            let what = format!("architecture {}; llama and qwen3 are read", quoted(other));
            return Err(origin.unsupported(what));
        }
        None => return Err(origin.format("metadata key \"general.architecture\" is missing")),
    };
    let keys = Keys { gguf, arch: if family == Family::Llama { "llama" } else { "qwen3" } };
    let hidden = keys.size("embedding_length")?;
    let heads = keys.size("attention.head_count")?;
    let kv_heads = keys.optional_size("attention.head_count_kv")?.unwrap_or(heads);
    let key_length = keys.optional_size("attention.key_length")?;
    let head_dim = match key_length {
        Some(length) => length,
        None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let what = format!("{heads} heads do not divide {hidden} and no head size is given");
            return Err(origin.config(what));
        }
    };
    for key in ["attention.value_length", "rope.dimension_count"] {
        if let Some(other) = keys.optional_size(key)?.filter(|&other| other != head_dim) {
            let what = format!("{key} {other} differs from the head size {head_dim}");
            return Err(origin.unsupported(what));
        }
    }
    if keys.optional_size("expert_count")?.is_some_and(|n| n > 0) {
        return Err(origin.unsupported("a mixture of experts"));
    }
    let vocab = match gguf_vocab(keys.gguf) {
        Some(vocab) => vocab,
        None => return Err(origin.tensor("token_embd.weight", "missing")),
    };
    let context = keys.size("context_length")?;
    let norm_eps = keys.float("attention.layer_norm_rms_epsilon")?.ok_or_else(|| {
        origin.format("metadata key \"attention.layer_norm_rms_epsilon\" is missing")
    })?;
    let config = ModelConfig {
        name,
        family,
        layers: keys.size("block_count")?,
        hidden,
        heads,
        kv_heads,
        head_dim,
        ffn: keys.size("feed_forward_length")?,
        vocab,
        norm_eps: norm_eps as f32,
        rope_base: keys.float("rope.freq_base")?.unwrap_or(1e4),
        rope_scaling: keys.rope_scaling()?,
        context,
        eos: eos(keys.gguf)?,
        bos: bos(keys.gguf)?,
        constants: ModelConfig::default_constants(hidden),
        block_size: ModelConfig::DEFAULT_BLOCK_SIZE,
    };
    config.check().map_err(|what| origin.config(what))?;
    match gguf.shape(ROPE_FACTORS) {
        None => Ok(config),
        Some(_) => llama3_scaling(gguf, config),
    }
}

/// Rows of the embedding.
fn gguf_vocab<R: Read + Seek>(gguf: &Gguf<R>) -> Option<usize> {
    gguf.shape("token_embd.weight").and_then(|shape| usize::try_from(shape[0]).ok())
}

/// Metadata keys under the architecture's name.
struct Keys<'a, R> {
    gguf: &'a Gguf<R>,
    arch: &'static str,
}

impl<R: Read + Seek> Keys<'_, R> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>, WeightsError> {
        let key = self.key(key);
        match self.gguf.unsigned(&key)? {
            None => Ok(None),
            Some(n) if n <= u64::from(u32::MAX) => Ok(Some(n as usize)),
            Some(n) => Err(self.gguf.origin().config(format!("{key} is {n}"))),
        }
    }

    fn size(&self, key: &str) -> Result<usize, WeightsError> {
        self.optional_size(key)?.ok_or_else(|| {
            self.gguf.origin().format(format!("metadata key {:?} is missing", self.key(key)))
        })
    }

    fn float(&self, key: &str) -> Result<Option<f64>, WeightsError> {
        self.gguf.float(&self.key(key))
    }

    /// Scaling by metadata; Llama 3's comes as a tensor.
    fn rope_scaling(&self) -> Result<RopeScaling, WeightsError> {
        let factor = self.float("rope.scaling.factor")?;
        match self.gguf.text(&self.key("rope.scaling.type"))? {
            None | Some("none") => Ok(match self.float("rope.scale_linear")? {
                Some(factor) if factor != 1.0 => RopeScaling::Linear { factor },
                _ => RopeScaling::None,
            }),
            Some("linear") => Ok(match factor {
                Some(factor) => RopeScaling::Linear { factor },
                None => RopeScaling::None,
            }),
            Some(other) => {
                let what = format!("RoPE scaling {}; none, linear and llama3 are", quoted(other));
                Err(self.gguf.origin().unsupported(what))
            }
        }
    }
}

/// Ids that end a sequence: of text and of a turn.
fn eos<R: Read + Seek>(gguf: &Gguf<R>) -> Result<Vec<u32>, WeightsError> {
    let mut ids = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        ids.extend(id(gguf, key)?.filter(|id| !ids.contains(id)));
    }
    Ok(ids)
}

/// The id before a prompt: wanted by flag, or by the convention of Llama 3's vocabulary.
fn bos<R: Read + Seek>(gguf: &Gguf<R>) -> Result<Option<u32>, WeightsError> {
    let pre = gguf.text("tokenizer.ggml.pre")?;
    let llama3 = matches!(pre, Some("llama-bpe" | "llama3" | "llama-v3"));
    let wanted = gguf.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(llama3);
    if wanted { id(gguf, "tokenizer.ggml.bos_token_id") } else { Ok(None) }
}

fn id<R: Read + Seek>(gguf: &Gguf<R>, key: &str) -> Result<Option<u32>, WeightsError> {
    match gguf.get(key) {
        // An absent id is sometimes written as -1.
        Some(Value::Signed(-1)) => Ok(None),
        _ => match gguf.unsigned(key)? {
            None => Ok(None),
            Some(id) => u32::try_from(id)
                .map(Some)
                .map_err(|_| gguf.origin().config(format!("{key} is {id}"))),
        },
    }
}

/// Recognises Llama 3's scaling by the factors that converters write for it: its published parameters with
/// the largest factor as `factor`. Other factors are refused, not approximated.
fn llama3_scaling<R: Read + Seek>(
    gguf: &mut Gguf<R>,
    config: ModelConfig,
) -> Result<ModelConfig, WeightsError> {
    let half = config.head_dim / 2;
    if gguf.shape(ROPE_FACTORS) != Some(vec![half as u64]) {
        return Err(gguf.origin().tensor(ROPE_FACTORS, format!("is not {half} factors")));
    }
    let mut factors = Vec::with_capacity(half);
    gguf.values(ROPE_FACTORS, &mut |values| {
        factors.extend(values.iter().map(|&f| f64::from(f)));
        Ok(())
    })?;
    let factor = factors.iter().copied().fold(1.0, f64::max);
    let (low, high, original) = (1.0, 4.0, 8192.0);
    let matches = factors.iter().enumerate().all(|(i, f)| {
        let theta = libm::pow(config.rope_base, -2.0 * i as f64 / config.head_dim as f64);
        let turns = original * theta / (2.0 * std::f64::consts::PI);
        let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        let wanted = 1.0 / ((1.0 - smooth) / factor + smooth);
        (f - wanted).abs() <= 1e-4 * wanted
    });
    if !matches || config.rope_scaling != RopeScaling::None {
        let what = "factors are not those of Llama 3's scaling with its published parameters";
        return Err(gguf.origin().unsupported(format!("tensor {ROPE_FACTORS:?}: {what}")));
    }
    let rope_scaling = RopeScaling::Llama3 {
        factor,
        low_freq_factor: low,
        high_freq_factor: high,
        original_context: original,
    };
    Ok(ModelConfig { rope_scaling, ..config })
}
