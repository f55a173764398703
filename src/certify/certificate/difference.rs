//! What differed, with all that it takes to send it again.

use serde::{Deserialize, Serialize};

use super::super::compare::Difference;
use super::super::nature::Nature;
use super::super::shrink::Shrunk;
use super::Arm;

/// Differences at one position of one prompt in one arm: one finding, however often it was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Where it was seen.
    pub arm: Arm,
    /// Number of the prompt.
    pub prompt: u32,
    /// Position in the answer; absent where the answers differ as a whole.
    pub position: Option<u64>,
    /// How often.
    pub count: u64,
    /// Drift or state fault.
    pub nature: Nature,
}

/// The first difference of an arm.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Divergence {
    /// Where it was seen.
    pub arm: Arm,
    /// Number of the prompt.
    pub prompt: u32,
    /// Requests sent at once, this one among them.
    pub sent: u32,
    /// Requests seen in flight during this one.
    pub in_flight: u32,
    /// The difference.
    pub difference: Difference,
    /// Drift or state fault.
    pub nature: Nature,
    /// Why that.
    pub explanation: String,
    /// The request that was the reference: path below the address, and body.
    pub reference: Sent,
    /// The request whose answer differed.
    pub request: Sent,
    /// The requests that were sent together with it, in their order.
    pub neighbours: Vec<Sent>,
    /// Where the differing request stood among its neighbours.
    pub place: u32,
    /// When each request of the crowd was sent, this one in its place, in milliseconds after the first.
    pub delays_ms: Vec<u64>,
    /// Which prompts the server must not have seen before: they are made anew each time.
    pub new: New,
    /// Text of the reference.
    pub expected: String,
    /// Text that differed.
    pub got: String,
    /// Answers of this arm that differed, and answers compared.
    pub seen: [u64; 2],
    /// 95 % interval of that share, after Clopper and Pearson.
    pub interval: [f64; 2],
    /// The smallest crowd found that still shows a difference.
    pub shrunk: Option<Shrunk>,
    /// Why there is none, where one was looked for.
    pub not_shrunk: Option<String>,
}

/// Prompts that are made anew each time, as long as before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct New {
    /// That of the request which differs.
    pub request: bool,
    /// Those of its neighbours.
    pub neighbours: bool,
}

/// A request as it was sent, without its headers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// Path below the address, for example `completions`.
    pub path: String,
    /// JSON body.
    pub body: serde_json::Value,
}
