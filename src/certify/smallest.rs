//! The smallest number of requests at once that shows a difference: between the largest that showed none and the smallest that
//! did, by bisection, within what is left of the budget.

use std::collections::BTreeSet;

use super::arms::Bench;
use super::arms::concurrent::{self, Kind, judged_in};
use super::certificate::{ArmRecord, Divergence, Smallest, Verdict};
use super::score::Score;
use super::wire::Call;

/// Prompts that are asked at each number: some of those that differed.
const PROMPTS: usize = 4;
/// Requests that the search takes at most.
const REQUESTS_MAX: u64 = 100;

/// What the search found: the number, and the first difference there with its requests, if it is smaller than those known.
pub(crate) struct Found {
    pub(crate) smallest: Smallest,
    pub(crate) first: Option<(Divergence, Vec<Call>)>,
}

/// Searches in the kind of crowd that differed at the smallest number.
pub(crate) fn find(bench: &mut Bench<'_, '_>, records: &[ArmRecord]) -> Option<Found> {
    let kinds = [Kind::Mixed, Kind::Warm, Kind::Cold, Kind::New];
    let seen = |kind: Kind| bench.seen.iter().any(|seen| seen.kind == kind);
    let (kind, mut high, mut at_high) = kinds
        .into_iter()
        .filter(|kind| seen(*kind))
        .filter_map(|kind| {
            let record = records.iter().find(|r| r.arm == kind.arm())?;
            let is_broken = record.verdict == Verdict::Broken;
            let level = record.levels.iter().find(|level| level.differing > 0)?;
            is_broken.then_some((kind, level.sent, [level.differing, level.of]))
        })
        .min_by_key(|(_, sent, _)| *sent)?;
    let record = records.iter().find(|r| r.arm == kind.arm())?;
    let clean = record.levels.iter().rfind(|level| level.sent < high && level.met > 0);
    let (mut low, mut at_low) = clean.map_or((1, None), |level| (level.sent, Some(level.of)));
    let prompts = prompts(bench, kind);
    let before = bench.session.ledger.requests();
    let (mut first, mut ended_by) = (None, None);
    while high - low > 1 && ended_by.is_none() {
        let middle = low + (high - low) / 2;
        let mut score = Score::new(kind.arm());
        let mut after = Score::new(kind.arm());
        for group in prompts.chunks(judged_in(kind, middle, PROMPTS as u32) as usize) {
            if bench.session.ledger.requests() - before + u64::from(middle) > REQUESTS_MAX {
                ended_by = Some(format!("{REQUESTS_MAX} requests were spent on it"));
                break;
            }
            concurrent::ask(bench, kind, middle, group, (&mut score, &mut after));
            if score.differing() > 0 {
                break;
            }
        }
        let unanswered = score.unanswered();
        let outcome = score.conclude();
        let counts = [outcome.record.differing, outcome.record.of];
        if outcome.record.differing > 0 {
            (high, at_high) = (middle, counts);
            first = outcome.first.map(|first| (first, outcome.crowd));
        } else if outcome.record.of > 0 {
            (low, at_low) = (middle, Some(outcome.record.of));
        } else {
            ended_by.get_or_insert(unanswered.unwrap_or_else(|| "nothing was compared".into()));
        }
    }
    // What was asked here is not what the arms are counted by.
    let below = at_low.map(|of| [u64::from(low), of]);
    let smallest = Smallest { arm: kind.arm(), sent: high, seen: at_high, below, ended_by };
    Some(Found { smallest, first })
}

impl Smallest {
    /// In words.
    pub fn words(&self) -> String {
        let [n, of] = self.seen;
        let below = match (self.below, &self.ended_by) {
            (_, Some(why)) => format!("smaller numbers were not all asked: {why}"),
            (Some([low, of]), None) => format!("at {low}, 0 of {of}"),
            (None, None) => "no smaller number is a crowd".into(),
        };
        format!(
            "smallest number at once that shows a difference: {} ({}, {n} of {of} answers; {below})",
            self.sent, self.arm
        )
    }
}

/// Some prompts that differed in this kind of crowd, in their order.
fn prompts(bench: &Bench<'_, '_>, kind: Kind) -> Vec<u32> {
    let differing = bench.seen.iter().filter(|seen| seen.kind == kind && seen.differs());
    let prompts: BTreeSet<u32> = differing.map(|seen| seen.prompt).collect();
    prompts.into_iter().take(PROMPTS).collect()
}
