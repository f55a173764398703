//! The result of a campaign as JSON, schema `lockstep.fuzz/1.2`.

use std::collections::BTreeMap;
use std::path::Path;

use lockstep::case::CaseFile;
use lockstep::coverage::Shares;
use lockstep::env::{Environment, Tool};
use lockstep::harness::localise::{Explanation, Needs};
use lockstep::harness::{Failure, Report, Verdict};
use lockstep::relation::{Divergence, Localisation, Relation};
use lockstep::schedule::ActKind;
use lockstep::schema::Schema;
use lockstep::subject::Subject;
use serde::Serialize;

/// Schema of the document.
const FUZZ_SCHEMA: Schema = Schema { name: "lockstep.fuzz", major: 1, minor: 2 };

/// A finished campaign.
#[derive(Serialize)]
pub(super) struct FuzzJson {
    schema: String,
    verdict: &'static str,
    device: String,
    model: String,
    seed: u64,
    cases: u64,
    seconds: f64,
    cases_per_second: f64,
    requests_mean: f64,
    tokens_mean: f64,
    forwards: u64,
    positions_compared: u64,
    /// Share of cases with a row whose attention folded two or more splits.
    multi_split_share: f64,
    fired_share: Option<f64>,
    /// Whether there were enough cases for the campaign minima to be due.
    minima_due: bool,
    fired: BTreeMap<&'static str, FiredJson>,
    inert: BTreeMap<&'static str, u64>,
    relations: BTreeMap<&'static str, RelationJson>,
    failures: Vec<FailureJson>,
    /// Absent for a subject that reports no lifecycle events.
    coverage: Option<Shares>,
    sentinels: BTreeMap<String, u64>,
    tool: Tool,
    env: Environment,
    command: String,
}

#[derive(Serialize)]
struct FiredJson {
    fired: u64,
    all: u64,
    share: f64,
}

#[derive(Serialize)]
struct RelationJson {
    cases: u64,
    held: u64,
    broken: u64,
    inapplicable: u64,
    vacuous: usize,
    missed: Vec<String>,
    not_applicable: Option<&'static str>,
    sentinels: BTreeMap<String, u64>,
}

/// A failure and where its case is stored.
#[derive(Serialize)]
pub(super) struct FailureJson {
    relation: &'static str,
    observable: &'static str,
    summary: String,
    /// Where it comes from; null if that can't be told.
    localisation: Option<Localisation>,
    /// Who and what it takes, as the case says.
    needs: Needs,
    /// Number of the case in the campaign; absent for a stored case.
    index: Option<u64>,
    repeatable: bool,
    minimal: bool,
    requests: usize,
    case: String,
    command: String,
}

impl FailureJson {
    pub(super) fn new(
        failure: &Failure,
        explanation: Explanation,
        path: &Path,
        command: String,
    ) -> FailureJson {
        FailureJson {
            relation: failure.relation.id,
            observable: failure.reported().observable.name(),
            summary: failure.reported().to_string(),
            localisation: explanation.localisation,
            needs: explanation.needs,
            index: Some(failure.index),
            repeatable: failure.is_repeatable(),
            minimal: failure.shrunk.as_ref().is_some_and(|s| s.minimal),
            requests: failure.case().workload.requests.len(),
            case: path.display().to_string(),
            command,
        }
    }

    /// A stored case that still fails.
    pub(super) fn stored(
        relation: &'static Relation,
        divergence: &Divergence,
        explanation: Explanation,
        file: &CaseFile,
        path: &Path,
        command: String,
    ) -> FailureJson {
        FailureJson {
            relation: relation.id,
            observable: divergence.observable.name(),
            summary: divergence.to_string(),
            localisation: explanation.localisation,
            needs: explanation.needs,
            index: None,
            repeatable: true,
            minimal: file.minimal,
            requests: file.workload.requests.len(),
            case: path.display().to_string(),
            command,
        }
    }

    /// Path of the case file.
    pub(super) fn case(&self) -> &str {
        &self.case
    }
}

/// The document of a report.
pub(super) fn document(
    report: &Report,
    verdict: Verdict,
    fixture: &dyn Subject,
    seed: u64,
    failures: &[FailureJson],
) -> serde_json::Value {
    let tally = &report.tally;
    let cases = tally.cases.max(1) as f64;
    let seconds = report.elapsed.as_secs_f64();
    let share = |fired: u64, all: u64| (all > 0).then(|| fired as f64 / all as f64);
    let acts = ActKind::ALL.iter().zip(tally.acts).filter(|(_, (_, all))| *all > 0);
    let (fired, all) = tally.disruptive();
    let multi_split = tally.coverage.fired_in[lockstep::record::Sentinel::MultiSplitRow as usize];
    let json = FuzzJson {
        schema: FUZZ_SCHEMA.to_string(),
        verdict: verdict.name(),
        device: fixture.device().into(),
        model: fixture.name().into(),
        seed,
        cases: tally.cases,
        seconds,
        cases_per_second: tally.cases as f64 / seconds,
        requests_mean: tally.requests as f64 / cases,
        tokens_mean: tally.tokens as f64 / cases,
        forwards: tally.forwards,
        positions_compared: tally.positions_compared(),
        multi_split_share: multi_split as f64 / cases,
        fired_share: share(fired, all),
        minima_due: tally.minima_are_due(),
        fired: acts
            .map(|(kind, (fired, all))| {
                (kind.name(), FiredJson { fired, all, share: fired as f64 / all as f64 })
            })
            .collect(),
        inert: tally.inert.clone(),
        relations: tally
            .relations
            .iter()
            .map(|r| {
                let json = RelationJson {
                    cases: r.cases,
                    held: r.held,
                    broken: r.broken,
                    inapplicable: r.inapplicable,
                    vacuous: r.missed.len(),
                    missed: r.missed.clone(),
                    not_applicable: r.not_applicable,
                    sentinels: r.sentinels.clone(),
                };
                (r.relation.id, json)
            })
            .collect(),
        failures: Vec::new(),
        coverage: tally.exercised.is_reported().then(|| tally.exercised.shares()),
        sentinels: tally.sentinels.by_name(),
        tool: Tool::current(),
        env: fixture.environment(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
    };
    let mut value = serde_json::to_value(json).expect("a report serialises");
    value["failures"] = serde_json::to_value(failures).expect("failures serialise");
    value
}

#[cfg(test)]
mod tests {
    use lockstep::case::Case;
    use lockstep::contract::Mode;
    use lockstep::fixture::Fixture;
    use lockstep::relation::{compare, named};
    use lockstep::schedule::Schedule;
    use lockstep::weights;
    use lockstep::workload::Workload;

    use super::*;

    /// A failure that did not repeat each time says so, to programs and to people, and is not called minimal.
    #[test]
    fn what_does_not_repeat_is_told_apart() {
        let source = weights::source("tiny", None).unwrap();
        let world = Fixture::hash("tiny", source, Mode::Invariant).unwrap().default_world();
        for (again, repeatable) in [([true, false, true], false), ([true; 3], true)] {
            let failure = Failure {
                relation: named("I1")[0],
                index: 3,
                original: Case {
                    world: world.clone(),
                    workload: Workload::default(),
                    schedule: Schedule::default(),
                    seed: 0,
                },
                shrunk: None,
                divergence: compare::crash("once".into()),
                again,
                interrupted: None,
            };
            let path = Path::new("case.json");
            let explanation = Explanation::default();
            let json = FailureJson::new(&failure, explanation, path, "replay".into());
            let json = serde_json::to_value(json).unwrap();
            assert_eq!(
                (&json["repeatable"], &json["minimal"]),
                (&repeatable.into(), &false.into())
            );
            let text = lockstep::harness::ledger::failure(&failure, "replay", path, None);
            assert_eq!(text.contains("not repeatable: it failed again in 2 of 3"), !repeatable);
        }
    }
}
