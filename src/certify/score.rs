//! An arm in the making: trials counted, the first difference kept, and the verdict that follows.

use std::collections::{BTreeMap, BTreeSet};

use super::certificate::{Arm, ArmRecord, Divergence, Finding, Level, Sent, Verdict};
use super::compare::Comparison;
use super::nature::{self, Nature, Picked};
use super::pattern::Pattern;
use super::stats;
use super::wire::{Answer, Call, WireError};

/// An answer that was compared.
pub(crate) struct Trial<'a> {
    pub(crate) prompt: u32,
    /// Requests sent at once.
    pub(crate) sent: u32,
    pub(crate) in_flight: u32,
    pub(crate) comparison: Comparison,
    pub(crate) expected: &'a Answer,
    pub(crate) got: &'a Answer,
    pub(crate) requests: Requests<'a>,
}

/// What was sent, for a reproducer. Bodies are made only when something differs.
pub(crate) struct Requests<'a> {
    pub(crate) sent: &'a dyn Fn(&Call) -> Sent,
    pub(crate) reference: &'a Call,
    /// All that was sent together, and which of it this is.
    pub(crate) crowd: &'a [Call],
    pub(crate) place: usize,
    pub(crate) stagger_ms: u64,
}

/// Counts of an arm.
pub(crate) struct Score {
    arm: Arm,
    record: ArmRecord,
    prompts: BTreeSet<u32>,
    prompts_differing: BTreeSet<u32>,
    levels: BTreeMap<u32, Level>,
    findings: BTreeMap<(u32, Option<u64>), Finding>,
    first: Option<Divergence>,
    crowd: Vec<Call>,
    errors: BTreeMap<String, u64>,
}

/// What came of an arm.
pub(crate) struct Outcome {
    pub(crate) record: ArmRecord,
    pub(crate) findings: Vec<Finding>,
    pub(crate) first: Option<Divergence>,
    /// The requests of that first difference, as they can be sent again.
    pub(crate) crowd: Vec<Call>,
}

impl Score {
    pub(crate) fn new(arm: Arm) -> Score {
        let record = ArmRecord {
            arm,
            verdict: Verdict::Undecided,
            reason: None,
            blind: false,
            scored: 0,
            voided: 0,
            unwitnessed: 0,
            differing: 0,
            of: 0,
            interval: [0.0, 1.0],
            prompts: 0,
            prompts_differing: 0,
            positions: 0,
            values: 0,
            incomparable: 0,
            in_flight: 0,
            levels: Vec::new(),
            pattern: None,
            notes: Vec::new(),
        };
        Score {
            arm,
            record,
            prompts: BTreeSet::new(),
            prompts_differing: BTreeSet::new(),
            levels: BTreeMap::new(),
            findings: BTreeMap::new(),
            first: None,
            crowd: Vec::new(),
            errors: BTreeMap::new(),
        }
    }

    /// An arm that is not asked.
    pub(crate) fn refused(arm: Arm, why: impl Into<String>) -> Outcome {
        let mut score = Score::new(arm);
        score.record.reason = Some(why.into());
        score.conclude()
    }

    /// An arm that could not be asked after all.
    pub(crate) fn refuse(&mut self, why: impl Into<String>) {
        self.record.reason.get_or_insert(why.into());
    }

    /// Why something of the arm was not answered, if it was not: then it can't be said what the rest shows.
    pub(crate) fn unanswered(&self) -> Option<String> {
        self.errors.keys().next().map(|why| format!("not all of it was answered: {why}"))
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.record.notes.push(note.into());
    }

    /// A case that counts.
    pub(crate) fn case(&mut self) {
        self.record.scored += 1;
    }

    /// A case whose requests did not meet.
    pub(crate) fn unwitnessed(&mut self) {
        self.record.unwitnessed += 1;
    }

    /// A case that an error took away.
    pub(crate) fn void(&mut self, error: &WireError) {
        self.void_for(error.to_string());
    }

    /// A case that something else took away.
    pub(crate) fn void_for(&mut self, why: String) {
        self.record.voided += 1;
        *self.errors.entry(why).or_default() += 1;
    }

    /// The pattern of repeats, if it tells more than those before.
    pub(crate) fn pattern(&mut self, pattern: Pattern) {
        if self.record.pattern.as_ref().is_none_or(|kept| kept.shape < pattern.shape) {
            self.record.pattern = Some(pattern);
        }
    }

    pub(crate) fn differing(&self) -> u64 {
        self.record.differing
    }

    /// Counts a trial.
    pub(crate) fn take(&mut self, trial: Trial<'_>) {
        let Trial { prompt, sent, in_flight, comparison, expected, got, requests } = trial;
        let record = &mut self.record;
        record.of += 1;
        record.positions += comparison.positions;
        record.values += comparison.values;
        record.incomparable += comparison.incomparable;
        record.in_flight = record.in_flight.max(in_flight);
        self.prompts.insert(prompt);
        let level = self.levels.entry(sent).or_insert(Level { sent, ..Level::default() });
        level.of += 1;
        level.in_flight = level.in_flight.max(in_flight);
        let Some(difference) = comparison.difference else { return };
        level.differing += 1;
        record.differing += 1;
        self.prompts_differing.insert(prompt);
        let arm = self.arm;
        let picked = if arm == Arm::Seed { Picked::Drawn } else { Picked::Greedy };
        let (nature, explanation) = nature::judge(&difference, picked);
        let position = difference.position;
        let first = Finding { arm, prompt, position, count: 0, nature };
        let finding = self.findings.entry((prompt, position)).or_insert(first);
        finding.count += 1;
        finding.nature = worse(finding.nature, nature);
        if self.first.is_none() {
            let mut neighbours: Vec<Sent> = requests.crowd.iter().map(requests.sent).collect();
            self.crowd = requests.crowd.to_vec();
            let request = neighbours.remove(requests.place);
            self.first = Some(Divergence {
                arm,
                prompt,
                sent,
                in_flight,
                difference,
                nature,
                explanation,
                reference: (requests.sent)(requests.reference),
                request,
                neighbours,
                place: requests.place as u32,
                stagger_ms: requests.stagger_ms,
                expected: expected.text.clone(),
                got: got.text.clone(),
                seen: [0, 0],
                interval: [0.0, 1.0],
                shrunk: None,
                not_shrunk: None,
            });
        }
    }

    /// The verdict of the arm.
    pub(crate) fn conclude(mut self) -> Outcome {
        let record = &mut self.record;
        record.interval = stats::interval(record.differing, record.of);
        record.prompts = self.prompts.len() as u64;
        record.prompts_differing = self.prompts_differing.len() as u64;
        record.levels = self.levels.into_values().collect();
        record.blind = record.of > 0 && record.values == 0;
        for (why, count) in &self.errors {
            record.notes.push(format!("{count} cases voided: {why}"));
        }
        if record.differing > 0 {
            record.verdict = Verdict::Broken;
            record.reason = None;
        } else if record.of > 0 && !record.blind && record.reason.is_none() {
            record.verdict = Verdict::Held;
        } else if record.of > 0 && record.blind {
            let blind = "blind: no log-probability was compared, only tokens or text";
            record.reason.get_or_insert(blind.into());
        } else if record.of == 0 {
            let why = match (record.unwitnessed, self.errors.into_iter().max_by_key(|(_, n)| *n)) {
                (0, Some((why, _))) => format!("every case was voided: {why}"),
                (0, None) => "nothing was compared".into(),
                (n, _) => format!("requests never met: {n} crowds stayed at 1 in flight"),
            };
            record.reason.get_or_insert(why);
        }
        if let Some(first) = &mut self.first {
            first.seen = [record.differing, record.of];
            first.interval = record.interval;
        }
        Outcome {
            record: self.record,
            findings: self.findings.into_values().collect(),
            first: self.first,
            crowd: self.crowd,
        }
    }
}

/// A state fault beats what is unclear, and that beats drift.
fn worse(a: Nature, b: Nature) -> Nature {
    let rank = |nature| match nature {
        Nature::Drift => 0,
        Nature::Unclear => 1,
        Nature::LikelyStateFault => 2,
    };
    if rank(b) > rank(a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::super::compare::tests::answer;
    use super::super::compare::{Parts, compare};
    use super::super::wire::Prompt;
    use super::*;

    fn take(score: &mut Score, expected: &Answer, got: &Answer) {
        let sent = |_: &Call| Sent { path: "completions".into(), body: serde_json::Value::Null };
        let call = Call::greedy(Prompt::Ids(vec![1]), 1);
        let crowd = [call.clone(), call.clone()];
        let requests =
            Requests { sent: &sent, reference: &call, crowd: &crowd, place: 1, stagger_ms: 0 };
        let comparison = compare(expected, got, Parts::All);
        score.take(Trial { prompt: 3, sent: 2, in_flight: 2, comparison, expected, got, requests });
    }

    #[test]
    fn differences_at_one_place_of_one_prompt_are_one_finding() {
        let a = answer(&[(1, "-0.5", &[])]);
        let b = answer(&[(1, "-0.6", &[])]);
        let mut score = Score::new(Arm::ConcurrentWarm);
        take(&mut score, &a, &b);
        take(&mut score, &a, &a);
        take(&mut score, &a, &b);
        let outcome = score.conclude();
        assert_eq!(outcome.record.verdict, Verdict::Broken);
        assert_eq!((outcome.record.differing, outcome.record.of), (2, 3));
        assert_eq!(outcome.findings.len(), 1);
        assert_eq!(outcome.findings[0].count, 2);
        let first = outcome.first.unwrap();
        assert_eq!((first.seen, first.neighbours.len()), ([2, 3], 1));
    }

    #[test]
    fn text_alone_is_blind_and_never_held() {
        let text = |text: &str| Answer { text: text.into(), ..Answer::default() };
        let mut score = Score::new(Arm::Stream);
        take(&mut score, &text("a"), &text("a"));
        let record = score.conclude().record;
        assert_eq!((record.verdict, record.blind), (Verdict::Undecided, true));
        let mut score = Score::new(Arm::Stream);
        take(&mut score, &text("a"), &text("b"));
        assert_eq!(score.conclude().record.verdict, Verdict::Broken);
    }

    #[test]
    fn an_arm_that_compared_nothing_says_why() {
        let mut score = Score::new(Arm::Order);
        score.unwitnessed();
        let reason = score.conclude().record.reason.unwrap();
        assert!(reason.contains("never met"), "{reason}");
        let mut score = Score::new(Arm::Order);
        score.void(&WireError::Busy { code: 429, retry_after: None });
        let record = score.conclude().record;
        assert!(record.reason.unwrap().contains("429"));
        assert_eq!((record.verdict, record.voided), (Verdict::Undecided, 1));
    }
}
