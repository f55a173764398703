//! The `tokenizers` crate, with what it adds on its own switched off.

use std::path::Path;

use crate::input;
use crate::unwind::guarded;

use super::TextError;

/// Largest `tokenizer.json`, in bytes.
const JSON_BYTES_MAX: u64 = 256 << 20;

pub(super) struct HfTokenizer(tokenizers::Tokenizer);

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
        Ok(HfTokenizer(inner))
    }

    pub(super) fn from_dir(folder: &Path) -> Result<HfTokenizer, TextError> {
        let path = folder.join("tokenizer.json");
        let file = path.display().to_string();
        let io = |source| TextError::Io { file: file.clone(), source };
        let json = input::read(&path, JSON_BYTES_MAX).map_err(io)?;
        HfTokenizer::from_json(&json, &file)
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let encoding = guarded(|| self.0.encode_fast(text, false))
            .map_err(TextError::Encode)?
            .map_err(|e| TextError::Encode(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    pub(super) fn decode(&self, ids: &[u32]) -> String {
        // A decoder that fails leaves the tokens as they are spelt in the vocabulary.
        let decoded = guarded(|| self.0.decode(ids, false));
        decoded
            .ok()
            .and_then(Result::ok)
            .unwrap_or_else(|| ids.iter().filter_map(|&id| self.0.id_to_token(id)).collect())
    }
}
