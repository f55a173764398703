//! What is claimed of all arms together: at each number of requests at once, and of answers that do not follow load.

use serde::{Deserialize, Serialize};

use super::{Arm, Verdict};

/// What is claimed at a number of requests at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelClaim {
    /// Requests sent at once.
    pub sent: u32,
    /// Most seen in flight together.
    pub in_flight: u32,
    /// Answers in crowds of this size that met others, over the arms with crowds.
    pub answers: u64,
    /// Of these, answers that differed.
    pub differing: u64,
    /// 95 % interval of that share, after Clopper and Pearson.
    pub interval: [f64; 2],
    /// Smallest rate that so many answers would have shown with a probability of 95 %.
    pub rate_seen_at_95: Option<f64>,
    /// Verdict at this level.
    pub verdict: Verdict,
    /// Why it is not held, where it is undecided.
    pub why: Option<String>,
}

/// Kinds of answers of which the one that comes does not follow load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clusters {
    /// Kinds of answers that a prompt got at most.
    pub kinds: u64,
    /// Prompts of which more than one kind was seen.
    pub prompts: u64,
    /// Answers of each kind, the most frequent kind of each prompt first, over all prompts.
    pub answers: Vec<u64>,
    /// Whether each kind was seen again, the same to the last digit.
    pub stable: bool,
    /// Whether requests one at a time fall into the kinds too.
    pub alone: bool,
    /// What tells the kinds apart: a header or a fingerprint, if one does.
    pub told_apart_by: Option<String>,
    /// The same in words.
    pub words: String,
}

/// The smallest number of requests at once that shows a difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smallest {
    /// The kind of crowd.
    pub arm: Arm,
    /// Requests at once.
    pub sent: u32,
    /// Answers that differed there, and answers compared.
    pub seen: [u64; 2],
    /// The largest number below it that showed none, and the answers compared there; absent if it is 2.
    pub below: Option<[u64; 2]>,
    /// What ended the search before its time.
    pub ended_by: Option<String>,
}

/// What the concurrent arms were able to see, at the load that they reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Answers compared in the arms with crowds.
    pub trials: u64,
    /// Share of the answers that a fault is taken to change.
    pub rate: f64,
    /// Probability of having seen such a fault, if answers fail independently.
    pub detection: f64,
    /// Answers that it takes to see it with a probability of 99 %.
    pub trials_for_99: u64,
    /// Smallest rate that these trials would have seen with a probability of 95 %.
    pub rate_seen_at_95: Option<f64>,
}
