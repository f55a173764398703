//! The campaign as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::verdict::{Row, Scores, Verdict, scores};

/// One line when a mutant is done.
pub(super) fn line(row: &Row) -> String {
    let by: Vec<&str> = row.by.iter().map(String::as_str).collect();
    let mut line = format!(
        "{:<13} {:<40} {:>7.2} s, {:>4} cases, ran in {}, changed {}",
        row.verdict.name(),
        row.id,
        row.seconds,
        row.cases,
        row.executed,
        row.differed
    );
    if !by.is_empty() {
        const SHOWN_MAX: usize = 6;
        let more = by.len().saturating_sub(SHOWN_MAX);
        line += &format!("; {}", by[..by.len().min(SHOWN_MAX)].join(" "));
        if more > 0 {
            line += &format!(" and {more} more");
        }
    }
    line
}

/// The end of a campaign: what is not killed, with the reason; the scores; times.
pub(super) fn summary(device: &str, rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows.iter().filter(|row| row.verdict != Verdict::Killed) {
        let detail: String = row.detail.chars().take(600).collect();
        let _ = writeln!(out, "{}: {}\n    {}", row.verdict.name(), row.id, detail.trim());
    }
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.verdict).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(v, n)| format!("{n} {}", v.name())).collect();
    let kinds: std::collections::BTreeSet<&str> = rows.iter().map(|r| r.kind.as_str()).collect();
    let _ = writeln!(
        out,
        "\n{device}: {} mutants of {} kinds: {}",
        rows.len(),
        kinds.len(),
        counts.join(", ")
    );
    let killed: Vec<&Row> = rows.iter().filter(|r| r.verdict == Verdict::Killed).collect();
    let mut seconds: Vec<f64> = killed.iter().map(|r| r.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    if let Some(last) = seconds.last() {
        let at = |percent: usize| seconds[(seconds.len() * percent / 100).min(seconds.len() - 1)];
        let _ = writeln!(
            out,
            "time to kill: median {:.2} s, p95 {:.2} s, longest {last:.2} s",
            at(50),
            at(95)
        );
        let own: Vec<&str> =
            killed.iter().filter(|r| r.died_only_by_itself()).map(|r| r.id.as_str()).collect();
        let _ = writeln!(
            out,
            "seen only by an audit, a panic, the ledger or the liveness bound: {} of {}: {}",
            own.len(),
            killed.len(),
            own.join(" ")
        );
    }
    let Scores { lockstep, bs1_vs_bsn, unique_texts } = scores(rows);
    let _ = writeln!(
        out,
        "scores over {}: lockstep {lockstep:.3}, batch 1 against batch N {bs1_vs_bsn:.3}, unique texts {unique_texts:.3}",
        rows.len()
    );
    out
}
