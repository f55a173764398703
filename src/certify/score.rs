//! An arm in the making: trials counted, the first difference kept, and the verdict that follows.

use std::collections::{BTreeMap, BTreeSet};

use super::certificate::{Arm, ArmRecord, Divergence, Finding, Level, New, Sent, Verdict};
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
    /// Requests seen in flight with it; 1 if it was not seen to meet another.
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
    /// When each was sent, in milliseconds after the first.
    pub(crate) delays_ms: &'a [u64],
    /// Which prompts are new each time.
    pub(crate) new: New,
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
    beside: BTreeMap<String, u64>,
    /// Some of the values compared.
    distinct: BTreeSet<String>,
    /// Equal answers of which too little was compared to say so, by requests sent at once and by whether they met others.
    untold: BTreeMap<(u32, bool), u64>,
}

/// Why an answer without values shows nothing.
const UNTOLD: &str =
    "log-probabilities are missing in it, or in the answer that it is compared with";

/// Different values from which on comparing them says something.
const DISTINCT_MIN: usize = 3;

/// What came of an arm.
pub(crate) struct Outcome {
    pub(crate) record: ArmRecord,
    pub(crate) findings: Vec<Finding>,
    pub(crate) first: Option<Divergence>,
    /// The requests of that first difference, as they can be sent again.
    pub(crate) crowd: Vec<Call>,
    /// Findings beside the verdict.
    pub(crate) beside: Vec<String>,
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
            met: 0,
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
            beside: BTreeMap::new(),
            distinct: BTreeSet::new(),
            untold: BTreeMap::new(),
        }
    }

    pub(crate) fn arm(&self) -> Arm {
        self.arm
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

    /// An answer that an error took away.
    pub(crate) fn void(&mut self, error: &WireError) {
        self.void_for(error.to_string());
    }

    /// An answer that something else took away.
    pub(crate) fn void_for(&mut self, why: String) {
        self.record.voided += 1;
        *self.errors.entry(why).or_default() += 1;
    }

    /// An answer of a crowd of this size that an error took away.
    pub(crate) fn void_at(&mut self, sent: u32, error: &WireError) {
        self.level(sent).voided += 1;
        self.void(error);
    }

    fn level(&mut self, sent: u32) -> &mut Level {
        self.levels.entry(sent).or_insert(Level { sent, interval: [0.0, 1.0], ..Level::default() })
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
        if let Some(beside) = comparison.beside {
            *self.beside.entry(beside).or_default() += 1;
        }
        if self.distinct.len() < DISTINCT_MIN {
            self.distinct.extend(comparison.distinct);
        }
        let record = &mut self.record;
        record.of += 1;
        record.met += u64::from(in_flight > 1);
        record.positions += comparison.positions;
        record.values += comparison.values;
        record.incomparable += comparison.incomparable;
        record.in_flight = record.in_flight.max(in_flight);
        self.prompts.insert(prompt);
        let level = self.level(sent);
        level.of += 1;
        level.met += u64::from(in_flight > 1);
        level.in_flight = level.in_flight.max(in_flight);
        let Some(difference) = comparison.difference else {
            // A value a token, at least: an answer that came without them is equal in its text alone.
            if comparison.values < comparison.positions.max(1) {
                *self.untold.entry((sent, in_flight > 1)).or_default() += 1;
            }
            return;
        };
        level.differing += 1;
        self.record.differing += 1;
        self.prompts_differing.insert(prompt);
        let arm = self.arm;
        let picked = if arm == Arm::Seed { Picked::Drawn } else { Picked::Greedy };
        let (nature, explanation) = nature::judge(&difference, picked);
        let position = difference.position;
        let first = Finding { arm, prompt, position, count: 0, nature };
        let finding = self.findings.entry((prompt, position)).or_insert(first);
        finding.count += 1;
        finding.nature = worse(finding.nature, nature);
        // A first answer is shown again by its prompt alone: the shortest one is the least to paste.
        let is_shorter = arm == Arm::First
            && self
                .crowd
                .first()
                .is_some_and(|kept| requests.reference.prompt.length() < kept.prompt.length());
        if self.first.is_none() || is_shorter {
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
                delays_ms: requests.delays_ms.to_vec(),
                new: requests.new,
                expected: expected.text.clone(),
                got: got.text.clone(),
                seen: [0, 0],
                interval: [0.0, 1.0],
                shrunk: None,
                not_shrunk: None,
            });
        }
    }

    /// Where other answers were compared by log-probabilities, those that came without show nothing.
    fn void_untold(&mut self) {
        for ((sent, has_met), n) in std::mem::take(&mut self.untold) {
            let met = if has_met { n } else { 0 };
            let level = self.level(sent);
            level.of -= n;
            level.met -= met;
            level.voided += n;
            self.record.of -= n;
            self.record.met -= met;
            self.record.voided += n;
            *self.errors.entry(UNTOLD.into()).or_default() += n;
        }
    }

    /// The verdict of the arm.
    pub(crate) fn conclude(mut self) -> Outcome {
        self.record.blind = self.record.of > 0 && self.distinct.len() < DISTINCT_MIN;
        if !self.record.blind {
            self.void_untold();
        }
        let record = &mut self.record;
        record.interval = stats::interval(record.differing, record.of);
        record.prompts = self.prompts.len() as u64;
        record.prompts_differing = self.prompts_differing.len() as u64;
        record.levels = self.levels.into_values().collect();
        for level in &mut record.levels {
            level.interval = stats::interval(level.differing, level.of);
        }
        for (why, count) in &self.errors {
            record.notes.push(format!("{count} answers voided: {why}"));
        }
        // What says something: answers of requests that met, where the arm is about those.
        let telling = if self.arm.needs_company() { record.met } else { record.of };
        if record.differing > 0 {
            record.verdict = Verdict::Broken;
            record.reason = None;
        } else if record.blind {
            let blind = match (record.values, self.distinct.iter().next()) {
                (1.., Some(value)) => format!(
                    "blind: the log-probabilities compared say nothing, such as {value} again and again"
                ),
                _ => "blind: no log-probability was compared, only tokens or text".into(),
            };
            record.reason.get_or_insert(blind);
        } else if telling > 0 && record.reason.is_none() {
            record.verdict = Verdict::Held;
        } else if telling == 0 {
            let why = match (record.unwitnessed, self.errors.into_iter().max_by_key(|(_, n)| *n)) {
                (0, Some((why, _))) => format!("every answer was voided: {why}"),
                (0, None) => "nothing was compared".into(),
                (n, _) => format!("requests were not seen to meet, in {n} crowds"),
            };
            record.reason.get_or_insert(why);
        }
        if let Some(first) = &mut self.first {
            first.seen = [record.differing, record.of];
            first.interval = record.interval;
        }
        let arm = self.arm;
        let beside = self.beside.into_iter();
        Outcome {
            record: self.record,
            findings: self.findings.into_values().collect(),
            first: self.first,
            crowd: self.crowd,
            beside: beside.map(|(what, n)| format!("{arm}: {n} times, {what}")).collect(),
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
        take_met(score, 2, expected, got);
    }

    fn take_met(score: &mut Score, in_flight: u32, expected: &Answer, got: &Answer) {
        let sent = |_: &Call| Sent { path: "completions".into(), body: serde_json::Value::Null };
        let call = Call::greedy(Prompt::Ids(vec![1]), 1);
        let crowd = [call.clone(), call.clone()];
        let requests = Requests {
            sent: &sent,
            reference: &call,
            crowd: &crowd,
            place: 1,
            delays_ms: &[0, 0],
            new: New::default(),
        };
        let comparison = compare(expected, got, Parts::All);
        score.take(Trial { prompt: 3, sent: 2, in_flight, comparison, expected, got, requests });
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

    /// One value again and again, as of a server that writes 0.0 everywhere, is as good as none.
    #[test]
    fn values_that_are_all_the_same_are_blind() {
        let of = |values: [&str; 3]| {
            let a = answer(&values.map(|value| (1, value, [].as_slice())));
            let mut score = Score::new(Arm::ConcurrentWarm);
            take(&mut score, &a, &a);
            score.conclude().record
        };
        let zeros = of(["0.0", "0.0", "0.0"]);
        assert_eq!((zeros.verdict, zeros.blind), (Verdict::Undecided, true));
        assert_eq!(of(["-0.5", "-0.25", "-0.125"]).verdict, Verdict::Held);
    }

    /// Equal answers of requests that did not meet are no evidence; one that differs needs none.
    #[test]
    fn a_difference_needs_no_witness_and_held_does() {
        let of = |other: &str| {
            let values = [(1, "-0.5", [].as_slice()), (2, "-0.6", &[]), (3, "-0.7", &[])];
            let (a, mut b) = (answer(&values), answer(&values));
            b.tokens[2].logprob = crate::certify::Decimal::parse(other);
            let mut score = Score::new(Arm::ConcurrentWarm);
            take_met(&mut score, 1, &a, &b);
            score.unwitnessed();
            score.conclude().record
        };
        assert_eq!(of("-0.7").verdict, Verdict::Undecided);
        assert_eq!(of("-0.71").verdict, Verdict::Broken);
    }

    #[test]
    fn an_arm_that_compared_nothing_says_why() {
        let mut score = Score::new(Arm::Order);
        score.unwitnessed();
        let reason = score.conclude().record.reason.unwrap();
        assert!(reason.contains("not seen to meet"), "{reason}");
        let mut score = Score::new(Arm::Order);
        score.void(&WireError::Busy { code: 429, retry_after: None });
        let record = score.conclude().record;
        assert!(record.reason.unwrap().contains("429"));
        assert_eq!((record.verdict, record.voided), (Verdict::Undecided, 1));
    }
}
