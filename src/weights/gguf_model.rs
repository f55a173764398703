//! GGUF as a model: architectures `llama` and `qwen3`.

use std::io::{Read, Seek};

use super::assemble::{Source, assemble};
use super::config::Family;
use super::gguf::{Gguf, Value};
use super::gguf_rope::{self, ROPE_FACTORS};
use super::keys;
use super::layout::{Part, Slot};
use super::{Model, ModelConfig, Origin, WeightsError, quoted};
use crate::contract::Dtype;

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
    fn origin(&self, tensor: &str) -> &Origin {
        self.gguf.origin_of(tensor)
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
    let arch = if family == Family::Llama { "llama" } else { "qwen3" };
    keys::gguf::check(gguf, arch)?;
    let keys = Keys { gguf, arch };
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
    let vocab = match gguf_vocab(keys.gguf) {
        Some(vocab) => vocab,
        None => return Err(origin.tensor("token_embd.weight", "missing")),
    };
    if let Some(other) = keys.optional_size("vocab_size")?.filter(|&other| other != vocab) {
        return Err(origin.config(format!("vocab_size {other}, the embedding has {vocab} rows")));
    }
    let rope = gguf_rope::read(&keys)?;
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
        rope_base: rope.base,
        rope_scaling: rope.scaling,
        context: rope.context,
        eos: eos(keys.gguf)?,
        bos: bos(keys.gguf)?,
        constants: ModelConfig::default_constants(hidden),
        block_size: ModelConfig::DEFAULT_BLOCK_SIZE,
    };
    config.check().map_err(|what| origin.config(what))?;
    match gguf.shape(ROPE_FACTORS) {
        None => Ok(config),
        Some(_) => gguf_rope::llama3(gguf, config),
    }
}

/// Rows of the embedding.
fn gguf_vocab<R: Read + Seek>(gguf: &Gguf<R>) -> Option<usize> {
    gguf.shape("token_embd.weight").and_then(|shape| usize::try_from(shape[0]).ok())
}

/// Metadata keys under the architecture's name.
pub(super) struct Keys<'a, R> {
    pub(super) gguf: &'a Gguf<R>,
    pub(super) arch: &'static str,
}

impl<R: Read + Seek> Keys<'_, R> {
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    pub(super) fn optional_size(&self, key: &str) -> Result<Option<usize>, WeightsError> {
        let key = self.key(key);
        match self.gguf.unsigned(&key)? {
            None => Ok(None),
            Some(n) if n <= u64::from(u32::MAX) => Ok(Some(n as usize)),
            Some(n) => Err(self.gguf.origin().config(format!("{key} is {n}"))),
        }
    }

    pub(super) fn size(&self, key: &str) -> Result<usize, WeightsError> {
        self.optional_size(key)?.ok_or_else(|| {
            self.gguf.origin().format(format!("metadata key {:?} is missing", self.key(key)))
        })
    }

    pub(super) fn float(&self, key: &str) -> Result<Option<f64>, WeightsError> {
        self.gguf.float(&self.key(key))
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

/// The id before a prompt: wanted by flag, or by the convention of a vocabulary: those of SPM and of Llama 3 want it. SPM's has a
/// default too, as in llama.cpp.
fn bos<R: Read + Seek>(gguf: &Gguf<R>) -> Result<Option<u32>, WeightsError> {
    let spm = gguf.text("tokenizer.ggml.model")? == Some("llama");
    let pre = gguf.text("tokenizer.ggml.pre")?;
    let llama3 = matches!(pre, Some("llama-bpe" | "llama3" | "llama-v3"));
    if !gguf.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(spm || llama3) {
        return Ok(None);
    }
    match id(gguf, "tokenizer.ggml.bos_token_id")? {
        None if spm => Ok(Some(1)),
        None => Err(gguf.origin().config("texts begin with a token, and bos_token_id is missing")),
        id => Ok(id),
    }
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
