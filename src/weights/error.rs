//! Why weights could not be had.

use std::fmt;
use std::io;
use std::path::Path;

use super::Preset;

/// A model file is missing, damaged, or not something that this crate runs.
#[derive(Debug)]
pub enum WeightsError {
    /// Nothing has that name.
    Missing {
        /// The name, as it was asked for.
        name: String,
    },
    /// The operating system refused.
    Io {
        /// File.
        file: String,
        /// What it said.
        source: io::Error,
    },
    /// The file breaks the rules of its format.
    Format {
        /// File.
        file: String,
        /// Which rule, and where.
        what: String,
    },
    /// Well formed, but of a kind that is not implemented.
    Unsupported {
        /// File.
        file: String,
        /// Which kind.
        what: String,
    },
    /// The configuration cannot be that of a decoder.
    Config {
        /// File.
        file: String,
        /// Which value.
        what: String,
    },
    /// A tensor is missing, misshapen, out of bounds or not finite.
    Tensor {
        /// File.
        file: String,
        /// Its name in the file.
        tensor: String,
        /// What is wrong with it.
        what: String,
    },
}

impl fmt::Display for WeightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightsError::Missing { name } => {
                let presets = Preset::ALL.map(Preset::name).join(", ");
                write!(
                    f,
                    "no model {}: neither a preset ({presets}) nor a file or folder",
                    quoted(name)
                )
            }
            WeightsError::Io { file, source } => write!(f, "{file}: {source}"),
            WeightsError::Format { file, what } => write!(f, "{file}: damaged: {what}"),
            WeightsError::Unsupported { file, what } => write!(f, "{file}: unsupported: {what}"),
            WeightsError::Config { file, what } => write!(f, "{file}: configuration: {what}"),
            WeightsError::Tensor { file, tensor, what } => {
                write!(f, "{file}: tensor {}: {what}", quoted(tensor))
            }
        }
    }
}

impl std::error::Error for WeightsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WeightsError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The file that errors are about.
#[derive(Clone, Debug)]
pub(crate) struct Origin(String);

impl Origin {
    pub(crate) fn new(path: &Path) -> Origin {
        Origin(path.display().to_string())
    }

    pub(crate) fn io(&self, source: io::Error) -> WeightsError {
        WeightsError::Io { file: self.0.clone(), source }
    }

    pub(crate) fn format(&self, what: impl Into<String>) -> WeightsError {
        WeightsError::Format { file: self.0.clone(), what: what.into() }
    }

    pub(crate) fn unsupported(&self, what: impl Into<String>) -> WeightsError {
        WeightsError::Unsupported { file: self.0.clone(), what: what.into() }
    }

    pub(crate) fn config(&self, what: impl Into<String>) -> WeightsError {
        WeightsError::Config { file: self.0.clone(), what: what.into() }
    }

    pub(crate) fn tensor(&self, tensor: &str, what: impl Into<String>) -> WeightsError {
        WeightsError::Tensor { file: self.0.clone(), tensor: tensor.into(), what: what.into() }
    }
}

/// Text from a file, fit for one line of a message: escaped and cut to 80 characters.
pub(crate) fn quoted(text: &str) -> String {
    let head: String = text.chars().take(80).collect();
    let more = if head.len() < text.len() { ".." } else { "" };
    format!("{head:?}{more}")
}
