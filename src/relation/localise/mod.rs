//! The localiser: where two executions part, and by which values.
//!
//! The first operator that differs is found by the digests that both sides left. Both are then carried out again, keeping
//! what that operator computed, how it was launched and the partial results of its reduction, so values are read and not
//! inferred. Sides may differ in schedule, workload, sample or subject: a run and its canonical execution, or two devices.
//!
//! It says what differs, not which side is right. Digests are taken before results are rounded to 16 bits: a fault of that
//! rounding, or of a buffer in between, shows at the operator that reads it.

mod elements;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::case::Case;
use crate::record::sites::Site;
use crate::record::{
    Capture, CapturedRow, CapturedSite, KvMoment, LaunchNote, Output, PositionBits,
};
use crate::subject::{Subject, SubjectError, guard};
use crate::workload::{Request, SampleId};

pub use elements::{Elements, Value, ulp};

/// An execution that can be repeated.
#[derive(Clone, Copy)]
pub struct Side<'s> {
    /// Name in reports: `canonical`, `cuda`.
    pub name: &'s str,
    /// The engine.
    pub subject: &'s dyn Subject,
    /// What is carried out.
    pub execution: Execution<'s>,
    /// Whose output it is.
    pub id: SampleId,
}

/// What a side carries out.
#[derive(Clone, Copy)]
pub enum Execution<'s> {
    /// A case, its continuations resolved.
    Case(&'s Case),
    /// A request of one sample by the plain engine, with this run seed.
    Plain(&'s Request, u64),
}

/// Where two executions of a sample part. Of two values, the first is that of the side that is judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Localisation {
    /// Names of the sides.
    pub sides: [String; 2],
    /// uid of the request.
    pub request: u64,
    /// Sample of the request.
    pub sample: u32,
    /// Computed positions that were compared.
    pub compared: u64,
    /// The first operator that differs, at the smallest position at which one does; `None` if none does, or a side
    /// reports no layer digests.
    pub operator: Option<OperatorFinding>,
    /// The first logits that differ, at the smallest position.
    pub logits: Option<LogitsFinding>,
    /// The first K or V that differs, if it does at an earlier position than the operator or there is no operator: then
    /// what was stored changed after it was computed, or is another position's.
    pub kv: Option<KvFinding>,
}

/// An operator that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorFinding {
    /// Position in the sequence.
    pub position: u32,
    /// Residency on each side, from 1.
    pub residencies: [u32; 2],
    /// Decoder layer, if it belongs to one.
    pub layer: Option<usize>,
    /// Operator, as layer digests name it.
    pub operator: &'static str,
    /// What about it differs.
    pub cause: Cause,
    /// Its results before they are rounded; `None` if they can't be read, or did not differ when the sides were carried out
    /// again.
    pub elements: Option<Elements>,
    /// How it was launched, if both engines say so.
    pub launches: Option<[LaunchNote; 2]>,
}

/// What about an operator differs. The digests of everything before it in that row are equal.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The launches give the reduction another order: cuts, splits or lanes.
    Order,
    /// The order is the same; a partial result differs.
    Part {
        /// First split that differs.
        split: usize,
        /// Splits of the row.
        of: usize,
        /// Its values.
        elements: Elements,
    },
    /// All partial results are equal, so what puts them together differs.
    Fold {
        /// Splits of the row.
        of: usize,
    },
    /// The order is the same, partial results were not read, and the launches differ in their variant.
    Variant,
    /// Nothing that is known of the launches differs.
    Unknown,
}

/// Logits that differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogitsFinding {
    /// Position in the sequence.
    pub position: u32,
    /// Residency on each side, from 1.
    pub residencies: [u32; 2],
    /// The values; `None` if they can't be read.
    pub elements: Option<Elements>,
    /// The token with the largest logit on each side, the lowest of several.
    pub best: Option<[u32; 2]>,
    /// Distance of the two largest logits on the second side; `None` if it is not a number.
    pub margin: Option<f32>,
}

/// K or V that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KvFinding {
    /// Position in the sequence.
    pub position: u32,
    /// Decoder layer.
    pub layer: usize,
    /// `K` or `V`.
    pub which: &'static str,
    /// When it was read back.
    pub moment: &'static str,
    /// Residency, from 1.
    pub residency: u32,
    /// Residencies in which the sample computed the position by itself until then; none if it was attached.
    pub computed_in: Vec<u32>,
}

/// Where the sides' outputs part; `None` if nothing that they both report differs.
pub fn between(
    judged: &Side<'_>,
    standard: &Side<'_>,
) -> Result<Option<Localisation>, SubjectError> {
    let sides = [judged, standard];
    let (Some(a), Some(b)) = (output(judged, None)?, output(standard, None)?) else {
        return Ok(None);
    };
    let pairs = pairs(&a, &b);
    let operator = match pairs.iter().find_map(|pair| Some((pair, pair.first_site()?))) {
        Some((pair, site)) => Some(operator(sides, pair, site)?),
        None => None,
    };
    let logits = match pairs.iter().find(|pair| pair[0].logits != pair[1].logits) {
        Some(pair) => Some(logits(sides, pair)?),
        None => None,
    };
    let kv = kv(&a, &b).filter(|kv| operator.as_ref().is_none_or(|o| kv.position < o.position));
    let found = operator.is_some() || logits.is_some() || kv.is_some() || a.tokens != b.tokens;
    Ok(found.then(|| Localisation {
        sides: sides.map(|side| side.name.to_owned()),
        request: judged.id.uid,
        sample: judged.id.sample,
        compared: pairs.len() as u64,
        operator,
        logits,
        kv,
    }))
}

/// The output of one side.
fn output(side: &Side<'_>, capture: Option<&Capture>) -> Result<Option<Output>, SubjectError> {
    match side.execution {
        Execution::Case(Case { world, workload, schedule, seed }) => {
            let run = guard::execute(side.subject, world, workload, schedule, *seed, capture);
            Ok(run?.outputs.remove(&side.id))
        }
        Execution::Plain(request, seed) => {
            // It leaves layer digests only where something is captured.
            let nothing = Capture::default();
            let run = side.subject.plain(request, seed, Some(capture.unwrap_or(&nothing)));
            Ok(Some(run?.output))
        }
    }
}

/// The same position on both sides.
type Pair<'o> = [&'o PositionBits; 2];

trait FirstSite {
    /// The first site that differs, and how many there are.
    fn first_site(&self) -> Option<(usize, usize)>;
}

impl FirstSite for Pair<'_> {
    fn first_site(&self) -> Option<(usize, usize)> {
        let [a, b] = self.map(|bits| &bits.sites);
        let index = a.iter().zip(b).position(|(a, b)| a != b)?;
        (a.len() == b.len()).then_some((index, a.len()))
    }
}

/// Positions that both sides computed, ascending, and in the order of computation at each: in the same residency, or else
/// the other's last one.
fn pairs<'o>(a: &'o Output, b: &'o Output) -> Vec<Pair<'o>> {
    let known: BTreeMap<(u32, u32), &PositionBits> =
        b.positions.iter().map(|bits| ((bits.position, bits.residency), bits)).collect();
    let mut pairs: Vec<Pair<'o>> = Vec::new();
    for bits in &a.positions {
        let at = bits.position;
        let same = known.get(&(at, bits.residency));
        let last = || known.range((at, 0)..=(at, u32::MAX)).next_back().map(|(_, bits)| bits);
        if let Some(other) = same.or_else(last) {
            pairs.push([bits, *other]);
        }
    }
    pairs.sort_by_key(|[a, _]| a.position);
    pairs
}

/// Carries out both sides again, keeping what is asked for of a row.
fn capture(
    sides: [&Side<'_>; 2],
    pair: &Pair<'_>,
    what: &Capture,
) -> Result<Option<[CapturedRow; 2]>, SubjectError> {
    let position = pair[0].position;
    let positions = position..position + 1;
    let read = |side: usize| -> Result<Option<CapturedRow>, SubjectError> {
        let id = Some(sides[side].id);
        let what = Capture { id, positions: positions.clone(), ..what.clone() };
        let output = output(sides[side], Some(&what))?;
        let mut rows = output.map(|o| o.captured).unwrap_or_default().into_iter();
        Ok(rows.find(|row| row.residency == pair[side].residency))
    };
    Ok(read(0)?.zip(read(1)?).map(|(a, b)| [a, b]))
}

fn operator(
    sides: [&Side<'_>; 2],
    pair: &Pair<'_>,
    (index, count): (usize, usize),
) -> Result<OperatorFinding, SubjectError> {
    let Site { layer, stage } = Site::nth(index, count);
    let what = Capture { sites: BTreeSet::from([index]), parts: true, ..Capture::default() };
    let rows = capture(sides, pair, &what)?;
    let kept = rows.and_then(|[mut a, mut b]| {
        a.sites.remove(&index).zip(b.sites.remove(&index)).map(|(a, b)| [a, b])
    });
    let mut finding = OperatorFinding {
        position: pair[0].position,
        residencies: pair.map(|bits| bits.residency),
        layer,
        operator: stage.name(),
        cause: Cause::Unknown,
        elements: None,
        launches: None,
    };
    if let Some([a, b]) = kept {
        finding.elements = Elements::between(&a.values, &b.values);
        finding.cause = cause(&a, &b);
        finding.launches = a.launch.zip(b.launch).map(|(a, b)| [a, b]);
    }
    Ok(finding)
}

/// What the launches and the parts say.
fn cause(a: &CapturedSite, b: &CapturedSite) -> Cause {
    let launches = a.launch.as_ref().zip(b.launch.as_ref());
    if launches.is_some_and(|(a, b)| a.order != b.order) {
        return Cause::Order;
    }
    // Without a launch the orders are not known, and without a difference there is nothing to explain.
    let explicable = launches.is_some() && Elements::between(&a.values, &b.values).is_some();
    if explicable && !a.parts.is_empty() && a.parts.len() == b.parts.len() {
        let of = a.parts.len();
        let parts = a.parts.iter().zip(&b.parts).enumerate();
        let mut differing =
            parts.filter_map(|(split, (a, b))| Some((split, Elements::between(a, b)?)));
        return match differing.next() {
            Some((split, elements)) => Cause::Part { split, of, elements },
            None => Cause::Fold { of },
        };
    }
    match launches {
        Some((a, b)) if a.variant != b.variant => Cause::Variant,
        _ => Cause::Unknown,
    }
}

fn logits(sides: [&Side<'_>; 2], pair: &Pair<'_>) -> Result<LogitsFinding, SubjectError> {
    let what = Capture { logits: true, ..Capture::default() };
    let mut finding = LogitsFinding {
        position: pair[0].position,
        residencies: pair.map(|bits| bits.residency),
        elements: None,
        best: None,
        margin: None,
    };
    if let Some([a, b]) = capture(sides, pair, &what)? {
        finding.elements = Elements::between(&a.logits, &b.logits);
        if let Some((judged, standard)) = best(&a.logits).zip(best(&b.logits)) {
            finding.best = Some([judged.0, standard.0]);
            finding.margin = standard.1.filter(|margin| margin.is_finite());
        }
    }
    Ok(finding)
}

/// The best token, the lowest of several, and its distance to the second best.
fn best(logits: &[f32]) -> Option<(u32, Option<f32>)> {
    let best = (0..logits.len()).reduce(|a, b| if logits[b] > logits[a] { b } else { a })?;
    let others = logits.iter().enumerate().filter(|(i, _)| *i != best).map(|(_, x)| *x);
    Some((best as u32, others.reduce(f32::max).map(|second| logits[best] - second)))
}

/// The first K or V that differs: at the smallest position, of several there the one read first.
fn kv(a: &Output, b: &Output) -> Option<KvFinding> {
    let known: BTreeMap<u32, _> = b.kv.iter().map(|kv| (kv.position, kv)).collect();
    let differing = a.kv.iter().filter_map(|kv| {
        let other = known.get(&kv.position)?;
        let layers = kv.layers.iter().zip(&other.layers).enumerate();
        let (layer, (x, y)) = layers.into_iter().find(|(_, (x, y))| x != y)?;
        Some((kv, layer, if x.k == y.k { "V" } else { "K" }))
    });
    let (kv, layer, which) = differing.min_by_key(|(kv, ..)| kv.position)?;
    let computed = a.positions.iter().filter(|p| p.position == kv.position);
    let computed_in = computed.map(|p| p.residency).filter(|r| *r <= kv.residency).collect();
    Some(KvFinding {
        position: kv.position,
        layer,
        which,
        moment: match kv.moment {
            KvMoment::Attached => "when it was attached from the prefix cache",
            KvMoment::Forked => "when it was attached from another sample",
            KvMoment::SwappedIn => "when it had come back from host memory",
            KvMoment::Released => "at the end of the residency",
        },
        residency: kv.residency,
        computed_in,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Order;

    #[test]
    fn the_margin_of_a_tie_is_zero_and_its_best_token_the_lowest() {
        assert_eq!(best(&[1.0, 3.0, 3.0]), Some((1, Some(0.0))));
        assert_eq!(best(&[1.0, 3.0, 2.5]), Some((1, Some(0.5))));
        assert_eq!(best(&[1.0]), Some((0, None)));
        assert_eq!(best(&[]), None);
    }

    fn kept(order: Order, variant: &'static str, parts: &[&[f32]]) -> CapturedSite {
        CapturedSite {
            values: vec![1.0],
            launch: Some(LaunchNote { order, variant, ..LaunchNote::default() }),
            parts: parts.iter().map(|part| part.to_vec()).collect(),
        }
    }

    #[test]
    fn the_order_is_named_before_the_parts_and_the_parts_before_the_variant() {
        let a = CapturedSite {
            values: vec![0.0],
            ..kept(Order::Split(32), "walked", &[&[1.0], &[2.0]])
        };
        assert_eq!(cause(&a, &kept(Order::Split(16), "walked", &[&[1.0]])), Cause::Order);
        let moved = kept(Order::Split(32), "parallel", &[&[1.0], &[2.5]]);
        assert!(matches!(cause(&a, &moved), Cause::Part { split: 1, of: 2, .. }));
        let equal = kept(Order::Split(32), "parallel", &[&[1.0], &[2.0]]);
        assert_eq!(cause(&a, &equal), Cause::Fold { of: 2 });
        assert_eq!(cause(&a, &kept(Order::Split(32), "parallel", &[])), Cause::Variant);
        assert_eq!(cause(&a, &kept(Order::Split(32), "walked", &[])), Cause::Unknown);
        // What did not differ when it was read has no cause, nor has what nobody knows the launch of.
        assert_eq!(cause(&equal, &equal), Cause::Unknown);
        let unknown = CapturedSite { launch: None, ..equal };
        assert_eq!(cause(&a, &unknown), Cause::Unknown);
    }
}
