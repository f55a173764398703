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
pub const CERTIFICATE_SCHEMA: Schema = Schema { name: "lockstep.certificate", major: 2, minor: 0 };

/// One question that a run asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// The first answer ever given to a prompt against later ones, alone.
    First,
    /// The same request again and again, one at a time: the negative control.
    Repeat,
    /// A prompt that is not cached against one that is, alone.
    Prefix,
    /// Streamed against plain.
    Stream,
    /// Log-probabilities of generated tokens against those of the same tokens as part of a prompt.
    Score,
    /// Alone against in a crowd, each with nothing of the prompt cached.
    ConcurrentCold,
    /// Alone against in a crowd, each with the prompt cached as far as the server caches.
    ConcurrentWarm,
    /// Alone against in a crowd whose others are new and long, and arrive while the judged request decodes.
    ConcurrentMixed,
    /// The same crowd in another order of arrival.
    Order,
    /// Alone against as one of many prompts of one request.
    ManyPrompts,
    /// A seeded draw alone against in a crowd.
    Seed,
    /// Alone before the crowds against alone after them.
    After,
    /// Alone earlier against alone later, with nothing but requests one at a time between.
    Time,
}

impl Arm {
    /// Every arm, in the order in which they are reported.
    pub const ALL: [Arm; 13] = [
        Arm::First,
        Arm::Repeat,
        Arm::Prefix,
        Arm::Stream,
        Arm::Score,
        Arm::ConcurrentCold,
        Arm::ConcurrentWarm,
        Arm::ConcurrentMixed,
        Arm::Order,
        Arm::ManyPrompts,
        Arm::Seed,
        Arm::After,
        Arm::Time,
    ];
    /// The arms that *held* at a level takes, unless others were asked for.
    pub const COMPANY: [Arm; 3] = [Arm::ConcurrentCold, Arm::ConcurrentWarm, Arm::ConcurrentMixed];

    /// As in the JSON document and in `--arms`.
    pub fn name(self) -> &'static str {
        match self {
            Arm::First => "first",
            Arm::Repeat => "repeat",
            Arm::Prefix => "prefix",
            Arm::Stream => "stream",
            Arm::Score => "score",
            Arm::ConcurrentCold => "concurrent_cold",
            Arm::ConcurrentWarm => "concurrent_warm",
            Arm::ConcurrentMixed => "concurrent_mixed",
            Arm::Order => "order",
            Arm::ManyPrompts => "many_prompts",
            Arm::Seed => "seed",
            Arm::After => "after",
            Arm::Time => "time",
        }
    }

    /// What must be equal, in words.
    pub fn statement(self) -> &'static str {
        match self {
            Arm::First => "the first answer ever and later ones, alone",
            Arm::Repeat => "the same request again, one at a time",
            Arm::Prefix => "prompt not cached and prompt cached, alone",
            Arm::Stream => "streamed and plain",
            Arm::Score => "scored as a prompt and generated",
            Arm::ConcurrentCold => "alone and in a crowd, prompts not cached",
            Arm::ConcurrentWarm => "alone and in a crowd, all prompts sent before",
            Arm::ConcurrentMixed => {
                "alone and in a crowd of new, long prompts that arrive as it decodes"
            }
            Arm::Order => "one order of arrival and the reverse",
            Arm::ManyPrompts => "alone and as one of many prompts of a request",
            Arm::Seed => "seeded draw alone and in a crowd",
            Arm::After => "alone before the crowds and alone after them",
            Arm::Time => "alone earlier and later, no crowd between",
        }
    }

    /// Whether it takes requests that meet.
    pub fn needs_company(self) -> bool {
        matches!(
            self,
            Arm::ConcurrentCold
                | Arm::ConcurrentWarm
                | Arm::ConcurrentMixed
                | Arm::Order
                | Arm::ManyPrompts
                | Arm::Seed
        )
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

/// An answer alone, by digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Number of the prompt.
    pub prompt: u32,
    /// sha256 of the prompt as it was sent.
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
    /// Whether nothing but tokens or text was compared, or values that are all the same: such an arm is never held.
    pub blind: bool,
    /// Cases that counted.
    pub scored: u64,
    /// Answers that an error, a refusal for load or an end before its time took away; never sent again.
    pub voided: u64,
    /// Crowds whose requests did not meet.
    pub unwitnessed: u64,
    /// Answers that differed.
    pub differing: u64,
    /// Answers compared.
    pub of: u64,
    /// Of these, answers to requests that met others, as far as was witnessed.
    pub met: u64,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Of these, answers to requests that met others.
    pub met: u64,
    /// Answers that an error, a refusal or an early end took away.
    pub voided: u64,
    /// 95 % interval of the share that differs, after Clopper and Pearson.
    pub interval: [f64; 2],
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
