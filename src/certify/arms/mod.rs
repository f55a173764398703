//! One file an arm, or arms that are asked by the same requests. An arm sends, compares and counts; what its counts mean is said
//! in one place for all.

pub(crate) mod alone;
pub(crate) mod cold;
pub(crate) mod concurrent;
pub(crate) mod many;
pub(crate) mod order;
pub(crate) mod prefix;
pub(crate) mod scored;
pub(crate) mod seed;
pub(crate) mod stream;

use std::time::Duration;

use super::certificate::{Arm, New};
use super::clusters::Sighting;
use super::compare::{Comparison, Parts, compare};
use super::options::Options;
use super::probe::Facts;
use super::prompts::Prompts;
use super::score::{Requests, Score, Trial};
use super::session::Session;
use super::wire::{Answer, Call, WireError};

/// What arms work with.
pub(crate) struct Bench<'s, 'a> {
    pub(crate) session: &'s mut Session<'a>,
    pub(crate) facts: &'s Facts,
    pub(crate) options: &'s Options,
    pub(crate) prompts: &'s mut Prompts,
    /// The judged prompts, by number.
    pub(crate) known: Vec<Known>,
    /// Whether what is cached of a prompt was seen to change its answer.
    pub(crate) cached_matters: bool,
    /// Whether a counter says that even first requests found their prompts in the cache.
    pub(crate) first_hits: bool,
    /// Which answers came in crowds.
    pub(crate) seen: Vec<Sighting>,
}

/// What is known of a judged prompt.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) call: Call,
    /// The first answer ever given to it.
    pub(crate) first: Option<Answer>,
    /// Answers alone after that one: what later answers are compared with.
    pub(crate) warm: Vec<Answer>,
    /// Whether there are at least two of those that were asked for first, all equal.
    pub(crate) warm_is_clean: bool,
    /// Whether two of them differ: then it is not for lack of answers that they are no reference.
    pub(crate) warm_differs: bool,
    /// Answers alone with nothing of the prompt cached.
    pub(crate) cold: Vec<Answer>,
    /// Whether there are at least two of these, all equal.
    pub(crate) cold_is_clean: bool,
    /// Whether two of them differ, and not only the first one from those after it.
    pub(crate) cold_differs: bool,
    /// Why there are too few of these.
    pub(crate) cold_lacks: Option<String>,
    /// How long the last answer alone took.
    pub(crate) took: Duration,
}

impl Bench<'_, '_> {
    /// The greedy request of a prompt that fills a crowd.
    pub(crate) fn filler(&mut self, number: u32) -> Call {
        let prompt = self.prompts.filler(self.session, number);
        self.facts.call(&prompt, self.options.answer_tokens)
    }

    /// One request alone, or why it has no answer that counts.
    pub(crate) fn ask(&mut self, call: &Call) -> Result<Answer, WireError> {
        self.session.one(call).map(|exchange| exchange.answer)
    }

    /// Whether warm answers repeat: those of a prompt at least, and of none they differ.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.known.iter().any(|known| known.warm_is_clean) && !self.warm_differs()
    }

    /// Whether warm answers to any prompt differ.
    pub(crate) fn warm_differs(&self) -> bool {
        self.known.iter().any(|known| known.warm_differs)
    }

    /// The same of cold answers: those of a prompt repeat, and of none they differ.
    pub(crate) fn is_cold_repeatable(&self) -> bool {
        self.known.iter().any(|known| known.cold_is_clean) && !self.cold_differs()
    }

    /// Whether cold answers to any prompt differ.
    pub(crate) fn cold_differs(&self) -> bool {
        self.known.iter().any(|known| known.cold_differs)
    }

    /// How long an answer alone takes, as a rule.
    pub(crate) fn usual_time(&self) -> Duration {
        let mut times: Vec<Duration> = self.known.iter().map(|known| known.took).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }
}

/// Compares with every reference: the first difference, else the counts of the first comparison.
pub(crate) fn against<'r>(
    references: impl IntoIterator<Item = &'r Answer>,
    got: &Answer,
) -> Option<(&'r Answer, Comparison)> {
    let mut kept: Option<(&Answer, Comparison)> = None;
    for reference in references {
        let comparison = compare(reference, got, Parts::All);
        let differs = comparison.difference.is_some();
        if differs || kept.is_none() {
            kept = Some((reference, comparison));
        }
        if differs {
            break;
        }
    }
    kept
}

/// Whether two answers are equal in all that both have.
pub(crate) fn is_equal(a: &Answer, b: &Answer) -> bool {
    compare(a, b, Parts::All).difference.is_none()
}

/// Counts an answer to a request that was sent with nothing else in flight.
pub(crate) fn alone(
    session: &Session<'_>,
    score: &mut Score,
    prompt: u32,
    (reference, expected): (&Call, &Answer),
    (call, got): (&Call, &Answer),
    comparison: Comparison,
) {
    let sent = |call: &Call| session.sent(call);
    let crowd = std::slice::from_ref(call);
    // A first answer is shown again by a new prompt alone.
    let new = New { request: score.arm() == Arm::First, neighbours: false };
    let requests = Requests { sent: &sent, reference, crowd, place: 0, delays_ms: &[0], new };
    score.case();
    score.take(Trial { prompt, sent: 1, in_flight: 1, comparison, expected, got, requests });
}

/// Why answers alone to a prompt are no reference.
pub(crate) fn no_reference(differ: bool) -> String {
    match differ {
        true => "answers alone to the same prompt differ among themselves".into(),
        false => "too few answers alone to the same prompt".into(),
    }
}

/// Why an answer is not compared whose reference started from something else.
pub(crate) const OTHER_START: &str =
    "prompt tokens were counted or cached to another extent than in the reference";

/// Whether two answers were made from the same prompt and the same state of the cache, as far as both are counted.
pub(crate) fn same_start(a: &Answer, b: &Answer) -> bool {
    same_prompt(a, b) && agree(a.cached_tokens, b.cached_tokens)
}

/// Whether two answers were made from the same prompt, as far as both are counted.
pub(crate) fn same_prompt(a: &Answer, b: &Answer) -> bool {
    agree(a.prompt_tokens, b.prompt_tokens)
}

fn agree(a: Option<u64>, b: Option<u64>) -> bool {
    a.is_none() || b.is_none() || a == b
}

/// Most tokens that a prompt which was never sent may share with others: the token that begins every prompt.
const SHARED_MAX: u64 = 1;

/// Whether an answer came from nothing cached, as far as the server counts that.
pub(crate) fn is_cold(answer: &Answer) -> bool {
    answer.cached_tokens.is_none_or(|cached| cached <= SHARED_MAX)
}
