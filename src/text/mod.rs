//! Text to token ids and back.
//!
//! A byte tokenizer serves the synthetic presets and is always there. With the feature `cli`, tokenizers come
//! from a GGUF file's metadata or a folder's `tokenizer.json`. No tokenizer adds an id of its own: the id that
//! a model wants before a prompt is `ModelConfig::bos`, and whoever makes the prompt puts it there.

mod bytes;
mod error;
#[cfg(feature = "cli")]
mod gguf;
#[cfg(feature = "cli")]
mod hf;
pub mod prompts;
#[cfg(feature = "cli")]
mod spm;

use crate::weights::Preset;

pub use error::TextError;

/// Longest text that is encoded, in bytes.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// A tokenizer.
pub struct Tokenizer(Kind);

enum Kind {
    Bytes,
    #[cfg(feature = "cli")]
    Hf(Box<hf::HfTokenizer>),
    #[cfg(feature = "cli")]
    Spm(Box<spm::Spm>),
}

impl Tokenizer {
    /// The byte tokenizer: ids 0 to 255 are bytes, 256 to 263 specials. Presets with a larger vocabulary use
    /// the same ids.
    pub fn for_preset(_preset: Preset) -> Tokenizer {
        Tokenizer(Kind::Bytes)
    }

    /// The tokenizer in a GGUF file's metadata.
    #[cfg(feature = "cli")]
    pub fn from_gguf(path: &std::path::Path) -> Result<Tokenizer, TextError> {
        gguf::open(path).map(Tokenizer)
    }

    /// The `tokenizer.json` of a folder.
    #[cfg(feature = "cli")]
    pub fn from_dir(folder: &std::path::Path) -> Result<Tokenizer, TextError> {
        hf::HfTokenizer::from_dir(folder).map(|t| Tokenizer(Kind::Hf(Box::new(t))))
    }

    /// The tokenizer that belongs to a model's path: a folder, else a GGUF file.
    #[cfg(feature = "cli")]
    pub fn from_path(path: &std::path::Path) -> Result<Tokenizer, TextError> {
        if path.is_dir() { Tokenizer::from_dir(path) } else { Tokenizer::from_gguf(path) }
    }

    /// Ids of a text. Special tokens written out in it become their ids.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(TextError::TooLong { bytes: text.len(), bytes_max: TEXT_BYTES_MAX });
        }
        match &self.0 {
            Kind::Bytes => Ok(bytes::encode(text)),
            #[cfg(feature = "cli")]
            Kind::Hf(tokenizer) => tokenizer.encode(text),
            #[cfg(feature = "cli")]
            Kind::Spm(tokenizer) => Ok(tokenizer.encode(text)),
        }
    }

    /// Whether each id has [bytes](Tokenizer::bytes) of its own, whatever its neighbours.
    pub fn has_bytes(&self) -> bool {
        match &self.0 {
            Kind::Bytes => true,
            #[cfg(feature = "cli")]
            Kind::Hf(tokenizer) => tokenizer.has_bytes(),
            #[cfg(feature = "cli")]
            Kind::Spm(_) => true,
        }
    }

    /// Bytes of an id's text, which may be a part of a character; none where an id's text depends on its neighbours.
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        match &self.0 {
            Kind::Bytes => bytes::of(id),
            #[cfg(feature = "cli")]
            Kind::Hf(tokenizer) => tokenizer.bytes(id),
            #[cfg(feature = "cli")]
            Kind::Spm(tokenizer) => tokenizer.bytes(id),
        }
    }

    /// Text of ids, specials written out. Bytes that are not UTF-8 become U+FFFD, ids outside the vocabulary
    /// nothing.
    pub fn decode(&self, ids: &[u32]) -> String {
        match &self.0 {
            Kind::Bytes => bytes::decode(ids),
            #[cfg(feature = "cli")]
            Kind::Hf(tokenizer) => tokenizer.decode(ids),
            #[cfg(feature = "cli")]
            Kind::Spm(tokenizer) => tokenizer.decode(ids),
        }
    }
}
