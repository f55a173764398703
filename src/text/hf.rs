//! The `tokenizers` crate, with what it adds on its own switched off.

use std::panic::catch_unwind;
use std::path::Path;

use super::TextError;

/// Largest `tokenizer.json`, in bytes.
const JSON_BYTES_MAX: u64 = 256 << 20;

pub(super) struct HfTokenizer(tokenizers::Tokenizer);

impl HfTokenizer {
    /// From the text of a `tokenizer.json`.
    pub(super) fn from_json(json: &[u8], file: &str) -> Result<HfTokenizer, TextError> {
        let damaged = |what: String| TextError::Format { file: file.to_owned(), what };
        // The crate panics on some files that are not JSON, and on some that are: the first are kept from it,
        // the second become errors here (after the panic hook has had its say).
        let _: serde::de::IgnoredAny =
            serde_json::from_slice(json).map_err(|e| damaged(e.to_string()))?;
        let mut inner = catch_unwind(|| tokenizers::Tokenizer::from_bytes(json))
            .map_err(|_| damaged("the tokenizers crate panicked".to_owned()))?
            .map_err(|e| damaged(e.to_string()))?;
        inner.with_truncation(None).map_err(|e| damaged(e.to_string()))?;
        inner.with_padding(None);
        Ok(HfTokenizer(inner))
    }

    pub(super) fn from_dir(folder: &Path) -> Result<HfTokenizer, TextError> {
        let path = folder.join("tokenizer.json");
        let file = path.display().to_string();
        let io = |source| TextError::Io { file: file.clone(), source };
        let bytes = std::fs::metadata(&path).map_err(io)?.len();
        if bytes > JSON_BYTES_MAX {
            let what = format!("{bytes} bytes, more than {JSON_BYTES_MAX}");
            return Err(TextError::Format { file, what });
        }
        let json = std::fs::read(&path).map_err(io)?;
        HfTokenizer::from_json(&json, &file)
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let encoding =
            self.0.encode_fast(text, false).map_err(|e| TextError::Encode(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    pub(super) fn decode(&self, ids: &[u32]) -> String {
        // A decoder that fails leaves the tokens as they are spelt in the vocabulary.
        self.0
            .decode(ids, false)
            .unwrap_or_else(|_| ids.iter().filter_map(|&id| self.0.id_to_token(id)).collect())
    }
}
