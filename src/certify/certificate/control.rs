//! Whether a run was able to see a difference, and saw none where there is none.

use serde::{Deserialize, Serialize};

/// The controls of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controls {
    /// A difference that was put there.
    pub positive: Control,
    /// Requests one at a time.
    pub negative: Control,
}

/// One control.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// What it was.
    pub what: String,
    /// Whether it came out as it must; absent if it could not be asked.
    pub passed: Option<bool>,
    /// Answers that differed.
    pub differing: u64,
    /// Answers compared.
    pub of: u64,
    /// Requests that it took.
    pub requests: u64,
    /// The same by the number of requests at once.
    pub levels: Vec<ControlLevel>,
    /// What there is to say.
    pub note: Option<String>,
}

/// A control at one number of requests at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlLevel {
    /// Requests sent at once.
    pub sent: u32,
    /// Whether it came out as it must; absent if it could not be asked.
    pub passed: Option<bool>,
    /// Answers that differed.
    pub differing: u64,
    /// Answers compared.
    pub of: u64,
}
