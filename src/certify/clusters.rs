//! Kinds of answers of which the one that comes does not follow load: replicas behind one address are that, and no fault of
//! batches.
//!
//! Where answers that differ are the same few again and again, the other kind comes in the same crowds too, and a request that is
//! alone when it begins never gets them, whoever joins it later, company is not what makes them. A fault of batches fails one of
//! these: its answers vary with who is there, or come to all of a crowd, or to a request that others join.

use std::collections::{BTreeMap, BTreeSet};

use super::arms::concurrent::{self, Kind};
use super::arms::{Bench, against};
use super::certificate::{ArmRecord, Clusters, Verdict};
use super::compare::Comparison;
use super::samples::{self, kind};
use super::session::Member;
use super::stats;
use super::wire::Answer;

/// Further kinds of answers to one prompt that replicas are believed to give at most.
const OTHERS_MAX: usize = 3;
/// Prompts of which the same other kind must have been seen again.
const AGAIN_MIN: usize = 2;
/// Prompts whose requests are begun alone and then joined, to see whether company is what counts.
const JOINED: usize = 6;
/// Requests that are joined at least, and the probability with which they would show a fault as frequent as the crowds did.
const TRIES_MIN: u64 = 4;
const TRIES_SHOW: f64 = 0.999;
/// Prompts, and answers alone to each, that are asked for more where repeats differ.
const REPEATED: (usize, usize) = (4, 5);
/// Part of an answer's time after which a request is joined.
const JOIN_AFTER: f64 = 0.2;

/// An answer in a crowd.
#[derive(Clone, Debug)]
pub(crate) struct Sighting {
    pub(crate) kind: Kind,
    pub(crate) prompt: u32,
    /// Requests sent at once.
    pub(crate) sent: u32,
    in_flight: u32,
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
/// were broken are undecided.
pub(crate) fn find(bench: &mut Bench<'_, '_>, records: &mut [ArmRecord]) -> Option<Clusters> {
    let clusters = match bench.warm_differs() {
        true => {
            let (clusters, are_all) = alone(bench)?;
            if !are_all {
                return Some(clusters);
            }
            clusters
        }
        false => in_crowds(bench)?,
    };
    for record in records.iter_mut().filter(|r| r.arm.needs_company()) {
        if record.verdict == Verdict::Broken {
            record.verdict = Verdict::Undecided;
            record.reason = Some(clusters.words.clone());
        }
    }
    Some(clusters)
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

fn in_crowds(bench: &mut Bench<'_, '_>) -> Option<Clusters> {
    let groups = by_prompt(&bench.seen);
    let differing: Vec<&Sighting> = bench.seen.iter().filter(|seen| seen.differs).collect();
    if differing.is_empty() || !is_stable(&groups) || !is_mixed(&groups) {
        return None;
    }
    // Only a mark that no answer alone ever had may stand for itself; company need not be tried then.
    let told_apart_by = told_apart(
        bench
            .seen
            .iter()
            .flat_map(|seen| [(0, &seen.marks[0]), (usize::from(seen.differs), &seen.marks[1])]),
    );
    let (kind, size) = (differing[0].kind, differing.iter().map(|seen| seen.sent).min()?);
    let prompts = prompts_of(&differing);
    let all = bench.seen.iter().filter(|seen| seen.kind == kind && seen.sent >= size);
    let (n, of) = all.fold((0, 0), |(n, of), seen| (n + u32::from(seen.differs), of + 1));
    let rate = f64::from(n) / f64::from(of.max(1));
    if told_apart_by.is_none() && company_counts(bench, kind, &prompts, size, rate) {
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

/// Sightings by prompt, cold and warm ones apart: what is cached may change an answer by itself.
fn by_prompt(seen: &[Sighting]) -> BTreeMap<(u32, bool), Vec<&Sighting>> {
    let mut groups: BTreeMap<(u32, bool), Vec<&Sighting>> = BTreeMap::new();
    // New prompts are another each time: there is no kind of theirs to come again.
    for seen in seen.iter().filter(|seen| seen.kind != Kind::New) {
        groups.entry((seen.prompt, seen.kind == Kind::Cold)).or_default().push(seen);
    }
    groups
}

fn others(group: &[&Sighting]) -> BTreeSet<samples::Kind> {
    group.iter().filter(|seen| seen.differs).map(|seen| seen.answer).collect()
}

/// Whether answers that differ are the same few again and again.
fn is_stable(groups: &BTreeMap<(u32, bool), Vec<&Sighting>>) -> bool {
    let again = groups.values().filter(|group| {
        let n = group.iter().filter(|seen| seen.differs).count();
        n > others(group).len()
    });
    groups.values().all(|group| others(group).len() <= OTHERS_MAX)
        && again.count() >= AGAIN_MIN
        && {
            let kinds: usize = groups.values().map(|group| others(group).len()).sum();
            let n: usize =
                groups.values().map(|g| g.iter().filter(|seen| seen.differs).count()).sum();
            n >= 2 * kinds
        }
}

/// Whether a prompt that got another answer in one crowd got its own in another one, of at least as many requests.
fn is_mixed(groups: &BTreeMap<(u32, bool), Vec<&Sighting>>) -> bool {
    groups.values().any(|group| {
        let least = group.iter().filter(|seen| seen.differs).map(|seen| seen.in_flight).min();
        let own = group.iter().filter(|seen| !seen.differs && seen.in_flight > 1);
        least.is_some_and(|least| own.map(|seen| seen.in_flight).any(|n| n >= least))
    })
}

fn prompts_of(differing: &[&Sighting]) -> Vec<u32> {
    let prompts: BTreeSet<u32> = differing.iter().map(|seen| seen.prompt).collect();
    prompts.into_iter().take(JOINED).collect()
}

/// Whether requests that are alone when they begin, and are joined by as many as made a difference, get other answers too. What
/// could not be asked leaves the difference standing.
fn company_counts(
    bench: &mut Bench<'_, '_>,
    kind: Kind,
    prompts: &[u32],
    size: u32,
    rate: f64,
) -> bool {
    let delay = bench.usual_time().mul_f64(JOIN_AFTER);
    let tries = stats::trials_for(rate.clamp(0.02, 0.95), TRIES_SHOW).max(TRIES_MIN);
    for i in 0..tries as usize {
        let number = prompts[i % prompts.len()];
        let mut members = concurrent::members(bench, kind, size, &[number]);
        for member in members.iter_mut().skip(1) {
            member.delay = delay;
        }
        match joined(bench, kind, number, &members) {
            Some(false) => {}
            Some(true) | None => return true,
        }
    }
    false
}

/// Whether the first of a crowd differs from its answer alone; `None` if that could not be seen.
fn joined(bench: &mut Bench<'_, '_>, kind: Kind, number: u32, members: &[Member]) -> Option<bool> {
    let crowd = bench.session.crowd(members).ok()?;
    let met = crowd.members.into_iter().next()?;
    let got = met.answer.ok()?;
    let known = &bench.known[number as usize];
    let references = if kind == Kind::Cold { &known.cold } else { &known.warm };
    let (_, comparison) = against(references, &got)?;
    let differs = comparison.difference.is_some();
    (differs || met.in_flight > 1).then_some(differs)
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
