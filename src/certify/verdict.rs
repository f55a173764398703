//! From arms, levels and controls to one verdict. Broken beats undecided, and held is the hardest to get.
//!
//! A difference needs no witness. Held takes all of it: the run came to its end; requests one at a time were clean; first answers
//! were compared with later ones; at a level at least, crowds of each kind were answered, seen to meet, half of them at least in
//! flight together, and compared by values that say something, often enough, and the difference planted there was seen. Of all this only what the user left out is not
//! asked. An arm blames by its own reference: where another one drifted, it stands.

use super::certificate::{Arm, ArmRecord, Clusters, Control, Controls, LevelClaim, Verdict};
use super::options::Options;
use super::stats;

/// What is asked of a run beyond its arms.
pub(crate) struct Circumstances<'a> {
    pub(crate) options: &'a Options,
    pub(crate) controls: &'a Controls,
    /// Why answers may come from a cache in front of the model.
    pub(crate) replayed: Option<&'a str>,
    /// Why the plan was not carried out to its end.
    pub(crate) broke_off: Option<&'a str>,
    /// Kinds of answers that do not follow load.
    pub(crate) clusters: Option<&'a Clusters>,
    /// Crowds whose witnesses contradicted each other.
    pub(crate) contradicted: u64,
    /// Judged prompts that have a clean answer alone: those whose lengths are claimed.
    pub(crate) prompts: u64,
}

/// Share of a level's judged requests that must be answered for the level to be claimed.
const ANSWERED_MIN: f64 = 0.9;

/// What is claimed at each level; nothing where no crowds were asked for.
pub(crate) fn levels(arms: &[ArmRecord], options: &Options, control: &Control) -> Vec<LevelClaim> {
    if !asks_company(options) {
        return Vec::new();
    }
    let claim = |sent: &u32| level(arms, options, control, *sent);
    options.concurrency.iter().map(claim).collect()
}

fn level(arms: &[ArmRecord], options: &Options, control: &Control, sent: u32) -> LevelClaim {
    let crowds = || arms.iter().filter(|record| Arm::COMPANY.contains(&record.arm));
    let at = |record: &&ArmRecord| record.levels.iter().find(|level| level.sent == sent).copied();
    let (mut met, mut of, mut voided, mut differing, mut in_flight) = (0, 0, 0, 0, 0);
    for level in crowds().filter_map(|record| at(&record)) {
        met += level.met;
        of += level.of;
        voided += level.voided;
        differing += level.differing;
        in_flight = in_flight.max(level.in_flight);
    }
    let missing = crowds()
        .filter(|record| options.asks(record.arm))
        .find(|record| at(record).is_none_or(|level| level.met == 0));
    let is_broken = crowds().any(|record| {
        record.verdict == Verdict::Broken && at(&record).is_some_and(|level| level.differing > 0)
    });
    let undecided = crowds().find(|r| r.verdict == Verdict::Undecided && r.of > 0);
    let control = control.levels.iter().find(|level| level.sent == sent);
    let why = if is_broken {
        None
    } else if let Some(record) = missing {
        let why = record.reason.as_deref().unwrap_or("no requests were seen to meet there");
        let note = record.notes.iter().find(|note| note.contains(&format!("crowds of {sent} ")));
        Some(format!("{}: {}", record.arm, note.map_or(why, String::as_str)))
    } else if let Some(record) = undecided {
        Some(format!("{}: {}", record.arm, record.reason.as_deref().unwrap_or("not decided")))
    } else if u64::from(in_flight) * 2 < u64::from(sent) {
        Some(format!("at most {in_flight} were in flight together, and held takes half of {sent}"))
    } else if (of as f64) < ANSWERED_MIN * (of + voided) as f64 {
        Some(format!("{voided} of {} answers were voided", of + voided))
    } else if met < options.answers_min {
        let least = options.answers_min;
        Some(format!(
            "{met} answers met others, and held takes {least}: more prompts or rounds, or longer answers, which meet more often"
        ))
    } else if control.is_none_or(|control| control.passed != Some(true)) {
        Some("the positive control was not seen there".into())
    } else {
        None
    };
    let verdict = match (is_broken, &why) {
        (true, _) => Verdict::Broken,
        (false, None) => Verdict::Held,
        (false, Some(_)) => Verdict::Undecided,
    };
    LevelClaim {
        sent,
        in_flight,
        answers: of,
        differing,
        interval: stats::interval(differing, of),
        rate_seen_at_95: stats::power(met).rate_seen_at_95,
        verdict,
        why,
    }
}

/// The verdict, and why.
pub(crate) fn decide(
    arms: &[ArmRecord],
    levels: &[LevelClaim],
    around: &Circumstances<'_>,
) -> (Verdict, Vec<String>) {
    if let Some(why) = around.replayed {
        let why = format!("answers come from a cache in front of the model: {why}");
        return (Verdict::Undecided, vec![why]);
    }
    let is_broken = |record: &&ArmRecord| {
        // Repeats that differ are no fault of company: they take away the reference of others.
        record.verdict == Verdict::Broken && record.arm != Arm::Repeat
    };
    let mut reasons: Vec<String> = arms.iter().filter(is_broken).map(broken).collect();
    if !reasons.is_empty() {
        reasons.extend(around.clusters.map(|clusters| clusters.words.clone()));
        return (Verdict::Broken, reasons);
    }
    reasons.extend(around.broke_off.map(|why| format!("the run broke off: {why}")));
    reasons.extend(around.clusters.map(|clusters| clusters.words.clone()));
    reasons.extend(not_repeatable(arms, around));
    reasons.extend(not_judged(arms, around));
    if !levels.iter().any(|level| level.verdict == Verdict::Held) && asks_company(around.options) {
        let whys = levels.iter().filter_map(|level| Some((level.sent, level.why.as_deref()?)));
        let whys: Vec<String> = whys.map(|(sent, why)| format!("at {sent}: {why}")).collect();
        reasons.push(format!("no level of crowds is decided: {}", whys.join("; ")));
    }
    if around.contradicted > 0 && !reasons.is_empty() {
        let n = around.contradicted;
        reasons.push(format!("in {n} crowds the running gauge and the times of tokens contradict each other: both count for nothing there"));
    }
    let positive = &around.controls.positive;
    if positive.passed != Some(true) && asks_company(around.options) {
        let note = positive.note.as_deref().unwrap_or("not asked");
        reasons.push(format!(
            "the positive control was not seen ({note}): the run is not known to be able to fail"
        ));
    }
    if !reasons.is_empty() {
        return (Verdict::Undecided, reasons);
    }
    let held: Vec<&str> =
        arms.iter().filter(|r| r.verdict == Verdict::Held).map(|r| r.arm.name()).collect();
    reasons.push(format!("nothing differed in {}", held.join(", ")));
    for level in levels.iter().filter(|level| level.verdict == Verdict::Undecided) {
        let why = level.why.as_deref().unwrap_or_default();
        reasons.push(format!("not claimed at {} requests at once: {why}", level.sent));
    }
    (Verdict::Held, reasons)
}

fn broken(record: &ArmRecord) -> String {
    let (n, m, arm) = (record.differing, record.of, record.arm);
    let blame = match arm {
        Arm::First => ": a cache, a warm-up or another replica, not company",
        Arm::Prefix => ": what the prefix cache served changes answers",
        Arm::After => ": what crowds leave behind, or a server that changed",
        Arm::Time => ": the server changed with no crowd between",
        _ => "",
    };
    format!("{arm}: {n} of {m} answers differ between {}{blame}", arm.statement())
}

/// Whether any arm with crowds was asked for.
fn asks_company(options: &Options) -> bool {
    Arm::COMPANY.iter().any(|arm| options.asks(*arm))
}

fn not_repeatable(arms: &[ArmRecord], around: &Circumstances<'_>) -> Option<String> {
    let negative = &around.controls.negative;
    if negative.passed == Some(true) {
        return None;
    }
    let first = arms.iter().find(|record| record.arm == Arm::First);
    let pattern = first.and_then(|record| record.pattern.as_ref());
    let pattern = pattern.map_or(String::new(), |p| format!(" ({}: {})", p.kinds, p.shape.words()));
    let (n, m) = (negative.differing, negative.of);
    Some(match negative.passed {
        Some(_) if n == 0 => {
            "requests one at a time differed later on: warm answers have no reference".to_owned()
        }
        Some(_) => format!(
            "requests one at a time differ already, in {n} of {m} answers{pattern}: warm answers have no reference"
        ),
        None => "requests one at a time could not be compared".into(),
    })
}

/// Arms that held takes and that were asked for, and were not decided: first answers, and each kind of crowd at any level.
fn not_judged(arms: &[ArmRecord], around: &Circumstances<'_>) -> Vec<String> {
    let needed = |record: &&ArmRecord| {
        let is_needed = record.arm == Arm::First || Arm::COMPANY.contains(&record.arm);
        is_needed && around.options.asks(record.arm) && record.verdict != Verdict::Held
    };
    let why = |record: &ArmRecord| {
        let why = record.reason.as_deref().unwrap_or("not asked");
        format!("{} could not be judged: {why}", record.arm)
    };
    let mut missing: Vec<String> = arms.iter().filter(needed).map(why).collect();
    missing.extend(arms.iter().filter_map(|record| not_compared(record, around)));
    if around.options.arms.iter().all(|arm| *arm == Arm::Repeat) {
        missing.push("nothing but repeats was asked for".into());
    }
    missing
}

/// Prompts that were never compared in a crowd of a kind: with each goes a length that would be claimed of it.
fn not_compared(record: &ArmRecord, around: &Circumstances<'_>) -> Option<String> {
    let is_claimed = Arm::COMPANY.contains(&record.arm) && record.verdict == Verdict::Held;
    let (n, of) = (around.prompts.saturating_sub(record.prompts), around.prompts);
    (is_claimed && n > 0).then(|| {
        format!(
            "{}: {n} of {of} prompts, each of a length of its own, were never compared",
            record.arm
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::certificate::{ControlLevel, Level};
    use super::super::score::Score;
    use super::Verdict::{Broken, Held, Undecided};
    use super::*;

    fn control(passed: Option<bool>) -> Control {
        let levels = [4, 64].map(|sent| ControlLevel { sent, passed, differing: 1, of: 2 });
        let what = "x".to_owned();
        Control {
            what,
            passed,
            differing: 1,
            of: 2,
            requests: 3,
            levels: levels.to_vec(),
            note: None,
        }
    }

    /// A record with so many answers that met at each level.
    fn arm(arm: Arm, verdict: Verdict, met: [u64; 2]) -> ArmRecord {
        let mut record = Score::refused(arm, "not asked").record;
        record.verdict = verdict;
        (record.of, record.prompts) = (1, 1);
        let differing = u64::from(verdict == Broken);
        let level = |(sent, met): (u32, u64)| Level {
            sent,
            in_flight: sent,
            differing,
            of: met,
            met,
            voided: 0,
            interval: [0.0, 1.0],
        };
        record.levels = [4, 64].into_iter().zip(met).map(level).collect();
        record
    }

    fn all(crowds: [Verdict; 3], met: [u64; 2]) -> Vec<ArmRecord> {
        let crowds = Arm::COMPANY.into_iter().zip(crowds).map(|(a, v)| arm(a, v, met));
        [arm(Arm::First, Held, [0, 0]), arm(Arm::Repeat, Held, [0, 0])]
            .into_iter()
            .chain(crowds)
            .collect()
    }

    struct Given {
        positive: Option<bool>,
        negative: Option<bool>,
        broke_off: Option<&'static str>,
        options: Options,
    }

    fn given() -> Given {
        let options = Options { concurrency: vec![4, 64], ..Options::default() };
        Given { positive: Some(true), negative: Some(true), broke_off: None, options }
    }

    fn verdict(given: &Given, arms: &[ArmRecord]) -> (Verdict, Vec<Verdict>) {
        let controls =
            Controls { positive: control(given.positive), negative: control(given.negative) };
        let around = Circumstances {
            options: &given.options,
            controls: &controls,
            replayed: None,
            broke_off: given.broke_off,
            clusters: None,
            contradicted: 0,
            prompts: 1,
        };
        let levels = levels(arms, &given.options, &controls.positive);
        (decide(arms, &levels, &around).0, levels.iter().map(|level| level.verdict).collect())
    }

    #[test]
    fn held_takes_both_controls_first_answers_and_each_kind_of_crowd() {
        let crowds = all([Held; 3], [16, 16]);
        assert_eq!(verdict(&given(), &crowds), (Held, vec![Held, Held]));
        for positive in [None, Some(false)] {
            assert_eq!(verdict(&Given { positive, ..given() }, &crowds).0, Undecided);
        }
        assert_eq!(verdict(&Given { negative: Some(false), ..given() }, &crowds).0, Undecided);
        assert_eq!(verdict(&Given { broke_off: Some("killed"), ..given() }, &crowds).0, Undecided);
        for i in 0..3 {
            let mut some = [Held; 3];
            some[i] = Undecided;
            assert_eq!(verdict(&given(), &all(some, [16, 16])).0, Undecided);
        }
        // Of a prompt that no crowd answered, nothing is claimed.
        let mut fewer = crowds.clone();
        fewer[3].prompts = 0;
        assert_eq!(verdict(&given(), &fewer).0, Undecided);
        let mut no_first = crowds.clone();
        no_first[0].verdict = Undecided;
        assert_eq!(verdict(&given(), &no_first).0, Undecided);
        // What the user left out is not asked.
        let mut given = given();
        given.options.arms.retain(|arm| *arm != Arm::First);
        assert_eq!(verdict(&given, &no_first).0, Held);
    }

    /// Goal: a level with few answers is not claimed from those of another.
    #[test]
    fn each_level_is_claimed_from_its_own_answers() {
        assert_eq!(verdict(&given(), &all([Held; 3], [16, 4])), (Held, vec![Held, Undecided]));
        assert_eq!(verdict(&given(), &all([Held; 3], [9, 4])), (Undecided, vec![Undecided; 2]));
        // 30 of one kind do not stand for none of another.
        let mut arms = all([Held; 3], [30, 30]);
        arms[4].levels[1].met = 0;
        assert_eq!(verdict(&given(), &arms), (Held, vec![Held, Undecided]));
    }

    #[test]
    fn a_difference_decides_whatever_else_is_missing() {
        let broken = all([Held, Undecided, Broken], [1, 1]);
        let nothing =
            Given { positive: None, negative: Some(false), broke_off: Some("x"), ..given() };
        assert_eq!(verdict(&nothing, &broken).0, Broken);
        // But repeats that differ are none of company.
        let mut repeats = all([Undecided; 3], [1, 1]);
        repeats[1].verdict = Broken;
        assert_eq!(verdict(&given(), &repeats).0, Undecided);
    }

    #[test]
    fn a_cache_in_front_of_the_model_decides_nothing() {
        let controls = Controls { positive: control(Some(true)), negative: control(Some(true)) };
        let given = given();
        let around = Circumstances {
            options: &given.options,
            controls: &controls,
            replayed: Some("same id"),
            broke_off: None,
            clusters: None,
            contradicted: 0,
            prompts: 1,
        };
        let arms = all([Broken; 3], [16, 16]);
        assert_eq!(decide(&arms, &[], &around).0, Undecided);
    }
}
