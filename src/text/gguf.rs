//! A tokenizer from GGUF metadata: byte-level BPE, described to the `tokenizers` crate in its own format, or SentencePiece BPE.

use std::collections::BTreeSet;
use std::io::{Read, Seek};
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::hf::HfTokenizer;
use super::spm::{self, Spm};
use super::{Kind, TextError};
use crate::weights::gguf::{Gguf, Value};
use crate::weights::keys::check_gguf_tokenizer;
use crate::weights::{WeightsError, quoted};

/// Words of Llama 3's vocabulary; digits in groups of up to three.
const LLAMA3_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Words of Qwen's vocabulary; each digit alone.
const QWEN2_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Token types of the format: those that a text may spell out.
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

pub(super) fn open(path: &Path) -> Result<Kind, TextError> {
    let file = path.display().to_string();
    let gguf = Gguf::open(path)?;
    check_gguf_tokenizer(&gguf)?;
    match gguf.text("tokenizer.ggml.model")? {
        Some("gpt2") => byte_level(&gguf, file).map(|t| Kind::Hf(Box::new(t))),
        Some("llama") => sentence_piece(&gguf, file).map(|t| Kind::Spm(Box::new(t))),
        Some(other) => {
            let what = format!("model {}; gpt2 (BPE) and llama (SPM) are read", quoted(other));
            Err(TextError::Unsupported { file, what })
        }
        None => {
            let what = "metadata has no tokenizer.ggml.model".to_owned();
            Err(TextError::Format { file, what })
        }
    }
}

/// A list that must be there, its values made of the format's by `of`.
fn list<'g, T, R: Read + Seek>(
    gguf: &'g Gguf<R>,
    file: &str,
    key: &str,
    wanted: &str,
    of: impl Fn(&'g Value) -> Option<T>,
) -> Result<Vec<T>, TextError> {
    let missing =
        || TextError::Format { file: file.to_owned(), what: format!("metadata has no {key}") };
    let values = gguf.array(key)?.ok_or_else(missing)?;
    let wrong = || gguf.wrong(key, wanted);
    let list: Result<Vec<T>, WeightsError> =
        values.iter().map(|value| of(value).ok_or_else(wrong)).collect();
    Ok(list?)
}

fn texts<'g, R: Read + Seek>(
    gguf: &'g Gguf<R>,
    file: &str,
    key: &str,
) -> Result<Vec<&'g str>, TextError> {
    list(gguf, file, key, "an array of strings", |value| match value {
        Value::Text(text) => Some(text.as_str()),
        _ => None,
    })
}

/// The type of a token; a negative one is none.
fn kind(value: &Value) -> Option<u64> {
    match value {
        Value::Signed(kind) => Some(u64::try_from(*kind).unwrap_or(0)),
        Value::Unsigned(kind) => Some(*kind),
        _ => None,
    }
}

fn sentence_piece<R: Read + Seek>(gguf: &Gguf<R>, file: String) -> Result<Spm, TextError> {
    let unknown = gguf.unsigned("tokenizer.ggml.unknown_token_id")?.unwrap_or(0);
    let float = |value: &Value| match value {
        Value::Float(score) => Some(*score),
        _ => None,
    };
    let numbers = "an array of whole numbers";
    let lists = spm::Lists {
        tokens: texts(gguf, &file, "tokenizer.ggml.tokens")?,
        scores: list(gguf, &file, "tokenizer.ggml.scores", "an array of floats", float)?,
        types: list(gguf, &file, "tokenizer.ggml.token_type", numbers, kind)?,
        unknown: u32::try_from(unknown).unwrap_or(u32::MAX),
        add_space: gguf.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
    };
    Spm::new(lists, &file)
}

fn byte_level<R: Read + Seek>(gguf: &Gguf<R>, file: String) -> Result<HfTokenizer, TextError> {
    let unsupported = |what: String| TextError::Unsupported { file: file.clone(), what };
    let damaged = |what: String| TextError::Format { file: file.clone(), what };
    if gguf.bool("tokenizer.ggml.add_space_prefix")? == Some(true) {
        return Err(unsupported("add_space_prefix with model \"gpt2\"".to_owned()));
    }
    let pre = gguf.text("tokenizer.ggml.pre")?.unwrap_or("gpt-2");
    let words = words(pre).ok_or_else(|| {
        unsupported(format!(
            "pre-tokenizer {}; gpt-2, smollm, llama-bpe and qwen2 are read",
            quoted(pre)
        ))
    })?;
    let tokens = texts(gguf, &file, "tokenizer.ggml.tokens")?;
    let merges = texts(gguf, &file, "tokenizer.ggml.merges")?;
    let vocabulary: BTreeSet<&str> = tokens.iter().copied().collect();
    if vocabulary.len() < tokens.len() {
        return Err(damaged("a token is listed twice".to_owned()));
    }
    let vocab: Map<String, Json> =
        tokens.iter().enumerate().map(|(id, &t)| (t.to_owned(), json!(id))).collect();
    let mut pairs = Vec::with_capacity(merges.len());
    for merge in merges {
        // A first character that is a space belongs to the first part.
        let skip = merge.chars().next().map_or(0, char::len_utf8);
        let cut = merge[skip..].find(' ').map(|at| at + skip);
        let cut = cut.ok_or_else(|| damaged(format!("merge {}", quoted(merge))))?;
        let (left, right) = (&merge[..cut], &merge[cut + 1..]);
        if let Some(part) = [left, right].into_iter().find(|part| !vocabulary.contains(part)) {
            let what = format!("merge {}: {} is no token", quoted(merge), quoted(part));
            return Err(damaged(what));
        }
        if !vocabulary.contains(format!("{left}{right}").as_str()) {
            return Err(damaged(format!("merge {} makes no token", quoted(merge))));
        }
        pairs.push(json!([left, right]));
    }
    let added = added(gguf, &tokens)?;
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    });
    let json = json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": words.normalizer,
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": words.steps },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": pairs,
            "ignore_merges": words.whole_words,
        },
    });
    HfTokenizer::from_json(json.to_string().as_bytes(), &file)
}

/// Tokens that are matched in the text before it is split into words.
fn added<R: Read + Seek>(gguf: &Gguf<R>, tokens: &[&str]) -> Result<Vec<Json>, TextError> {
    let key = "tokenizer.ggml.token_type";
    let Some(types) = gguf.array(key)? else { return Ok(Vec::new()) };
    if types.len() != tokens.len() {
        return Err(gguf.wrong(key, "as long as the vocabulary").into());
    }
    let mut added = Vec::new();
    for (id, (value, &content)) in types.iter().zip(tokens).enumerate() {
        let kind = kind(value).ok_or_else(|| gguf.wrong(key, "an array of whole numbers"))?;
        if matches!(kind, UNKNOWN | CONTROL | USER_DEFINED) && !content.is_empty() {
            added.push(json!({
                "id": id, "content": content, "special": kind != USER_DEFINED,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            }));
        }
    }
    Ok(added)
}

/// How a text is cut into words before merging.
struct Words {
    normalizer: Json,
    steps: Vec<Json>,
    /// A word that is a token is taken whole, whatever the merges say.
    whole_words: bool,
}

/// The rules of a pre-tokenizer name.
fn words(pre: &str) -> Option<Words> {
    let byte_level = |gpt2_words: bool| {
        json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": gpt2_words,
        })
    };
    let split = |words: &str| {
        json!({
            "type": "Split", "pattern": { "Regex": words }, "behavior": "Isolated", "invert": false,
        })
    };
    Some(match pre {
        "gpt-2" => {
            Words { normalizer: Json::Null, steps: vec![byte_level(true)], whole_words: false }
        }
        "smollm" => Words {
            normalizer: Json::Null,
            steps: vec![json!({ "type": "Digits", "individual_digits": true }), byte_level(true)],
            whole_words: false,
        },
        "llama-bpe" | "llama3" | "llama-v3" => Words {
            normalizer: Json::Null,
            steps: vec![split(LLAMA3_WORDS), byte_level(false)],
            whole_words: true,
        },
        "qwen2" => Words {
            normalizer: json!({ "type": "NFC" }),
            steps: vec![split(QWEN2_WORDS), byte_level(false)],
            whole_words: false,
        },
        _ => return None,
    })
}
