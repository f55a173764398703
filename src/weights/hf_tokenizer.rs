//! What a folder's tokenizer puts before a text, and what it may not ask for.
//!
//! `tokenizer_config.json` says outright whether an id goes before a text, else the template in `tokenizer.json` does. Ids that
//! a template would put anywhere else are refused: whoever makes prompts here puts one id before them and no other.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::hf_config::{json, parse, text};
use super::keys::hf::{TOKENIZER, TOKENIZER_CONFIG, Unknown, check};
use super::{Origin, WeightsError, quoted};

/// The id before a text, if the tokenizer wants one; `id` is the configuration's.
pub(super) fn bos(folder: &Path, id: Option<u32>) -> Result<Option<u32>, WeightsError> {
    let path = folder.join("tokenizer_config.json");
    let flags = match path.exists() {
        true => Flags::read(&path)?,
        false => Flags::default(),
    };
    let path = folder.join("tokenizer.json");
    let origin = Origin::new(&path);
    let template = match path.exists() {
        true => Steps::read(&path, &flags)?.template(&origin)?,
        false => Template::default(),
    };
    let wanted = flags.add_bos.unwrap_or(template.begins);
    match (wanted, template.id.or(id)) {
        (false, _) => Ok(None),
        (true, Some(id)) => Ok(Some(id)),
        (true, None) => Err(Origin::new(folder).config("texts begin with a token of no id")),
    }
}

/// What `tokenizer_config.json` asks for.
#[derive(Default)]
struct Flags {
    add_bos: Option<bool>,
    add_prefix_space: Option<bool>,
}

impl Flags {
    fn read(path: &Path) -> Result<Flags, WeightsError> {
        let origin = Origin::new(path);
        let file: Map<String, Value> = json(path)?;
        check(&file, &TOKENIZER_CONFIG, Unknown::All, "")
            .map_err(|what| origin.unsupported(what))?;
        let flag = |key: &str| match file.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(origin.format(format!("{key} is not true or false"))),
        };
        Ok(Flags { add_bos: flag("add_bos_token")?, add_prefix_space: flag("add_prefix_space")? })
    }
}

/// The parts of `tokenizer.json` that are looked at here; the vocabulary is not.
struct Steps {
    post_processor: Value,
}

/// What a template puts before a text.
#[derive(Default)]
struct Template {
    begins: bool,
    /// Its id, where the template says it.
    id: Option<u32>,
}

impl Steps {
    fn read(path: &Path, flags: &Flags) -> Result<Steps, WeightsError> {
        let origin = Origin::new(path);
        let text = text(path)?;
        let raw: BTreeMap<String, &RawValue> = parse(&origin, &text)?;
        if let Some(key) = raw.keys().find(|key| TOKENIZER.fate(key).is_none()) {
            let what = format!("key {}, which is not known here", quoted(key));
            return Err(origin.unsupported(what));
        }
        let part = |key: &str| match raw.get(key) {
            None => Ok(Value::Null),
            Some(raw) => parse::<Value>(&origin, raw.get().as_bytes()),
        };
        let adds_space = adds_space(&part("normalizer")?) || adds_space(&part("pre_tokenizer")?);
        if let Some(flag) = flags.add_prefix_space.filter(|flag| *flag != adds_space) {
            let what = format!("add_prefix_space {flag} of tokenizer_config.json is not done here");
            return Err(origin.unsupported(what));
        }
        Ok(Steps { post_processor: part("post_processor")? })
    }

    fn template(&self, origin: &Origin) -> Result<Template, WeightsError> {
        let mut template = Template::default();
        template.add(&self.post_processor).map_err(|what| origin.unsupported(what))?;
        Ok(template)
    }
}

impl Template {
    /// Takes in what a post-processor, or a sequence of them, does.
    fn add(&mut self, processor: &Value) -> Result<(), String> {
        if processor.is_null() {
            return Ok(());
        }
        if let Some(list) = processor.get("processors").and_then(Value::as_array) {
            return list.iter().try_for_each(|processor| self.add(processor));
        }
        let single = match processor["type"].as_str() {
            // It moves offsets and adds nothing.
            Some("ByteLevel") => return Ok(()),
            Some("TemplateProcessing") => processor["single"].as_array(),
            _ => None,
        };
        let Some(single) = single else {
            let kind = quoted(processor["type"].as_str().unwrap_or(""));
            return Err(format!(
                "post-processor {kind}; TemplateProcessing and ByteLevel are read"
            ));
        };
        for (at, piece) in single.iter().enumerate() {
            let Some(name) = piece["SpecialToken"]["id"].as_str() else { continue };
            if at > 0 || self.begins {
                return Err(format!("the template adds {} inside or behind a text", quoted(name)));
            }
            self.begins = true;
            let token = &processor["special_tokens"][name]["ids"];
            self.id = match token.as_array().map(Vec::as_slice) {
                None => None,
                Some([id]) => id.as_u64().and_then(|id| u32::try_from(id).ok()),
                Some(_) => return Err(format!("the template's {} is not one id", quoted(name))),
            };
        }
        Ok(())
    }
}

/// Whether a normalizer or pre-tokenizer puts a space before a text.
fn adds_space(step: &Value) -> bool {
    for list in ["normalizers", "pretokenizers"] {
        if let Some(list) = step.get(list).and_then(Value::as_array) {
            return list.iter().any(adds_space);
        }
    }
    match step["type"].as_str() {
        Some("Prepend") => true,
        Some("Metaspace") => step["prepend_scheme"].as_str().is_some_and(|s| s != "never"),
        Some("ByteLevel") => step["add_prefix_space"] == Value::Bool(true),
        _ => false,
    }
}
