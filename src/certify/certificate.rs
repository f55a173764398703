//! What a run of the certifier leaves behind: the JSON document, and all that a reproducer needs.
//!
//! Every number here was counted; a share or an interval stands beside its counts. Values that a server sent are kept as
//! the decimals it sent.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::env::Tool;
use crate::schema::Schema;

use super::compare::Difference;
use super::nature::Nature;
pub use crate::harness::Verdict;

use super::pattern::Pattern;
use super::samples::Samples;
use super::shrink::Shrunk;

/// Schema of the document.
pub const CERTIFICATE_SCHEMA: Schema = Schema { name: "lockstep.certificate", major: 1, minor: 0 };

/// One question that a run asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// The same request again and again, one at a time: the negative control.
    Repeat,
    /// Alone against in a crowd, each with nothing of the prompt cached.
    ConcurrentCold,
    /// Alone against in a crowd, each with the prompt cached as far as the server caches.
    ConcurrentWarm,
    /// The same crowd in another order of arrival.
    Order,
    /// A prompt that is not cached against one that is.
    Prefix,
    /// A seeded draw alone against in a crowd.
    Seed,
    /// Streamed against plain.
    Stream,
    /// Log-probabilities of generated tokens against those of the same tokens as part of a prompt.
    Score,
    /// The same request at the start, in the middle and at the end of the run.
    Time,
}

impl Arm {
    /// Every arm, in the order in which they are asked.
    pub const ALL: [Arm; 9] = [
        Arm::Repeat,
        Arm::ConcurrentCold,
        Arm::ConcurrentWarm,
        Arm::Order,
        Arm::Prefix,
        Arm::Seed,
        Arm::Stream,
        Arm::Score,
        Arm::Time,
    ];

    /// As in the JSON document and in `--arms`.
    pub fn name(self) -> &'static str {
        match self {
            Arm::Repeat => "repeat",
            Arm::ConcurrentCold => "concurrent_cold",
            Arm::ConcurrentWarm => "concurrent_warm",
            Arm::Order => "order",
            Arm::Prefix => "prefix",
            Arm::Seed => "seed",
            Arm::Stream => "stream",
            Arm::Score => "score",
            Arm::Time => "time",
        }
    }

    /// What is compared, in words.
    pub fn statement(self) -> &'static str {
        match self {
            Arm::Repeat => "the same request again, one at a time",
            Arm::ConcurrentCold => "alone = in a crowd, prompt not cached",
            Arm::ConcurrentWarm => "alone = in a crowd, after identical traffic",
            Arm::Order => "one order of arrival = another",
            Arm::Prefix => "prompt not cached = prompt cached",
            Arm::Seed => "seeded draw alone = in a crowd",
            Arm::Stream => "streamed = plain",
            Arm::Score => "scored as a prompt = generated",
            Arm::Time => "start = middle = end of the run",
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
    /// Each arm, also those that were not scored.
    pub arms: Vec<ArmRecord>,
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
    /// How that was seen: the gauge's name, or `overlap of first and last tokens`, or `none`.
    pub by: String,
    /// Crowds whose requests met.
    pub witnessed: u64,
    /// Crowds whose requests never met; not scored.
    pub unwitnessed: u64,
    /// Requests of others seen while nothing of ours was in flight; absent without a gauge.
    pub load_when_idle: Option<u64>,
}

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
    /// What there is to say.
    pub note: Option<String>,
}

/// What an arm came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmRecord {
    /// Which.
    pub arm: Arm,
    /// Its verdict; undecided if it was not scored.
    pub verdict: Verdict,
    /// Why it was not scored, or is not decided.
    pub reason: Option<String>,
    /// Whether only text was compared: such an arm is blind to log-probabilities, and never held.
    pub blind: bool,
    /// Cases that counted.
    pub scored: u64,
    /// Cases that an error or a refusal for load took away, never sent again.
    pub voided: u64,
    /// Cases whose requests did not meet.
    pub unwitnessed: u64,
    /// Answers that differed.
    pub differing: u64,
    /// Answers compared.
    pub of: u64,
    /// 95 % interval of the share that differs, after Clopper and Pearson.
    pub interval: [f64; 2],
    /// Different prompts compared.
    pub prompts: u64,
    /// Prompts of which an answer differed.
    pub prompts_differing: u64,
    /// Positions compared.
    pub positions: u64,
    /// Log-probabilities compared.
    pub values: u64,
    /// Log-probabilities that only one side had.
    pub incomparable: u64,
    /// Most requests seen in flight in a case that counted.
    pub in_flight: u32,
    /// The same by the number of requests sent at once.
    pub levels: Vec<Level>,
    /// How repeats fall into kinds, where repeats were made: the most telling one.
    pub pattern: Option<Pattern>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

/// Cases with so many requests at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Requests sent at once.
    pub sent: u32,
    /// Most seen in flight.
    pub in_flight: u32,
    /// Answers that differed.
    pub differing: u64,
    /// Answers compared.
    pub of: u64,
}

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
    /// Milliseconds between one request of the crowd and the next; 0 is all at once.
    pub stagger_ms: u64,
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

/// A request as it was sent, without its headers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// Path below the address, for example `completions`.
    pub path: String,
    /// JSON body.
    pub body: serde_json::Value,
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
    /// Repeats after priming.
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
