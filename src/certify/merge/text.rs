//! Several certificates as text for people: the verdict first, then a line a certificate, then what was compared between them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::super::certificate::Verdict;
use super::super::words::{clean, shortened};
use super::{Between, Counts, Member, Merged};

/// Longest part of the first line that says why.
const WHY_CHARACTERS_MAX: usize = 240;

/// One line that can be pasted.
pub fn summary(merged: &Merged) -> String {
    let word = match merged.verdict {
        Verdict::Held => "held",
        Verdict::Broken => "BROKEN",
        Verdict::Undecided => "could not decide",
    };
    let counts = counts(merged);
    let why = merged.reasons.iter().find(|reason| says_more(merged, reason));
    let why = why.map_or(String::new(), |why| format!("; {}", shortened(why, WHY_CHARACTERS_MAX)));
    clean(&format!("{word}: {}: {counts}{why}", subject(merged)))
}

/// What is said beyond the counts: of a broken whole how answers differ between members, else the first reason.
fn says_more(merged: &Merged, reason: &str) -> bool {
    match merged.verdict {
        Verdict::Broken => reason.starts_with("answers alone"),
        _ => true,
    }
}

/// What all of it is about.
fn subject(merged: &Merged) -> String {
    let of = |field: fn(&Member) -> &str| {
        let all: BTreeSet<&str> = merged.members.iter().map(field).collect();
        all.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>()
    };
    let (models, urls) = (of(|member| &member.model), of(|member| &member.url));
    let urls = match urls.as_slice() {
        [url] => (*url).to_owned(),
        urls => format!("{} addresses", urls.len()),
    };
    match models.as_slice() {
        [] => urls,
        models => format!("{} at {urls}", models.join(", ")),
    }
}

fn counts(merged: &Merged) -> String {
    let Counts { of, broken, held, undecided, interval: [low, high] } = merged.counts;
    let (_, many) = merged.between.words();
    let share = match merged.between {
        Between::Lives if broken + held > 0 => {
            format!(", share of broken lives [{low:.4}, {high:.4}]")
        }
        _ => String::new(),
    };
    format!("{broken} of {of} {many} broken, {held} held, {undecided} undecided{share}")
}

/// The report.
pub fn report(merged: &Merged) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", summary(merged));
    for reason in &merged.reasons {
        let _ = writeln!(out, "  {}", clean(reason));
    }
    out.push('\n');
    for (at, member) in merged.members.iter().enumerate() {
        let _ = writeln!(out, "{}", line(merged, at, member));
    }
    let compared = &merged.compared;
    let _ = write!(
        out,
        "\nanswers alone: {} prompts compared in {} of {} pairs, {} of {} comparisons differ",
        compared.prompts,
        compared.pairs_compared,
        compared.pairs,
        compared.differing,
        compared.answers
    );
    if compared.by_text > 0 {
        let _ = write!(out, ", {} by text alone", compared.by_text);
    }
    for group in merged.groups.iter().filter(|_| merged.groups.len() > 1) {
        let _ = write!(out, "\nkind {}: {}", group.name, merged.between.listed(&group.members));
        if let Some(otherwise) = &group.otherwise {
            let (n, of, than) = (otherwise.differing, otherwise.of, &otherwise.than);
            let _ = write!(out, ", {n} of {of} prompts otherwise than kind {than}");
        }
    }
    out
}

/// A line a certificate. Its claim names verdict, model and address.
fn line(merged: &Merged, at: usize, member: &Member) -> String {
    let (one, _) = merged.between.words();
    let mut parts = vec![format!("{one} {}", at + 1)];
    parts.extend(member.kind.as_ref().map(|kind| format!("kind {kind}")));
    parts.extend(member.file.clone());
    clean(&format!("{}: {}", parts.join(", "), member.claim))
}
