//! What a run is asked to do, and its limits.

use std::fmt;
use std::time::Duration;

use super::certificate::Arm;
use super::error::CertifyError;
use super::wire::Address;

/// Most requests at once that may be asked for.
pub const CONCURRENCY_MAX: u32 = 512;
/// Most prompts that are judged.
pub const PROMPTS_MAX: u32 = 256;
/// Most tokens of an answer.
pub const ANSWER_TOKENS_MAX: u32 = 4096;
/// Longest prompt that may be asked for, in tokens.
pub const PROMPT_TOKENS_MAX: u32 = 1 << 20;
/// Most alternatives that may be asked for.
pub const ALTERNATIVES_MAX: u32 = 100;
/// Most rounds of a level.
pub const ROUNDS_MAX: u32 = 1000;
/// Answers in crowds that *held* takes at a level: so many see a fault that changes one in ten with probability 0.95.
pub const ANSWERS_MIN: u64 = 29;
/// Tokens of prompts, in turn: from a few to past 1,024, one below, at and one above edges of blocks and powers of two. Each
/// stretch of four mixes short and long, so that small crowds do too.
pub const PROMPT_TOKENS: [u32; 14] =
    [17, 257, 64, 1025, 5, 129, 511, 16, 1024, 255, 128, 1023, 15, 513];

/// A server, and what is known to be broken beside it.
#[derive(Clone, Default)]
pub struct Target {
    /// Address up to and with `/v1`.
    pub url: String,
    /// Model; the first that the server lists without one.
    pub model: Option<String>,
    /// Sent as a bearer token; never printed or stored.
    pub key: Option<Secret>,
    /// A server like it that is known to depend on the batch. Without one, a proxy alters answers of `url`.
    pub control: Option<String>,
    /// Headers that go with every request; values are never printed or stored.
    pub headers: Vec<(String, Secret)>,
    /// Fields of every completion's body. They go before ours, and are part of what is judged.
    pub fields: Vec<(String, serde_json::Value)>,
    /// Which endpoint is asked.
    pub api: Api,
    /// Address of the metrics, if they are not at `/metrics` beside `/v1`.
    pub metrics_url: Option<String>,
}

/// Which endpoint is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Api {
    /// Completions if there are any, else chat.
    #[default]
    Auto,
    /// Completions: a prompt as it is.
    Completions,
    /// Chat completions: a template is put around each prompt.
    Chat,
}

impl std::str::FromStr for Api {
    type Err = String;

    fn from_str(name: &str) -> Result<Api, String> {
        match name {
            "auto" => Ok(Api::Auto),
            "completions" => Ok(Api::Completions),
            "chat" => Ok(Api::Chat),
            other => Err(format!("{other:?}: expected auto, completions or chat")),
        }
    }
}

/// A key that no text shows.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Of this text. `None` if a header could not hold it.
    pub fn new(text: &str) -> Option<Secret> {
        let plain = !text.is_empty() && text.bytes().all(|b| (0x21..0x7f).contains(&b));
        plain.then(|| Secret(text.into()))
    }

    /// The value of a header: as a key, but with spaces between its words. `None` if a header could not hold it.
    pub fn of_header(text: &str) -> Option<Secret> {
        let plain = !text.is_empty() && text.bytes().all(|b| (0x20..0x7f).contains(&b));
        (plain && text.trim() == text).then(|| Secret(text.into()))
    }

    /// For the header alone.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets stand in headers, fields and queries.
        let url = Address::parse(&self.url).map(|address| address.shown());
        let url = url.unwrap_or_else(|_| "(not an address)".into());
        f.debug_struct("Target").field("url", &url).field("model", &self.model).finish()
    }
}

/// A prompt of the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnPrompt {
    /// Sent as it is.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

/// What to do, and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Seed of the plan: prompts, groups, draws.
    pub seed: u64,
    /// Makes this run's prompts new to the server. `None` takes one from clock and process, so that a second run does not find
    /// the first one's prompts in a cache.
    pub nonce: Option<u64>,
    /// Requests at once, level by level, in rising order; each above 1.
    pub concurrency: Vec<u32>,
    /// Prompts that are judged.
    pub prompts: u32,
    /// Tokens of prompts, in turn.
    pub prompt_tokens: Vec<u32>,
    /// Prompts to judge in place of made ones.
    pub own_prompts: Vec<OwnPrompt>,
    /// Answers alone after the first one, at least 2.
    pub repeats: u32,
    /// Rounds of each level. `None`: as many as *held* takes, see [`Options::rounds`].
    pub rounds: Option<u32>,
    /// Tokens of an answer.
    pub answer_tokens: u32,
    /// Alternatives to ask for at each position; fewer where the server refuses so many.
    pub alternatives: u32,
    /// Arms to ask. [`Arm::Repeat`] is always asked: it is the negative control.
    pub arms: Vec<Arm>,
    /// Whether a difference in a crowd is looked for at fewer requests in flight, and shrunk, with what is left of the budget.
    pub shrinks: bool,
    /// Seconds for one request.
    pub timeout: Duration,
    /// Seconds for the run.
    pub time_max: Duration,
    /// Most requests.
    pub requests_max: u64,
    /// Most tokens of prompts and answers together.
    pub tokens_max: u64,
    /// Answers in crowds below which nothing is called held at a level.
    pub answers_min: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 0,
            nonce: None,
            concurrency: vec![4, 16, 64],
            prompts: 14,
            prompt_tokens: PROMPT_TOKENS.to_vec(),
            own_prompts: Vec::new(),
            repeats: 2,
            rounds: None,
            answer_tokens: 32,
            alternatives: 5,
            arms: Arm::ALL.to_vec(),
            shrinks: true,
            timeout: Duration::from_secs(60),
            time_max: Duration::from_secs(600),
            requests_max: 600,
            tokens_max: 600_000,
            answers_min: ANSWERS_MIN,
        }
    }
}

impl Options {
    /// Whether an arm is to be asked.
    pub fn asks(&self, arm: Arm) -> bool {
        arm == Arm::Repeat || self.arms.contains(&arm)
    }

    /// Answers in crowds that a round asks for at each level.
    pub fn answers_a_round(&self) -> u64 {
        let arms = Arm::COMPANY.iter().filter(|arm| self.arms.contains(arm)).count() as u64;
        arms * u64::from(self.prompts)
    }

    /// Rounds of each level: those asked for, or else enough for the answers that *held* takes, and a third more, since not every
    /// answer meets others.
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or_else(|| {
            let least = self.answers_min.saturating_add(self.answers_min / 3);
            let enough = match self.answers_a_round() {
                0 => 1,
                answers => least.div_ceil(answers),
            };
            u32::try_from(enough).unwrap_or(u32::MAX).clamp(1, ROUNDS_MAX)
        })
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), CertifyError> {
        let bad = |why: String| Err(CertifyError::BadInput(why));
        if self.concurrency.is_empty() {
            return bad("concurrency: at least one number above 1 is needed".into());
        }
        let numbers: [(&str, u32, u32, u32); 6] = [
            ("prompts", self.prompts, 2, PROMPTS_MAX),
            ("repeats", self.repeats, 2, 64),
            ("rounds", self.rounds(), 1, ROUNDS_MAX),
            ("answer tokens", self.answer_tokens, 2, ANSWER_TOKENS_MAX),
            ("alternatives", self.alternatives, 0, ALTERNATIVES_MAX),
            ("own prompts", self.own_prompts.len() as u32, 0, PROMPTS_MAX),
        ];
        let of = |name: &'static str, n: u32, most: u32| (name, n, 2, most);
        let levels = self.concurrency.iter().map(|n| of("concurrency", *n, CONCURRENCY_MAX));
        let lengths = self.prompt_tokens.iter().map(|n| of("prompt tokens", *n, PROMPT_TOKENS_MAX));
        for (name, n, least, most) in numbers.into_iter().chain(levels).chain(lengths) {
            if !(least..=most).contains(&n) {
                return bad(format!("{name} {n}: expected {least} to {most}"));
            }
        }
        if self.prompt_tokens.is_empty() {
            return bad("prompt tokens: at least one length is needed".into());
        }
        let is_empty = |prompt: &OwnPrompt| match prompt {
            OwnPrompt::Text(text) => text.is_empty(),
            OwnPrompt::Ids(ids) => ids.is_empty(),
        };
        if self.own_prompts.iter().any(is_empty) {
            return bad("own prompts: one is empty".into());
        }
        if self.answers_min == 0 {
            return bad("answers a level: expected at least 1".into());
        }
        Ok(())
    }
}

/// Told how far a run is.
pub trait Progress: Sync {
    /// An arm, a probe or a control begins.
    fn stage(&self, name: &str);
    /// So many of about so many requests were sent.
    fn requests(&self, done: u64, of: u64);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _: &str) {}
    fn requests(&self, _: u64, _: u64) {}
}
