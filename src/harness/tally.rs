//! Sums over the cases of a campaign, in the order of case numbers.

use std::collections::BTreeMap;

use crate::coverage;
use crate::record::{Inert, Run, SENTINELS, SentinelCounts};
use crate::relation::{
    Compared, CountedInF64, Judgement, RARE_CASES_MIN, Relation, SPREAD_CASES_MIN, SPREAD_MIN,
    Spread,
};
use crate::schedule::ActKind;
use crate::subject::{Capabilities, Edges};

/// What one case contributed.
#[derive(Clone, Debug)]
pub(super) struct CaseResult {
    pub(super) judgements: Vec<Option<Judgement>>,
    pub(super) sentinels: SentinelCounts,
    /// Whether each row edge lay between two launches of the case.
    pub(super) edges_crossed: Vec<bool>,
    /// (fired, all) by act, in the order of [`ActKind::ALL`].
    pub(super) acts: [(u64, u64); ActKind::ALL.len()],
    /// Why intents were inert.
    pub(super) inert: BTreeMap<&'static str, u64>,
    pub(super) requests: u64,
    pub(super) tokens: u64,
    pub(super) forwards: u64,
    pub(super) fresh_processes: u64,
    /// What its run covered; `None` if there was no run.
    pub(super) covered: Option<coverage::RunCoverage>,
}

/// Per-case figures of a run.
pub(super) fn case_result(run: &Run, prompts: &[usize], edges: &Edges) -> CaseResult {
    let mut acts = [(0, 0); ActKind::ALL.len()];
    let mut inert = BTreeMap::new();
    for outcome in &run.intents {
        let (fired, all) = &mut acts[outcome.intent.act.kind() as usize];
        *all += 1;
        match outcome.inert {
            None => *fired += 1,
            Some(why) => *inert.entry(inert_name(why)).or_default() += 1,
        }
    }
    let crossed = |edge: &u32| {
        run.steps.iter().any(|s| s.rows < *edge) && run.steps.iter().any(|s| s.rows >= *edge)
    };
    CaseResult {
        judgements: Vec::new(),
        sentinels: run.sentinels.clone(),
        edges_crossed: edges.rows.iter().map(crossed).collect(),
        acts,
        inert,
        requests: prompts.len() as u64,
        tokens: run.distinct_tokens(prompts.iter().copied()),
        forwards: 0,
        fresh_processes: 0,
        covered: None,
    }
}

fn inert_name(why: Inert) -> &'static str {
    match why {
        Inert::MarkNotReached => "mark not reached",
        Inert::WrongMark => "wrong mark",
        Inert::NoSuchRequest => "no such request",
        Inert::SameAsDefault => "same as the default",
        Inert::NoSwapRoom => "no room to swap to",
        Inert::NothingToSwap => "nothing to swap",
        Inert::NoSibling => "nobody to fork from",
        Inert::NeverAsked => "never asked for",
        Inert::Overtaken => "overtaken",
    }
}

/// A relation's sums.
#[derive(Clone, Debug)]
pub struct RelationTally {
    /// The relation.
    pub relation: &'static Relation,
    /// Cases that it was asked about.
    pub cases: u64,
    /// Cases in which it held.
    pub held: u64,
    /// Cases in which it was broken.
    pub broken: u64,
    /// Cases that did not exercise it.
    pub inapplicable: u64,
    /// Why the subject can't be judged by it at all.
    pub not_applicable: Option<&'static str>,
    /// What was compared.
    pub compared: Compared,
    /// Minima that were missed.
    pub missed: Vec<String>,
    /// (name, cases in which it fired) of its gates and spreads, over the cases in which it was judged.
    pub sentinels: BTreeMap<String, u64>,
    coverage: Coverage,
}

/// In how many cases mechanisms fired.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// By sentinel.
    pub fired_in: [u64; SENTINELS.len()],
    /// By row count at which the subject changes its launches: cases with launches on both sides.
    pub edges: Vec<(u32, u64)>,
    /// Cases repeated in a fresh process.
    pub fresh_processes: u64,
    /// Greedy draws among several largest logits.
    pub ties: u64,
    /// Pairs of samples that drew differently from equal logits.
    pub parted: u64,
    /// Positions compared with a pass in f64.
    pub f64: CountedInF64,
}

impl Coverage {
    fn new(edges: &Edges) -> Coverage {
        Coverage {
            fired_in: [0; SENTINELS.len()],
            edges: edges.rows.iter().map(|edge| (*edge, 0)).collect(),
            fresh_processes: 0,
            ties: 0,
            parted: 0,
            f64: CountedInF64::default(),
        }
    }

    fn add(&mut self, case: &CaseResult) {
        for (count, (sentinel, _)) in self.fired_in.iter_mut().zip(SENTINELS) {
            *count += u64::from(case.sentinels.get(sentinel) > 0);
        }
        for ((_, count), crossed) in self.edges.iter_mut().zip(&case.edges_crossed) {
            *count += u64::from(*crossed);
        }
        self.fresh_processes += case.fresh_processes;
    }

    fn spread(&self, spread: Spread) -> Vec<(String, u64)> {
        match spread {
            Spread::Fired(s) | Spread::Rare(s) => {
                vec![(s.name().to_owned(), self.fired_in[s as usize])]
            }
            Spread::RowEdges => {
                self.edges.iter().map(|(e, n)| (format!("row_edge_{e}"), *n)).collect()
            }
            Spread::FreshProcess => vec![(FRESH_PROCESS.to_owned(), self.fresh_processes)],
            Spread::Ties => vec![("draw_tied".to_owned(), self.ties)],
            Spread::Parted => vec![("draws_parted".to_owned(), self.parted)],
            Spread::ExactPastSplit => vec![("exact_past_split".to_owned(), self.f64.past_split)],
            Spread::ExactPastHit => vec![("exact_past_hit".to_owned(), self.f64.past_hit)],
        }
    }
}

/// Sums of a campaign.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Cases.
    pub cases: u64,
    /// By relation, in the order asked for.
    pub relations: Vec<RelationTally>,
    /// In how many cases mechanisms fired, judged or not.
    pub coverage: Coverage,
    /// What was exercised, against what can be.
    pub exercised: coverage::Coverage,
    /// How often each sentinel fired.
    pub sentinels: SentinelCounts,
    /// (fired, all) by act, in the order of [`ActKind::ALL`].
    pub acts: [(u64, u64); ActKind::ALL.len()],
    /// Why intents were inert.
    pub inert: BTreeMap<&'static str, u64>,
    /// Requests.
    pub requests: u64,
    /// Tokens, each position of each request counted once.
    pub tokens: u64,
    /// Steps launched.
    pub forwards: u64,
}

impl Tally {
    pub(super) fn new(
        relations: &[(&'static Relation, Option<&'static str>)],
        edges: &Edges,
        capabilities: &Capabilities,
    ) -> Tally {
        Tally {
            cases: 0,
            relations: relations
                .iter()
                .map(|&(relation, not_applicable)| RelationTally {
                    relation,
                    cases: 0,
                    held: 0,
                    broken: 0,
                    inapplicable: 0,
                    not_applicable,
                    compared: Compared::default(),
                    missed: Vec::new(),
                    sentinels: BTreeMap::new(),
                    coverage: Coverage::new(edges),
                })
                .collect(),
            coverage: Coverage::new(edges),
            exercised: coverage::Coverage::new(capabilities),
            sentinels: SentinelCounts::default(),
            acts: [(0, 0); ActKind::ALL.len()],
            inert: BTreeMap::new(),
            requests: 0,
            tokens: 0,
            forwards: 0,
        }
    }

    pub(super) fn add(&mut self, case: &CaseResult) {
        self.cases += 1;
        self.requests += case.requests;
        self.tokens += case.tokens;
        self.forwards += case.forwards;
        self.sentinels.merge(&case.sentinels);
        self.coverage.add(case);
        if let Some(covered) = &case.covered {
            self.exercised.add(covered);
        }
        for (sum, one) in self.acts.iter_mut().zip(&case.acts) {
            sum.0 += one.0;
            sum.1 += one.1;
        }
        for (why, n) in &case.inert {
            *self.inert.entry(why).or_default() += n;
        }
        for (tally, judgement) in self.relations.iter_mut().zip(&case.judgements) {
            let Some(judgement) = judgement else { continue };
            tally.cases += 1;
            if !matches!(judgement, Judgement::Inapplicable(_)) {
                tally.coverage.add(case);
            }
            match judgement {
                Judgement::Held(compared) => {
                    tally.held += 1;
                    tally.compared.add(compared);
                    tally.coverage.ties += compared.ties;
                    tally.coverage.parted += compared.parted;
                    tally.coverage.f64.add(&compared.f64);
                }
                Judgement::Broken(_) => tally.broken += 1,
                Judgement::Inapplicable(_) => tally.inapplicable += 1,
            }
        }
    }

    /// Fills in which minima were missed. A relation that no case exercised is vacuous whatever the number of cases.
    pub(super) fn settle(&mut self, capabilities: &Capabilities, edges: &Edges) {
        let cases = self.cases;
        for tally in &mut self.relations {
            let relation = tally.relation;
            let mut missed = Vec::new();
            let mut seen = BTreeMap::new();
            for gate in relation.gates {
                seen.insert(gate.name().to_owned(), tally.coverage.fired_in[*gate as usize]);
            }
            let asked = tally.not_applicable.is_none();
            let spreads =
                relation.spreads.iter().filter(|s| asked && has(capabilities, edges, **s));
            for spread in spreads {
                let (from, least) = due(*spread);
                for (name, count) in tally.coverage.spread(*spread) {
                    if cases >= from && count < least {
                        let judged = tally.held + tally.broken;
                        missed.push(format!("{name} in {count} of {judged} cases"));
                    }
                    seen.insert(name, count);
                }
            }
            if tally.held + tally.broken == 0 && tally.not_applicable.is_none() {
                missed.insert(0, "no case passed its gate".into());
            }
            tally.missed = missed;
            tally.sentinels = seen;
        }
    }

    /// Whether there were enough cases for the campaign minima to be due.
    pub fn minima_are_due(&self) -> bool {
        self.cases >= SPREAD_CASES_MIN
    }

    /// (fired, all) over disruptive acts.
    pub fn disruptive(&self) -> (u64, u64) {
        let acts = ActKind::ALL.iter().zip(self.acts).filter(|(kind, _)| kind.is_disruptive());
        acts.fold((0, 0), |(fired, all), (_, (f, a))| (fired + f, all + a))
    }

    /// Positions whose logits were compared, over all relations.
    pub fn positions_compared(&self) -> u64 {
        self.relations.iter().map(|r| r.compared.positions).sum()
    }
}

/// Whether the subject has the mechanism, so that its minimum is due.
fn has(capabilities: &Capabilities, edges: &Edges, spread: Spread) -> bool {
    let exact = capabilities.exact.as_ref();
    match spread {
        Spread::Fired(sentinel) | Spread::Rare(sentinel) => {
            capabilities.sentinels.contains(&sentinel)
        }
        Spread::RowEdges => true,
        Spread::Ties => capabilities.ties,
        Spread::Parted => capabilities.draws,
        Spread::ExactPastSplit => exact.is_some_and(|exact| exact.positions > edges.split),
        Spread::ExactPastHit => exact.is_some(),
        Spread::FreshProcess => capabilities.fresh_process,
    }
}

const FRESH_PROCESS: &str = "fresh_process";

/// Cases from which on a minimum is due, and the minimum.
fn due(spread: Spread) -> (u64, u64) {
    match spread {
        Spread::Rare(_) => (RARE_CASES_MIN, 1),
        Spread::FreshProcess => (SPREAD_CASES_MIN, 1),
        Spread::Fired(_)
        | Spread::RowEdges
        | Spread::Ties
        | Spread::Parted
        | Spread::ExactPastSplit
        | Spread::ExactPastHit => (SPREAD_CASES_MIN, SPREAD_MIN),
    }
}
