//! What can go wrong with one request.

use std::fmt;
use std::time::Duration;

/// A request has no answer that could be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WireError {
    /// 429.
    Busy { retry_after: Option<Duration> },
    /// Another status than 200, with the server's words.
    Status { code: u16, message: String },
    /// No answer, or no end of it, in the time given.
    Timeout,
    /// The connection failed.
    Transport(String),
    /// An answer that can't be read, or is larger than anything that was asked for.
    Malformed(String),
    /// The run's budget is used up; nothing was sent.
    Budget(&'static str),
}

impl WireError {
    /// Whether the server says that it does not take such a request.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, WireError::Status { code: 400 | 404 | 405 | 415 | 422 | 501, .. })
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Busy { .. } => f.write_str("refused for load (429)"),
            WireError::Status { code, message } if message.is_empty() => write!(f, "status {code}"),
            WireError::Status { code, message } => write!(f, "status {code}: {message}"),
            WireError::Timeout => f.write_str("no whole answer in time"),
            WireError::Transport(why) => write!(f, "connection: {why}"),
            WireError::Malformed(why) => write!(f, "answer that can't be read: {why}"),
            WireError::Budget(what) => write!(f, "the budget of {what} is used up"),
        }
    }
}
