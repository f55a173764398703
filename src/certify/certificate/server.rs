//! What was judged, as far as it could be seen from outside.

use serde::{Deserialize, Serialize};

/// A server, as far as it could be seen from outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Address, without credentials.
    pub url: String,
    /// Model asked for.
    pub model: String,
    /// What it calls itself: owner of the model, `Server` header, fingerprint.
    pub identity: Vec<String>,
    /// Most tokens of prompt and answer, if it says.
    pub context_max: Option<u64>,
    /// Abilities, each with how it is known.
    pub abilities: Vec<Ability>,
    /// How many digits its log-probabilities have; none seen means blind.
    pub resolution: Option<Resolution>,
    /// What names a token in its answers: `token ids`, `bytes` or `text only`.
    pub tokens_named_by: String,
}

/// Something that a server can do, or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ability {
    /// What.
    pub name: String,
    /// Whether; absent is unknown.
    pub known: Option<bool>,
    /// How that is known.
    pub evidence: String,
}

/// How fine a server's decimals are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    /// Most significant digits seen.
    pub digits: u32,
    /// Most digits after the point seen.
    pub decimals: u32,
    /// Values looked at.
    pub values: u64,
}

/// Whether requests met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// Most requests seen in flight at once.
    pub max_in_flight: u32,
    /// How that was seen: the gauge's name, the times of tokens, or both; or `none`.
    pub by: String,
    /// Crowds whose requests met.
    pub witnessed: u64,
    /// Crowds whose requests never met; only a difference counts in them.
    pub unwitnessed: u64,
    /// Crowds of which the running gauge and the times of tokens say contrary things; counted as not met.
    pub contradicted: u64,
    /// Requests of others seen while nothing of ours was in flight; absent without a gauge.
    pub load_when_idle: Option<u64>,
}
