//! Shrinking: a `ValueTree` of passes that run to a joint fixed point.
//!
//! Deleting from a list tries all of it, then halves, quarters and so on to single elements, from the end; after a
//! success the cursor stays where it is instead of starting over. Numbers are tried at their floor, then bisected.
//! Lengths go down before tokens are set to 0, since prompts that differ in a token alone are shorter than those that
//! differ in length. Passes repeat until a whole round changes nothing; then leaps (`strategy/leap.rs`) are tried, and after one
//! that fails too the passes start again. Candidates are remembered, so none runs twice.

use std::collections::BTreeSet;

use proptest::strategy::ValueTree;

use crate::case::Case;

use super::leap;
use super::reduce::{self, Field, Frozen, SEEDS_TRIED};
use super::swarm::Features;

/// The shrinking state of one failing case.
///
/// `simplify` means "the current value failed: adopt it and propose the next candidate"; `complicate` means "the current
/// value passed: drop it and propose the next candidate". Both return false at the joint fixed point, where `current` is
/// the last value that failed.
#[derive(Clone, Debug)]
pub struct CaseTree {
    best: Case,
    candidate: Option<Case>,
    pass: Pass,
    /// Whether this round has changed anything.
    changed: bool,
    tried: BTreeSet<String>,
    features: Features,
    targets: Features,
    frozen: Frozen,
}

/// Where the shrinker is.
#[derive(Clone, Debug)]
enum Pass {
    Intents(Blocks),
    Requests(Blocks),
    Merges(Blocks),
    Tokens(Blocks),
    Fields(Lowering),
    /// Leaps from the case at the beginning of this pass, the next one last.
    Leaps(Vec<Case>),
    Done,
}

/// A cursor over blocks of a list: `size` elements ending before `end`.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    size: usize,
    end: usize,
}

impl Blocks {
    fn new(len: usize) -> Blocks {
        Blocks { size: len, end: len }
    }

    /// The next block of a list that has `len` elements now, without moving.
    fn block(&mut self, len: usize) -> Option<(usize, usize)> {
        self.size = self.size.min(len);
        self.end = self.end.min(len);
        while self.size > 0 && self.end == 0 {
            self.size /= 2;
            self.end = len;
        }
        (self.size > 0).then(|| (self.end.saturating_sub(self.size), self.end))
    }

    /// The block proposed last is done with, deleted or not: go to the one before it.
    fn advance(&mut self) {
        self.end = self.end.saturating_sub(self.size);
    }
}

/// A cursor over fields.
#[derive(Clone, Debug)]
struct Lowering {
    fields: Vec<Field>,
    at: usize,
    /// Largest value known to pass, once the floor has been tried; the field's own value fails.
    passes: Option<u64>,
    /// Value proposed last.
    proposed: u64,
}

impl Lowering {
    fn new(case: &Case) -> Lowering {
        Lowering { fields: reduce::fields(case), at: 0, passes: None, proposed: 0 }
    }
}

impl CaseTree {
    /// A tree whose current value is `case`.
    pub fn new(case: Case) -> CaseTree {
        let intents = Blocks::new(case.schedule.intents.len());
        CaseTree {
            best: case,
            candidate: None,
            pass: Pass::Intents(intents),
            changed: false,
            tried: BTreeSet::new(),
            features: Features::default(),
            targets: Features::default(),
            frozen: Frozen::new(),
        }
    }

    /// Notes what the case was drawn with: the features that it has any of, and those that it is about, because its
    /// campaign is focused on them or because it is one of the directed cases.
    pub(super) fn drawn_with(mut self, features: Features, targets: Features) -> CaseTree {
        self.features = features;
        self.targets = targets;
        self
    }

    /// Features that the case was drawn with any of.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Features that the case is about, not by chance.
    pub fn targets(&self) -> Features {
        self.targets
    }

    /// Lets requests be deleted that others continue: these are frozen to the prompts given.
    pub fn with_frozen(self, frozen: Frozen) -> CaseTree {
        CaseTree { frozen, ..self }
    }

    /// Moves the cursor past the candidate that just failed (`adopted`) or passed.
    fn settle(&mut self, adopted: bool) {
        match &mut self.pass {
            Pass::Intents(blocks)
            | Pass::Requests(blocks)
            | Pass::Merges(blocks)
            | Pass::Tokens(blocks) => {
                blocks.advance();
            }
            Pass::Fields(lowering) => {
                if !adopted {
                    lowering.passes = Some(lowering.proposed);
                }
            }
            // What a leap leads to has other leaps.
            Pass::Leaps(leaps) if adopted => leaps.clear(),
            Pass::Leaps(_) | Pass::Done => {}
        }
    }

    /// The next candidate that was not tried before.
    fn propose(&mut self) -> bool {
        loop {
            let Some(candidate) = self.next_candidate() else {
                if matches!(self.pass, Pass::Done) {
                    return false;
                }
                self.next_pass();
                continue;
            };
            if candidate.validate().is_ok() && self.tried.insert(candidate.digest()) {
                self.candidate = Some(candidate);
                return true;
            }
            self.settle(false);
        }
    }

    /// The candidate under the cursor; `None` when the pass is over.
    fn next_candidate(&mut self) -> Option<Case> {
        let best = &self.best;
        match &mut self.pass {
            Pass::Intents(blocks) => {
                let (from, to) = blocks.block(best.schedule.intents.len())?;
                Some(reduce::without_intents(best, from, to))
            }
            Pass::Requests(blocks) => loop {
                let (from, to) = blocks.block(best.workload.requests.len())?;
                if let Some(case) = reduce::without_requests(best, from, to, &self.frozen) {
                    return Some(case);
                }
                blocks.advance();
            },
            Pass::Merges(blocks) => {
                let pairs = reduce::merges(best);
                let (from, _) = blocks.block(pairs.len())?;
                Some(reduce::merged(best, pairs[from]))
            }
            Pass::Tokens(blocks) => {
                let places = reduce::tokens(best);
                let (from, to) = blocks.block(places.len())?;
                Some(reduce::with_zeros(best, &places[from..to]))
            }
            Pass::Fields(lowering) => loop {
                let field = *lowering.fields.get(lowering.at)?;
                let (value, floor) = reduce::value(best, field);
                let next = match lowering.passes {
                    None if value > floor => Some(floor),
                    // Seeds have no order: a larger one that fails says nothing of those between.
                    Some(passes) if field == Field::RunSeed => {
                        Some(passes + 1).filter(|next| *next < value.min(SEEDS_TRIED))
                    }
                    Some(passes) if value > passes + 1 => Some(passes + (value - passes) / 2),
                    _ => None,
                };
                if let Some(to) = next {
                    lowering.proposed = to;
                    return Some(reduce::lowered(best, field, to));
                }
                lowering.at += 1;
                lowering.passes = None;
            },
            Pass::Leaps(leaps) => leaps.pop(),
            Pass::Done => None,
        }
    }

    fn next_pass(&mut self) {
        let best = &self.best;
        self.pass = match self.pass {
            Pass::Intents(_) => Pass::Requests(Blocks::new(best.workload.requests.len())),
            Pass::Requests(_) => Pass::Merges(Blocks { size: 1, end: reduce::merges(best).len() }),
            Pass::Merges(_) => Pass::Fields(Lowering::new(best)),
            Pass::Fields(_) => Pass::Tokens(Blocks::new(reduce::tokens(best).len())),
            Pass::Tokens(_) | Pass::Leaps(_) if self.changed => {
                self.changed = false;
                Pass::Intents(Blocks::new(best.schedule.intents.len()))
            }
            Pass::Tokens(_) => {
                let mut leaps = leap::leaps(best, &self.frozen);
                leaps.reverse();
                Pass::Leaps(leaps)
            }
            Pass::Leaps(_) | Pass::Done => Pass::Done,
        };
    }
}

impl ValueTree for CaseTree {
    type Value = Case;

    fn current(&self) -> Case {
        self.candidate.as_ref().unwrap_or(&self.best).clone()
    }

    fn simplify(&mut self) -> bool {
        if let Some(candidate) = self.candidate.take() {
            self.best = candidate;
            self.changed = true;
            self.settle(true);
        }
        self.propose()
    }

    fn complicate(&mut self) -> bool {
        if self.candidate.take().is_none() {
            return false;
        }
        self.settle(false);
        self.propose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::space;
    use super::super::{cases, reduce};
    use super::*;
    use crate::schedule::Act;

    /// Shrinks under a predicate as the harness does; returns the minimum and the number of candidates tried.
    fn shrink(case: Case, fails: &dyn Fn(&Case) -> bool) -> (Case, usize) {
        assert!(fails(&case), "the start must fail");
        let mut tree = CaseTree::new(case);
        let mut best = tree.current();
        let mut tried = 0;
        let mut more = tree.simplify();
        while more {
            tried += 1;
            let candidate = tree.current();
            more = if fails(&candidate) {
                best = candidate;
                tree.simplify()
            } else {
                tree.complicate()
            };
        }
        assert_eq!(tree.current(), best, "the last value is the last that failed");
        (best, tried)
    }

    /// Goal: known minima are reached from every generated case that fails, and no single reduction of them fails.
    /// Method: predicates over the case whose minimum can be worked out by hand.
    #[test]
    fn known_minima_are_reached_and_are_1_minimal() {
        type Predicate = fn(&Case) -> bool;
        let two_long: Predicate = |c| {
            c.workload.requests.iter().filter(|r| r.prompt.own_tokens().len() >= 5).count() >= 2
        };
        let cut_of_three: Predicate = |c| {
            c.schedule.intents.iter().any(|i| matches!(i.act, Act::Cut { tokens } if tokens >= 3))
        };
        let two_preempts_of_one: Predicate = |c| {
            c.workload.requests.iter().any(|r| {
                let mine = c.schedule.intents.iter().filter(|i| i.uid == r.uid);
                mine.filter(|i| matches!(i.act, Act::Preempt { .. })).count() >= 2
            })
        };
        let token_past_seven: Predicate = |c| {
            c.workload.requests.iter().any(|r| r.prompt.own_tokens().iter().skip(3).any(|t| *t > 7))
        };
        let tight: Predicate = |c| c.world.pool_blocks <= 6 && c.workload.requests.len() >= 2;
        let all: [(&str, Predicate, usize, usize); 5] = [
            ("two prompts of five", two_long, 2, 0),
            ("a cut of three", cut_of_three, 1, 1),
            ("two preemptions of one request", two_preempts_of_one, 1, 2),
            ("a token past seven", token_past_seven, 1, 0),
            ("a tight pool", tight, 2, 0),
        ];
        let strategy = cases(space());
        for (name, fails, requests, intents) in all {
            let mut seen = 0;
            for index in 0..400 {
                let case = strategy.nth(5, index).current();
                // What others continue can't be deleted without the tokens to freeze them to.
                let mut prompts = case.workload.requests.iter().map(|r| &r.prompt);
                if !fails(&case) || prompts.any(|p| p.continuation().is_some()) {
                    continue;
                }
                seen += 1;
                let (minimum, tried) = shrink(case, &fails);
                assert_eq!(minimum.workload.requests.len(), requests, "{name}: {minimum:?}");
                assert_eq!(minimum.schedule.intents.len(), intents, "{name}: {minimum:?}");
                let singles = reduce::singles(&minimum, &Frozen::new());
                let failing = singles.iter().find(|c| c.validate().is_ok() && fails(c));
                assert_eq!(failing, None, "{name} is not 1-minimal: {minimum:?}");
                assert!(tried < 1500, "{name}: {tried} candidates");
            }
            assert!(seen >= 5, "{name}: only {seen} cases fail");
        }
    }

    #[test]
    fn a_case_that_always_fails_shrinks_to_the_smallest_case_there_is() {
        let case = cases(space()).nth(1, 0).current();
        let (minimum, _) = shrink(case, &|_| true);
        assert_eq!(minimum.workload.requests.len(), 1);
        assert_eq!(minimum.workload.requests[0].prompt.tokens(), Some(&[0][..]));
        assert_eq!(minimum.workload.requests[0].max_tokens, 1);
        assert!(minimum.schedule.is_empty());
        assert_eq!((minimum.seed, minimum.world.pool_blocks), (0, 1));
    }

    #[test]
    fn a_case_that_only_fails_as_it_is_stays_as_it_is() {
        let case = cases(space()).nth(1, 2).current();
        let same = case.clone();
        let (minimum, tried) = shrink(case.clone(), &move |c| *c == same);
        assert_eq!(minimum, case);
        assert!(tried > 0);
    }

    #[test]
    fn complicate_without_a_candidate_says_that_there_is_nothing_to_take_back() {
        let mut tree = CaseTree::new(cases(space()).nth(1, 0).current());
        assert!(!tree.complicate());
    }
}
