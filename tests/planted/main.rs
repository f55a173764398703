//! Planted bugs with a known minimum: the campaign finds each, and the shrinker reaches its minimum.
//!
//! Most are faults of state under the real engine (a device that reads the wrong block, loses a write, draws from another
//! row), the others say of a run of the real engine when a bit of it flips: `bugs.rs` lists them, and derives each minimum.
//! A minimum is (sequences, deviations, tokens): a sequence is a sample of a request; a deviation is an intent, or a pool
//! that does not hold everything at once; tokens are those of the prompts and those asked for.

#[path = "../support/altered.rs"]
mod altered;
mod bugs;
#[path = "../hash_faults/faulty.rs"]
mod faulty;
mod shapes;
mod wrapped;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockstep::case::Case;
use lockstep::contract::Mode;
use lockstep::fixture::Fixture;
use lockstep::harness::shrink::shrink;
use lockstep::harness::{Campaign, Report, ShrinkBudget, Verdict};
use lockstep::record::{Capture, Run};
use lockstep::relation::{Observable, by_id};
use lockstep::schedule::Schedule;
use lockstep::strategy::Space;
use lockstep::subject::{Edges, Subject, SubjectError};
use lockstep::weights;
use lockstep::workload::Workload;
use lockstep::world::World;

use faulty::{Fault, FaultyFixture};

/// Seeds of the campaigns in which each bug is looked for.
const SEEDS: [u64; 4] = [1, 2, 3, 4];
/// Cases within which a bug must be found.
const CASES: u64 = 400;
const BUDGET: ShrinkBudget =
    ShrinkBudget { executions_max: 20_000, time_max: Duration::from_secs(120) };

/// Sequences, deviations, tokens.
type Size = (usize, usize, usize);

/// When a bit of a run of the real engine flips.
type Flips = fn(&Workload, &Run) -> bool;

enum Bug {
    /// A fault of the device under the engine.
    Device(Fault),
    /// A condition on the run.
    Flips(Flips),
    /// Every so many-th execution, whatever is asked: not repeatable.
    Flaky(u64),
    /// Beside another sequence, the logits after a prompt of nine or more, and K after a shorter one: two failures.
    TwoKinds,
}

struct Planted {
    name: String,
    bug: Bug,
    /// The relation asked, and the one that must break.
    relation: &'static str,
    /// The minimum in a world with blocks of so many positions.
    minimum: fn(usize) -> Size,
}

/// The real engine with a bug.
struct Engine {
    bug: Bug,
    plain: Fixture<lockstep::device::hash::Hash>,
    faulty: FaultyFixture,
    executions: AtomicU64,
}

impl Engine {
    fn new(bug: Bug) -> Engine {
        let source = weights::source("tiny", None).unwrap();
        let fault = if let Bug::Device(fault) = bug { Some(fault) } else { None };
        Engine {
            bug,
            faulty: faulty::fixture(fault),
            plain: Fixture::hash("tiny", source, Mode::Invariant).unwrap(),
            executions: AtomicU64::new(0),
        }
    }

    fn campaign(&self, seed: u64, relation: &str) -> Report {
        let campaign = Campaign {
            subject: self,
            space: Space::new(self.edges(), self.default_world()),
            relations: vec![by_id(relation).unwrap()],
            cases: CASES,
            time_max: None,
            seed,
            jobs: 1,
            budget: BUDGET,
        };
        campaign.run(&|_| ()).unwrap()
    }
}

impl lockstep::subject::Wrapper for Engine {
    fn inner(&self) -> &dyn Subject {
        &self.plain
    }
    fn device(&self) -> &str {
        "planted"
    }
    fn edges(&self) -> Edges {
        Edges { positions_max: 512, ..self.plain.edges() }
    }
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        let n = self.executions.fetch_add(1, Ordering::Relaxed);
        if let Bug::Device(_) = self.bug {
            return self.faulty.execute(world, workload, schedule, seed, capture);
        }
        let mut run = self.plain.execute(world, workload, schedule, seed, capture)?;
        let flips = match self.bug {
            Bug::Flips(flips) => flips(workload, &run),
            Bug::Flaky(every) => n % every == every - 1,
            Bug::TwoKinds => run.outputs.len() > 1,
            Bug::Device(_) => false,
        };
        let longest = workload.requests.iter().map(|r| r.prompt.own_tokens().len()).max();
        if flips && matches!(self.bug, Bug::TwoKinds) && longest < Some(9) {
            let read = run.outputs.values_mut().flat_map(|output| output.kv.last_mut());
            read.flat_map(|kv| kv.layers.first_mut()).for_each(|layer| layer.k ^= 1);
        } else if flips {
            for output in run.outputs.values_mut() {
                if let Some(last) = output.positions.last_mut() {
                    last.logits ^= 1;
                }
            }
        }
        Ok(run)
    }
}

/// Whether the pool is too small for everything at once.
fn is_tight(case: &Case) -> bool {
    let requests = case.workload.requests.iter().zip(case.workload.lengths());
    let blocks = requests.map(|(r, l)| r.samples as usize * l.blocks(case.world.block_size));
    (case.world.pool_blocks as usize) < blocks.sum()
}

fn size(case: &Case) -> Size {
    let requests = &case.workload.requests;
    // A continuation counts with what it continues.
    let lengths = case.workload.lengths();
    let tokens = requests
        .iter()
        .zip(lengths)
        .map(|(r, lengths)| r.samples as usize * (lengths.prompt + r.max_tokens as usize));
    (
        requests.iter().map(|r| r.samples as usize).sum(),
        case.schedule.intents.len() + usize::from(is_tight(case)),
        tokens.sum(),
    )
}

/// What came of a list of bugs.
#[derive(Default)]
struct Outcome {
    all: usize,
    reached: usize,
    executions: Vec<u64>,
    times: Vec<Duration>,
}

impl Outcome {
    /// Looks for a bug with each seed, shrinks it, and compares with its minimum.
    fn look_for(&mut self, Planted { name, bug, relation, minimum }: Planted) {
        let engine = Engine::new(bug);
        for seed in SEEDS {
            let report = engine.campaign(seed, relation);
            let failure =
                report.failure.unwrap_or_else(|| panic!("{name}, seed {seed}: not found"));
            let shrunk =
                failure.shrunk.as_ref().unwrap_or_else(|| panic!("{name} does not repeat"));
            assert!(shrunk.minimal, "{name}, seed {seed}");
            // Once more, for its time alone.
            let started = Instant::now();
            shrink(&engine, failure.relation, &failure.original, &failure.divergence, BUDGET);
            self.times.push(started.elapsed());
            let (got, known) = (size(&shrunk.case), minimum(shrunk.case.world.block_size as usize));
            self.all += 1;
            self.reached += usize::from(got == known);
            self.executions.push(shrunk.executions + shrunk.checks);
            println!(
                "{name}, seed {seed}, {relation}: case {}, {got:?} of {known:?}, {} executions and {} checks",
                failure.index, shrunk.executions, shrunk.checks,
            );
            // A minimum that was undercut was not derived right.
            assert!(got >= known, "{name}, seed {seed}: {:?}", shrunk.case);
            if got != known {
                println!("{}", lockstep::harness::ledger::describe(&shrunk.case));
            }
        }
    }

    fn judge(mut self) {
        self.executions.sort_unstable();
        self.times.sort_unstable();
        let Outcome { all, reached, executions, times } = self;
        let (median, most) = (executions[all / 2], executions[all - 1]);
        let (time, longest) = (times[all / 2], times[all - 1]);
        println!(
            "minimum reached in {reached} of {all}; median {median} executions, most {most}; median {time:.0?}, longest {longest:.0?}"
        );
        assert!(reached * 100 >= all * 95, "{reached} of {all}");
        assert!(median <= 200, "{median} executions");
    }
}

#[test]
fn known_minima_are_reached() {
    let mut outcome = Outcome::default();
    let bugs = [bugs::first(), bugs::second(), bugs::third()].into_iter().flatten();
    bugs.for_each(|planted| outcome.look_for(planted));
    outcome.judge();
}

/// A smaller case that fails otherwise is another bug: the shrink keeps to the one that was found.
#[test]
fn a_failure_shrinks_to_the_same_failure() {
    let report = Engine::new(Bug::TwoKinds).campaign(1, "I1");
    let failure = report.failure.as_ref().unwrap();
    assert_eq!(failure.divergence.observable, Observable::Logits);
    let shrunk = failure.shrunk.as_ref().unwrap();
    assert!(shrunk.minimal && shrunk.divergence.all.contains(&Observable::Logits));
    let lengths = shrunk.case.workload.lengths();
    assert_eq!(lengths.iter().map(|l| l.prompt).max(), Some(9));
}

/// A failure that does not repeat is a class of its own: it is reported as such, and not shrunk.
#[test]
fn what_does_not_repeat_is_not_shrunk() {
    // Executions of a case differ in number, so that a repetition meets the flip at another place, or not at all.
    let report = Engine::new(Bug::Flaky(97)).campaign(1, "I1");
    let failure = report.failure.as_ref().unwrap();
    assert_eq!(report.verdict(), Verdict::Broken);
    assert!(!failure.is_repeatable() && failure.shrunk.is_none());
    assert_eq!(failure.case(), &failure.original);
}
