//! Why text could not be encoded.

use std::fmt;
use std::io;

use crate::weights::WeightsError;

/// A tokenizer could not be built, or a text not be encoded.
#[derive(Debug)]
pub enum TextError {
    /// The operating system refused.
    Io {
        /// File.
        file: String,
        /// What it said.
        source: io::Error,
    },
    /// A model file's metadata could not be read.
    Weights(WeightsError),
    /// The tokenizer is damaged.
    Format {
        /// File.
        file: String,
        /// Which part.
        what: String,
    },
    /// The tokenizer is of a kind that is not implemented.
    Unsupported {
        /// File.
        file: String,
        /// Which kind.
        what: String,
    },
    /// A text over the limit.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The tokenizer failed on a text.
    Encode(String),
    /// A file of prompts breaks its rules.
    Prompts {
        /// Number of the prompt, from 1.
        prompt: usize,
        /// Which rule.
        what: String,
    },
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextError::Io { file, source } => write!(f, "{file}: {source}"),
            TextError::Weights(error) => error.fmt(f),
            TextError::Format { file, what } => write!(f, "{file}: tokenizer damaged: {what}"),
            TextError::Unsupported { file, what } => {
                write!(f, "{file}: tokenizer unsupported: {what}")
            }
            TextError::TooLong { bytes, bytes_max } => {
                write!(f, "text of {bytes} bytes, more than {bytes_max}")
            }
            TextError::Encode(what) => write!(f, "text not encoded: {what}"),
            TextError::Prompts { prompt, what } => write!(f, "prompt {prompt}: {what}"),
        }
    }
}

impl std::error::Error for TextError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TextError::Io { source, .. } => Some(source),
            TextError::Weights(error) => error.source(),
            _ => None,
        }
    }
}

impl From<WeightsError> for TextError {
    fn from(error: WeightsError) -> TextError {
        TextError::Weights(error)
    }
}
