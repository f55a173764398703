//! The schedule as the scheduler asks it: which intents are due at a decision, and what became of each.

use std::collections::BTreeSet;

use crate::record::{Inert, IntentOutcome};
use crate::schedule::{Act, Intent, Mark, Schedule};
use crate::workload::{SampleId, Workload};

/// The intents of a run and their fate.
#[derive(Clone, Debug)]
pub(super) struct Deviations {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    intent: Intent,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    /// Taken, but the decision it is about has not been asked for yet.
    Armed,
    Fired,
    Inert(Inert),
}

/// An intent taken from the schedule, to be settled once the decision is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    index: usize,
    /// What to do.
    pub(super) act: Act,
}

impl Deviations {
    /// The intents of `schedule`; those that can never be taken are settled at once.
    pub(super) fn new(schedule: &Schedule, workload: &Workload) -> Deviations {
        let samples: BTreeSet<SampleId> = workload.sample_ids().collect();
        let entries = schedule
            .intents
            .iter()
            .map(|&intent| {
                let state = if !samples.contains(&intent.id()) {
                    State::Inert(Inert::NoSuchRequest)
                } else if !fits(intent) {
                    State::Inert(Inert::WrongMark)
                } else {
                    State::Pending
                };
                Entry { intent, state }
            })
            .collect();
        Deviations { entries }
    }

    /// Takes the first pending intent of a sample that is due at a mark and satisfies `wanted`.
    pub(super) fn take(
        &mut self,
        id: SampleId,
        due: impl Fn(Mark) -> bool,
        wanted: impl Fn(Act) -> bool,
    ) -> Option<Taken> {
        let index = self.entries.iter().position(|e| {
            e.state == State::Pending
                && e.intent.id() == id
                && due(e.intent.mark)
                && wanted(e.intent.act)
        })?;
        self.entries[index].state = State::Armed;
        Some(Taken { index, act: self.entries[index].intent.act })
    }

    /// Records whether a taken intent made the decision differ from the default's.
    pub(super) fn settle(&mut self, taken: Taken, differed: bool) {
        self.entries[taken.index].state =
            if differed { State::Fired } else { State::Inert(Inert::SameAsDefault) };
    }

    /// Records why a taken intent changed nothing.
    pub(super) fn fail(&mut self, taken: Taken, why: Inert) {
        self.entries[taken.index].state = State::Inert(why);
    }

    /// Records that another act at the same decision made a taken intent void.
    pub(super) fn overtake(&mut self, taken: Taken) {
        self.fail(taken, Inert::Overtaken);
    }

    /// One outcome an intent, in the schedule's order.
    pub(super) fn outcomes(&self) -> Vec<IntentOutcome> {
        self.entries
            .iter()
            .map(|e| IntentOutcome {
                intent: e.intent,
                inert: match e.state {
                    State::Fired => None,
                    State::Inert(why) => Some(why),
                    State::Pending => Some(Inert::MarkNotReached),
                    State::Armed => Some(Inert::NeverAsked),
                },
            })
            .collect()
    }

    /// State of each intent as a number: for the trajectory.
    pub(super) fn state(&self) -> impl ExactSizeIterator<Item = u32> {
        self.entries.iter().map(|e| match e.state {
            State::Pending => 0,
            State::Armed => 1,
            State::Fired => 2,
            State::Inert(_) => 3,
        })
    }
}

/// Whether the act can be taken at this kind of mark.
fn fits(intent: Intent) -> bool {
    let fits = matches!(
        (intent.act, intent.mark),
        (Act::Arrive { .. }, Mark::Start)
            | (
                Act::Hold { .. }
                    | Act::Hit { .. }
                    | Act::Fork
                    | Act::Abort
                    | Act::Place { .. }
                    | Act::Evict { .. }
                    | Act::Land { .. },
                Mark::Offer { .. }
            )
            | (
                Act::Stall { .. }
                    | Act::Rank { .. }
                    | Act::Cut { .. }
                    | Act::Preempt { .. }
                    | Act::Victim
                    | Act::Abort
                    | Act::Place { .. }
                    | Act::Bucket { .. }
                    | Act::Land { .. },
                Mark::Computed { .. }
            )
    );
    // The first sample has nobody to fork from, whatever the rest of the workload is.
    fits && !(intent.act == Act::Fork && intent.sample == 0)
}
