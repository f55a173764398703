//! RoPE as `config.json` states it, with the defaults of `transformers`.
//!
//! Newer files keep base and scaling together in `rope_parameters`, older ones have `rope_scaling` beside `rope_theta`. The inner
//! base goes before the outer one. A key that the scaling's type does not use is refused, unless it asks for nothing.

use serde_json::{Map, Value};

use super::keys::hf::{ROPE, Unknown, check};
use super::quoted;
use crate::contract::rope::RopeScaling;

/// Base and scaling that a `config.json` of this context asks for; what cannot be had is said in a line.
pub(super) fn read(
    file: &Map<String, Value>,
    context: usize,
) -> Result<(f64, RopeScaling), String> {
    let rope = Rope { keys: parameters(file)?, context };
    check(&rope.keys, &ROPE, Unknown::All, "RoPE: ")?;
    let base = rope.number("rope_theta")?;
    let base = base.or(number(file, "rope_theta")?).unwrap_or(1e4);
    Ok((base, rope.scaling(number(file, ORIGINAL)?)?))
}

const ORIGINAL: &str = "original_max_position_embeddings";

/// The one set of parameters of all layers.
fn parameters(file: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    let mut all = Map::new();
    for name in ["rope_parameters", "rope_scaling"] {
        let keys = match file.get(name) {
            None | Some(Value::Null) => continue,
            Some(Value::Object(keys)) => of_all_layers(name, keys)?,
            Some(_) => return Err(format!("{name} is not an object")),
        };
        for (key, value) in keys {
            match all.insert(key.clone(), value.clone()) {
                Some(other) if other != *value => {
                    let key = quoted(key);
                    return Err(format!("{key} differs between rope_parameters and rope_scaling"));
                }
                _ => {}
            }
        }
    }
    Ok(all)
}

/// Parameters by layer type are read where there is one type, full attention.
fn of_all_layers<'a>(
    name: &str,
    keys: &'a Map<String, Value>,
) -> Result<&'a Map<String, Value>, String> {
    if keys.is_empty() || !keys.values().all(Value::is_object) {
        return Ok(keys);
    }
    match (keys.get("full_attention"), keys.keys().find(|key| *key != "full_attention")) {
        (Some(Value::Object(keys)), None) => Ok(keys),
        (_, other) => {
            let other = quoted(other.map_or("", String::as_str));
            Err(format!("{name} by layer type, {other}: full_attention alone is read"))
        }
    }
}

struct Rope {
    keys: Map<String, Value>,
    /// What the file gives as the longest sequence, in positions.
    context: usize,
}

impl Rope {
    /// `outer` is the original context outside of the parameters, where some files have it.
    fn scaling(&self, outer: Option<f64>) -> Result<RopeScaling, String> {
        let kind = match (self.text("rope_type")?, self.text("type")?) {
            (Some(kind), Some(other)) if kind != other => {
                return Err(format!("rope_type {} beside type {}", quoted(kind), quoted(other)));
            }
            (kind, other) => kind.or(other).unwrap_or("default"),
        };
        let inner = self.number(ORIGINAL)?;
        if let (Some(inner), Some(outer)) = (inner, outer)
            && inner != outer
        {
            return Err(format!(
                "{ORIGINAL} {inner} beside {outer} outside of the RoPE parameters"
            ));
        }
        let original = inner.or(outer);
        let used: &[&str] = match kind {
            "default" => &[],
            "linear" => &["factor"],
            "llama3" => &["factor", "low_freq_factor", "high_freq_factor", ORIGINAL],
            "yarn" => &[
                "factor",
                "attention_factor",
                "beta_fast",
                "beta_slow",
                "mscale",
                "mscale_all_dim",
                "truncate",
                ORIGINAL,
            ],
            other => {
                let other = quoted(other);
                return Err(format!(
                    "RoPE scaling {other}; default, linear, llama3 and yarn are read"
                ));
            }
        };
        self.refuse_unused(kind, used)?;
        if !used.contains(&ORIGINAL) && original.is_some_and(|n| n != self.context as f64) {
            return Err(format!("{ORIGINAL} with RoPE scaling {}", quoted(kind)));
        }
        let need =
            |x: Option<f64>, what: &str| x.ok_or_else(|| format!("RoPE scaling without {what}"));
        let factor = || need(self.number("factor")?, "factor");
        Ok(match kind {
            "linear" => RopeScaling::Linear { factor: factor()? },
            "llama3" => RopeScaling::Llama3 {
                factor: factor()?,
                low_freq_factor: need(self.number("low_freq_factor")?, "low_freq_factor")?,
                high_freq_factor: need(self.number("high_freq_factor")?, "high_freq_factor")?,
                original_context: need(original, ORIGINAL)?,
            },
            "yarn" => self.yarn(factor()?, original.unwrap_or(self.context as f64))?,
            _ => RopeScaling::None,
        })
    }

    fn yarn(&self, factor: f64, original_context: f64) -> Result<RopeScaling, String> {
        let scales = (self.number("mscale")?, self.number("mscale_all_dim")?);
        let attention_factor = match (self.number("attention_factor")?, scales) {
            (Some(attention_factor), (None, None)) => attention_factor,
            (None, (Some(scale), Some(all))) if scale != 0.0 && all != 0.0 => {
                let of = |scale| RopeScaling::yarn_attention(factor, scale);
                of(scale) / of(all)
            }
            (None, (None, None)) => RopeScaling::yarn_attention(factor, 1.0),
            // One would be ignored.
            (Some(_), _) => return Err("attention_factor beside mscale".to_owned()),
            (None, _) => return Err("mscale or mscale_all_dim without the other".to_owned()),
        };
        let truncate = match self.keys.get("truncate") {
            None | Some(Value::Null) => true,
            Some(Value::Bool(truncate)) => *truncate,
            Some(_) => return Err("truncate is not true or false".to_owned()),
        };
        Ok(RopeScaling::Yarn {
            factor,
            beta_fast: self.number("beta_fast")?.unwrap_or(32.0),
            beta_slow: self.number("beta_slow")?.unwrap_or(1.0),
            original_context,
            attention_factor,
            truncate,
        })
    }

    fn refuse_unused(&self, kind: &str, used: &[&str]) -> Result<(), String> {
        for key in ROPE.honoured {
            let always = ["rope_theta", "rope_type", "type", ORIGINAL].contains(key);
            let asks = match self.keys.get(*key) {
                None | Some(Value::Null) => false,
                Some(value) => *key != "factor" || value.as_f64() != Some(1.0),
            };
            if asks && !always && !used.contains(key) {
                return Err(format!("{key} with RoPE scaling {}", quoted(kind)));
            }
        }
        Ok(())
    }

    fn number(&self, key: &str) -> Result<Option<f64>, String> {
        number(&self.keys, key)
    }

    fn text(&self, key: &str) -> Result<Option<&str>, String> {
        match self.keys.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{key} is not a string")),
        }
    }
}

fn number(keys: &Map<String, Value>, key: &str) -> Result<Option<f64>, String> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or_else(|| format!("{key} is not a number")),
    }
}
