//! From arms and controls to one verdict. Broken beats undecided, and held is the hardest to get.
//!
//! Held takes: requests one at a time were clean; the planted difference was seen; a crowd was compared, by log-probabilities,
//! on at least one side of the cache; nothing differed anywhere. An arm that could not be asked does not stand in the way, but is
//! named in the scope.

use super::certificate::{Arm, ArmRecord, Controls, Verdict};

/// What is asked of a run beyond its arms.
pub(crate) struct Circumstances<'a> {
    pub(crate) controls: &'a Controls,
    /// Why answers may come from a cache in front of the model.
    pub(crate) replayed: Option<&'a str>,
    /// Answers in crowds that were compared, and how many *held* takes.
    pub(crate) answers: [u64; 2],
}

/// Where answers to requests alone changed as the run went on, an arm that compares across that time can't blame its own
/// question.
pub(crate) fn withhold(arms: &mut [ArmRecord]) {
    if !arms.iter().any(|record| record.arm == Arm::Time && record.verdict == Verdict::Broken) {
        return;
    }
    for record in arms.iter_mut().filter(|record| !matches!(record.arm, Arm::Repeat | Arm::Time)) {
        if record.verdict == Verdict::Broken {
            record.verdict = Verdict::Undecided;
            record.reason =
                Some("answers differed, but so did those to requests alone over time".into());
        }
    }
}

/// The verdict, and why.
pub(crate) fn decide(arms: &[ArmRecord], around: &Circumstances<'_>) -> (Verdict, Vec<String>) {
    let mut reasons = Vec::new();
    if let Some(why) = around.replayed {
        reasons.push(format!("answers come from a cache in front of the model: {why}"));
        return (Verdict::Undecided, reasons);
    }
    let of = |arm: Arm| arms.iter().find(|record| record.arm == arm);
    let negative = &around.controls.negative;
    if negative.passed != Some(true) {
        let pattern = of(Arm::Repeat).and_then(|record| record.pattern.as_ref());
        let pattern =
            pattern.map_or(String::new(), |p| format!(" ({}: {})", p.kinds, p.shape.words()));
        let (n, m) = (negative.differing, negative.of);
        reasons.push(match negative.passed {
            Some(_) => format!("requests one at a time differ already, in {n} of {m} answers{pattern}: nothing can be said about crowds"),
            None => "requests one at a time could not be compared".into(),
        });
        return (Verdict::Undecided, reasons);
    }
    let broken: Vec<&ArmRecord> = arms.iter().filter(|r| r.verdict == Verdict::Broken).collect();
    if !broken.is_empty() {
        for record in broken {
            let (n, m) = (record.differing, record.of);
            let arm = record.arm;
            reasons.push(format!("{arm}: {n} of {m} answers differ ({})", arm.statement()));
        }
        return (Verdict::Broken, reasons);
    }
    let positive = &around.controls.positive;
    if positive.passed != Some(true) {
        let note = positive.note.as_deref().unwrap_or("not asked");
        reasons.push(format!(
            "the positive control was not seen ({note}): the run is not known to be able to fail"
        ));
    }
    let crowds = [Arm::ConcurrentCold, Arm::ConcurrentWarm].map(of);
    let held = |record: &&ArmRecord| record.verdict == Verdict::Held;
    if !crowds.iter().flatten().any(held) {
        let why = crowds.iter().flatten().filter_map(|r| Some((r.arm, r.reason.as_deref()?)));
        let whys: Vec<String> = why.map(|(arm, why)| format!("{arm}: {why}")).collect();
        let why = if whys.is_empty() { "not asked".into() } else { whys.join("; ") };
        reasons.push(format!("no crowd was scored: {why}"));
    } else if around.answers[0] < around.answers[1] {
        let [n, least] = around.answers;
        reasons.push(format!(
            "{n} answers in crowds were compared, and held takes {least}: more prompts or rounds, or longer answers, which meet more often"
        ));
    }
    if !reasons.is_empty() {
        return (Verdict::Undecided, reasons);
    }
    let held: Vec<&str> =
        arms.iter().filter(|r| r.verdict == Verdict::Held).map(|r| r.arm.name()).collect();
    reasons.push(format!("nothing differed in {}", held.join(", ")));
    (Verdict::Held, reasons)
}

#[cfg(test)]
mod tests {
    use super::super::certificate::Control;
    use super::super::score::Score;
    use super::*;

    fn control(passed: Option<bool>) -> Control {
        let what = "x".to_owned();
        Control { what, passed, differing: 1, of: 2, requests: 3, note: None }
    }

    fn arm(arm: Arm, verdict: Verdict) -> ArmRecord {
        let mut record = Score::refused(arm, "not asked").record;
        record.verdict = verdict;
        record
    }

    fn verdict(positive: Option<bool>, negative: Option<bool>, arms: &[ArmRecord]) -> Verdict {
        let controls = Controls { positive: control(positive), negative: control(negative) };
        decide(arms, &Circumstances { controls: &controls, replayed: None, answers: [29, 29] }).0
    }

    #[test]
    fn held_takes_both_controls_and_a_crowd() {
        use Verdict::{Broken, Held, Undecided};
        let crowd = [arm(Arm::Repeat, Held), arm(Arm::ConcurrentWarm, Held)];
        let yes = Some(true);
        assert_eq!(verdict(yes, yes, &crowd), Held);
        assert_eq!(verdict(None, yes, &crowd), Undecided);
        assert_eq!(verdict(Some(false), yes, &crowd), Undecided);
        assert_eq!(verdict(yes, Some(false), &crowd), Undecided);
        let none =
            [arm(Arm::Repeat, Held), arm(Arm::ConcurrentWarm, Undecided), arm(Arm::Prefix, Held)];
        assert_eq!(verdict(yes, yes, &none), Undecided);
        let broken = [arm(Arm::ConcurrentWarm, Held), arm(Arm::Prefix, Broken)];
        assert_eq!(verdict(None, yes, &broken), Broken);
        assert_eq!(verdict(yes, Some(false), &broken), Undecided);
    }

    /// Goal: a handful of answers is not called held, but one that differs is broken.
    #[test]
    fn few_answers_in_crowds_decide_nothing_unless_they_differ() {
        let controls = Controls { positive: control(Some(true)), negative: control(Some(true)) };
        let around = Circumstances { controls: &controls, replayed: None, answers: [28, 29] };
        let crowd = |verdict| [arm(Arm::Repeat, Verdict::Held), arm(Arm::ConcurrentWarm, verdict)];
        let (verdict, reasons) = decide(&crowd(Verdict::Held), &around);
        assert_eq!(verdict, Verdict::Undecided);
        assert!(reasons[0].starts_with("28 answers in crowds"), "{reasons:?}");
        assert_eq!(decide(&crowd(Verdict::Broken), &around).0, Verdict::Broken);
    }

    #[test]
    fn an_arm_is_not_blamed_for_what_time_changed() {
        let mut arms = [
            arm(Arm::Repeat, Verdict::Held),
            arm(Arm::ConcurrentWarm, Verdict::Broken),
            arm(Arm::Time, Verdict::Held),
        ];
        withhold(&mut arms);
        assert_eq!(arms[1].verdict, Verdict::Broken);
        arms[2].verdict = Verdict::Broken;
        withhold(&mut arms);
        assert_eq!(arms[1].verdict, Verdict::Undecided);
        assert_eq!(verdict(Some(true), Some(true), &arms), Verdict::Broken);
    }

    #[test]
    fn a_cache_in_front_of_the_model_decides_nothing() {
        let controls = Controls { positive: control(Some(true)), negative: control(Some(true)) };
        let around =
            Circumstances { controls: &controls, replayed: Some("same id"), answers: [29, 29] };
        let broken = [arm(Arm::ConcurrentWarm, Verdict::Broken)];
        assert_eq!(decide(&broken, &around).0, Verdict::Undecided);
    }
}
