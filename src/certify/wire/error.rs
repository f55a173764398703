//! What can go wrong with one request.

use std::fmt;
use std::time::Duration;

/// A request has no answer that could be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WireError {
    /// Refused for load: 429, 503 or 529.
    Busy { code: u16, retry_after: Option<Duration> },
    /// Another status than 200, with the server's words.
    Status { code: u16, message: String },
    /// No answer, or no end of it, in the time given.
    Timeout,
    /// The connection failed.
    Transport(String),
    /// An answer that can't be read, or is larger than anything that was asked for.
    Malformed(String),
    /// An answer that did not end as whole answers do, or holds nothing: how, in words that follow "ended".
    Ended(String),
    /// The run's budget is used up; nothing was sent.
    Budget(&'static str),
}

impl WireError {
    /// Whether the server says that it does not take such a request.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, WireError::Status { code: 400 | 404 | 405 | 415 | 422 | 501, .. })
    }

    /// Whether a field of the request may be the reason of a refusal.
    pub(crate) fn may_be_a_field(&self) -> bool {
        matches!(self, WireError::Status { code: 400 | 415 | 422 | 501, .. })
    }

    /// Whether such a status says that the server has too much to do.
    pub(super) fn is_busy(code: u16) -> bool {
        matches!(code, 429 | 503 | 529)
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Busy { code, .. } => write!(f, "refused for load ({code})"),
            WireError::Status { code, message } if message.is_empty() => write!(f, "status {code}"),
            WireError::Status { code, message } => write!(f, "status {code}: {message}"),
            WireError::Timeout => f.write_str("no whole answer in time"),
            WireError::Transport(why) => write!(f, "connection: {why}"),
            WireError::Malformed(why) => write!(f, "answer that can't be read: {why}"),
            WireError::Ended(how) => write!(f, "ended {how}"),
            WireError::Budget(what) => write!(f, "the budget of {what} is used up"),
        }
    }
}
