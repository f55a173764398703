//! RoPE as GGUF metadata states it, with llama.cpp's defaults; Llama 3's scaling comes as a tensor.

use std::io::{Read, Seek};

use super::gguf::Gguf;
use super::gguf_model::Keys;
use super::{ModelConfig, WeightsError, quoted};
use crate::contract::rope::RopeScaling;

/// Factors of Llama 3's RoPE scaling, one per pair; the only auxiliary tensor that is read.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// What the metadata says about positions.
pub(super) struct Rope {
    pub(super) base: f64,
    pub(super) scaling: RopeScaling,
    /// Longest sequence, in positions.
    pub(super) context: usize,
}

/// Reads base, scaling and context. A scaling's key that its type does not use is refused, unless it asks for nothing.
pub(super) fn read<R: Read + Seek>(keys: &Keys<'_, R>) -> Result<Rope, WeightsError> {
    let origin = keys.gguf.origin();
    let context = keys.size("context_length")?;
    let base = keys.float("rope.freq_base")?.unwrap_or(1e4);
    let (factor, older) = (keys.float("rope.scaling.factor")?, keys.float("rope.scale_linear")?);
    if let (Some(factor), Some(older)) = (factor, older)
        && factor != older
    {
        let what = format!("rope.scaling.factor {factor} beside rope.scale_linear {older}");
        return Err(origin.unsupported(what));
    }
    let factor = factor.or(older);
    let original = keys.optional_size("rope.scaling.original_context_length")?;
    let kind = keys.gguf.text(&keys.key("rope.scaling.type"))?;
    if kind == Some("yarn") {
        return yarn(keys, base, factor, original.unwrap_or(context), context);
    }
    let scaling = match (kind, factor) {
        (Some("linear"), Some(factor)) => RopeScaling::Linear { factor },
        // No type means linear, as in llama.cpp.
        (None, Some(factor)) if factor != 1.0 => RopeScaling::Linear { factor },
        (Some("none"), Some(factor)) if factor != 1.0 => {
            return Err(origin.unsupported(format!("RoPE scaling \"none\" by {factor}")));
        }
        (None | Some("none" | "linear"), _) => RopeScaling::None,
        (Some(other), _) => {
            let what = format!("RoPE scaling {}; none, linear, yarn and llama3 are", quoted(other));
            return Err(origin.unsupported(what));
        }
    };
    let unused = [
        ("attn_factor", keys.float("rope.scaling.attn_factor")?.is_some_and(|x| x != 1.0)),
        ("original_context_length", original.is_some_and(|n| n != context)),
    ];
    match unused.iter().find(|(_, asks)| *asks) {
        Some((key, _)) => {
            let kind = kind.unwrap_or("linear");
            Err(origin.unsupported(format!("rope.scaling.{key} with RoPE scaling {kind:?}")))
        }
        None => Ok(Rope { base, scaling, context }),
    }
}

fn yarn<R: Read + Seek>(
    keys: &Keys<'_, R>,
    base: f64,
    factor: Option<f64>,
    original: usize,
    context: usize,
) -> Result<Rope, WeightsError> {
    let origin = keys.gguf.origin();
    let factor =
        factor.ok_or_else(|| origin.unsupported("RoPE scaling \"yarn\" without factor"))?;
    let attention = keys.float("rope.scaling.attn_factor")?.unwrap_or(1.0);
    let scaling = RopeScaling::Yarn {
        factor,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_context: original as f64,
        attention_factor: attention * RopeScaling::yarn_attention(factor, 1.0),
        truncate: true,
    };
    Ok(Rope { base, scaling, context: scaling.context(context) })
}

/// Recognises Llama 3's scaling by the factors that converters write for it: its published parameters with
/// the largest factor as `factor`. Other factors are refused, not approximated.
pub(super) fn llama3<R: Read + Seek>(
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
