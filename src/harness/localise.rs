//! What a failure comes from: the operator and the values, and who and what it takes.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::case::Case;
use crate::record::{Draw, Run};
use crate::relation::localise::{Execution, Side, between};
use crate::relation::{Divergence, Localisation, Observable, Standard, executions, resolve};
use crate::schedule::{Intent, Schedule};
use crate::subject::{Subject, guard};
use crate::workload::{Prompt, Request, SampleId};

use super::campaign::Failure;
use super::ledger::intent_text;

/// An explanation of a failure. Both parts are read off executions; neither changes the verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// Where the run parts from what the relation compares it with.
    pub localisation: Option<Localisation>,
    /// What can be said where there is none.
    pub note: Option<String>,
    /// Who and what it takes.
    pub needs: Needs,
}

/// Who and what is in the case besides the request that fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Needs {
    /// Whether the failure goes away with each of them.
    pub minimal: bool,
    /// Other samples, of other requests or of its own.
    pub neighbours: Vec<Neighbour>,
    /// Deviations of the schedule.
    pub events: Vec<NeededEvent>,
}

/// Another sample of the case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbour {
    /// uid of its request.
    pub request: u64,
    /// Sample of the request.
    pub sample: u32,
    /// What it has to do with the one that fails; empty if all they share is the pool.
    pub roles: Vec<&'static str>,
}

/// A deviation of the case's schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeededEvent {
    /// uid of its request.
    pub request: u64,
    /// Mark and act in words.
    pub event: String,
}

/// Explains the failure that a campaign reports.
pub fn of_failure(subject: &dyn Subject, failure: &Failure) -> Explanation {
    let minimal = failure.shrunk.as_ref().is_some_and(|s| s.minimal);
    explain(subject, failure.case(), failure.reported(), minimal)
}

/// Explains how `case` breaks a relation, by carrying out the case and what it is compared with again. `minimal`: whether the
/// case is known to be.
pub fn explain(
    subject: &dyn Subject,
    case: &Case,
    divergence: &Divergence,
    minimal: bool,
) -> Explanation {
    let Ok(resolved) = resolve(subject, case) else { return Explanation::default() };
    let Case { world, workload, schedule, seed } = &resolved;
    let run = guard::execute(subject, world, workload, schedule, *seed, None).ok();
    let needs = needs(case, divergence.place.id, run.as_ref(), minimal);
    let drawn = match (divergence.observable, divergence.place.id) {
        // What was computed from another token is a consequence.
        (Observable::Draws | Observable::Tokens, Some(id)) => {
            draws(subject, &resolved, id, run.as_ref())
        }
        _ => None,
    };
    let (localisation, note) = match divergence.observable {
        _ if drawn.is_some() => (None, drawn),
        Observable::Crash
        | Observable::Coverage
        | Observable::Writers
        | Observable::Held
        | Observable::Draws => (None, None),
        // It names the operator itself; a canonical execution has the same fault.
        Observable::Fidelity => (None, None),
        observable => {
            // A trajectory is nobody's: then whoever differs.
            let ids = match divergence.place.id {
                Some(id) => vec![id],
                None => run.iter().flat_map(|run| run.outputs.keys().copied()).collect(),
            };
            let standard = &divergence.standard;
            let parts = |id: &SampleId| parting(subject, &resolved, standard, *id);
            let localisation = ids.iter().find_map(parts);
            let name = standard.name();
            let note = localisation.is_none().then(|| match observable {
                Observable::Logprobs => format!(
                    "logits, K and V equal those of {name}, so the log-probability itself differs"
                ),
                Observable::Trajectory => format!(
                    "{name}, the run has the same outputs: what differs is the engine's state"
                ),
                _ => format!(
                    "{name}, the run has the same digests: it differs in what is made of them"
                ),
            });
            (localisation, note)
        }
    };
    Explanation { localisation, note, needs }
}

/// Where the run parts from what it was compared with, in the output of a sample.
fn parting(
    subject: &dyn Subject,
    case: &Case,
    standard: &Standard,
    id: SampleId,
) -> Option<Localisation> {
    let judged = match standard {
        Standard::Other(other) => other.judged.as_ref().unwrap_or(case),
        _ => case,
    };
    let name = standard.name();
    let judged = Side { name: "the run", subject, execution: Execution::Case(judged), id };
    let alone = case.workload.alone(id);
    let canonical = Case { workload: alone, schedule: Schedule::default(), ..case.clone() };
    let expected = match standard {
        Standard::Canonical => Side { execution: Execution::Case(&canonical), ..judged },
        Standard::Plain => {
            let request = canonical.workload.requests.first()?;
            Side { execution: Execution::Plain(request, case.seed), ..judged }
        }
        Standard::Repeated => judged,
        Standard::Sibling(other) => Side { id: *other, ..judged },
        Standard::Other(other) => Side { execution: Execution::Case(&other.case), ..judged },
    };
    between(&judged, &Side { name: &name, ..expected }).ok().flatten()
}

fn needs(case: &Case, id: Option<SampleId>, run: Option<&Run>, minimal: bool) -> Needs {
    let shared: BTreeMap<SampleId, bool> = run
        .map(|run| run.outputs.iter().map(|(id, o)| (*id, o.shared_steps > 0)).collect())
        .unwrap_or_default();
    let shares = |id: SampleId| shared.get(&id).copied().unwrap_or(false);
    let mut neighbours = Vec::new();
    if let Some(id) = id {
        let own = case.workload.get(id.uid);
        for request in &case.workload.requests {
            for other in request.sample_ids().filter(|other| *other != id) {
                let mut roles = Vec::new();
                if other.uid == id.uid {
                    roles.push("another sample of it");
                }
                if shares(id) && shares(other) {
                    roles.push("shares steps");
                }
                let of = |prompt: &Prompt| prompt.continuation().map(|c| c.of);
                if own.is_some_and(|own| of(&own.prompt) == Some(other.uid)) {
                    roles.push("continued by it");
                }
                if case.world.prefix_cache
                    && own.is_some_and(|own| share_a_block(case, own, request))
                {
                    roles.push("its first block is the same, in the same namespace of the cache");
                }
                neighbours.push(Neighbour { request: other.uid, sample: other.sample, roles });
            }
        }
    }
    let exists = |i: &&Intent| {
        let request = case.workload.get(i.uid);
        request.is_some_and(|r| r.sample_ids().any(|id| id.sample == i.sample))
    };
    let intents = case.schedule.intents.iter().filter(exists);
    let events = intents.map(|i| NeededEvent { request: i.uid, event: intent_text(i) });
    Needs { minimal, neighbours, events: events.collect() }
}

/// Whether a prefix cache can serve one of them what the other one computed.
fn share_a_block(case: &Case, a: &Request, b: &Request) -> bool {
    let block = case.world.block_size as usize;
    let [first, other] = [a, b].map(|request| request.prompt.own_tokens().get(..block));
    a.namespace == b.namespace && first.is_some() && first == other
}

/// How the first draw that differs was made, if the sampler's key or the place in its step is what differs.
fn draws(subject: &dyn Subject, case: &Case, id: SampleId, run: Option<&Run>) -> Option<String> {
    let canonical = executions::canonical(subject, case, &case.workload, id).ok()?;
    let pairs = run?.outputs.get(&id)?.draws.iter().zip(&canonical.outputs.get(&id)?.draws);
    let (a, b) = pairs.into_iter().find(|(a, b)| (a.token, a.key) != (b.token, b.key))?;
    let key = |draw: &Draw| draw.key.map_or("none".into(), |[a, b]| format!("{a:08x} {b:08x}"));
    let keys = match a.key == b.key {
        true => format!("the key {} is the same", key(a)),
        false => format!("its key {} is not the canonical {}", key(a), key(b)),
    };
    Some(format!(
        "operator: sampler, at position {}: token {} at place {} of its step, canonical {} at place {}; {keys}",
        a.position, a.token, a.place, b.token, b.place
    ))
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(localisation) = &self.localisation {
            for line in localisation.to_string().lines() {
                writeln!(f, "  {line}")?;
            }
        }
        if let Some(note) = &self.note {
            writeln!(f, "  {note}")?;
        }
        write!(f, "  {}", self.needs)
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 6;
        let neighbours = self.neighbours.iter().map(|n| {
            let sample =
                if n.sample == 0 { String::new() } else { format!(" sample {}", n.sample) };
            let roles = match n.roles.join(", ") {
                roles if roles.is_empty() => "in the same pool".to_owned(),
                roles => roles,
            };
            format!("request {}{sample} ({roles})", n.request)
        });
        let events = self.events.iter().map(|e| format!("request {} {}", e.request, e.event));
        let mut all: Vec<String> = neighbours.chain(events).collect();
        let more = all.len().saturating_sub(SHOWN_MAX);
        all.truncate(SHOWN_MAX);
        if more > 0 {
            all.push(format!("{more} more"));
        }
        let verb = if self.minimal { "needs" } else { "has (not minimal)" };
        match all.is_empty() {
            true => write!(f, "{verb}: nobody else, and no deviation from the default policy"),
            false => write!(f, "{verb}: {}", all.join("; ")),
        }
    }
}
