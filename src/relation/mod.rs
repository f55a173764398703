//! Relations: what must hold between executions, one file each.
//!
//! A relation is a value: a statement, the sentinels that say whether a case exercised it, and a judge. Judges see any
//! engine through [`Subject`](crate::subject::Subject) only. A case that did not exercise a relation is *inapplicable*
//! to it, never "held".

pub mod compare;
mod d1;
pub mod executions;
pub mod f1;
pub mod g1;
mod i1;
mod i2;
mod i3;
mod i4;
pub mod localise;
mod scores;
pub mod standard;
pub mod x1;

use std::fmt;

use crate::record::Sentinel;
use crate::strategy::Feature;
use crate::subject::{Capabilities, SubjectError};

pub use compare::{Divergence, Observable};
pub use executions::{Executions, resolve};
pub use localise::Localisation;
pub use standard::Standard;

/// What a relation says about one case.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// It held, and this much was compared.
    Held(Compared),
    /// The case did not exercise it.
    Inapplicable(&'static str),
    /// It is broken.
    Broken(Box<Divergence>),
}

/// How much was compared: bit for bit, or with a pass in f64 where the relation does that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Computed positions whose logits were compared.
    pub positions: u64,
    /// Positions whose K and V were compared, cached ones included.
    pub kv: u64,
    /// Computed positions whose layer digests were compared.
    pub sites: u64,
    /// Log-probabilities that were compared.
    pub scores: u64,
    /// Greedy draws among several largest logits that a plain engine made too.
    pub ties: u64,
    /// Draws whose key, position and token were compared.
    pub draws: u64,
    /// Pairs of samples that drew differently from equal logits at one position, each by a key of its own.
    pub parted: u64,
    /// Of the positions, those that were compared with a pass in f64.
    pub f64: CountedInF64,
}

/// Positions that were compared with a pass in f64, by what is special about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedInF64 {
    /// Each operator was compared with its equation too.
    pub operator_rows: u64,
    /// Attention folded two or more splits.
    pub past_split: u64,
    /// Earlier positions were attached, not computed.
    pub past_hit: u64,
    /// The two best logits are so close that rounding may swap them.
    pub near_ties: u64,
    /// Of these, the greedy token is another one.
    pub other_tokens: u64,
}

impl CountedInF64 {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &CountedInF64) {
        self.operator_rows += other.operator_rows;
        self.past_split += other.past_split;
        self.past_hit += other.past_hit;
        self.near_ties += other.near_ties;
        self.other_tokens += other.other_tokens;
    }
}

impl Compared {
    /// Adds what was compared elsewhere.
    pub fn add(&mut self, other: &Compared) {
        self.positions += other.positions;
        self.kv += other.kv;
        self.sites += other.sites;
        self.scores += other.scores;
        self.ties += other.ties;
        self.f64.add(&other.f64);
        self.draws += other.draws;
        self.parted += other.parted;
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compared { positions, kv, sites, scores, draws, f64: counts, .. } = self;
        if (*positions, *draws > 0) == (0, true) {
            return write!(f, "{draws} draws");
        }
        if *counts != CountedInF64::default() {
            let CountedInF64 { operator_rows, near_ties, other_tokens, .. } = counts;
            return write!(
                f,
                "{positions} positions with f64, {operator_rows} of them operator by operator, {near_ties} near ties, {other_tokens} with another greedy token"
            );
        }
        write!(
            f,
            "{positions} positions, {kv} kv, {sites} rows of layer digests, {scores} log-probabilities"
        )?;
        if *draws > 0 { write!(f, ", {draws} draws") } else { Ok(()) }
    }
}

/// A campaign-wide minimum, due from [`SPREAD_CASES_MIN`] cases on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// The sentinel fired in at least [`SPREAD_MIN`] cases.
    Fired(Sentinel),
    /// The sentinel fired in at least one case; due from [`RARE_CASES_MIN`] cases on, since few draws come to it.
    Rare(Sentinel),
    /// Each row count at which the subject changes its launches was crossed in at least [`SPREAD_MIN`] cases.
    RowEdges,
    /// A case was repeated in a fresh process at least once.
    FreshProcess,
    /// At least [`SPREAD_MIN`] greedy draws were among several largest logits.
    Ties,
    /// At least [`SPREAD_MIN`] positions whose attention folded splits were compared with a pass in f64. Due if the
    /// subject's reference goes as far.
    ExactPastSplit,
    /// At least [`SPREAD_MIN`] positions after attached ones were compared with a pass in f64.
    ExactPastHit,
    /// At least [`SPREAD_MIN`] pairs of samples drew differently from equal logits, each by a key of its own.
    Parted,
}

/// Cases from which on the spread minima are due.
pub const SPREAD_CASES_MIN: u64 = 200;
/// Cases from which on the minima of rare mechanisms are due.
pub const RARE_CASES_MIN: u64 = 2000;
/// Cases in which a spread sentinel must have fired by then.
pub const SPREAD_MIN: u64 = 2;

/// Looks at the executions of a case.
pub type Judge = fn(&mut Executions<'_>) -> Result<Judgement, SubjectError>;

/// A relation.
#[derive(Clone, Copy, Debug)]
pub struct Relation {
    /// Identity: `I1`, `I2.chunk`.
    pub id: &'static str,
    /// Path in trial names: `i1::cohabitants`, `i2::chunk`.
    pub path: &'static str,
    /// What must hold.
    pub statement: &'static str,
    /// What it varies.
    pub varies: &'static str,
    /// Mechanisms of which one must have fired in a case for the case to count. The judge may ask for more, of the requests
    /// that it compares.
    pub gates: &'static [Sentinel],
    /// Campaign minima.
    pub spreads: &'static [Spread],
    /// Features that a campaign about this relation turns up.
    pub focus: &'static [Feature],
    /// It is asked of every so many-th case of a campaign that asks more than one relation: what costs a whole execution, or a
    /// process, is asked more rarely.
    pub every: u64,
    /// Whether a subject can be judged by it; otherwise why not.
    pub applies: fn(&Capabilities) -> Result<(), &'static str>,
    /// Looks at the executions of a case in which a gate fired.
    judge: Judge,
}

impl Relation {
    /// What the relation says about a case. One that did not fire a gate is inapplicable, whatever the judge would say.
    pub fn judge(&self, executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
        if let Err(why) = (self.applies)(executions.capabilities()) {
            return Ok(Judgement::Inapplicable(why));
        }
        let fired = |gate: &Sentinel| executions.run().sentinels.get(*gate) > 0;
        if !self.gates.iter().any(fired) {
            return Ok(Judgement::Inapplicable("none of its gates fired"));
        }
        (self.judge)(executions)
    }
}

/// Whether the subject reports logits, and has and counts what is a relation's only gate.
fn counts(
    capabilities: &Capabilities,
    gate: Sentinel,
    missing: &'static str,
) -> Result<(), &'static str> {
    if !capabilities.logits {
        return Err("the subject reports no logits");
    }
    if capabilities.sentinels.contains(&gate) { Ok(()) } else { Err(missing) }
}

/// All relations, in the order of reports.
pub static RELATIONS: [&Relation; 22] = [
    &i1::I1,
    &i1::SIBLINGS,
    &i1::ORDER,
    &i2::CHUNK,
    &i2::PREEMPT,
    &i2::PREFIX,
    &i2::SWAP,
    &i2::FORK,
    &i2::CANCEL,
    &i2::NAMESPACE,
    &i2::PLACE,
    &i2::EVICT,
    &i2::BUCKET,
    &i2::LAND,
    &i2::POISON,
    &i2::PATH,
    &i2::RESTORE,
    &i3::I3,
    &i3::PROCESS,
    &i4::I4,
    &d1::D1,
    &f1::F1,
];

/// The relation with exactly this identity.
pub fn by_id(id: &str) -> Option<&'static Relation> {
    RELATIONS.iter().copied().find(|r| r.id == id)
}

/// The relations that a name stands for: `I2` for all of I2, `I2.chunk` or its path in trial names, `i2::chunk`, for one.
/// Empty if there is none.
pub fn named(name: &str) -> Vec<&'static Relation> {
    let is_named = |r: &&'static Relation| {
        let family = r.id.split('.').next().unwrap_or(r.id);
        [r.id, family, r.path].iter().any(|id| id.eq_ignore_ascii_case(name))
    };
    RELATIONS.iter().copied().filter(is_named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::record::{Capture, Run};
    use crate::schedule::Schedule;
    use crate::subject::{Edges, Subject};
    use crate::workload::{Request, Workload};
    use crate::world::World;

    #[test]
    fn a_family_name_stands_for_all_its_relations() {
        assert_eq!(named("I2").len(), 14);
        assert_eq!(named("I2.chunk").len(), 1);
        assert_eq!(named("i1").len(), 3);
        assert_eq!(named("i2").len(), 14);
        assert_eq!(by_id("I1").map(|r| r.path), Some("i1::cohabitants"));
        assert!(by_id("I2").is_none());
        // A family's namesake alone.
        assert_eq!(named("i1::cohabitants").len(), 1);
        assert!(named("I9").is_empty());
        assert!(named("").is_empty());
    }

    /// An engine that does nothing.
    struct Idle;

    impl Subject for Idle {
        fn name(&self) -> &str {
            "idle"
        }
        fn device(&self) -> &str {
            "none"
        }
        fn capabilities(&self) -> Capabilities {
            Capabilities::all()
        }
        fn edges(&self) -> Edges {
            Edges { rows: Vec::new(), tile: 16, split: 32, vocab: 9, positions_max: 9 }
        }
        fn default_world(&self) -> World {
            World::of_blocks([4, 1, 0])
        }
        fn execute(
            &self,
            _: &World,
            _: &Workload,
            _: &Schedule,
            _: u64,
            _: Option<&Capture>,
        ) -> Result<Run, SubjectError> {
            Ok(Run::default())
        }
    }

    /// Goal: a case counts only if a gate fired. Method: a judge that is content with anything.
    #[test]
    fn a_case_without_its_mechanism_is_inapplicable_whatever_the_judge_says() {
        let content: Judge = |_| Ok(Judgement::Held(Compared::default()));
        let relation = Relation { judge: content, applies: |_| Ok(()), ..i1::I1 };
        let workload = Workload { requests: vec![Request::new(1, vec![1], 1)] };
        let (world, schedule) = (Idle.default_world(), Schedule::default());
        let case = Case { world, workload, schedule, seed: 0 };
        let mut executions = Executions::new(&Idle, &case).unwrap();
        let judged = relation.judge(&mut executions).unwrap();
        assert_eq!(judged, Judgement::Inapplicable("none of its gates fired"));
    }
}
