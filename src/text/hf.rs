//! The `tokenizers` crate, with what it adds on its own switched off.

use std::collections::BTreeSet;
use std::path::Path;

use tokenizers::DecoderWrapper;

use crate::input;
use crate::unwind::guarded;

use super::TextError;

/// Largest `tokenizer.json`, in bytes.
const JSON_BYTES_MAX: u64 = 256 << 20;

pub(super) struct HfTokenizer {
    inner: tokenizers::Tokenizer,
    /// Whether a token is spelt in the vocabulary as its bytes, a character each.
    is_byte_level: bool,
    /// Ids of tokens that are spelt as their text: specials and other added ones.
    added: BTreeSet<u32>,
}

impl HfTokenizer {
    /// From the text of a `tokenizer.json`.
    pub(super) fn from_json(json: &[u8], file: &str) -> Result<HfTokenizer, TextError> {
        let damaged = |what: String| TextError::Format { file: file.to_owned(), what };
        // The crate panics on some files that are not JSON, and on some that are: the first are kept from it,
        // the second become errors here.
        let _: serde::de::IgnoredAny =
            serde_json::from_slice(json).map_err(|e| damaged(e.to_string()))?;
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(json))
            .map_err(|panic| damaged(format!("the tokenizers crate {panic}")))?
            .map_err(|e| damaged(e.to_string()))?;
        inner.with_truncation(None).map_err(|e| damaged(e.to_string()))?;
        inner.with_padding(None);
        let is_byte_level = inner.get_decoder().is_some_and(is_byte_level);
        let added = inner.get_added_tokens_decoder().into_keys().collect();
        Ok(HfTokenizer { inner, is_byte_level, added })
    }

    pub(super) fn from_dir(folder: &Path) -> Result<HfTokenizer, TextError> {
        let path = folder.join("tokenizer.json");
        let file = path.display().to_string();
        let io = |source| TextError::Io { file: file.clone(), source };
        let json = input::read(&path, JSON_BYTES_MAX).map_err(io)?;
        HfTokenizer::from_json(&json, &file)
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let encoding = guarded(|| self.inner.encode_fast(text, false))
            .map_err(TextError::Encode)?
            .map_err(|e| TextError::Encode(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    pub(super) fn decode(&self, ids: &[u32]) -> String {
        // A decoder that fails leaves the tokens as they are spelt in the vocabulary.
        let decoded = guarded(|| self.inner.decode(ids, false));
        decoded
            .ok()
            .and_then(Result::ok)
            .unwrap_or_else(|| ids.iter().filter_map(|&id| self.inner.id_to_token(id)).collect())
    }

    /// Whether each token has bytes of its own, whatever its neighbours.
    pub(super) fn has_bytes(&self) -> bool {
        self.is_byte_level
    }

    /// The bytes of a token: of an added one those of its text. None for an id outside the vocabulary.
    pub(super) fn bytes(&self, id: u32) -> Vec<u8> {
        if !self.is_byte_level {
            return Vec::new();
        }
        let Some(token) = self.inner.id_to_token(id) else { return Vec::new() };
        if self.added.contains(&id) {
            return token.into_bytes();
        }
        token.chars().filter_map(byte_of).collect()
    }
}

fn is_byte_level(decoder: &DecoderWrapper) -> bool {
    matches!(decoder, DecoderWrapper::ByteLevel(_))
}

/// The byte that a character stands for in a byte-level vocabulary (GPT-2's table): printable bytes of Latin-1 are
/// themselves, the others follow from U+0100 on, in order.
fn byte_of(c: char) -> Option<u8> {
    let is_printable = |b: &u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    match u32::from(c) {
        code @ 0..=255 => u8::try_from(code).ok().filter(is_printable),
        code => (0..=255).filter(|b| !is_printable(b)).nth(code as usize - 256),
    }
}
