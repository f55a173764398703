//! Campaigns and failures as text for people.

use std::fmt::Write as _;
use std::path::Path;

use crate::case::Case;
use crate::contract::Mode;
use crate::record::SENTINELS;
use crate::relation::{Compared, CountedInF64, SPREAD_CASES_MIN};
use crate::schedule::{Act, ActKind, Intent, Mark, PreemptKind};
use crate::workload::Prompt;

use super::campaign::{Failure, Report};
use super::localise::Explanation;
use super::tally::RelationTally;

/// The table at the end of a campaign: relations, sentinels, acts.
pub fn table(report: &Report) -> String {
    let tally = &report.tally;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<12} {:>6} {:>6} {:>6} {:>12} {:>8}  compared",
        "relation", "cases", "held", "broken", "inapplicable", "vacuous"
    );
    for r in &tally.relations {
        if let Some(why) = r.not_applicable {
            let _ = writeln!(out, "{:<12} not applicable: {why}", r.relation.id);
            continue;
        }
        let _ = writeln!(
            out,
            "{:<12} {:>6} {:>6} {:>6} {:>12} {:>8}  {}",
            r.relation.id,
            r.cases,
            r.held,
            r.broken,
            r.inapplicable,
            r.missed.len(),
            r.compared
        );
    }
    let _ = writeln!(out, "\nsentinels (cases in which each fired)");
    let fired: Vec<String> = SENTINELS
        .iter()
        .map(|(s, name)| format!("{name} {}", tally.coverage.fired_in[*s as usize]))
        .chain(tally.coverage.edges.iter().map(|(e, n)| format!("row_edge_{e} {n}")))
        .chain([format!("fresh_process {}", tally.coverage.fresh_processes)])
        .collect();
    out.push_str(&wrap(&fired, 100));
    let _ = writeln!(out, "\nacts (fired / all)");
    let acts: Vec<String> = ActKind::ALL
        .iter()
        .zip(tally.acts)
        .map(|(kind, (fired, all))| format!("{} {}", kind.name(), share(fired, all)))
        .collect();
    out.push_str(&wrap(&acts, 100));
    let (fired, all) = tally.disruptive();
    let _ = writeln!(out, "  fired share of disruptive acts {}", share(fired, all));
    let (fired, all) = tally.acts.iter().fold((0, 0), |sum, act| (sum.0 + act.0, sum.1 + act.1));
    let _ = writeln!(out, "  fired share of all acts {}", share(fired, all));
    if !tally.inert.is_empty() {
        let inert: Vec<String> = tally.inert.iter().map(|(why, n)| format!("{why} {n}")).collect();
        let _ = writeln!(out, "  inert: {}", inert.join(", "));
    }
    if tally.exercised.is_reported() {
        let _ = write!(out, "\ncoverage (hit / feasible)\n{}", tally.exercised.shares().table());
    }
    if !tally.minima_are_due() {
        let _ = writeln!(
            out,
            "\ncampaign minima are due from {SPREAD_CASES_MIN} cases on; below, only gates are"
        );
    }
    let missed: Vec<String> = tally
        .relations
        .iter()
        .flat_map(|r| r.missed.iter().map(move |m| format!("  {}: {m}", r.relation.id)))
        .collect();
    if !missed.is_empty() {
        let _ = writeln!(out, "\nvacuous: these minima were missed\n{}", missed.join("\n"));
    }
    out
}

/// A relation's campaign in one line: verdicts, positions compared, and in how many of the judged cases its gates and minima
/// fired.
pub fn line(trial: &str, r: &RelationTally) -> String {
    let judged = r.held + r.broken;
    let mut line = format!("{trial}: {} held of {} cases", r.held, r.cases);
    if r.broken > 0 {
        let _ = write!(line, ", {} broken", r.broken);
    }
    let Compared { positions, draws, f64: CountedInF64 { near_ties, other_tokens, .. }, .. } =
        r.compared;
    let counts = [
        (positions, "positions"),
        (draws, "draws"),
        (near_ties, "near ties"),
        (other_tokens, "with another greedy token than in f64"),
    ];
    for (count, what) in counts {
        if count > 0 {
            let _ = write!(line, ", {count} {what}");
        }
    }
    // What is seen always is said in few words. Some minima are not counted in cases, but in draws.
    let (always, some): (Vec<_>, Vec<_>) =
        r.sentinels.iter().partition(|(_, count)| **count == judged && judged > 0);
    let seen = |(name, count): &(&String, &u64)| match **count > judged {
        true => format!("{name} {count}"),
        false => format!("{name} {count}/{judged}"),
    };
    let some: Vec<String> = some.iter().map(seen).collect();
    let always: Vec<&str> = always.iter().map(|(name, _)| name.as_str()).collect();
    if !some.is_empty() {
        let _ = write!(line, "; {}", some.join(", "));
    }
    if !always.is_empty() {
        let _ = write!(line, "; always {}", always.join(", "));
    }
    line
}

fn share(fired: u64, all: u64) -> String {
    match all {
        0 => "0/0".into(),
        _ => format!("{fired}/{all} ({:.2})", fired as f64 / all as f64),
    }
}

/// Items joined by commas, in indented lines of at most `width` columns.
fn wrap(items: &[String], width: usize) -> String {
    let mut out = String::new();
    let mut line = String::new();
    for item in items {
        if !line.is_empty() && line.len() + item.len() + 4 > width {
            let _ = writeln!(out, "  {line},");
            line.clear();
        }
        if !line.is_empty() {
            line.push_str(", ");
        }
        line.push_str(item);
    }
    if !line.is_empty() {
        let _ = writeln!(out, "  {line}");
    }
    out
}

/// A failure: the command that reproduces it first, then the claim, the difference, the minimal case.
pub fn failure(
    failure: &Failure,
    command: &str,
    path: &Path,
    explanation: Option<&Explanation>,
) -> String {
    let mut out = String::new();
    let relation = failure.relation;
    let _ = writeln!(out, "reproduce: {command}");
    let _ = writeln!(out, "relation {}: {}", relation.id, relation.statement);
    let _ = writeln!(out, "broken by case {}: {}", failure.index, failure.reported());
    if let Some(explanation) = explanation {
        let _ = writeln!(out, "{explanation}");
    }
    match &failure.shrunk {
        Some(shrunk) if shrunk.minimal => {
            let _ = writeln!(
                out,
                "1-minimal after {} executions: none of its {} single reductions fails",
                shrunk.executions, shrunk.checks
            );
        }
        Some(shrunk) => {
            let why = shrunk.ended_by.as_deref().unwrap_or("the search ended");
            let _ = writeln!(
                out,
                "not known to be minimal, after {} executions: {why}",
                shrunk.executions
            );
        }
        None => match &failure.interrupted {
            Some(why) => {
                let _ = writeln!(out, "not asked again, and not known to be minimal: {why}");
            }
            None => {
                let again = failure.again.iter().filter(|a| **a).count();
                let _ = writeln!(
                    out,
                    "not repeatable: it failed again in {again} of 3 more executions, so it was not \
                         shrunk; the engine does not repeat itself"
                );
            }
        },
    }
    let _ = writeln!(out, "case file: {}", path.display());
    out.push_str(&describe(failure.case()));
    out
}

/// A case as a table of requests and their deviations.
pub fn describe(case: &Case) -> String {
    let mut out = String::new();
    let w = &case.world;
    let _ = writeln!(
        out,
        "world: {} {}{}, blocks of {}, pool {}{}{}{}{}{}{}",
        w.model,
        w.dtype.name(),
        if w.mode == Mode::Invariant { String::new() } else { format!(", mode {}", w.mode) },
        w.block_size,
        w.pool_blocks,
        w.token_budget.map(|b| format!(", budget {b}")).unwrap_or_default(),
        if w.prefix_cache { "" } else { ", no prefix cache" },
        if w.hash_bits == 64 { String::new() } else { format!(", {} hash bits", w.hash_bits) },
        if w.swap_blocks == 0 { String::new() } else { format!(", swap pool {}", w.swap_blocks) },
        if w.buckets.is_empty() { String::new() } else { format!(", buckets {:?}", w.buckets) },
        if w.poison { ", poison" } else { "" },
    );
    const SHOWN_MAX: usize = 40;
    for r in case.workload.requests.iter().take(SHOWN_MAX) {
        let kind = if r.sampling.is_greedy() { "greedy" } else { "sampled" };
        let _ = writeln!(
            out,
            "  request {}: prompt {}, generates {}, {kind}{}{}",
            r.uid,
            prompt_text(&r.prompt),
            r.max_tokens,
            match (r.first_sample, r.samples) {
                (0, 1) => String::new(),
                (first, 1) => format!(", sample {first}"),
                (first, n) => format!(", samples {first} to {}", first + n - 1),
            },
            if r.namespace == 0 { String::new() } else { format!(", namespace {}", r.namespace) },
        );
        for intent in case.schedule.intents.iter().filter(|i| i.uid == r.uid).take(SHOWN_MAX) {
            let _ = writeln!(out, "    {}", intent_text(intent));
        }
    }
    if case.workload.requests.len() > SHOWN_MAX {
        let _ = writeln!(out, "  and {} more", case.workload.requests.len() - SHOWN_MAX);
    }
    out
}

fn prompt_text(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Tokens(tokens) => short(tokens),
        Prompt::Continue(c) => {
            format!(
                "of request {}, up to {} tokens that it generates, {}",
                c.of,
                c.upto,
                short(&c.then)
            )
        }
    }
}

fn short(tokens: &[u32]) -> String {
    const SHOWN_MAX: usize = 12;
    let shown: Vec<String> = tokens.iter().take(SHOWN_MAX).map(u32::to_string).collect();
    let dots = if tokens.len() > SHOWN_MAX { " .." } else { "" };
    format!("[{}{dots}] ({} tokens)", shown.join(" "), tokens.len())
}

pub(super) fn intent_text(intent: &Intent) -> String {
    let mark = match intent.mark {
        Mark::Start => "at the start".to_owned(),
        Mark::Offer { n } => format!("at offer {n}"),
        Mark::Computed { residency: 1, tokens } => format!("at {tokens} tokens"),
        Mark::Computed { residency, tokens } => {
            format!("at {tokens} tokens of residency {residency}")
        }
    };
    let mark = match intent.sample {
        0 => mark,
        sample => format!("sample {sample} {mark}"),
    };
    let act = match intent.act {
        Act::Arrive { steps } => format!("arrive {steps} boundaries later"),
        Act::Hold { steps } => format!("refuse admission for {steps} boundaries"),
        Act::Hit { at_most: 0 } => "refuse the prefix hit".into(),
        Act::Hit { at_most } => format!("trim the prefix hit to {at_most} blocks"),
        Act::Stall { steps } => format!("leave out of {steps} steps"),
        Act::Rank { to } => format!("move to place {to} of the step"),
        Act::Cut { tokens } => format!("cut the chunk to {tokens} tokens"),
        Act::Preempt { kind: PreemptKind::Recompute, away } => {
            format!("preempt and recompute, away for {away} boundaries")
        }
        Act::Preempt { kind: PreemptKind::Swap, away } => {
            format!("preempt and swap, away for {away} boundaries")
        }
        Act::Fork => "attach the blocks of another sample".into(),
        Act::Abort => "abort".into(),
        Act::Victim => "be the next victim".into(),
        Act::Place { nth } => format!("take free block {nth} next"),
        Act::Evict { block } => format!("evict its own block {block} from the cache"),
        Act::Bucket { extra } => format!("pad the step to {extra} buckets above its own"),
        Act::Land { late } => format!("let what it launches land {late} boundaries later"),
    };
    format!("{mark}: {act}")
}
