//! One file an arm. An arm sends, compares and counts; what its counts mean is said in one place for all.

pub(crate) mod concurrent;
pub(crate) mod order;
pub(crate) mod prefix;
pub(crate) mod repeat;
pub(crate) mod scored;
pub(crate) mod seed;
pub(crate) mod stream;
pub(crate) mod time;

use super::certificate::Sent;
use super::compare::{Comparison, Parts, compare};
use super::options::Options;
use super::plan::Prompts;
use super::probe::Facts;
use super::score::{Requests, Score, Trial};
use super::session::Session;
use super::wire::{Answer, Call};

/// What arms work with.
pub(crate) struct Bench<'s, 'a> {
    pub(crate) session: &'s mut Session<'a>,
    pub(crate) facts: &'s Facts,
    pub(crate) options: &'s Options,
    pub(crate) prompts: &'s mut Prompts,
}

impl Bench<'_, '_> {
    /// The greedy request of a prompt.
    pub(crate) fn call(&mut self, number: u32) -> Call {
        let prompt = self.prompts.get(self.session, number);
        self.facts.call(&prompt, self.options.answer_tokens)
    }
}

/// Answers of each prompt, alone and after identical traffic: what later answers are compared with.
pub(crate) type References = Vec<Vec<Answer>>;

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

/// Counts an answer to a request that was sent with nothing else in flight.
pub(crate) fn alone(
    session: &Session<'_>,
    score: &mut Score,
    prompt: u32,
    (reference, expected): (&Call, &Answer),
    (call, got): (&Call, &Answer),
    comparison: Comparison,
) {
    let reference = || session.sent(reference);
    let crowd = || vec![session.sent(call)];
    let requests = Requests { reference: &reference, crowd: &crowd, place: 0, stagger_ms: 0 };
    score.take(Trial { prompt, sent: 1, in_flight: 1, comparison, expected, got, requests });
}

/// The requests of a crowd as they are sent.
pub(crate) fn sent(session: &Session<'_>, calls: &[Call]) -> Vec<Sent> {
    calls.iter().map(|call| session.sent(call)).collect()
}

/// Why an answer is not compared whose reference started from something else.
pub(crate) const OTHER_START: &str =
    "prompt tokens were counted or cached to another extent than in the reference";

/// Whether two answers were made from the same prompt and the same state of the cache, as far as both are counted.
pub(crate) fn same_start(a: &Answer, b: &Answer) -> bool {
    let same = |a: Option<u64>, b: Option<u64>| a.is_none() || b.is_none() || a == b;
    same(a.cached_tokens, b.cached_tokens) && same(a.prompt_tokens, b.prompt_tokens)
}
