//! `config.json` and its companions, as published with safetensors.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::config::Family;
use super::keys::hf::{CONFIG, Unknown, check};
use super::{ModelConfig, Origin, WeightsError, hf_rope, hf_tokenizer, quoted};
use crate::contract::Dtype;

/// Largest JSON file about a model, in bytes (a tokenizer's vocabulary is the largest).
pub(super) const JSON_BYTES_MAX: u64 = 256 << 20;

/// The fields that are read; those about RoPE are `hf_rope`'s.
#[derive(Deserialize)]
struct Raw {
    model_type: String,
    num_hidden_layers: usize,
    hidden_size: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    rms_norm_eps: f64,
    tie_word_embeddings: Option<bool>,
    eos_token_id: Option<Value>,
    bos_token_id: Option<Value>,
    torch_dtype: Option<String>,
    dtype: Option<String>,
    hidden_act: Option<String>,
    layer_types: Option<Vec<String>>,
    sliding_window: Option<Value>,
    use_sliding_window: Option<bool>,
}

/// What a folder's JSON files say.
pub(super) struct HfConfig {
    pub(super) config: ModelConfig,
    pub(super) tied: bool,
    pub(super) dtype: Dtype,
}

/// Reads `config.json`, and from its companions the ids that begin and end a sequence.
pub(super) fn read(folder: &Path, name: String) -> Result<HfConfig, WeightsError> {
    let path = folder.join("config.json");
    let origin = Origin::new(&path);
    let text = text(&path)?;
    // Twice, because the first refuses a field that is there twice.
    let raw: Raw = parse(&origin, &text)?;
    let file: Map<String, Value> = parse(&origin, &text)?;
    let family = match raw.model_type.as_str() {
        "llama" => Family::Llama,
        "qwen3" => Family::Qwen3,
        other => {
            let what = format!("model type {}; llama and qwen3 are read", quoted(other));
            return Err(origin.unsupported(what));
        }
    };
    check(&file, &CONFIG, Unknown::OfRopeAndAttention, "")
        .and_then(|()| refuse(&raw, family))
        .map_err(|what| origin.unsupported(what))?;
    let (heads, hidden) = (raw.num_attention_heads, raw.hidden_size);
    let head_dim = match raw.head_dim {
        Some(head_dim) => head_dim,
        None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let what = format!("{heads} heads do not divide {hidden} and no head_dim is given");
            return Err(origin.config(what));
        }
    };
    let context = raw.max_position_embeddings;
    let (rope_base, rope_scaling) =
        hf_rope::read(&file, context).map_err(|what| origin.unsupported(what))?;
    let mut eos = ids(raw.eos_token_id.as_ref()).map_err(|what| origin.config(what))?;
    eos.extend(generation_eos(folder)?);
    eos.sort_unstable();
    eos.dedup();
    let bos = ids(raw.bos_token_id.as_ref()).map_err(|what| origin.config(what))?;
    let config = ModelConfig {
        name,
        family,
        layers: raw.num_hidden_layers,
        hidden,
        heads,
        kv_heads: raw.num_key_value_heads.unwrap_or(heads),
        head_dim,
        ffn: raw.intermediate_size,
        vocab: raw.vocab_size,
        norm_eps: raw.rms_norm_eps as f32,
        rope_base,
        rope_scaling,
        context: rope_scaling.context(context),
        eos,
        bos: hf_tokenizer::bos(folder, bos.first().copied())?,
        constants: ModelConfig::default_constants(hidden),
        block_size: ModelConfig::DEFAULT_BLOCK_SIZE,
    };
    config.check().map_err(|what| origin.config(what))?;
    if raw.torch_dtype.is_some() && raw.dtype.is_some() && raw.torch_dtype != raw.dtype {
        return Err(origin.unsupported("torch_dtype and dtype, which differ"));
    }
    let dtype = match raw.torch_dtype.or(raw.dtype).as_deref() {
        None | Some("bfloat16" | "float32") => Dtype::Bf16,
        Some("float16") => Dtype::F16,
        Some(other) => return Err(origin.unsupported(format!("dtype {}", quoted(other)))),
    };
    Ok(HfConfig { config, tied: raw.tie_word_embeddings.unwrap_or(false), dtype })
}

/// The bytes of a file of bounded size.
pub(super) fn text(path: &Path) -> Result<Vec<u8>, WeightsError> {
    crate::input::read(path, JSON_BYTES_MAX).map_err(|e| Origin::new(path).io(e))
}

/// JSON, which may borrow from its text.
pub(super) fn parse<'t, T: Deserialize<'t>>(
    origin: &Origin,
    text: &'t [u8],
) -> Result<T, WeightsError> {
    serde_json::from_slice(text).map_err(|e| origin.format(e.to_string()))
}

/// Reads a JSON file of bounded size.
pub(super) fn json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, WeightsError> {
    parse(&Origin::new(path), &text(path)?)
}

/// Refuses what the forward pass does not compute, as far as fields that are read ask for it.
fn refuse(raw: &Raw, family: Family) -> Result<(), String> {
    if let Some(act) = raw.hidden_act.as_deref().filter(|act| *act != "silu") {
        return Err(format!("hidden_act {}", quoted(act)));
    }
    let layer_types = raw.layer_types.as_deref().unwrap_or_default();
    if let Some(kind) = layer_types.iter().find(|kind| *kind != "full_attention") {
        return Err(format!("layer_types {}", quoted(kind)));
    }
    if raw.layer_types.is_some() && layer_types.len() != raw.num_hidden_layers {
        return Err(format!(
            "{} layer_types of {} layers",
            layer_types.len(),
            raw.num_hidden_layers
        ));
    }
    // Qwen3 has a window only where a flag asks for it; Llama knows no flag.
    match (raw.use_sliding_window, &raw.sliding_window) {
        (Some(true), _) => Err("use_sliding_window".to_owned()),
        (None, Some(window)) if family == Family::Llama => Err(format!("sliding_window {window}")),
        _ => Ok(()),
    }
}

/// One id, a list of ids, or nothing.
fn ids(value: Option<&Value>) -> Result<Vec<u32>, String> {
    let one = |value: &Value| {
        value.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or(format!("token id {value}"))
    };
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
    }
}

/// Further ids that end a sequence, from `generation_config.json` where there is one.
fn generation_eos(folder: &Path) -> Result<Vec<u32>, WeightsError> {
    #[derive(Deserialize)]
    struct Generation {
        eos_token_id: Option<Value>,
    }
    let path = folder.join("generation_config.json");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let generation: Generation = json(&path)?;
    ids(generation.eos_token_id.as_ref()).map_err(|what| Origin::new(&path).config(what))
}
