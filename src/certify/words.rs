//! Phrases that report, page and reproducers share: what was counted, in words.

use super::certificate::{Arm, ArmRecord, Clusters, Control, LevelClaim};
use super::compare::Seen;

/// What the two sides of a difference are called, the reference first.
pub(crate) fn sides(arm: Arm) -> (&'static str, &'static str) {
    match arm {
        Arm::First => ("first", "later"),
        Arm::Repeat => ("earlier", "again"),
        Arm::Prefix => ("not cached", "cached"),
        Arm::Stream => ("plain", "streamed"),
        Arm::Score => ("generated", "scored"),
        Arm::ConcurrentCold | Arm::ConcurrentWarm | Arm::ConcurrentMixed | Arm::Seed => {
            ("alone", "in a crowd")
        }
        Arm::Order => ("in one order", "in the reverse"),
        Arm::ManyPrompts => ("alone", "one of many"),
        Arm::After => ("before crowds", "after them"),
        Arm::Time => ("earlier", "later"),
    }
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

/// How answers fall into kinds that do not follow load.
pub(crate) fn kinds(clusters: &Clusters) -> String {
    let counts: Vec<String> = clusters.answers.iter().map(u64::to_string).collect();
    let of = format!(
        "up to {} to a prompt, of {} prompts more than one; {} answers of each, the most frequent first",
        clusters.kinds,
        clusters.prompts,
        counts.join(", ")
    );
    let again = match clusters.stable {
        true => "each comes again the same to the last digit",
        false => "not each came again",
    };
    let alone = if clusters.alone { "one at a time too" } else { "in crowds alone" };
    match &clusters.told_apart_by {
        Some(mark) => format!("{of}; {again}; {alone}; told apart by {mark}"),
        None => format!("{of}; {again}; {alone}; told apart by nothing that was received"),
    }
}

/// The smallest rate of differing answers that a level would have shown. Where some differ, that is not the question.
pub(crate) fn seen_rate(level: &LevelClaim) -> Option<String> {
    let rate = level.rate_seen_at_95.filter(|_| level.differing == 0)?;
    Some(format!("{} of answers, or more", percent(rate)))
}

/// What of an arm was not compared, if anything. Why answers were voided is in its notes.
pub(crate) fn compared(record: &ArmRecord) -> Option<String> {
    let counts = [
        (record.incomparable, "values not comparable"),
        (record.unwitnessed, "crowds not seen to meet"),
    ];
    let some = counts.into_iter().filter(|(count, _)| *count > 0);
    let mut parts: Vec<String> = some.map(|(count, what)| format!("{count} {what}")).collect();
    if record.arm.needs_company() && record.met < record.of {
        parts.push(format!("{} of {} answers met others", record.met, record.of));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Arms that were not scored, those with one reason together.
pub(crate) fn not_scored<'r>(records: impl Iterator<Item = &'r ArmRecord>) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for record in records.filter(|record| record.of == 0) {
        let why = record.reason.as_deref().unwrap_or("nothing was compared");
        match by_reason.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, arms)) => arms.push(record.arm.name()),
            None => by_reason.push((why, vec![record.arm.name()])),
        }
    }
    let words = |(why, arms): (&str, Vec<&str>)| format!("{} not scored: {why}", arms.join(", "));
    by_reason.into_iter().map(words).collect()
}

/// Answers that differ, level by level where there are levels.
pub(crate) fn control_counts(control: &Control) -> String {
    let levels = control.levels.iter();
    let counts: Vec<String> = levels
        .map(|level| format!("{} of {} at {}", level.differing, level.of, level.sent))
        .collect();
    match counts.is_empty() {
        true => format!("{} of {} answers differ", control.differing, control.of),
        false => format!("answers that differ: {}", counts.join(", ")),
    }
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// So many characters, with a mark where some are left out.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if text.chars().count() > most {
        short.push('…');
    }
    short
}

/// A server's text without control characters: a terminal obeys some of them.
pub(crate) fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}
