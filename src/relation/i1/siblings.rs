//! I1, identical siblings.

use crate::record::{Finish, Sentinel};
use crate::relation::{
    Compared, Executions, Judgement, Relation, Spread, Standard, compare, counts,
};
use crate::strategy::Feature;
use crate::subject::SubjectError;
use crate::workload::{Request, SampleId};

/// Identical requests of one run.
pub(in crate::relation) static SIBLINGS: Relation = Relation {
    id: "I1.siblings",
    path: "i1::siblings",
    statement: "identical requests whose steps are shared equal each other, in every bit",
    varies: "rows, company and blocks of identical requests inside one run",
    gates: &[Sentinel::SiblingsMet],
    spreads: &[Spread::Fired(Sentinel::RowNotFirst), Spread::Fired(Sentinel::BlockShared)],
    focus: &[Feature::Siblings, Feature::Samples],
    every: 1,
    applies: |c| counts(c, Sentinel::SiblingsMet, "the subject doesn't count identical siblings"),
    judge,
};

/// What makes two samples identical: all that is asked for, and what they are drawn by. `None` if nobody else draws by
/// the same key.
fn kind(request: &Request, id: SampleId) -> Option<(Request, u32)> {
    let sample = match (request.sampling.is_greedy(), request.seed) {
        (true, _) => 0,
        (false, Some(_)) => id.sample,
        (false, None) => return None,
    };
    let seed = request.seed.filter(|_| !request.sampling.is_greedy());
    let asked =
        Request { uid: 0, seed, samples: 1, first_sample: 0, namespace: 0, ..request.clone() };
    Some((asked, sample))
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    let outputs = &executions.run().outputs;
    let mut kinds: Vec<((Request, u32), SampleId)> = Vec::new();
    let mut total = Compared::default();
    let mut undecided = false;
    for (id, output) in outputs {
        if output.shared_steps == 0 || output.finish == Some(Finish::Aborted) {
            continue;
        }
        let request = executions.case().workload.get(id.uid);
        let Some(kind) = request.and_then(|request| kind(request, *id)) else { continue };
        let Some((_, first)) = kinds.iter().find(|(other, _)| *other == kind) else {
            kinds.push((kind, *id));
            continue;
        };
        undecided |= output.finish == Some(Finish::Undecided);
        match compare::twins(*id, output, &outputs[first], true, &Standard::Sibling(*first)) {
            Ok(compared) => total.add(&compared),
            Err(divergence) => return Ok(Judgement::Broken(divergence)),
        }
    }
    Ok(match (undecided, total.positions) {
        (true, _) => Judgement::Inapplicable("a logit was not finite"),
        (false, 0) => Judgement::Inapplicable("no two identical requests came to their ends"),
        (false, _) => Judgement::Held(total),
    })
}
