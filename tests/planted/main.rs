//! Planted bugs with a known minimum: the campaign finds each, and the shrinker reaches its minimum.
//!
//! Thirteen are faults of state under the real engine (a device that reads the wrong block, loses a write, draws from another
//! row; faults that strike at some number of rows are left out, since many partitions of rows are 1-minimal for them), the others say of a run of the real engine when a bit of it flips. A minimum is (sequences, intents, tokens): a sequence is a
//! sample of a request, and tokens are those of its prompt and those asked for. Each was found by hand.

#[path = "../hash_faults/faulty.rs"]
mod faulty;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockstep::case::Case;
use lockstep::contract::{MatrixUnit, Mode};
use lockstep::engine::{self, DeviceModel, EngineError, contract_of};
use lockstep::fixture::Fixture;
use lockstep::harness::shrink::shrink;
use lockstep::harness::{Campaign, Report, ShrinkBudget, Verdict};
use lockstep::record::{Capture, Run, Sentinel};
use lockstep::relation::named;
use lockstep::schedule::{ActKind, Schedule};
use lockstep::strategy::Space;
use lockstep::subject::{Capabilities, Edges, Subject, SubjectError};
use lockstep::weights;
use lockstep::workload::{Request, Workload};
use lockstep::world::World;

use faulty::{Fault, Faulty};

/// Seeds of the campaigns in which each bug is looked for.
const SEEDS: [u64; 3] = [1, 2, 3];
/// Cases within which a bug must be found.
const CASES: u64 = 400;
const BUDGET: ShrinkBudget =
    ShrinkBudget { executions_max: 20_000, time_max: Duration::from_secs(120) };

/// Sequences, intents, tokens.
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
}

struct Planted {
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
    faulty: DeviceModel<Faulty>,
    executions: AtomicU64,
}

impl Engine {
    fn new(bug: Bug) -> Engine {
        let source = weights::source("tiny", None).unwrap();
        let (contract, rope) = contract_of(&source.config(), source.dtype(), MatrixUnit::SM90, 512);
        let fault = if let Bug::Device(fault) = bug { Some(fault) } else { None };
        let device = Faulty::new(contract, fault);
        Engine {
            bug,
            faulty: DeviceModel::open(&source, device, &rope).unwrap(),
            plain: Fixture::hash("tiny", source, Mode::Invariant).unwrap(),
            executions: AtomicU64::new(0),
        }
    }

    fn campaign(&self, seed: u64, relation: &str) -> Report {
        let campaign = Campaign {
            subject: self,
            space: Space::new(self.edges(), self.default_world()),
            relations: named(relation),
            cases: CASES,
            time_max: None,
            seed,
            jobs: 1,
            budget: BUDGET,
        };
        campaign.run(&|_| ()).unwrap()
    }
}

impl Subject for Engine {
    fn name(&self) -> &str {
        "tiny"
    }
    fn device(&self) -> &str {
        "planted"
    }
    fn capabilities(&self) -> Capabilities {
        self.plain.capabilities()
    }
    fn edges(&self) -> Edges {
        Edges { positions_max: 512, ..self.plain.edges() }
    }
    fn default_world(&self) -> World {
        self.plain.default_world()
    }
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<Capture>,
    ) -> Result<Run, SubjectError> {
        let n = self.executions.fetch_add(1, Ordering::Relaxed);
        if let Bug::Device(_) = self.bug {
            let run = engine::execute(&self.faulty, world, workload, schedule, seed, capture);
            return run.map_err(|error| match error {
                EngineError::BadInput(why) => SubjectError::BadInput(why),
                EngineError::Device(why) => SubjectError::Unavailable(why.to_string()),
                other => SubjectError::Failed(other.to_string()),
            });
        }
        let mut run = self.plain.execute(world, workload, schedule, seed, capture)?;
        let flips = match self.bug {
            Bug::Flips(flips) => flips(workload, &run),
            Bug::Flaky(every) => n % every == every - 1,
            Bug::Device(_) => false,
        };
        if flips {
            for output in run.outputs.values_mut() {
                if let Some(last) = output.positions.last_mut() {
                    last.logits ^= 1;
                }
            }
        }
        Ok(run)
    }
}

fn size(case: &Case) -> Size {
    let requests = &case.workload.requests;
    let one = |r: &Request| r.prompt.own_tokens().len() + r.max_tokens as usize;
    (
        requests.iter().map(|r| r.samples as usize).sum(),
        case.schedule.intents.len(),
        requests.iter().map(|r| r.samples as usize * one(r)).sum(),
    )
}

/// Whether an act of this kind fired in the run, so many times.
fn fired(run: &Run, kind: ActKind, times: usize) -> bool {
    let fired =
        |o: &&lockstep::record::IntentOutcome| o.inert.is_none() && o.intent.act.kind() == kind;
    run.intents.iter().filter(fired).count() >= times
}

fn ran(run: &Run, sentinel: Sentinel) -> bool {
    run.sentinels.get(sentinel) > 0
}

fn planted() -> Vec<Planted> {
    let device = |fault, relation, minimum| Planted { bug: Bug::Device(fault), relation, minimum };
    let flips = |flips, relation, minimum| Planted { bug: Bug::Flips(flips), relation, minimum };
    vec![
        // Two blocks of the shortest prompt that has two, which a cut makes a continued chunk.
        device(Fault::BlocksSwapped, "I2.chunk", |b| (1, 1, b + 2)),
        device(Fault::BlockOfANeighbour, "I1", |_| (2, 0, 4)),
        device(Fault::WriteLost, "I1", |_| (2, 0, 4)),
        // A chunk that starts inside the second block.
        device(Fault::WriteIntoTheBlockBefore, "I2.chunk", |b| (1, 1, b + 3)),
        device(Fault::StaleReads, "I1", |_| (2, 0, 4)),
        // One position later must still lie in the blocks.
        device(Fault::PositionTooLate, "I2.chunk", |b| (1, 1, if b > 2 { 3 } else { 4 })),
        device(Fault::SeesTooLittle, "I2.chunk", |_| (1, 1, 3)),
        device(Fault::LayerOfAnother, "I1", |_| (2, 0, 4)),
        device(Fault::WriteToOtherLayer, "I2.chunk", |_| (1, 1, 3)),
        // Tokens are zero in the end, so that the two differ in length.
        device(Fault::RowsRotated, "I1", |_| (2, 0, 5)),
        device(Fault::TokenOfTheRowBefore, "I2.chunk", |_| (1, 1, 3)),
        device(Fault::DrawsFromAnotherRow, "I1", |_| (2, 0, 5)),
        device(Fault::DrawsOtherPosition, "I1", |_| (2, 0, 4)),
        flips(|_, r| r.outputs.len() > 1, "I1", |_| (2, 0, 4)),
        flips(|_, r| r.outputs.len() > 2, "I1", |_| (3, 0, 6)),
        flips(|_, r| r.outputs.len() > 4, "I1", |_| (5, 0, 10)),
        flips(
            |w, r| w.requests.len() > 1 && ran(r, Sentinel::SharedStep) && longest(w) > 8,
            "I1",
            |_| (2, 0, 12),
        ),
        flips(
            |w, r| w.requests.len() > 2 && ran(r, Sentinel::SharedStep) && longest(w) > 4,
            "I1",
            |_| (3, 0, 10),
        ),
        flips(|_, r| fired(r, ActKind::Cut, 1), "I2.chunk", |_| (1, 1, 3)),
        flips(|_, r| fired(r, ActKind::Cut, 2), "I2.chunk", |_| (1, 2, 4)),
        flips(|_, r| fired(r, ActKind::Preempt, 1), "I2.preempt", |_| (1, 1, 3)),
        flips(
            |_, r| ran(r, Sentinel::SwapIn) && !fired(r, ActKind::Cut, 1),
            "I2.swap",
            |_| (1, 1, 3),
        ),
        flips(|_, r| ran(r, Sentinel::CowCopy), "I2.fork", |_| (2, 2, 8)),
        flips(|_, r| fired(r, ActKind::Abort, 1), "I2.cancel", |_| (2, 1, 5)),
        flips(|_, r| fired(r, ActKind::Land, 1), "I2.land", |_| (1, 1, 2)),
    ]
}

/// Length of the longest prompt.
fn longest(workload: &Workload) -> usize {
    workload.requests.iter().map(|r| r.prompt.own_tokens().len()).max().unwrap_or(0)
}

#[test]
fn known_minima_are_reached() {
    let (mut all, mut reached) = (0, 0);
    let mut executions: Vec<u64> = Vec::new();
    let mut times: Vec<Duration> = Vec::new();
    for (n, Planted { bug, relation, minimum }) in planted().into_iter().enumerate() {
        let name = match bug {
            Bug::Device(fault) => format!("{fault:?}"),
            _ => format!("condition {n}"),
        };
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
            times.push(started.elapsed());
            let (got, known) = (size(&shrunk.case), minimum(shrunk.case.world.block_size as usize));
            all += 1;
            reached += usize::from(got == known);
            executions.push(shrunk.executions + shrunk.checks);
            println!(
                "{name}, seed {seed}, {relation}: case {}, {got:?} of {known:?}, {} executions and {} checks",
                failure.index, shrunk.executions, shrunk.checks,
            );
            if got != known {
                println!("{}", lockstep::harness::ledger::describe(&shrunk.case));
            }
        }
    }
    executions.sort_unstable();
    times.sort_unstable();
    let (median, time) = (executions[all / 2], times[all / 2]);
    println!("minimum reached in {reached} of {all}; median {median} executions, {time:.0?}");
    assert!(reached * 100 >= all * 95, "{reached} of {all}");
    assert!(median <= 200, "{median} executions");
    assert!(time <= Duration::from_secs(2), "{time:?}");
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
