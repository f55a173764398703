//! Coverage: what the runs of a campaign exercised, against denominators that are derived, not chosen.
//!
//! Transitions and runs of two and three events come from the one [lifecycle table](crate::lifecycle), of which a subject
//! is owed the part that its capabilities reach. Boundary predicates come from [`record::boundary`](crate::record::boundary),
//! triples from the features of generation. Two rules keep the figures from flattering: a feature counts only where the run
//! shows that it did something, and a case that is *about* a subsystem (a focused campaign, a directed case) counts for
//! nothing that consists of that subsystem's events alone.

mod bits;
mod case;
mod features;

use std::fmt::Write as _;

use serde::Serialize;

use crate::lifecycle::{EVENTS, Event, grams, reachable};
use crate::record::{BOUNDARIES, Run, boundary::OFFSETS};
use crate::strategy::{FEATURES, Features};
use crate::subject::Capabilities;

use bits::Bits;
use case::{Covered, Table, bigram, trigram, triple};
use features::{Evidence, evidence};

/// Folds runs into what they covered.
#[derive(Clone, Debug)]
pub struct Folder {
    table: Table,
}

/// What one run covered.
#[derive(Clone, Debug)]
pub struct RunCoverage(Covered);

impl Folder {
    /// A folder. It holds no counts and can be shared.
    pub fn new() -> Folder {
        Folder { table: Table::new() }
    }

    /// What `run` covered, of a case drawn with the features `drawn` and about the features `targets`.
    pub fn fold(&self, run: &Run, drawn: Features, targets: Features) -> RunCoverage {
        let mut covered = Covered::new(&self.table);
        covered.add(&self.table, run, drawn, targets);
        RunCoverage(covered)
    }
}

impl Default for Folder {
    fn default() -> Folder {
        Folder::new()
    }
}

/// What a campaign covered, of what its subject can do.
#[derive(Clone, Debug)]
pub struct Coverage {
    table: Table,
    covered: Covered,
    transitions: Vec<usize>,
    bigrams: Vec<[Event; 2]>,
    trigrams: Vec<[Event; 3]>,
    features: Vec<usize>,
    /// Whether the subject reports lifecycle events at all.
    reports: bool,
}

/// Hit and missed of one denominator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// How many were seen.
    pub hit: usize,
    /// How many there are.
    pub feasible: usize,
    /// Those not seen.
    pub missed: Vec<String>,
}

/// All shares, and what should not have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shares {
    /// Transitions of the lifecycle table.
    pub transitions: Share,
    /// Two events of one sequence, one right after the other.
    pub bigrams: Share,
    /// Three events of one sequence, one right after the other.
    pub trigrams: Share,
    /// Boundary predicates at -1, 0 and +1.
    pub boundaries: Share,
    /// Three features in one case.
    pub triples: Share,
    /// What the subject reported and the table does not have.
    pub undeclared: Vec<String>,
}

impl Coverage {
    /// Nothing covered yet, of what a subject with these capabilities can do.
    pub fn new(capabilities: &Capabilities) -> Coverage {
        let table = Table::new();
        let feasible = reachable(|event| capabilities.events.contains(&event));
        let has = |i: &usize| match evidence(FEATURES[*i].0) {
            Evidence::Act(kind) => capabilities.acts.contains(&kind),
            Evidence::Ran(sentinels) => {
                sentinels.iter().any(|s| capabilities.sentinels.contains(s))
            }
            Evidence::Drawn => true,
        };
        Coverage {
            transitions: table.indices(&feasible),
            bigrams: grams(&feasible),
            trigrams: grams(&feasible),
            features: (0..FEATURES.len()).filter(has).collect(),
            reports: !capabilities.events.is_empty(),
            covered: Covered::new(&table),
            table,
        }
    }

    /// Adds what a run covered.
    pub fn add(&mut self, run: &RunCoverage) {
        self.covered.merge(&run.0);
    }

    /// Whether the subject reports lifecycle events; without them there is nothing to show.
    pub fn is_reported(&self) -> bool {
        self.reports
    }

    /// Hit, feasible and missed of each denominator.
    pub fn shares(&self) -> Shares {
        let covered = &self.covered;
        let boundaries = BOUNDARIES.iter().flat_map(|(boundary, name, possible)| {
            let counts = covered.boundaries.get(*boundary);
            (0..3).filter(|i| possible[*i]).map(move |i| {
                let name = || match OFFSETS[i] {
                    0 => (*name).to_owned(),
                    offset => format!("{name}{offset:+}"),
                };
                (counts[i] > 0, name())
            })
        });
        let mut triples = Vec::new();
        for (i, &a) in self.features.iter().enumerate() {
            for (j, &b) in self.features.iter().enumerate().skip(i + 1) {
                for &c in &self.features[j + 1..] {
                    if !features::can_meet(&[a, b, c].map(|f| FEATURES[f].0)) {
                        continue;
                    }
                    let name = [a, b, c].map(|f| FEATURES[f].1).join(" ");
                    triples.push((covered.triples.contains(triple(a, b, c)), name));
                }
            }
        }
        let transition =
            |&i: &usize| (covered.transitions.contains(i), self.table.get(i).to_string());
        Shares {
            transitions: share(self.transitions.iter().map(transition)),
            bigrams: share(
                self.bigrams.iter().map(|g| (covered.bigrams.contains(bigram(*g)), named(g))),
            ),
            trigrams: share(
                self.trigrams.iter().map(|g| (covered.trigrams.contains(trigram(*g)), named(g))),
            ),
            boundaries: share(boundaries),
            triples: share(triples.into_iter()),
            undeclared: self.undeclared(),
        }
    }

    /// Transitions and pairs of events that the subject reported and the table does not have.
    pub fn undeclared(&self) -> Vec<String> {
        let pairs = |seen: &Bits| {
            let declared: Vec<usize> = self.bigrams.iter().map(|g| bigram(*g)).collect();
            let is_new = |n: &usize| declared.binary_search(n).is_err();
            let events =
                |n: usize| named(&[n / EVENTS.len(), n % EVENTS.len()].map(|e| EVENTS[e].0));
            seen.iter().filter(is_new).map(events).collect::<Vec<_>>()
        };
        let transitions = self.covered.undeclared.iter().map(|t| t.to_string());
        transitions.chain(pairs(&self.covered.bigrams)).collect()
    }
}

fn named(events: &[Event]) -> String {
    events.iter().map(|e| e.name()).collect::<Vec<_>>().join(" ")
}

fn share(all: impl Iterator<Item = (bool, String)>) -> Share {
    let mut share = Share { hit: 0, feasible: 0, missed: Vec::new() };
    for (is_hit, name) in all {
        share.feasible += 1;
        if is_hit {
            share.hit += 1;
        } else {
            share.missed.push(name);
        }
    }
    share
}

impl Shares {
    /// The shares with their names, in the order of reports.
    pub fn named(&self) -> [(&'static str, &Share); 5] {
        [
            ("transitions", &self.transitions),
            ("bigrams", &self.bigrams),
            ("trigrams", &self.trigrams),
            ("boundaries", &self.boundaries),
            ("triples", &self.triples),
        ]
    }

    /// A small table: name, hit, feasible, and the first few that were missed.
    pub fn table(&self) -> String {
        const SHOWN_MAX: usize = 4;
        let mut out = String::new();
        for (name, share) in self.named() {
            let _ = write!(out, "  {name:<12} {:>5}/{:<5}", share.hit, share.feasible);
            if !share.missed.is_empty() {
                let shown = &share.missed[..share.missed.len().min(SHOWN_MAX)];
                let _ = write!(out, " missed: {}", shown.join(", "));
                if shown.len() < share.missed.len() {
                    let _ = write!(out, " and {} more", share.missed.len() - shown.len());
                }
            }
            let _ = writeln!(out);
        }
        if !self.undeclared.is_empty() {
            let _ = writeln!(out, "  not in the lifecycle table: {}", self.undeclared.join(", "));
        }
        out
    }
}

#[cfg(test)]
mod tests;
