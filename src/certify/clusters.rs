//! Kinds of answers of which the one that comes does not follow load: replicas behind one address are that, and no fault of
//! batches.
//!
//! Where answers that differ are the same few again and again, the other kind comes in the same crowds too, and a request that is
//! alone when it begins never gets them, whoever joins it later, company is not what makes them. A fault of batches fails one of
//! these: its answers vary with who is there, or come to all of a crowd, or to a request that others join.

use std::collections::{BTreeMap, BTreeSet};

use super::arms::concurrent::Kind;
use super::arms::{Bench, is_equal};
use super::certificate::{Arm, ArmRecord, Clusters, Verdict};
use super::company;
use super::compare::Comparison;
use super::samples::{self, kind};
use super::wire::{Answer, Call};

/// Further kinds of answers to one prompt that replicas are believed to give at most.
pub(super) const OTHERS_MAX: usize = 3;
/// Prompts of which the same other kind must have been seen again.
const AGAIN_MIN: usize = 2;
/// Share of a kind of crowd's answers that must differ for replicas to be believed without a mark of theirs.
const SHARE_MIN: f64 = 0.2;
/// Prompts, and answers alone to each, that are asked for more where repeats differ.
const REPEATED: (usize, usize) = (4, 5);
/// Prompts that are asked alone before anything is called broken, and requests for all of them together.
const SETTLED: (usize, usize) = (4, 12);

/// An answer in a crowd.
#[derive(Clone, Debug)]
pub(crate) struct Sighting {
    pub(crate) kind: Kind,
    pub(crate) prompt: u32,
    /// Requests sent at once.
    pub(crate) sent: u32,
    pub(super) in_flight: u32,
    answer: samples::Kind,
    reference: samples::Kind,
    differs: bool,
    marks: [BTreeMap<String, String>; 2],
}

impl Sighting {
    /// Whether it is not the answer alone.
    pub(crate) fn differs(&self) -> bool {
        self.differs
    }

    pub(crate) fn of(
        (kind, prompt): (Kind, u32),
        (sent, in_flight): (u32, u32),
        reference: &Answer,
        got: &Answer,
        comparison: &Comparison,
    ) -> Sighting {
        Sighting {
            kind,
            prompt,
            sent,
            in_flight,
            answer: samples::kind(got),
            reference: samples::kind(reference),
            differs: comparison.difference.is_some(),
            marks: [reference.marks.clone(), got.marks.clone()],
        }
    }
}

/// Looks for kinds that do not follow load. If there are such, and they are all that was seen in crowds, arms with crowds that
/// were broken are undecided. So are those whose references turn out not to repeat.
pub(crate) fn find(bench: &mut Bench<'_, '_>, records: &mut [ArmRecord]) -> Option<Clusters> {
    if !bench.warm_differs() && records.iter().any(|r| r.verdict == Verdict::Broken) {
        settle(bench, records);
    }
    let clusters = match bench.warm_differs() {
        true => {
            let (clusters, are_all) = alone(bench)?;
            if !are_all {
                return Some(clusters);
            }
            clusters
        }
        false => in_crowds(bench, smallest_broken(records)?)?,
    };
    for record in records.iter_mut().filter(|r| r.arm.needs_company()) {
        if record.verdict == Verdict::Broken {
            record.verdict = Verdict::Undecided;
            record.reason = Some(clusters.words.clone());
        }
    }
    Some(clusters)
}

/// Asks a few prompts alone, again and again, before anything is called broken: of a few repeats all may have been equal by chance,
/// and a server may have lost its mind since.
fn settle(bench: &mut Bench<'_, '_>, records: &mut [ArmRecord]) {
    let differs = |n: usize| bench.seen.iter().any(|s| s.differs && s.prompt as usize == n);
    let mut prompts: Vec<usize> =
        (0..bench.known.len()).filter(|n| bench.known[*n].warm_is_clean).collect();
    prompts.sort_by_key(|n| !differs(*n));
    prompts.truncate(SETTLED.0);
    let is_broken = |arm: Arm| {
        records.iter().any(|record| record.arm == arm && record.verdict == Verdict::Broken)
    };
    let asks_cold = bench.session.dialect.cold.is_some() && is_broken(Arm::ConcurrentCold);
    let times = SETTLED.1.div_ceil(prompts.len().max(1));
    let (mut warm_differs, mut cold_differs) = (false, false);
    for number in prompts {
        for is_cold in [false, true].into_iter().take(1 + usize::from(asks_cold)) {
            let mut answers: Vec<Answer> = Vec::new();
            for _ in 0..times {
                let salt = is_cold.then(|| bench.session.salt());
                let call = Call { cold: salt, ..bench.known[number].call.clone() };
                answers.extend(bench.ask(&call).ok());
            }
            if answers.windows(2).all(|pair| is_equal(&pair[0], &pair[1])) {
                continue;
            }
            let known = &mut bench.known[number];
            match is_cold {
                true => (known.cold_differs, cold_differs) = (true, true),
                false => {
                    (known.warm_differs, warm_differs) = (true, true);
                    known.warm.extend(answers);
                }
            }
        }
    }
    let is_without = |arm: Arm| match arm {
        Arm::Repeat => false,
        Arm::ConcurrentCold => cold_differs,
        Arm::Prefix => warm_differs || cold_differs,
        _ => warm_differs,
    };
    for record in records.iter_mut().filter(|record| is_without(record.arm)) {
        if record.verdict == Verdict::Broken {
            record.verdict = Verdict::Undecided;
            record.reason =
                Some("answers alone no longer repeat: there is no reference".to_owned());
        }
    }
}

/// What tells two groups of answers apart: a mark that each has, and never with the same value.
fn told_apart<'m>(
    groups: impl Iterator<Item = (usize, &'m BTreeMap<String, String>)>,
) -> Option<String> {
    let mut values: BTreeMap<&str, BTreeMap<usize, BTreeSet<&str>>> = BTreeMap::new();
    for (group, marks) in groups {
        for (name, value) in marks {
            values.entry(name).or_default().entry(group).or_default().insert(value);
        }
    }
    let of = |groups: &BTreeMap<usize, BTreeSet<&str>>| {
        let all: usize = groups.values().map(BTreeSet::len).sum();
        let different: BTreeSet<&str> = groups.values().flatten().copied().collect();
        groups.len() >= 2 && all == different.len() && all <= 2 * OTHERS_MAX
    };
    values.into_iter().find(|(_, groups)| of(groups)).map(|(name, _)| name.to_owned())
}

/// The smallest crowd in which an answer differs, of any arm that says so. One request of many prompts is none.
fn smallest_broken(records: &[ArmRecord]) -> Option<u32> {
    let crowds = records.iter().filter(|r| r.arm.needs_company() && r.arm != Arm::ManyPrompts);
    let broken = crowds.filter(|record| record.verdict == Verdict::Broken);
    let levels = broken.flat_map(|record| &record.levels);
    levels.filter(|level| level.differing > 0).map(|level| level.sent).min()
}

fn in_crowds(bench: &mut Bench<'_, '_>, size: u32) -> Option<Clusters> {
    if company::look_again(bench, size) {
        return None;
    }
    let groups = by_prompt(&bench.seen);
    if !is_stable(&groups) || !is_mixed(&groups) {
        return None;
    }
    // Only a mark that no answer alone ever had may stand for itself; company need not be tried then.
    let told_apart_by = told_apart(
        bench
            .seen
            .iter()
            .flat_map(|seen| [(0, &seen.marks[0]), (usize::from(seen.differs), &seen.marks[1])]),
    );
    // Replicas that take what another can't are met often; a few answers that differ are no evidence of them.
    if told_apart_by.is_none() && (share(&bench.seen) < SHARE_MIN || company::counts(bench, size)) {
        return None;
    }
    let groups = by_prompt(&bench.seen);
    let kinds = groups.values().map(|group| 1 + others(group).len()).max().unwrap_or(1);
    let mut answers = vec![0u64; kinds];
    for group in groups.values() {
        let mut counts: BTreeMap<samples::Kind, u64> = BTreeMap::new();
        for seen in group {
            *counts.entry(if seen.differs { seen.answer } else { seen.reference }).or_default() +=
                1;
        }
        add_sorted(&mut answers, counts);
    }
    let prompts = groups.values().filter(|group| !others(group).is_empty()).count() as u64;
    Some(clusters(kinds as u64, prompts, answers, true, false, told_apart_by))
}

/// Share of the answers that differ, in crowds no smaller than the smallest that showed one.
fn share(seen: &[Sighting]) -> f64 {
    let differing = || seen.iter().filter(|seen| seen.differs);
    let least = differing().map(|seen| seen.sent).min().unwrap_or(0);
    let of = seen.iter().filter(|seen| seen.sent >= least).count();
    differing().count() as f64 / of.max(1) as f64
}

/// Sightings by prompt and reference: what is cached may change an answer by itself.
pub(super) type ByPrompt<'s> = BTreeMap<(u32, samples::Kind), Vec<&'s Sighting>>;

pub(super) fn by_prompt(seen: &[Sighting]) -> ByPrompt<'_> {
    let mut groups = ByPrompt::new();
    // New prompts are another each time: there is no kind of theirs to come again.
    for seen in seen.iter().filter(|seen| seen.kind != Kind::New) {
        groups.entry((seen.prompt, seen.reference)).or_default().push(seen);
    }
    groups
}

pub(super) fn others(group: &[&Sighting]) -> BTreeSet<samples::Kind> {
    group.iter().filter(|seen| seen.differs).map(|seen| seen.answer).collect()
}

/// Whether answers that differ are the same few again and again.
pub(super) fn is_stable(groups: &ByPrompt<'_>) -> bool {
    let n = |group: &&Vec<&Sighting>| group.iter().filter(|seen| seen.differs).count();
    let again = groups.values().filter(|group| n(group) > others(group).len());
    // What was seen once says nothing of coming again.
    let (mut all, mut kinds) = (0, 0);
    for group in groups.values().filter(|group| n(group) > 1) {
        (all, kinds) = (all + n(&group), kinds + others(group).len());
    }
    let are_few = groups.values().all(|group| others(group).len() <= OTHERS_MAX);
    are_few && again.count() >= AGAIN_MIN && all >= 2 * kinds
}

/// Whether a prompt that got another answer in one crowd got its own in another one, of at least as many requests.
pub(super) fn is_mixed(groups: &ByPrompt<'_>) -> bool {
    groups.values().any(|group| {
        let least = group.iter().filter(|seen| seen.differs).map(|seen| seen.in_flight).min();
        let own = group.iter().filter(|seen| !seen.differs && seen.in_flight > 1);
        least.is_some_and(|least| own.map(|seen| seen.in_flight).any(|n| n >= least))
    })
}

/// Kinds among answers alone that are not repeatable: a few that come again and again, or a new one each time. And whether answers
/// that differed in crowds are of these kinds: what comes alone too is none of company.
fn alone(bench: &mut Bench<'_, '_>) -> Option<(Clusters, bool)> {
    let (prompts, times) = REPEATED;
    let differing: Vec<(usize, samples::Kind)> = bench
        .seen
        .iter()
        .filter(|seen| seen.differs && seen.kind != Kind::New)
        .map(|seen| (seen.prompt as usize, seen.answer))
        .collect();
    let mut unclean: Vec<usize> = (0..bench.known.len())
        .filter(|n| bench.known[*n].warm_differs || differing.iter().any(|(m, _)| m == n))
        .collect();
    // Those first that tell most.
    unclean
        .sort_by_key(|n| (!bench.known[*n].warm_differs, !differing.iter().any(|(m, _)| m == n)));
    unclean.truncate(prompts);
    let mut groups: Vec<Vec<Answer>> = Vec::new();
    let mut are_all = true;
    for number in unclean {
        let known = &bench.known[number];
        let (call, mut answers) = (known.call.clone(), known.warm.clone());
        let mut alone: BTreeSet<samples::Kind> =
            known.cold.iter().chain(&known.first).map(kind).collect();
        for _ in 0..times {
            answers.extend(bench.ask(&call).ok());
        }
        alone.extend(answers.iter().map(kind));
        are_all &= differing.iter().all(|(n, answer)| *n != number || alone.contains(answer));
        groups.push(answers);
    }
    let kinds_of =
        |answers: &Vec<Answer>| -> Vec<samples::Kind> { answers.iter().map(kind).collect() };
    let kinds = groups.iter().map(|answers| {
        let different: BTreeSet<samples::Kind> = kinds_of(answers).into_iter().collect();
        different.len()
    });
    let kinds = kinds.max().filter(|kinds| (2..=1 + OTHERS_MAX).contains(kinds))?;
    let told_apart_by = groups.first().and_then(|answers| {
        let kinds = kinds_of(answers);
        let place = |i: usize| kinds.iter().position(|kind| *kind == kinds[i]).unwrap_or(i);
        told_apart(answers.iter().enumerate().map(|(i, answer)| (place(i), &answer.marks)))
    });
    let mut answers = vec![0u64; kinds];
    for group in &groups {
        let mut counts: BTreeMap<samples::Kind, u64> = BTreeMap::new();
        for kind in kinds_of(group) {
            *counts.entry(kind).or_default() += 1;
        }
        add_sorted(&mut answers, counts);
    }
    let stable = answers.iter().all(|n| *n >= 2);
    let clusters =
        clusters(kinds as u64, groups.len() as u64, answers, stable, true, told_apart_by);
    Some((clusters, are_all))
}

/// Adds counts, the most frequent first.
fn add_sorted(answers: &mut [u64], counts: BTreeMap<samples::Kind, u64>) {
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    for (sum, count) in answers.iter_mut().zip(counts) {
        *sum += count;
    }
}

fn clusters(
    kinds: u64,
    prompts: u64,
    answers: Vec<u64>,
    stable: bool,
    alone: bool,
    told_apart_by: Option<String>,
) -> Clusters {
    let counts: Vec<String> = answers.iter().map(u64::to_string).collect();
    let counts = counts.join(" and ");
    let stable_words =
        if stable { ", each the same to the last digit whenever it comes" } else { "" };
    let when = match alone {
        true => "one at a time",
        false => "in crowds, and which one comes does not follow load",
    };
    let apart = match &told_apart_by {
        Some(mark) => format!("{mark} tells them apart"),
        None => "nothing else that was received tells them apart".into(),
    };
    let words = format!(
        "answers fall into {kinds} kinds {when} ({counts} answers to {prompts} prompts{stable_words}): several replicas behind one address? {apart}"
    );
    Clusters { kinds, prompts, answers, stable, alone, told_apart_by, words }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(prompt: u32, in_flight: u32, answer: u8) -> Sighting {
        Sighting {
            kind: Kind::Warm,
            prompt,
            sent: 8,
            in_flight,
            answer: [answer; 32],
            reference: [0; 32],
            differs: answer > 0,
            marks: Default::default(),
        }
    }

    /// Goal: two kinds in the same crowds, each seen again, look like replicas; other kinds each time, or one that comes to all of
    /// a size, do not.
    #[test]
    fn kinds_that_come_again_in_mixed_crowds_are_told_from_faults_of_batches() {
        let of = |seen: &[Sighting]| {
            let groups = by_prompt(seen);
            (is_stable(&groups), is_mixed(&groups))
        };
        let spilled: Vec<Sighting> = (0..4)
            .flat_map(|prompt| {
                [seen(prompt, 4, 0), seen(prompt, 8, 1), seen(prompt, 8, 0), seen(prompt, 8, 1)]
            })
            .collect();
        assert_eq!(of(&spilled), (true, true));
        let drifting: Vec<Sighting> = (0..4)
            .flat_map(|prompt| [seen(prompt, 8, 1), seen(prompt, 8, 2), seen(prompt, 9, 0)])
            .collect();
        assert!(!of(&drifting).0);
        let switched: Vec<Sighting> = (0..4)
            .flat_map(|prompt| [seen(prompt, 4, 0), seen(prompt, 8, 1), seen(prompt, 16, 1)])
            .collect();
        assert_eq!(of(&switched), (true, false));
    }

    #[test]
    fn a_mark_tells_kinds_apart_only_if_no_value_is_of_both() {
        let mark = |value: &str| BTreeMap::from([("x-replica".to_owned(), value.to_owned())]);
        let (a, b) = (mark("a"), mark("b"));
        assert_eq!(told_apart([(0, &a), (0, &a), (1, &b)].into_iter()), Some("x-replica".into()));
        assert_eq!(told_apart([(0, &a), (0, &b), (1, &b)].into_iter()), None);
        assert_eq!(told_apart([(0, &a), (1, &a)].into_iter()), None);
    }
}
