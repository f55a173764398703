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
        let _ = writeln!(out, "  {}", clean(reason));
    }
    if let Some(smallest) = &certificate.smallest {
        let _ = writeln!(out, "  {}", clean(&smallest.words()));
    }
    for divergence in &certificate.divergences {
        let _ = write!(out, "\n{}", first_difference(divergence));
    }
    let _ = write!(out, "\n{}", levels(certificate));
    let _ = write!(out, "\n{}", arms(certificate));
    let _ = write!(out, "\n{}", findings(certificate));
    for beside in &certificate.beside {
        let _ = writeln!(out, "beside the verdict: {}", clean(beside));
    }
    let controls = &certificate.controls;
    let _ = writeln!(out, "positive control: {}", control(&controls.positive));
    let _ = writeln!(out, "negative control: {}", control(&controls.negative));
    let witness = &certificate.witness;
    let _ = write!(
        out,
        "in flight: up to {}, by {}; {} crowds met, {} did not",
        witness.max_in_flight, witness.by, witness.witnessed, witness.unwitnessed
    );
    match witness.contradicted {
        0 => out.push('\n'),
        n => {
            let _ =
                writeln!(out, "; in {n} the gauge and the times of tokens contradict each other");
        }
    }
    let _ = writeln!(out, "resolution: {}", resolution(certificate));
    for line in certificate.samples.lines() {
        let _ = writeln!(out, "{line}");
    }
    let _ = write!(out, "scope: {}", clean(&certificate.scope));
    out
}

/// One line that can be pasted: what is claimed, and how finely it was looked at.
pub fn summary(certificate: &Certificate) -> String {
    let (word, claim) = match certificate.verdict {
        Verdict::Held => ("held", held(certificate)),
        Verdict::Broken => ("BROKEN", broken(certificate)),
        Verdict::Undecided => {
            let why = certificate.reasons.first().map_or("nothing was compared", String::as_str);
            ("could not decide", shortened(why, 160))
        }
    };
    format!(
        "{word}: {} at {}: {}; {}, {} requests, {:.1} s",
        clean(&certificate.server.model),
        clean(&certificate.server.url),
        clean(&claim),
        decimals(certificate),
        certificate.requests,
        certificate.seconds
    )
}

/// What held is said of: the levels that are claimed, and what they would have shown.
fn held(certificate: &Certificate) -> String {
    let claimed: Vec<_> =
        certificate.levels.iter().filter(|level| level.verdict == Verdict::Held).collect();
    let answers: u64 = claimed.iter().map(|level| level.answers).sum();
    if claimed.is_empty() {
        return "no answer differs, one at a time: crowds were not asked for".into();
    }
    let sizes: Vec<String> = claimed.iter().map(|level| level.sent.to_string()).collect();
    let in_flight = claimed.iter().map(|level| level.in_flight).max().unwrap_or(0);
    let lengths = lengths(certificate);
    format!(
        "0 of {answers} answers in crowds of {} differ, up to {in_flight} in flight{lengths}",
        sizes.join(", ")
    )
}

fn lengths(certificate: &Certificate) -> String {
    let claimed = certificate.answers.iter().filter(|answer| answer.repeatable);
    let counted = claimed.filter_map(|answer| answer.prompt_tokens);
    match (counted.clone().min(), counted.max()) {
        (Some(least), Some(most)) => format!(", prompts of {least} to {most} tokens"),
        _ => String::new(),
    }
}

/// The arms in which answers differ, each with its own count.
fn broken(certificate: &Certificate) -> String {
    let broken = certificate.arms.iter().filter(|arm| arm.verdict == Verdict::Broken);
    let counts: Vec<String> =
        broken.map(|arm| format!("{} {} of {}", arm.arm, arm.differing, arm.of)).collect();
    format!("answers differ: {}", counts.join(", "))
}

/// The resolution, as short as it can be said.
fn decimals(certificate: &Certificate) -> String {
    match certificate.server.resolution {
        Some(seen) if seen.digits > 0 => {
            format!("at a resolution of {} decimals", seen.decimals)
        }
        _ => "by tokens or text alone".into(),
    }
}

/// So many characters, with a mark where some are left out.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if text.chars().count() > most {
        short.push('…');
    }
    short
}

fn levels(certificate: &Certificate) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:>10} {:>9} {:<10} {:>9} {:>6} {:>18}  rates that would have been seen",
        "at once", "in flight", "verdict", "differing", "of", "95 % interval"
    );
    for level in &certificate.levels {
        let [low, high] = level.interval;
        let seen = match level.rate_seen_at_95 {
            Some(rate) => format!("above {}, with probability 0.95", percent(rate)),
            None => "none".into(),
        };
        let _ = writeln!(
            out,
            "{:>10} {:>9} {:<10} {:>9} {:>6} {:>18}  {seen}",
            level.sent,
            level.in_flight,
            level.verdict.name(),
            level.differing,
            level.answers,
            format!("[{low:.4}, {high:.4}]")
        );
        if let Some(why) = &level.why {
            let _ = writeln!(out, "{:>10}   {}", "", clean(why));
        }
    }
    out
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
    let [low, high] = divergence.interval;
    let _ = writeln!(
        out,
        "{}: prompt {}, {place}: {} differs, {} in flight of {} sent, {n} of {m} answers [{low:.4}, {high:.4}]",
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
    if let Some(shrunk) = &divergence.shrunk {
        let _ = writeln!(out, "  shrunk to {}", clean(&shrunk.words()));
    }
    if let Some(why) = &divergence.not_shrunk {
        let _ = writeln!(out, "  not shrunk: {}", clean(why));
    }
    out
}

/// A token, or what stands in its place.
pub(crate) fn seen(seen: &Seen) -> String {
    let id = seen.id.map_or(String::new(), |id| format!("token {id} "));
    let value = seen.logprob.as_ref().map_or(String::new(), |value| format!(" at {value}"));
    let text = shortened(&clean(&seen.text), 60);
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
        (record.voided, "answers voided"),
        (record.unwitnessed, "crowds not seen to meet"),
    ] {
        if count > 0 {
            let _ = write!(compared, ", {count} {what}");
        }
    }
    if record.arm.needs_company() && record.met < record.of {
        let _ = write!(compared, ", {} of {} answers met others", record.met, record.of);
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
        "{passed}: {}, {} of {} answers differ{}{note}",
        control.what,
        control.differing,
        control.of,
        control_levels(control)
    )
}

fn control_levels(control: &Control) -> String {
    let levels = control.levels.iter();
    let counts: Vec<String> = levels
        .map(|level| format!("{} of {} at {}", level.differing, level.of, level.sent))
        .collect();
    if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) }
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
pub(crate) fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}
