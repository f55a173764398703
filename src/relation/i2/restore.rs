//! I2, restoration.

use crate::case::Case;
use crate::record::{Finish, Held, Run, Sentinel};
use crate::relation::compare::{self, Known, Place};
use crate::relation::standard::Other;
use crate::relation::{Divergence, Executions, Judgement, Observable, Relation, Spread, Standard};
use crate::schedule::{Act, Intent, Mark, Schedule};
use crate::strategy::Feature;
use crate::subject::{Capabilities, SubjectError};
use crate::workload::{Request, SampleId, Workload};

/// A probe that arrives when everything else has left.
pub(in crate::relation) static RESTORE: Relation = Relation {
    id: "I2.restore",
    path: "i2::restore",
    statement: "when every request has left, the engine holds nothing, and a request that comes then has the bits that it has in a fresh instance",
    varies: "what happened before: preemptions, swaps, aborts, evictions, forks, hits",
    gates: &[
        Sentinel::PreemptRecompute,
        Sentinel::SwapOut,
        Sentinel::Abort,
        Sentinel::Evict,
        Sentinel::CowCopy,
        Sentinel::HitTokensSaved,
        Sentinel::LandedLate,
    ],
    spreads: &[
        Spread::Fired(Sentinel::PreemptRecompute),
        Spread::Fired(Sentinel::Abort),
        Spread::Fired(Sentinel::Evict),
        Spread::Fired(Sentinel::SwapOut),
        Spread::Fired(Sentinel::HitTokensSaved),
    ],
    focus: &[Feature::Abort, Feature::Preempt, Feature::Swap, Feature::Shared],
    every: 4,
    applies,
    judge,
};

fn applies(capabilities: &Capabilities) -> Result<(), &'static str> {
    use crate::schedule::ActKind::Arrive;
    super::can(capabilities, Arrive, "the subject can't let a request arrive late")?;
    if capabilities.ledger { Ok(()) } else { Err("the subject doesn't report what it holds") }
}

/// The case, and a request like its longest one that arrives when the others have left.
fn with_probe(executions: &Executions<'_>) -> Option<(Workload, Schedule, Request)> {
    let case = executions.case();
    let mut workload = case.workload.clone();
    let like = workload.requests.iter().max_by_key(|r| r.prompt.own_tokens().len())?;
    let uid = (1..).find(|uid| workload.get(*uid).is_none())?;
    // One that asks for scores of its prompt takes nothing from the cache.
    let like = like.clone();
    let probe = Request { uid, samples: 1, first_sample: 0, prompt_logprobs: None, ..like };
    // Each boundary has a step, or waits for a delay to pass.
    let delays: u64 = case.schedule.intents.iter().map(|i| i.act.delay() + 1).sum();
    let steps = executions.run().steps.len() as u64 + 2 * delays + 8;
    let mut schedule = case.schedule.clone();
    schedule.intents.push(Intent {
        uid,
        sample: 0,
        mark: Mark::Start,
        act: Act::Arrive { steps: u32::try_from(steps).ok()? },
    });
    workload.requests.push(probe.clone());
    let fits = schedule.validate().is_ok() && workload.validate().is_ok();
    fits.then_some((workload, schedule, probe))
}

/// Whether the probe came to an engine that nobody else was in.
fn came_last(run: &Run, probe: SampleId) -> bool {
    let arrived = run.life.iter().position(|e| e.id == probe);
    let left = run.life.iter().rposition(|e| e.id != probe);
    let alone = run.outputs.get(&probe).is_some_and(|o| o.shared_steps == 0);
    alone && arrived.zip(left).is_none_or(|(arrived, left)| left < arrived)
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    let seed = executions.case().seed;
    let Some((workload, schedule, request)) = with_probe(executions) else {
        return Ok(Judgement::Inapplicable("there is no room for a probe"));
    };
    let probe = SampleId::first(request.uid);
    let run = executions.carry_out(&workload, &schedule, seed)?;
    if !came_last(&run, probe) {
        return Ok(Judgement::Inapplicable("the probe met others"));
    }
    let fresh = executions.carry_out(&workload.alone(probe), &Schedule::default(), seed)?;
    if run.held != Some(Held::default()) {
        let detail = match run.held {
            None => "nothing was reported of what is held at the end".to_owned(),
            Some(Held { blocks, swap_blocks }) => format!(
                "{blocks} blocks of the pool and {swap_blocks} of host memory are not to be had, each once, \
                 when every request has left"
            ),
        };
        let all = [Observable::Held].into();
        let place = Place::default();
        return Ok(Judgement::Broken(Box::new(Divergence {
            observable: Observable::Held,
            all,
            place,
            detail,
            origin: None,
            standard: Standard::Canonical,
        })));
    }
    let (got, expected) = match (run.outputs.get(&probe), fresh.outputs.get(&probe)) {
        (Some(got), Some(expected)) => (got, expected),
        _ => {
            let detail = "the engine reported no output for the probe".into();
            return Ok(Judgement::Broken(Box::new(compare::crash(detail))));
        }
    };
    let &Capabilities { kv, sites, logprobs, .. } = executions.capabilities();
    let scores = if logprobs { request.scores_due(expected.tokens.len()) } else { 0 };
    let known = Known { kv, sites, scores, aborted: false };
    let alone = workload.alone(probe);
    let case = executions.case();
    let standard = Standard::Other(Box::new(Other {
        name: "in a fresh instance",
        case: Case { workload: alone, schedule: Schedule::default(), ..case.clone() },
        judged: Some(Case { workload, schedule, ..case.clone() }),
    }));
    Ok(match compare::outputs(probe, got, expected, known, &standard) {
        Ok(_) if expected.finish == Some(Finish::Undecided) => {
            Judgement::Inapplicable("a logit was not finite")
        }
        Ok(compared) => Judgement::Held(compared),
        Err(divergence) => Judgement::Broken(divergence),
    })
}
