//! What a run of the certifier leaves behind: the JSON document, and all that a reproducer needs.
//!
//! Every number here was counted; a share or an interval stands beside its counts. Values that a server sent are kept as
//! the decimals it sent.

mod arm;
mod claim;
mod control;
mod difference;
mod read;
mod server;

use serde::{Deserialize, Serialize};

use crate::env::Tool;
use crate::schema::Schema;

use super::samples::Samples;

pub use crate::harness::Verdict;
pub use arm::{Arm, ArmRecord, Level};
pub use claim::{Clusters, LevelClaim, Power, Smallest};
pub use control::{Control, ControlLevel, Controls};
pub use difference::{Divergence, Finding, New, Sent};
pub use read::CERTIFICATE_BYTES_MAX;
pub use server::{Ability, Resolution, Server, Witness};

/// Schema of the document.
pub const CERTIFICATE_SCHEMA: Schema = Schema { name: "lockstep.certificate", major: 2, minor: 0 };

/// The whole of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// [`CERTIFICATE_SCHEMA`].
    pub schema: String,
    /// The verdict of the whole.
    pub verdict: Verdict,
    /// Why it is that, most important first.
    pub reasons: Vec<String>,
    /// What was asked, as far as it says.
    pub server: Server,
    /// Whether requests really met.
    pub witness: Witness,
    /// Whether the run was able to see a difference, and saw none where there is none.
    pub controls: Controls,
    /// What is claimed at each number of requests at once.
    pub levels: Vec<LevelClaim>,
    /// Each arm, also those that were not scored.
    pub arms: Vec<ArmRecord>,
    /// Findings beside the verdict, such as counts of a stream that disagree while its tokens agree.
    pub beside: Vec<String>,
    /// Kinds of answers that do not follow load, where there are any.
    pub clusters: Option<Clusters>,
    /// The smallest number of requests at once that shows a difference.
    pub smallest: Option<Smallest>,
    /// Differences, grouped by arm, prompt and position.
    pub findings: Vec<Finding>,
    /// The first difference of each broken arm, with all it takes to send it again.
    pub divergences: Vec<Divergence>,
    /// Answers and different answers, by prompt and by size of the batch.
    pub samples: Samples,
    /// What the concurrent arms were able to see.
    pub power: Power,
    /// Completions asked for, the probes' and the controls' among them.
    pub requests: u64,
    /// Tokens of prompts and answers together, as far as the server counts them.
    pub tokens: u64,
    /// Seconds that the run took.
    pub seconds: f64,
    /// Answers alone, by digest: what other lives and addresses are compared by.
    pub answers: Vec<Reference>,
    /// What was asked of the run.
    pub settings: Settings,
    /// What this says something about, and what not.
    pub scope: String,
    /// The certifier.
    pub tool: Tool,
}

impl Certificate {
    /// The record of an arm.
    pub fn arm(&self, arm: Arm) -> Option<&ArmRecord> {
        self.arms.iter().find(|record| record.arm == arm)
    }
}

/// An answer alone, by digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Number of the prompt.
    pub prompt: u32,
    /// sha256 of what was asked: of the request's body all that can change an answer, in the order of its fields' names. The
    /// model's name does not count, nor what only says how much of the answer comes back, or what may be cached.
    pub prompt_sha256: String,
    /// Tokens of the prompt, as the server counts them.
    pub prompt_tokens: Option<u64>,
    /// sha256 of the text.
    pub text_sha256: String,
    /// sha256 of tokens and log-probabilities as received; absent where an answer has none.
    pub values_sha256: Option<String>,
    /// Whether answers alone to this prompt were all equal.
    pub repeatable: bool,
}

/// What was asked of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Seed of the plan.
    pub seed: u64,
    /// Requests at once, level by level.
    pub concurrency: Vec<u32>,
    /// Prompts that are judged.
    pub prompts: u32,
    /// Tokens of prompts, in turn; of prompts of the user's own, none.
    pub prompt_tokens: Vec<u32>,
    /// What made the prompts new to the server.
    pub nonce: u64,
    /// Names of further headers that went with every request; values are not stored.
    pub headers: Vec<String>,
    /// Arms asked for.
    pub arms: Vec<Arm>,
    /// Alternatives asked for at a position.
    pub alternatives: u32,
    /// Answers in crowds that held takes at a level.
    pub answers_min: u64,
    /// Answers alone after the first.
    pub repeats: u32,
    /// Rounds of each level.
    pub rounds: u32,
    /// Tokens of an answer.
    pub answer_tokens: u32,
    /// Most requests.
    pub max_requests: u64,
    /// Most tokens.
    pub max_tokens: u64,
    /// Seconds for a request.
    pub timeout_s: f64,
    /// Seconds for the run.
    pub seconds_max: f64,
}

#[cfg(test)]
pub(in crate::certify) use read::tests;
