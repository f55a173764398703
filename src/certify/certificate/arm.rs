//! The questions that a run asks, and what each came to.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::super::pattern::Pattern;
use super::Verdict;

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
