//! A certificate as text for people: the verdict first, then why, then what was compared and what was not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::certificate::{
    Ability, Arm, ArmRecord, Certificate, Control, Divergence, Smallest, Verdict,
};
use super::nature::Nature;
use super::power::Measured;
use super::words::{
    clean, compared, control_counts, kinds, not_scored, percent, seen, seen_rate, shortened, sides,
};

/// Columns of a report's lines. Tables and words without a space may be wider.
const COLUMNS: usize = 118;
/// Prompts of which samples are shown one by one.
const SAMPLES_MAX: usize = 8;

/// The report of a run.
pub fn report(certificate: &Certificate) -> String {
    let mut out = String::new();
    let line = |out: &mut String, text: &str| {
        let _ = writeln!(out, "{}", wrapped(&clean(text), "", "  "));
    };
    line(&mut out, &summary(certificate));
    let smallest = certificate.smallest.as_ref().map(Smallest::words);
    // What the headline says whole is not said again.
    let headline = claim(certificate);
    let reasons = certificate.reasons.iter().filter(|reason| **reason != headline);
    for reason in reasons.chain(&smallest) {
        let _ = writeln!(out, "{}", wrapped(&clean(reason), "  ", "    "));
    }
    for divergence in &certificate.divergences {
        let _ = write!(out, "\n{}", first_difference(divergence));
    }
    let _ = write!(out, "\n{}", levels(certificate));
    let _ = writeln!(out, "\n{}", arms(certificate));
    for text in findings(certificate) {
        line(&mut out, &text);
    }
    for beside in &certificate.beside {
        line(&mut out, &format!("beside the verdict: {beside}"));
    }
    if let Some(clusters) = &certificate.clusters {
        line(&mut out, &format!("kinds of answers: {}", kinds(clusters)));
    }
    let controls = &certificate.controls;
    line(&mut out, &format!("positive control: {}", control(&controls.positive)));
    line(&mut out, &format!("negative control: {}", control(&controls.negative)));
    line(&mut out, &in_flight(certificate));
    line(&mut out, &format!("resolution: {}", resolution(certificate)));
    for text in samples(certificate) {
        line(&mut out, &text);
    }
    let _ = write!(out, "{}", wrapped(&format!("scope: {}", clean(&certificate.scope)), "", "  "));
    out
}

/// The text in lines of at most [`COLUMNS`], broken at spaces; an interval stays whole.
fn wrapped(text: &str, first: &str, others: &str) -> String {
    let mut out = String::from(first);
    let mut column = first.chars().count();
    let mut is_empty = true;
    let mut words = text.split(' ');
    while let Some(word) = words.next() {
        let is_interval = word.starts_with('[') && word.ends_with(',');
        let end = if is_interval { words.next() } else { None };
        let word = end.map_or(word.to_owned(), |end| format!("{word} {end}"));
        let width = word.chars().count();
        if !is_empty && column + 1 + width > COLUMNS {
            out.push('\n');
            out.push_str(others);
            column = others.chars().count();
        } else if !is_empty {
            out.push(' ');
            column += 1;
        }
        out.push_str(&word);
        column += width;
        is_empty = false;
    }
    out
}

fn in_flight(certificate: &Certificate) -> String {
    let witness = &certificate.witness;
    let mut text = format!(
        "in flight: up to {}, by {}; {} crowds met, {} did not",
        witness.max_in_flight, witness.by, witness.witnessed, witness.unwitnessed
    );
    if witness.contradicted > 0 {
        let n = witness.contradicted;
        let _ = write!(text, "; in {n} the gauge and the times of tokens contradict each other");
    }
    text
}

/// Counts of answers. Of many prompts some are shown.
fn samples(certificate: &Certificate) -> Vec<String> {
    let mut lines = certificate.samples.lines();
    let prompts = certificate.samples.prompts.len();
    if prompts > SAMPLES_MAX && lines.len() > prompts {
        let more = format!("and {} prompts more", prompts - SAMPLES_MAX);
        lines.splice(1 + SAMPLES_MAX..=prompts, [more]);
    }
    lines
}

/// One line that can be pasted: what is claimed, and how finely it was looked at.
pub fn summary(certificate: &Certificate) -> String {
    let word = match certificate.verdict {
        Verdict::Held => "held",
        Verdict::Broken => "BROKEN",
        Verdict::Undecided => "could not decide",
    };
    format!(
        "{word}: {} at {}: {}; {}, {} requests, {:.1} s",
        clean(&certificate.server.model),
        clean(&certificate.server.url),
        clean(&claim(certificate)),
        decimals(certificate),
        certificate.requests,
        certificate.seconds
    )
}

/// What the verdict is, in short.
fn claim(certificate: &Certificate) -> String {
    match certificate.verdict {
        Verdict::Held => held(certificate),
        Verdict::Broken => broken(certificate),
        Verdict::Undecided => {
            let why = certificate.reasons.first().map_or("nothing was compared", String::as_str);
            shortened(why, 160)
        }
    }
}

/// What held is said of: the levels that are claimed, each with its own count.
fn held(certificate: &Certificate) -> String {
    let claimed: Vec<_> =
        certificate.levels.iter().filter(|level| level.verdict == Verdict::Held).collect();
    if claimed.is_empty() {
        let asked = certificate.arms.iter().filter(|record| record.verdict == Verdict::Held);
        let crowds = asked.filter(|record| record.arm.needs_company());
        let names: Vec<&str> = crowds.map(|record| record.arm.name()).collect();
        return match names.as_slice() {
            [] => "no answer differs, one at a time: crowds were not asked for".into(),
            names => format!(
                "no answer differs, one at a time and in {}: crowds at levels were not asked for",
                names.join(", ")
            ),
        };
    }
    let counts: Vec<String> =
        claimed.iter().map(|level| format!("0 of {} at {}", level.answers, level.sent)).collect();
    let in_flight = claimed.iter().map(|level| level.in_flight).max().unwrap_or(0);
    let lengths = lengths(certificate);
    format!(
        "no answer differs in crowds, {}, up to {in_flight} in flight{lengths}",
        counts.join(", ")
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

fn levels(certificate: &Certificate) -> String {
    let mut out = String::new();
    if certificate.levels.is_empty() {
        return out;
    }
    let _ = writeln!(
        out,
        "{:>8} {:>9}  {:<10} {:>9} {:>6} {:>18}  would have been seen, with probability 0.95",
        "at once", "in flight", "verdict", "differing", "of", "95 % interval"
    );
    for level in &certificate.levels {
        let _ = writeln!(
            out,
            "{:>8} {:>9}  {:<10} {:>9} {:>6} {:>18}  {}",
            level.sent,
            level.in_flight,
            level.verdict.name(),
            level.differing,
            level.answers,
            interval(level.interval, level.answers),
            seen_rate(level).unwrap_or_else(|| "-".into())
        );
        if let Some(why) = &level.why {
            let indent = " ".repeat(20);
            let _ = writeln!(out, "{}", wrapped(&clean(why), &indent, &indent));
        }
    }
    out
}

/// An interval, where there is anything to have one of.
fn interval([low, high]: [f64; 2], of: u64) -> String {
    match of {
        0 => "-".into(),
        _ => format!("[{low:.4}, {high:.4}]"),
    }
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
    let load = match divergence.sent {
        0 | 1 => "alone".into(),
        sent => format!("{} in flight of {sent} sent", divergence.in_flight),
    };
    let head = format!(
        "{}: prompt {}, {place}: {} differs, {load}, {n} of {m} answers {}",
        divergence.arm,
        divergence.prompt,
        difference.observable.words(),
        interval(divergence.interval, m)
    );
    let _ = writeln!(out, "{}", wrapped(&head, "", "  "));
    let (ours, theirs) = sides(divergence.arm);
    let width = ours.len().max(theirs.len());
    let _ = writeln!(out, "  {ours:<width$}  {}", seen(&difference.expected));
    let _ = writeln!(out, "  {theirs:<width$}  {}", seen(&difference.got));
    if let Some(position) = difference.token_position {
        let _ = writeln!(out, "  first other token at position {position}");
    }
    if let Some(margin) = difference.margin {
        let _ = writeln!(out, "  gap between best and second {margin:.6}");
    }
    let nature = format!("{}: {}", divergence.nature.words(), divergence.explanation);
    let shrunk = divergence.shrunk.as_ref().map(|shrunk| format!("shrunk to {}", shrunk.words()));
    let not_shrunk = divergence.not_shrunk.as_ref().map(|why| format!("not shrunk: {why}"));
    for text in [Some(nature), shrunk, not_shrunk].into_iter().flatten() {
        let _ = writeln!(out, "{}", wrapped(&clean(&text), "  ", "    "));
    }
    out
}

fn arms(certificate: &Certificate) -> String {
    let head = format!(
        "{:<16} {:<10} {:>9} {:>6} {:>18} {:>9}  compared",
        "arm", "verdict", "differing", "of", "95 % interval", "in flight"
    );
    let mut lines = vec![head];
    let indent = " ".repeat(18);
    let is_empty = |record: &&ArmRecord| {
        record.of == 0 && record.notes.is_empty() && compared(record).is_none()
    };
    for record in certificate.arms.iter().filter(|record| !is_empty(record)) {
        lines.push(arm(record));
        let compared = compared(record);
        let notes = compared.iter().chain(&record.reason).chain(&record.notes);
        lines.extend(notes.map(|note| wrapped(&clean(note), &indent, &(indent.clone() + "  "))));
    }
    let rest = not_scored(certificate.arms.iter().filter(is_empty));
    lines.extend(rest.iter().map(|text| wrapped(&clean(text), "", "  ")));
    lines.join("\n")
}

fn arm(record: &ArmRecord) -> String {
    let verdict = match record.verdict {
        Verdict::Undecided if record.of == 0 => "not scored",
        verdict => verdict.name(),
    };
    let compared = match record.of {
        0 => String::new(),
        _ => format!(
            "{} prompts, {} positions, {} values",
            record.prompts, record.positions, record.values
        ),
    };
    let row = format!(
        "{:<16} {verdict:<10} {:>9} {:>6} {:>18} {:>9}  {compared}",
        record.arm.name(),
        record.differing,
        record.of,
        interval(record.interval, record.of),
        record.in_flight
    );
    row.trim_end().to_owned()
}

/// Differences by arm: many at one place of one prompt are one, and each arm has a count of its own.
fn findings(certificate: &Certificate) -> Vec<String> {
    let mut lines = Vec::new();
    for arm in Arm::ALL {
        let of = || certificate.findings.iter().filter(move |finding| finding.arm == arm);
        let prompts: BTreeSet<u32> = of().map(|finding| finding.prompt).collect();
        if prompts.is_empty() {
            continue;
        }
        let mut natures: BTreeMap<Nature, u64> = BTreeMap::new();
        of().for_each(|finding| *natures.entry(finding.nature).or_default() += 1);
        let natures: Vec<String> =
            natures.iter().map(|(nature, n)| format!("{n} {}", nature.words())).collect();
        let (places, prompts) = (of().count(), prompts.len());
        let natures = natures.join(", ");
        lines.push(format!("findings in {arm}, {places} places in {prompts} prompts: {natures}"));
    }
    lines
}

fn control(control: &Control) -> String {
    let passed = match control.passed {
        Some(true) => "as it must be",
        Some(false) => "FAILED",
        None => "not known",
    };
    let note = control.note.as_ref().map_or(String::new(), |note| format!("; {}", clean(note)));
    format!("{passed}: {}, {}{note}", control.what, control_counts(control))
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
    let mut out = format!(
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
    );
    for (why, runs) in &m.undecided_because {
        let _ = write!(out, "\nundecided, {runs} of them: {}", clean(why));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces_and_never_within_an_interval() {
        let words = "word ".repeat(40);
        let lines = wrapped(words.trim_end(), "- ", "  ");
        assert!(lines.lines().all(|line| line.len() <= COLUMNS));
        assert_eq!(lines.lines().count(), 2);
        assert!(lines.lines().nth(1).is_some_and(|line| line.starts_with("  word")));
        let text = format!("{} [0.1, 0.2] end", "x".repeat(COLUMNS - 6));
        assert_eq!(wrapped(&text, "", "").lines().nth(1), Some("[0.1, 0.2] end"));
        assert_eq!(wrapped("", "  ", ""), "  ");
    }
}
