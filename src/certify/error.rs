//! Why there is no certificate at all.

use std::fmt;

/// A run could not begin, or could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertifyError {
    /// What was asked for makes no sense: usage.
    BadInput(String),
    /// The server can't be reached, or none of its answers can be used: could not decide.
    Unusable(String),
}

impl fmt::Display for CertifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertifyError::BadInput(why) | CertifyError::Unusable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CertifyError {}
