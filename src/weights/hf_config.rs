//! `config.json` and its companions, as published with safetensors.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::config::Family;
use super::{ModelConfig, Origin, WeightsError, quoted};
use crate::contract::Dtype;
use crate::contract::rope::RopeScaling;

/// Largest JSON file about a model, in bytes (a tokenizer's vocabulary is the largest).
pub(super) const JSON_BYTES_MAX: u64 = 256 << 20;

/// The fields that are read. Fields that would change the arithmetic are listed so that they can be refused.
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
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    /// Newer files keep base and scaling together.
    rope_parameters: Option<Rope>,
    tie_word_embeddings: Option<bool>,
    eos_token_id: Option<Value>,
    bos_token_id: Option<Value>,
    torch_dtype: Option<String>,
    dtype: Option<String>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    quantization_config: Option<Value>,
}

#[derive(Deserialize)]
struct Rope {
    rope_type: Option<String>,
    r#type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
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
    let raw: Raw = json(&path)?;
    let family = match raw.model_type.as_str() {
        "llama" => Family::Llama,
        "qwen3" => Family::Qwen3,
        other => {
            let what = format!("model type {}; llama and qwen3 are read", quoted(other));
            return Err(origin.unsupported(what));
        }
    };
    refuse(&raw).map_err(|what| origin.unsupported(what))?;
    let (heads, hidden) = (raw.num_attention_heads, raw.hidden_size);
    let head_dim = match raw.head_dim {
        Some(head_dim) => head_dim,
        None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let what = format!("{heads} heads do not divide {hidden} and no head_dim is given");
            return Err(origin.config(what));
        }
    };
    let rope = raw.rope_parameters.as_ref().or(raw.rope_scaling.as_ref());
    let base = raw.rope_theta.or_else(|| rope.and_then(|r| r.rope_theta));
    let mut eos = ids(raw.eos_token_id.as_ref()).map_err(|what| origin.config(what))?;
    eos.extend(generation_eos(folder)?);
    eos.sort_unstable();
    eos.dedup();
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
        rope_base: base.unwrap_or(1e4),
        rope_scaling: scaling(rope).map_err(|what| origin.unsupported(what))?,
        context: raw.max_position_embeddings,
        eos,
        bos: bos(folder, raw.bos_token_id.as_ref(), &origin)?,
        constants: ModelConfig::default_constants(hidden),
        block_size: ModelConfig::DEFAULT_BLOCK_SIZE,
    };
    config.check().map_err(|what| origin.config(what))?;
    let dtype = match raw.torch_dtype.or(raw.dtype).as_deref() {
        None | Some("bfloat16" | "float32") => Dtype::Bf16,
        Some("float16") => Dtype::F16,
        Some(other) => return Err(origin.unsupported(format!("dtype {}", quoted(other)))),
    };
    Ok(HfConfig { config, tied: raw.tie_word_embeddings.unwrap_or(false), dtype })
}

/// Reads a JSON file of bounded size.
pub(super) fn json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, WeightsError> {
    let origin = Origin::new(path);
    let text = crate::input::read(path, JSON_BYTES_MAX).map_err(|e| origin.io(e))?;
    serde_json::from_slice(&text).map_err(|e| origin.format(e.to_string()))
}

/// Refuses what the forward pass does not compute.
fn refuse(raw: &Raw) -> Result<(), String> {
    if let Some(act) = raw.hidden_act.as_deref().filter(|act| *act != "silu") {
        return Err(format!("hidden_act {}", quoted(act)));
    }
    let flags = [
        ("attention_bias", raw.attention_bias),
        ("mlp_bias", raw.mlp_bias),
        ("use_sliding_window", raw.use_sliding_window),
        ("quantization_config", raw.quantization_config.as_ref().map(|_| true)),
    ];
    match flags.iter().find(|(_, flag)| *flag == Some(true)) {
        Some((name, _)) => Err((*name).to_owned()),
        None => Ok(()),
    }
}

fn scaling(rope: Option<&Rope>) -> Result<RopeScaling, String> {
    let Some(rope) = rope else { return Ok(RopeScaling::None) };
    let need = |x: Option<f64>, what: &str| x.ok_or_else(|| format!("RoPE scaling without {what}"));
    match rope.rope_type.as_deref().or(rope.r#type.as_deref()) {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: need(rope.factor, "factor")? }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: need(rope.factor, "factor")?,
            low_freq_factor: need(rope.low_freq_factor, "low_freq_factor")?,
            high_freq_factor: need(rope.high_freq_factor, "high_freq_factor")?,
            original_context: need(
                rope.original_max_position_embeddings,
                "original_max_position_embeddings",
            )?,
        }),
        Some(other) => {
            Err(format!("RoPE scaling {}; default, linear and llama3 are read", quoted(other)))
        }
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

/// The id put before a prompt. Whether there is one is the tokenizer's affair: `tokenizer_config.json` says it
/// outright, else the template in `tokenizer.json` does.
fn bos(folder: &Path, id: Option<&Value>, origin: &Origin) -> Result<Option<u32>, WeightsError> {
    #[derive(Deserialize)]
    struct TokenizerConfig {
        add_bos_token: Option<bool>,
    }
    #[derive(Deserialize)]
    struct Tokenizer {
        post_processor: Option<Value>,
    }
    let path = folder.join("tokenizer_config.json");
    let flag = match path.exists() {
        true => json::<TokenizerConfig>(&path)?.add_bos_token,
        false => None,
    };
    let path = folder.join("tokenizer.json");
    let wanted = match flag {
        Some(flag) => flag,
        None if path.exists() => {
            json::<Tokenizer>(&path)?.post_processor.is_some_and(|p| begins_with_special(&p))
        }
        None => false,
    };
    match wanted {
        true => Ok(ids(id).map_err(|what| origin.config(what))?.first().copied()),
        false => Ok(None),
    }
}

/// Whether a post-processor's template for one text begins with a special token.
fn begins_with_special(processor: &Value) -> bool {
    match processor.get("processors").and_then(Value::as_array) {
        Some(list) => list.iter().any(begins_with_special),
        None => processor["single"].get(0).is_some_and(|first| first["SpecialToken"].is_object()),
    }
}
