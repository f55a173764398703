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
    /// What ended the search before that, if something did.
    pub ended_by: Option<String>,
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
    let (observable, started) = (divergence.observable, Instant::now());
    let mut search = Search { subject, relation, observable, executions: 0, budget, started };
    let mut best = (case.clone(), divergence.clone());
    let (checks, ended_by) = match search.minimise(&mut best) {
        Ok(checks) => (checks, None),
        Err(why) => (0, Some(why)),
    };
    let (case, divergence) = best;
    let executions = search.executions - checks;
    Shrunk { case, divergence, minimal: ended_by.is_none(), ended_by, checks, executions }
}

/// Why a search ended before it had proved anything.
type Ended = String;

/// Asks whether candidates fail in the same way.
struct Search<'s> {
    subject: &'s dyn Subject,
    relation: &'s Relation,
    observable: Observable,
    executions: u64,
    budget: ShrinkBudget,
    started: Instant,
}

impl Search<'_> {
    /// Reduces the best case until no single reduction of it fails; returns how many were asked to prove that.
    fn minimise(&mut self, best: &mut (Case, Divergence)) -> Result<u64, Ended> {
        loop {
            let mut tree = CaseTree::new(best.0.clone()).with_frozen(self.frozen(&best.0));
            let mut more = tree.simplify();
            while more {
                self.within_budget()?;
                let candidate = tree.current();
                more = match self.fails(&candidate)? {
                    Some(divergence) => {
                        *best = (candidate, divergence);
                        tree.simplify()
                    }
                    None => tree.complicate(),
                };
            }
            match self.smaller(&best.0)? {
                Ok(smaller) => *best = smaller,
                Err(checks) => return Ok(checks),
            }
            self.within_budget()?;
        }
    }

    /// The certificate: every single reduction once more, from fresh state. One that fails, or how many there are.
    fn smaller(&mut self, case: &Case) -> Result<Result<(Case, Divergence), u64>, Ended> {
        let mut checks = 0;
        for single in reduce::singles(case, &self.frozen(case)) {
            if single.validate().is_err() {
                continue;
            }
            checks += 1;
            if let Some(divergence) = self.fails(&single)? {
                return Ok(Ok((single, divergence)));
            }
        }
        Ok(Err(checks))
    }

    fn within_budget(&self) -> Result<(), Ended> {
        let ShrinkBudget { executions_max, time_max } = self.budget;
        if self.executions >= executions_max {
            return Err(format!("{executions_max} executions were spent on it"));
        }
        if self.started.elapsed() >= time_max {
            return Err(format!("{} s were spent on it", time_max.as_secs_f64()));
        }
        Ok(())
    }

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

    /// How a candidate fails, if it does. Only one that was carried out and judged, or that no engine could carry out, is taken
    /// for one that does not: where the subject is gone, nothing is known of it.
    fn fails(&mut self, case: &Case) -> Result<Option<Divergence>, Ended> {
        self.executions += 1;
        let found = match failure_of(self.subject, self.relation, case) {
            Ok(Some(found)) => found,
            Ok(None) | Err(SubjectError::BadInput(_)) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        Ok(found.all.contains(&self.observable).then_some(found))
    }
}
