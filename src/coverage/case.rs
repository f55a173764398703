//! What one run covered.

use crate::lifecycle::{EVENTS, Event, State, Transition, transitions};
use crate::record::{BoundaryCounts, LifeEvent, Run};
use crate::strategy::{FEATURES, Features};
use crate::workload::SampleId;

use super::bits::Bits;
use super::features::{shown, targeted};

/// Number of events.
const E: usize = EVENTS.len();
/// Number of features.
const F: usize = FEATURES.len();

/// Index of a run of two events.
pub(super) fn bigram([a, b]: [Event; 2]) -> usize {
    a as usize * E + b as usize
}

/// Index of a run of three events.
pub(super) fn trigram([a, b, c]: [Event; 3]) -> usize {
    bigram([a, b]) * E + c as usize
}

/// Index of three features, ascending.
pub(super) fn triple(a: usize, b: usize, c: usize) -> usize {
    (a * F + b) * F + c
}

/// What one run covered, or several.
#[derive(Clone, Debug)]
pub(super) struct Covered {
    /// By index in [`transitions`].
    pub(super) transitions: Bits,
    pub(super) bigrams: Bits,
    pub(super) trigrams: Bits,
    pub(super) triples: Bits,
    pub(super) boundaries: BoundaryCounts,
    /// What a scheduler reported and the table does not have, each once.
    pub(super) undeclared: Vec<Transition>,
}

impl Covered {
    pub(super) fn new(table: &Table) -> Covered {
        Covered {
            transitions: Bits::new(table.0.len()),
            bigrams: Bits::new(E * E),
            trigrams: Bits::new(E * E * E),
            triples: Bits::new(F * F * F),
            boundaries: BoundaryCounts::default(),
            undeclared: Vec::new(),
        }
    }

    pub(super) fn merge(&mut self, other: &Covered) {
        self.transitions.merge(&other.transitions);
        self.bigrams.merge(&other.bigrams);
        self.trigrams.merge(&other.trigrams);
        self.triples.merge(&other.triples);
        self.boundaries.merge(&other.boundaries);
        for t in &other.undeclared {
            self.declare(*t);
        }
    }

    fn declare(&mut self, t: Transition) {
        if !self.undeclared.contains(&t) {
            self.undeclared.push(t);
        }
    }

    /// Adds a run of a case that was drawn with `drawn` and is about `targets`.
    pub(super) fn add(&mut self, table: &Table, run: &Run, drawn: Features, targets: Features) {
        let targeted = targeted(targets);
        let mut walks: Vec<Walk> = Vec::new();
        for event in &run.life {
            let id = event.id;
            let at = walks.iter().position(|w| w.id == id).unwrap_or_else(|| {
                walks.push(Walk { id, state: State::Absent, before: [None; 2] });
                walks.len() - 1
            });
            self.step(table, &mut walks[at], event, targeted);
        }
        self.boundaries.merge(&run.boundaries);
        let features: Vec<usize> = shown(drawn, run).iter().map(|f| f as usize).collect();
        let is_target = |f: usize| targets.contains(FEATURES[f].0);
        for (i, &a) in features.iter().enumerate() {
            for (j, &b) in features.iter().enumerate().skip(i + 1) {
                for &c in &features[j + 1..] {
                    if ![a, b, c].into_iter().all(is_target) {
                        self.triples.insert(triple(a, b, c));
                    }
                }
            }
        }
    }

    /// Takes one event of a sequence. What consists only of targeted events is no exploration and is not counted.
    fn step(&mut self, table: &Table, walk: &mut Walk, event: &LifeEvent, targeted: u32) {
        let counts = |events: &[Event]| events.iter().any(|e| targeted >> *e as u32 & 1 == 0);
        let t = Transition { from: walk.state, event: event.event, to: event.state };
        match table.index(t) {
            Some(i) if counts(&[t.event]) => self.transitions.insert(i),
            Some(_) => {}
            None => self.declare(t),
        }
        let [before_last, last] = walk.before;
        if let Some(b) = last {
            if counts(&[b, t.event]) {
                self.bigrams.insert(bigram([b, t.event]));
            }
            if let Some(a) = before_last
                && counts(&[a, b, t.event])
            {
                self.trigrams.insert(trigram([a, b, t.event]));
            }
        }
        walk.state = event.state;
        walk.before = [last, Some(event.event)];
    }
}

/// Where a sequence is in its log.
struct Walk {
    id: SampleId,
    state: State,
    /// The two events before, the older one first.
    before: [Option<Event>; 2],
}

/// The lifecycle table, for quick questions.
#[derive(Clone, Debug)]
pub(super) struct Table(Vec<Transition>);

impl Table {
    pub(super) fn new() -> Table {
        Table(transitions())
    }

    /// Index of a transition in the table.
    fn index(&self, t: Transition) -> Option<usize> {
        self.0.binary_search(&t).ok()
    }

    /// The transition with this index.
    pub(super) fn get(&self, index: usize) -> Transition {
        self.0[index]
    }

    /// Indices of feasible transitions.
    pub(super) fn indices(&self, feasible: &[Transition]) -> Vec<usize> {
        feasible.iter().filter_map(|t| self.index(*t)).collect()
    }
}
