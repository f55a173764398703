//! Ablation: each operator alone follows the batch, and must be caught and named.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use lockstep::contract::Operator;
use lockstep::harness::{Campaign, Failure, ShrinkBudget, Suite, Verdict, localise};
use lockstep::record::Order;
use lockstep::record::sites::Stage;
use lockstep::relation::localise::Cause;
use lockstep::relation::{Divergence, Executions, Judgement, Observable, Relation, by_id};
use lockstep::strategy::{Space, cases};
use lockstep::subject::Subject;
use proptest::strategy::ValueTree;

use crate::Shared;

/// Cases in which it is counted what differs.
const CASES: u64 = 200;

/// Name of an operator's trial.
pub(crate) fn name(operator: Operator, suffix: &str) -> String {
    let name = match operator {
        Operator::Gemm => "gemm_split",
        other => other.name(),
    };
    format!("c0::ablation::{name}{suffix}")
}

/// The relation that must break, and the stages at which it first shows. The LM head's results are the logits.
fn expected(operator: Operator) -> (&'static Relation, &'static [Stage]) {
    use Stage::{Attention, AttentionNorm, Down, FfnNorm, FinalNorm, GateUp, Output, Qkv};
    let (id, stages): (_, &[Stage]) = match operator {
        Operator::Gemm | Operator::GemmTile => ("I1", &[Qkv, Output, GateUp, Down]),
        Operator::Attention => ("I1", &[Attention]),
        Operator::Norm => ("I1", &[AttentionNorm, FfnNorm, FinalNorm]),
        Operator::Sampler => ("I4", &[]),
    };
    (by_id(id).expect("a relation"), stages)
}

/// The trial: a campaign finds a minimal case, and in a number of cases it is counted what differs.
pub(crate) fn trial(suite: &Suite, operator: Operator, subject: Shared, suffix: &str) -> Trial {
    let (name, suite) = (name(operator, suffix), suite.clone());
    Trial::test(name.clone(), move || {
        let (relation, stages) = expected(operator);
        let mut space = Space::new(subject.edges(), subject.default_world());
        space.focus.extend_from_slice(relation.focus);
        let campaign = Campaign {
            subject: &*subject,
            space: space.clone(),
            relations: vec![relation],
            cases: suite.cases,
            time_max: None,
            seed: suite.seed,
            jobs: 1,
            budget: ShrinkBudget::default(),
        };
        let report = campaign.run(&|_| ()).map_err(|error| error.to_string())?;
        let failure = match (&report.failure, report.verdict()) {
            (Some(failure), Verdict::Broken) => failure,
            (_, verdict) => return Err(format!("not caught: {}", verdict.name()).into()),
        };
        is_sharp(failure, stages)?;
        is_localised(&*subject, failure, operator)?;
        let counts = count(&subject, relation, space, suite.seed, stages)?;
        suite.print_later(format!("{name}: {} differs in {counts}", relation.id));
        Ok(())
    })
}

/// Minimal, small enough to read, and named.
fn is_sharp(failure: &Failure, stages: &[Stage]) -> Result<(), String> {
    let requests = failure.case().workload.requests.len();
    if failure.shrunk.as_ref().is_none_or(|s| !s.minimal) || requests > 2 {
        return Err(format!("not minimal: {:?}", failure.case()));
    }
    named(failure.reported(), stages)
}

/// Whether the localiser says that the operator's own launches differ, in what the operator is made to take from the batch.
fn is_localised(
    subject: &dyn Subject,
    failure: &Failure,
    operator: Operator,
) -> Result<(), String> {
    let explanation = localise::of_failure(subject, failure);
    let found = explanation.localisation.as_ref().and_then(|l| l.operator.as_ref());
    let launches = found.filter(|f| f.cause == Cause::Order).and_then(|f| f.launches.as_ref());
    let is_found = match (operator, launches.map(|[a, b]| (&a.order, &b.order))) {
        (Operator::Gemm, Some((Order::Cuts(a), Order::Cuts(b)))) => a.len() != b.len(),
        (Operator::GemmTile, Some((Order::Cuts(a), Order::Cuts(b)))) => a.len() == b.len(),
        (Operator::Attention, Some((Order::Split(_), Order::Split(_)))) => true,
        (Operator::Norm, Some((Order::Lanes(_), Order::Lanes(_)))) => true,
        // A device without arithmetic keeps no results, and so no notes of launches: the stage was named already.
        (operator, None) if subject.device() == "hash" => {
            found.is_some() == (operator != Operator::Sampler)
        }
        // Nothing before the draw differs, and the draw names the keys itself.
        (Operator::Sampler, None) => found.is_none(),
        _ => false,
    };
    if is_found { Ok(()) } else { Err(format!("another cause is named: {explanation:?}")) }
}

/// Whether the first operator that differs is the one that was made to: the LM head's results are the logits themselves.
fn named(divergence: &Divergence, stages: &[Stage]) -> Result<(), String> {
    let is_named = match divergence.origin {
        Some(origin) => stages.contains(&origin.site.stage),
        None if stages.is_empty() => divergence.observable == Observable::Draws,
        None => stages.contains(&Stage::Qkv) && divergence.all.contains(&Observable::Logits),
    };
    if is_named { Ok(()) } else { Err(format!("another operator is named: {divergence}")) }
}

/// In how many of the judged cases something differs, and what.
fn count(
    subject: &Shared,
    relation: &Relation,
    space: Space,
    seed: u64,
    stages: &[Stage],
) -> Result<String, Failed> {
    let subject: &Arc<dyn Subject + Send> = subject;
    let drawn = cases(space);
    let (mut judged, mut differing, mut is_named) = (0, 0, 0);
    let (mut digests, mut logits, mut tokens) = (0, 0, 0);
    for index in 0..CASES {
        let case = drawn.nth(seed, index).current();
        let executions = Executions::new(&**subject, &case);
        let judgement = executions.and_then(|mut executions| relation.judge(&mut executions));
        let divergence = match judgement.map_err(|error| error.to_string())? {
            Judgement::Inapplicable(_) => continue,
            Judgement::Held(_) => {
                judged += 1;
                continue;
            }
            Judgement::Broken(divergence) => divergence,
        };
        // Not each: where K and V of another request were attached, the first operator of one's own reads them.
        is_named += u64::from(named(&divergence, stages).is_ok());
        let differs = |observables: &[Observable]| {
            u64::from(observables.iter().any(|o| divergence.all.contains(o)))
        };
        judged += 1;
        differing += 1;
        digests += differs(&[Observable::Sites, Observable::Kv]);
        logits += differs(&[Observable::Logits]);
        tokens += differs(&[Observable::Tokens]);
    }
    // Logits can differ only where a digest does, except by the LM head, whose results they are.
    let unseen = differing - digests.max(logits);
    if stages.is_empty() {
        return Ok(format!("{differing} of {judged} cases, by keys"));
    }
    if unseen > 0 {
        return Err(
            format!("{unseen} of {differing} differ neither in digests nor in logits").into()
        );
    }
    Ok(format!(
        "{differing} of {judged} cases: in {digests} by digests, in {logits} by logits, in {tokens} by tokens; named \
         at once in {is_named}"
    ))
}
