//! F1, fidelity: the engine's results lie within bounds, fixed beforehand, of a forward pass in f64 of the same weights.
//!
//! The other relations compare an engine with itself, so a fault that is the same in every execution, a wrong constant or
//! a mask that is off by one, is invisible to them. This one compares with [`crate::reference`], which shares no code with
//! a device. Absent: bits, which an f64 pass cannot give; [`bounds`] says how far is too far.

pub mod bounds;
mod errors;

use std::collections::BTreeSet;

use crate::record::sites::{Site, Stage};
use crate::record::{Capture, CapturedRow, KvMoment, Output, Sentinel};
use crate::subject::{Capabilities, SubjectError};
use crate::weights::Model;
use crate::workload::SampleId;

use super::compare::{Divergence, Observable, Origin, Place};
use super::{Compared, Executions, Judgement, Relation, Spread, Standard};

use bounds::Bounds;
pub use errors::{Distance, Greedy, Measure, RowErrors, measure};

/// Of the rows of a sample, one in so many is measured operator by operator; the whole pass is measured in all.
const OPERATOR_ROWS_SHARE: usize = 4;
/// Fewest and most of these rows in a sample.
const OPERATOR_ROWS: [usize; 2] = [4, 48];

pub(super) static F1: Relation = Relation {
    id: "F1",
    path: "f1::fidelity",
    statement: "h after each layer, each operator and the logits are within fixed bounds of a forward pass in f64",
    varies: "everything that a case varies; against the equations of the model, in f64",
    gates: &[
        Sentinel::GemmSkinnyWalk,
        Sentinel::GemmSkinnyParallel,
        Sentinel::GemmTiledWalk,
        Sentinel::GemmTiledParallel,
    ],
    spreads: &[Spread::ExactPastSplit, Spread::ExactPastHit],
    every: 8,
    focus: &[],
    applies,
    judge,
};

fn applies(capabilities: &Capabilities) -> Result<(), &'static str> {
    match &capabilities.exact {
        None => Err("there are no weights to compute with in f64"),
        Some(exact) if bounds::of(&exact.digest).is_none() => {
            Err("no bounds are fixed for these weights")
        }
        Some(_) => Ok(()),
    }
}

/// What was measured of one sample of a case.
#[derive(Clone, Debug)]
pub struct SampleErrors {
    /// The sample.
    pub id: SampleId,
    /// Its rows, in the order of computation.
    pub rows: Vec<RowErrors>,
    /// Residencies in which it had cached positions.
    hits: BTreeSet<u32>,
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    let digest = executions.capabilities().exact.as_ref().map(|exact| exact.digest.clone());
    let bounds = digest.and_then(|digest| bounds::of(&digest)).expect("the relation applies");
    let split = executions.subject().edges().split;
    let mut total = Compared::default();
    for SampleErrors { id, rows, hits } in sample_errors(executions)? {
        for row in &rows {
            if let Some(beyond) = beyond(bounds, row) {
                return Ok(Judgement::Broken(Box::new(divergence(id, row, beyond, bounds))));
            }
            total.positions += 1;
            let counts = &mut total.f64;
            counts.operator_rows += u64::from(row.has_operators());
            counts.past_split += u64::from(row.position >= split);
            counts.past_hit += u64::from(hits.contains(&row.residency));
            counts.near_ties += u64::from(row.greedy.margin < bounds.get(Measure::Margin).bound);
            counts.other_tokens += u64::from(row.greedy.engine != row.greedy.exact);
        }
    }
    match total.positions {
        0 => Ok(Judgement::Inapplicable("nothing was computed")),
        _ => Ok(Judgement::Held(total)),
    }
}

/// Measures a sample or two of a case: the longest that computed all of its positions itself, and the longest that a prefix
/// or a fork served; as many of their first positions as the subject's reference can afford.
pub fn sample_errors(executions: &mut Executions<'_>) -> Result<Vec<SampleErrors>, SubjectError> {
    let outputs = &executions.run().outputs;
    let longest = |served: bool| {
        let all = outputs.iter().filter(|(_, o)| served != hits(o).is_empty());
        // Of several the first.
        all.rev().max_by_key(|(_, o)| o.positions.len()).map(|(id, _)| *id)
    };
    let chosen: BTreeSet<SampleId> =
        [longest(false), longest(true)].into_iter().flatten().collect();
    let exact = executions.capabilities().exact.as_ref();
    let mut left = exact.map_or(0, |exact| exact.positions);
    let model = executions.subject().weights()?;
    let all: BTreeSet<usize> = (0..Site::count(model.config.layers)).collect();
    let mut errors = Vec::new();
    for id in chosen {
        let Some(mut tokens) = prompt_of(executions, id) else { continue };
        let output = &executions.run().outputs[&id];
        tokens.extend(&output.tokens);
        tokens.truncate(left as usize);
        left -= tokens.len() as u32;
        let hits = hits(output);
        let capture = Capture {
            id: Some(id),
            positions: 0..tokens.len() as u32,
            sites: all.clone(),
            logits: true,
            parts: false,
        };
        let due = output.positions.iter().filter(|p| capture.wants(id, p.position)).count();
        let captured = executions.with_values(&capture)?;
        is_whole(&model, &captured, due)?;
        let [fewest, most] = OPERATOR_ROWS;
        let wanted = (captured.len() / OPERATOR_ROWS_SHARE).clamp(fewest, most);
        let rows = measure(&model, &tokens, &captured, wanted);
        errors.push(SampleErrors { id, rows, hits });
    }
    Ok(errors)
}

/// A row that was not kept, or not whole, would pass unseen.
fn is_whole(model: &Model, rows: &[CapturedRow], due: usize) -> Result<(), SubjectError> {
    let sites = Site::count(model.config.layers);
    let whole = |row: &&CapturedRow| {
        row.logits.len() == model.config.vocab
            && (0..sites).all(|i| row.sites.get(&i).is_some_and(|kept| !kept.values.is_empty()))
    };
    match rows.iter().filter(whole).count() {
        kept if (kept, rows.len()) == (due, due) => Ok(()),
        kept => Err(SubjectError::Failed(format!(
            "values of {kept} of {due} computed positions were kept"
        ))),
    }
}

/// The prompt's tokens; `None` for a request that is not in the workload.
fn prompt_of(executions: &Executions<'_>, id: SampleId) -> Option<Vec<u32>> {
    executions.case().workload.get(id.uid)?.prompt.tokens().map(<[u32]>::to_vec)
}

/// Residencies in which positions were attached instead of computed.
fn hits(output: &Output) -> BTreeSet<u32> {
    let attached = |moment| matches!(moment, KvMoment::Attached | KvMoment::Forked);
    output.kv.iter().filter(|kv| attached(kv.moment)).map(|kv| kv.residency).collect()
}

/// The distance of a row that is beyond its bound: the first operator's if there is one, since what follows from it is
/// beyond its bound too.
fn beyond(bounds: &Bounds, row: &RowErrors) -> Option<Distance> {
    let is_beyond = |d: &&Distance| d.error > bounds.get(d.measure).bound;
    let judged = |d: &&Distance| d.measure != Measure::Margin;
    let (operators, whole): (Vec<&Distance>, Vec<&Distance>) =
        row.distances.iter().filter(judged).partition(|d| d.measure.is_of_an_operator());
    let found = operators.into_iter().chain(whole).find(is_beyond).copied();
    // The bound of the margin is a threshold: another greedy token loses less than that in f64, or the two logits err by
    // more than they ever do.
    let lost = Distance { measure: Measure::Margin, layer: None, error: row.greedy.lost };
    found.or(Some(lost).filter(|d| is_beyond(&d)))
}

fn divergence(id: SampleId, row: &RowErrors, beyond: Distance, bounds: &Bounds) -> Divergence {
    let Distance { measure, layer, error } = beyond;
    let bound = bounds.get(measure).bound;
    let Greedy { engine, exact, .. } = row.greedy;
    let token = match engine == exact {
        true => String::new(),
        false => format!("; greedy token {engine}, in f64 {exact}"),
    };
    let detail = format!(
        "{measure}: error {error:.1e}, bound {bound:.1e}, {:.1} times as much{token}",
        error / bound
    );
    let site = match measure {
        Measure::Operator(stage) => Some(Site { layer, stage }),
        Measure::Residual(0) => Some(Site { layer: None, stage: Stage::Embed }),
        Measure::Residual(_) | Measure::Logits | Measure::Margin | Measure::Head => None,
    };
    let (residency, position) = (row.residency, row.position);
    Divergence {
        observable: Observable::Fidelity,
        all: BTreeSet::from([Observable::Fidelity]),
        place: Place { id: Some(id), residency: Some(residency), position: Some(position), layer },
        detail,
        origin: site.map(|site| Origin { position, residency, site }),
        standard: Standard::Canonical,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(distances: Vec<Distance>, lost: f64) -> RowErrors {
        let greedy = Greedy { engine: 1, exact: 2, margin: 0.0, lost };
        RowErrors { residency: 1, position: 7, distances, greedy }
    }

    /// Goal: what is beyond its bound is found, an operator first, and nothing within its bound. Method: errors just on either
    /// side of the bounds in the file.
    #[test]
    fn errors_just_beyond_a_bound_are_found_and_those_within_are_not() {
        let bounds = &bounds::BOUNDS.models[0];
        let at = |measure, factor: f64| {
            let error = bounds.get(measure).bound * factor;
            Distance { measure, layer: Some(1), error }
        };
        let [head, logits] = [Measure::Head, Measure::Logits];
        let threshold = bounds.get(Measure::Margin).bound;
        let within = row(vec![at(logits, 0.99), at(head, 0.99)], threshold * 0.99);
        assert_eq!(beyond(bounds, &within), None);
        let both = row(vec![at(logits, 1.01), at(head, 1.01)], 0.0);
        assert_eq!(beyond(bounds, &both), Some(at(head, 1.01)));
        let whole = row(vec![at(logits, 1.01), at(head, 0.99)], 0.0);
        assert_eq!(beyond(bounds, &whole), Some(at(logits, 1.01)));
        // A margin that errs decides nothing; a token that loses too much does.
        let margin = row(vec![at(Measure::Margin, 1.5)], 0.0);
        assert_eq!(beyond(bounds, &margin), None);
        let token = row(vec![at(Measure::Margin, 0.5)], threshold * 1.01);
        assert_eq!(beyond(bounds, &token).map(|d| d.measure), Some(Measure::Margin));
        let nan = Distance { measure: Measure::Residual(0), layer: None, error: f64::INFINITY };
        assert_eq!(beyond(bounds, &row(vec![nan], 0.0)), Some(nan));
    }

    #[test]
    fn a_failure_names_operator_layer_and_factor() {
        let bounds = &bounds::BOUNDS.models[0];
        let measure = Measure::Operator(Stage::Attention);
        let error = bounds.get(measure).bound * 50.0;
        let found = Distance { measure, layer: Some(1), error };
        let divergence = divergence(SampleId::first(3), &row(vec![found], 0.0), found, bounds);
        let text = divergence.to_string();
        assert!(text.contains("50.0 times as much; greedy token 1, in f64 2"), "{text}");
        assert!(text.ends_with("first operator that differs: layer 1, attention, at position 7"));
    }
}
