//! How far the values of a row are from those of the reference.
//!
//! Two kinds of distance. *Whole pass*: h after each layer, and the logits, against a pass in f64 from the tokens on; all
//! roundings of all layers before it add up in it. *Operator*: each operator's f32 results against its equation in f64 on
//! the inputs that the engine had; only that operator's own error is in it, so it shows a wrong constant that the whole
//! pass would lose among the roundings.

use std::collections::BTreeSet;
use std::fmt;

use crate::record::CapturedRow;
use crate::record::sites::{Site, Stage};
use crate::reference::Stepwise;
use crate::reference::exact::{self, Storage};
use crate::reference::stepwise::Stored;
use crate::weights::Model;

/// What a bound is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Whole pass: h after so many layers, 0 for the embedding. Relative, in the Euclidean norm of the row.
    Residual(usize),
    /// Whole pass: logits. Relative, in the Euclidean norm of the row.
    Logits,
    /// Whole pass: the distance between the two best logits. Absolute.
    Margin,
    /// An operator on the engine's own inputs. Relative, in the Euclidean norm of the row.
    Operator(Stage),
    /// The LM head on the engine's own inputs. Relative, in the Euclidean norm of the row.
    Head,
}

impl Measure {
    /// Whether it is about one operator, and not about all before it too.
    pub fn is_of_an_operator(self) -> bool {
        matches!(self, Measure::Operator(_) | Measure::Head)
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Measure::Residual(0) => f.write_str("whole pass, embedding"),
            Measure::Residual(n) => write!(f, "whole pass, layer {}", n - 1),
            Measure::Logits => f.write_str("whole pass, logits"),
            Measure::Margin => f.write_str("whole pass, margin"),
            Measure::Operator(stage) => write!(f, "operator, {}", stage.name()),
            Measure::Head => f.write_str("operator, lm head"),
        }
    }
}

/// One distance of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// What was measured.
    pub measure: Measure,
    /// Layer, of an operator that belongs to one.
    pub layer: Option<usize>,
    /// Relative or absolute error; infinite where the engine's value is not a number.
    pub error: f64,
}

/// The greedy token of a row, for the engine and in f64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Greedy {
    /// The engine's best token.
    pub engine: u32,
    /// The best token in f64.
    pub exact: u32,
    /// Distance of the two best logits in f64.
    pub margin: f64,
    /// Distance in f64 of the best logit and that of the engine's token: 0 if the token is the same.
    pub lost: f64,
}

/// The distances of one computed position.
#[derive(Clone, Debug, PartialEq)]
pub struct RowErrors {
    /// Residency in which it was computed, from 1.
    pub residency: u32,
    /// Position in the sequence.
    pub position: u32,
    /// All that was measured.
    pub distances: Vec<Distance>,
    /// The greedy token.
    pub greedy: Greedy,
}

impl RowErrors {
    /// Whether operators were measured in it.
    pub fn has_operators(&self) -> bool {
        self.distances.iter().any(|d| d.measure.is_of_an_operator())
    }
}

/// Distances of rows of one sequence, whose tokens these are. Operators are measured in about `operator_rows` of them;
/// attention only where all positions before are among the rows, since K and V are taken from there.
///
/// Rows of positions past the tokens are left out.
pub fn measure(
    model: &Model,
    tokens: &[u32],
    rows: &[CapturedRow],
    operator_rows: usize,
) -> Vec<RowErrors> {
    let end = rows.iter().map(|r| r.position as usize + 1).max().unwrap_or(0).min(tokens.len());
    let exact = exact::pass(model, &tokens[..end], Storage::Exact);
    let stepwise = Stepwise::new(model);
    let (past, positions) = stored(&stepwise, model, rows);
    let chosen = spread_over(rows.len(), operator_rows);
    let rows = rows.iter().enumerate().filter(|(_, row)| (row.position as usize) < end);
    rows.map(|(i, row)| {
        let position = row.position as usize;
        let mut distances = whole_pass(model, row, &exact[position]);
        let greedy = greedy(&row.logits, &exact[position].logits);
        if chosen.contains(&i) {
            let past = (position < positions).then_some(&past[..]);
            distances.extend(operators(&stepwise, tokens[position], row, past));
        }
        RowErrors { residency: row.residency, position: row.position, distances, greedy }
    })
    .collect()
}

/// K and V of the positions from 0 on that the rows hold without a gap, one entry a layer, and the number of them.
fn stored(stepwise: &Stepwise<'_>, model: &Model, rows: &[CapturedRow]) -> (Vec<Stored>, usize) {
    let mut layers = vec![Stored::default(); model.config.layers];
    let mut positions = 0;
    // In the order of computation; a position that was computed again is the same again, or other relations fail.
    for row in rows {
        if row.position as usize == positions {
            stepwise.store(|site| values(row, site), &mut layers);
            positions += 1;
        }
    }
    (layers, positions)
}

/// About `wanted` of `count` indices, the last one among them.
fn spread_over(count: usize, wanted: usize) -> BTreeSet<usize> {
    let step = count.div_ceil(wanted.max(1)).max(1);
    (0..count).rev().step_by(step).collect()
}

fn values(row: &CapturedRow, site: usize) -> &[f32] {
    row.sites.get(&site).map_or(&[], |kept| &kept.values)
}

fn whole_pass(model: &Model, row: &CapturedRow, exact: &exact::Position) -> Vec<Distance> {
    let count = Site::count(model.config.layers);
    let mut distances = Vec::with_capacity(exact.residual.len() + 2);
    let mut note = |measure, error| distances.push(Distance { measure, layer: None, error });
    for (n, h) in exact.residual.iter().enumerate() {
        let site = match n.checked_sub(1) {
            None => Site { layer: None, stage: Stage::Embed },
            Some(layer) => Site { layer: Some(layer), stage: Stage::Down },
        };
        note(Measure::Residual(n), relative(values(row, site.index(count)), h));
    }
    note(Measure::Logits, relative(&row.logits, &exact.logits));
    let margin = |a: usize, b: usize| {
        let engine = f64::from(row.logits[a]) - f64::from(row.logits[b]);
        finite_or_infinite((engine - (exact.logits[a] - exact.logits[b])).abs())
    };
    if let (true, Some([a, b])) = (row.logits.len() == exact.logits.len(), top_2(&exact.logits)) {
        note(Measure::Margin, margin(a, b));
    }
    distances
}

fn operators(
    stepwise: &Stepwise<'_>,
    token: u32,
    row: &CapturedRow,
    past: Option<&[Stored]>,
) -> Vec<Distance> {
    let count = stepwise.sites();
    let none = Stored::default();
    let mut distances = Vec::with_capacity(count + 1);
    for index in 0..count {
        let Site { layer, stage } = Site::nth(index, count);
        let past = match (stage, past) {
            (Stage::Attention, None) => continue,
            (_, past) => past.zip(layer).map_or(&none, |(past, layer)| &past[layer]),
        };
        let exact = stepwise.expected(index, token, row.position, |site| values(row, site), past);
        let error = relative(values(row, index), &exact);
        distances.push(Distance { measure: Measure::Operator(stage), layer, error });
    }
    let exact = stepwise.logits(values(row, count - 1));
    let error = relative(&row.logits, &exact);
    distances.push(Distance { measure: Measure::Head, layer: None, error });
    distances
}

/// `|got - exact| / |exact|` in the Euclidean norm.
///
/// # Panics
/// If the lengths differ: the engine did not report the row.
fn relative(got: &[f32], exact: &[f64]) -> f64 {
    assert_eq!(got.len(), exact.len(), "a row of another width than the model's");
    let square = |x: f64| x * x;
    let error: f64 = got.iter().zip(exact).map(|(a, b)| square(f64::from(*a) - b)).sum();
    if error == 0.0 {
        return 0.0;
    }
    finite_or_infinite((error / exact.iter().map(|x| square(*x)).sum::<f64>()).sqrt())
}

/// A NaN compares as nothing, so it would pass every bound.
fn finite_or_infinite(error: f64) -> f64 {
    if error.is_nan() { f64::INFINITY } else { error }
}

/// The best and the second best index; of equal values the lower index first.
fn top_2(logits: &[f64]) -> Option<[usize; 2]> {
    let best_but = |not: Option<usize>| {
        let all = (0..logits.len()).filter(|i| Some(*i) != not);
        all.reduce(|a, b| if logits[b] > logits[a] { b } else { a })
    };
    let best = best_but(None)?;
    Some([best, best_but(Some(best))?])
}

fn greedy(engine: &[f32], exact: &[f64]) -> Greedy {
    let wide: Vec<f64> = engine.iter().map(|x| f64::from(*x)).collect();
    let best = |logits: &[f64]| top_2(logits).map_or(0, |[best, _]| best);
    let (engine, [first, second]) = (best(&wide), top_2(exact).unwrap_or([0, 0]));
    Greedy {
        engine: engine as u32,
        exact: first as u32,
        margin: exact[first] - exact[second],
        lost: exact[first] - exact[engine],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_error_is_that_of_the_row_and_a_nan_is_beyond_every_bound() {
        assert_eq!(relative(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert_eq!(relative(&[3.0, 5.0], &[3.0, 4.0]), 0.2);
        assert_eq!(relative(&[0.0], &[0.0]), 0.0);
        assert_eq!(relative(&[1.0], &[0.0]), f64::INFINITY);
        assert_eq!(relative(&[f32::NAN, 1.0], &[1.0, 1.0]), f64::INFINITY);
        assert_eq!(relative(&[f32::INFINITY], &[1.0]), f64::INFINITY);
    }

    #[test]
    fn the_best_of_equal_logits_is_the_lowest_and_the_margin_zero() {
        let greedy = greedy(&[1.0, 2.0, 2.0, 0.0], &[1.0, 2.0, 2.0, 3.0]);
        assert_eq!((greedy.engine, greedy.exact), (1, 3));
        assert_eq!((greedy.margin, greedy.lost), (1.0, 1.0));
        assert_eq!(top_2(&[1.0, 2.0, 2.0]), Some([1, 2]));
        assert_eq!(top_2(&[1.0]), None);
    }

    #[test]
    fn chosen_rows_are_spread_and_hold_the_last() {
        assert_eq!(spread_over(3, 8), BTreeSet::from([0, 1, 2]));
        assert_eq!(spread_over(10, 4), BTreeSet::from([0, 3, 6, 9]));
        assert!(spread_over(0, 4).is_empty());
    }
}
