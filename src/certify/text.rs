//! A certificate as text for people: the verdict first, then why, then what was compared and what was not.

use std::fmt::Write as _;

use super::certificate::{Ability, ArmRecord, Certificate, Control, Divergence, Verdict};
use super::compare::Seen;
use super::power::Measured;

/// The report of a run.
pub fn report(certificate: &Certificate) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", summary(certificate));
    for reason in &certificate.reasons {
        let _ = writeln!(out, "  {reason}");
    }
    for divergence in &certificate.divergences {
        let _ = write!(out, "\n{}", first_difference(divergence));
    }
    let _ = write!(out, "\n{}", arms(certificate));
    let _ = write!(out, "\n{}", findings(certificate));
    let controls = &certificate.controls;
    let _ = writeln!(out, "positive control: {}", control(&controls.positive));
    let _ = writeln!(out, "negative control: {}", control(&controls.negative));
    let witness = &certificate.witness;
    let _ = writeln!(
        out,
        "in flight: up to {}, by {}; {} crowds met, {} did not",
        witness.max_in_flight, witness.by, witness.witnessed, witness.unwitnessed
    );
    let _ = writeln!(out, "resolution: {}", resolution(certificate));
    let power = &certificate.power;
    let _ = writeln!(
        out,
        "power: {} answers in crowds see a fault that changes {} of answers with probability {:.3}; 0.99 takes {}",
        power.trials,
        percent(power.rate),
        power.detection,
        power.trials_for_99
    );
    if let Some(rate) = power.rate_seen_at_95 {
        let _ = writeln!(
            out,
            "       rates above {} would have been seen with probability 0.95",
            percent(rate)
        );
    }
    let _ = write!(out, "scope: {}", clean(&certificate.scope));
    out
}

/// One line that can be pasted.
pub fn summary(certificate: &Certificate) -> String {
    let word = match certificate.verdict {
        Verdict::Held => "held",
        Verdict::Broken => "BROKEN",
        Verdict::Undecided => "could not decide",
    };
    let scored = certificate.arms.iter().filter(|arm| arm.of > 0);
    let (differing, of) =
        scored.clone().fold((0, 0), |(n, m), arm| (n + arm.differing, m + arm.of));
    format!(
        "{word}: {} at {}: {differing} of {of} answers differ in {} of {} arms, up to {} in flight, {} requests, {:.1} s",
        clean(&certificate.server.model),
        clean(&certificate.server.url),
        scored.count(),
        certificate.arms.len(),
        certificate.witness.max_in_flight,
        certificate.requests,
        certificate.seconds
    )
}

/// The first difference of an arm.
pub fn first_difference(divergence: &Divergence) -> String {
    let mut out = String::new();
    let difference = &divergence.difference;
    let place = match difference.position {
        Some(position) => format!("position {position}"),
        None => "the answer as a whole".into(),
    };
    let [n, m] = divergence.seen;
    let _ = writeln!(
        out,
        "{}: prompt {}, {place}: {} differs, {} in flight of {} sent, {n} of {m} answers",
        divergence.arm,
        divergence.prompt,
        difference.observable.words(),
        divergence.in_flight,
        divergence.sent
    );
    let _ = writeln!(out, "  expected {}", seen(&difference.expected));
    let _ = writeln!(out, "  got      {}", seen(&difference.got));
    if let Some(position) = difference.token_position {
        let _ = writeln!(out, "  first other token at position {position}");
    }
    if let Some(margin) = difference.margin {
        let _ = writeln!(out, "  gap between best and second {margin:.6}");
    }
    let nature = divergence.nature.words();
    let _ = writeln!(out, "  {nature}: {}", divergence.explanation);
    out
}

fn seen(seen: &Seen) -> String {
    let id = seen.id.map_or(String::new(), |id| format!("token {id} "));
    let value = seen.logprob.as_ref().map_or(String::new(), |value| format!(" at {value}"));
    let text: String = clean(&seen.text).chars().take(60).collect();
    match seen.id {
        Some(_) if text.is_empty() => format!("{}{value}", id.trim_end()),
        _ => format!("{id}{text:?}{value}"),
    }
}

fn arms(certificate: &Certificate) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<16} {:<10} {:>9} {:>6} {:>18} {:>9}  compared",
        "arm", "verdict", "differing", "of", "95 % interval", "in flight"
    );
    for record in &certificate.arms {
        let _ = writeln!(out, "{}", arm(record));
        for note in record.reason.iter().chain(&record.notes) {
            let _ = writeln!(out, "{:<16}   {}", "", clean(note));
        }
    }
    out
}

fn arm(record: &ArmRecord) -> String {
    let verdict = match record.verdict {
        Verdict::Undecided if record.of == 0 => "not scored",
        verdict => verdict.name(),
    };
    let [low, high] = record.interval;
    let mut compared = format!(
        "{} prompts, {} positions, {} values",
        record.prompts, record.positions, record.values
    );
    for (count, what) in [
        (record.incomparable, "not comparable"),
        (record.voided, "cases voided"),
        (record.unwitnessed, "never met"),
    ] {
        if count > 0 {
            let _ = write!(compared, ", {count} {what}");
        }
    }
    format!(
        "{:<16} {verdict:<10} {:>9} {:>6} {:>18} {:>9}  {compared}",
        record.arm.name(),
        record.differing,
        record.of,
        format!("[{low:.4}, {high:.4}]"),
        record.in_flight
    )
}

/// Differences grouped: many of one near-tie are one finding.
fn findings(certificate: &Certificate) -> String {
    const SHOWN: usize = 8;
    let all = &certificate.findings;
    let mut out = String::new();
    for finding in all.iter().take(SHOWN) {
        let place = finding.position.map_or("whole answer".into(), |p| format!("position {p}"));
        let _ = writeln!(
            out,
            "finding: {}, prompt {}, {place}, {} times: {}",
            finding.arm,
            finding.prompt,
            finding.count,
            finding.nature.words()
        );
    }
    if all.len() > SHOWN {
        let _ = writeln!(out, "and {} more findings", all.len() - SHOWN);
    }
    out
}

fn control(control: &Control) -> String {
    let passed = match control.passed {
        Some(true) => "as it must be",
        Some(false) => "FAILED",
        None => "not known",
    };
    let note = control.note.as_ref().map_or(String::new(), |note| format!(" ({})", clean(note)));
    format!(
        "{passed}: {}, {} of {} answers differ{note}",
        control.what, control.differing, control.of
    )
}

fn resolution(certificate: &Certificate) -> String {
    let by = &certificate.server.tokens_named_by;
    match certificate.server.resolution {
        None => format!("no log-probabilities: blind to all that moves no token; tokens by {by}"),
        Some(seen) => format!(
            "log-probabilities of up to {} significant digits and {} decimals in {} values; what is finer is not seen; tokens by {by}",
            seen.digits, seen.decimals, seen.values
        ),
    }
}

/// What was found out about the server, a line an ability.
pub fn abilities(all: &[Ability]) -> String {
    let mut out = String::new();
    for ability in all {
        let known = match ability.known {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        let _ = writeln!(out, "{:<36} {known:<8} {}", ability.name, clean(&ability.evidence));
    }
    out
}

/// Power as it was measured.
pub fn measured(m: &Measured) -> String {
    let [low, high] = m.interval;
    let [_, alarms] = m.false_alarm_interval;
    format!(
        "planted fault of rate {}: found in {} of {} runs [{low:.4}, {high:.4}], {} undecided; {} answers in crowds a run predict {:.4}\n\
         no fault: {} false alarms in {} runs (at most {} at 95 %), {} undecided\n\
         {:.1} s, the longest run {:.2} s",
        percent(m.rate),
        m.detections,
        m.faulty,
        m.faulty_undecided,
        m.trials_min,
        m.predicted,
        m.false_alarms,
        m.clean,
        percent(alarms),
        m.clean_undecided,
        m.seconds,
        m.seconds_max
    )
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// A server's text without control characters: a terminal obeys some of them.
fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}
