//! Shrinks a failure to a 1-minimal case that still fails in the same way, and proves that it is 1-minimal.

use proptest::strategy::ValueTree;
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::relation::{Divergence, Executions, Judgement, Observable, Relation, compare, resolve};
use crate::strategy::CaseTree;
use crate::strategy::reduce::{self, Frozen};
use crate::subject::{Subject, SubjectError};

/// Limits of a shrink. Reaching one ends it early; the result then says that it is not minimal.
#[derive(Clone, Copy, Debug)]
pub struct ShrinkBudget {
    /// Executions of a candidate.
    pub executions_max: u64,
    /// Wall time. It can change how far a shrink gets, never what a candidate's verdict is.
    pub time_max: Duration,
}

impl Default for ShrinkBudget {
    fn default() -> ShrinkBudget {
        ShrinkBudget { executions_max: 20_000, time_max: Duration::from_secs(120) }
    }
}

/// The end of a shrink.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest case found.
    pub case: Case,
    /// How it fails.
    pub divergence: Divergence,
    /// Whether every single reduction was tried and made the failure go away.
    pub minimal: bool,
    /// Executions of single reductions that prove it.
    pub checks: u64,
    /// Executions of candidates before that.
    pub executions: u64,
}

/// The failure of `relation` on `case`, if it fails.
pub fn failure_of(
    subject: &dyn Subject,
    relation: &Relation,
    case: &Case,
) -> Result<Option<Divergence>, SubjectError> {
    Ok(match judgement_of(subject, relation, case)? {
        Judgement::Broken(divergence) => Some(*divergence),
        Judgement::Held(_) | Judgement::Inapplicable(_) => None,
    })
}

/// Carries out `case` and judges it by `relation`. A crash of the engine breaks every relation.
pub fn judgement_of(
    subject: &dyn Subject,
    relation: &Relation,
    case: &Case,
) -> Result<Judgement, SubjectError> {
    let judged =
        Executions::new(subject, case).and_then(|mut executions| relation.judge(&mut executions));
    match judged {
        Err(SubjectError::Failed(why)) => Ok(Judgement::Broken(Box::new(compare::crash(why)))),
        other => other,
    }
}

/// Shrinks `case`, which breaks `relation` in `observable`.
pub fn shrink(
    subject: &dyn Subject,
    relation: &Relation,
    case: &Case,
    divergence: &Divergence,
    budget: ShrinkBudget,
) -> Shrunk {
    let started = Instant::now();
    let mut search = Search { subject, relation, observable: divergence.observable, executions: 0 };
    let spent = |search: &Search<'_>| {
        search.executions >= budget.executions_max || started.elapsed() >= budget.time_max
    };

    let mut best = (case.clone(), divergence.clone());
    'joint: loop {
        let mut tree = CaseTree::new(best.0.clone()).with_frozen(search.frozen(&best.0));
        let mut more = tree.simplify();
        while more {
            if spent(&search) {
                return Shrunk {
                    case: best.0,
                    divergence: best.1,
                    minimal: false,
                    checks: 0,
                    executions: search.executions,
                };
            }
            let candidate = tree.current();
            more = match search.fails(&candidate) {
                Some(divergence) => {
                    best = (candidate, divergence);
                    tree.simplify()
                }
                None => tree.complicate(),
            };
        }
        // The certificate: every single reduction once more, from fresh state.
        let executions = search.executions;
        let mut checks = 0;
        for single in reduce::singles(&best.0, &search.frozen(&best.0)) {
            if single.validate().is_err() {
                continue;
            }
            checks += 1;
            if let Some(divergence) = search.fails(&single) {
                best = (single, divergence);
                if spent(&search) {
                    break 'joint;
                }
                continue 'joint;
            }
        }
        return Shrunk { case: best.0, divergence: best.1, minimal: true, checks, executions };
    }
    Shrunk {
        case: best.0,
        divergence: best.1,
        minimal: false,
        checks: 0,
        executions: search.executions,
    }
}

/// Asks whether candidates fail in the same way.
struct Search<'s> {
    subject: &'s dyn Subject,
    relation: &'s Relation,
    observable: Observable,
    executions: u64,
}

impl Search<'_> {
    /// The prompts of the case's continuations.
    fn frozen(&self, case: &Case) -> Frozen {
        if !case.workload.has_continuations() {
            return Frozen::new();
        }
        // What can't be resolved can't be frozen; the requests that others continue are then kept.
        let Ok(resolved) = resolve(self.subject, case) else { return Frozen::new() };
        let requests = case.workload.requests.iter().zip(resolved.workload.requests);
        requests
            .filter(|(r, _)| r.prompt.continuation().is_some())
            .map(|(r, resolved)| (r.uid, resolved.prompt.own_tokens().to_vec()))
            .collect()
    }

    fn fails(&mut self, case: &Case) -> Option<Divergence> {
        self.executions += 1;
        // A candidate that is not executable is no failure of the engine.
        let found = failure_of(self.subject, self.relation, case).ok().flatten()?;
        found.all.contains(&self.observable).then_some(found)
    }
}
