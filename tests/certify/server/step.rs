//! What a step is to the sequences in it, and whose answers it disturbs.

use std::collections::BTreeSet;

use super::disturbances::When;
use super::engine::Sequence;
use super::faults::Faults;

/// One step of the engine.
pub(crate) struct Step {
    /// Sequences, strangers' included.
    pub(crate) width: usize,
    /// Different lengths of prompts.
    lengths: usize,
    /// The length of the first prompt that ever had company.
    marked_tokens: Option<usize>,
    /// Sequences that wait for a place.
    waiting: usize,
    /// Tokens that the cache did not have, of the longest prompt that is being read.
    prefill_tokens: usize,
}

impl Step {
    pub(crate) fn of(
        (running, waiting): (&[Sequence], usize),
        marked: &mut Option<usize>,
        faults: &Faults,
    ) -> Self {
        let width = running.len() + faults.strangers;
        if width > 1 && marked.is_none() {
            // Prompts of one request are no company of each other's.
            let mut ones = running.iter().filter(|one| one.params.prompts.len() == 1);
            *marked = ones.next().map(|sequence| sequence.prompt_tokens);
        }
        let lengths: BTreeSet<usize> =
            running.iter().map(|sequence| sequence.prompt_tokens).collect();
        let read = running.iter().filter(|sequence| sequence.produced == 0);
        Self {
            width,
            lengths: lengths.len(),
            marked_tokens: *marked,
            waiting,
            prefill_tokens: read.map(Sequence::uncached).max().unwrap_or(0),
        }
    }

    /// Whether a sequence meets a condition at its place in the step.
    pub(crate) fn meets(&self, when: When, of: &Sequence, place: usize, life: u64) -> bool {
        match when {
            When::InFlight(least) => self.width >= least,
            When::OtherLengths => self.lengths > 1,
            When::OthersWait => self.waiting > 0,
            When::FirstRequests(count) => of.number < count,
            When::FirstOfPrompt => of.seen == 0,
            When::ThirdOfPrompt => of.seen >= 2,
            When::Warm | When::EachWarm => of.hit.tokens > 0,
            When::WarmFromCrowd => of.hit.width > 1,
            When::AfterRequests(count) => of.number >= count,
            When::OddPlace => place % 2 == 1,
            When::EachRequest | When::Always => true,
            When::Streamed => of.params.stream,
            When::SampledInFlight => of.params.temperature > 0.0 && self.width > 1,
            When::OneLengthInFlight => {
                self.width > 1 && self.marked_tokens == Some(of.prompt_tokens)
            }
            When::PromptTokensAbove(count) => self.width > 1 && of.prompt_tokens > count,
            // A sequence that decodes is not the one whose prompt is read.
            When::ReadInCompany => of.hit.width > 1 || of.read_width > 1,
            When::PrefillInStep(least) => of.produced > 0 && self.prefill_tokens >= least.max(1),
            When::ManyPrompts => of.params.prompts.len() > 1,
            When::InLife(one) => life == one,
            When::InFlightInLife(least, one) => life == one && self.width >= least,
        }
    }

    /// Which set of small values a drift adds.
    pub(crate) fn kind(&self, when: When, of: &Sequence) -> u64 {
        match when {
            When::EachRequest | When::EachWarm => 1000 + of.number,
            When::InFlight(_) => 100 + self.width as u64,
            _ => 1,
        }
    }
}
