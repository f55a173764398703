//! The hash device finds faults of state: each is planted in a wrapper of the device, under the real engine, and must
//! break a relation; without one everything holds.

#[path = "../support/altered.rs"]
mod altered;
mod faulty;

use lockstep::contract::Mode;
use lockstep::fixture::Fixture;
use lockstep::harness::{Campaign, Report, ShrinkBudget, Verdict};
use lockstep::record::Sentinel;
use lockstep::relation::{Observable, RELATIONS};
use lockstep::schedule::Schedule;
use lockstep::strategy::Space;
use lockstep::subject::{Edges, Subject};
use lockstep::weights;
use lockstep::workload::{Request, Workload};
use lockstep::world::World;

use faulty::{Fault, FaultyFixture};

/// The real engine on a device with a fault.
struct Engine {
    fixture: FaultyFixture,
}

impl Engine {
    fn new(fault: Option<Fault>) -> Engine {
        Engine { fixture: faulty::fixture(fault) }
    }

    fn campaign(&self, cases: u64) -> Report {
        let campaign = Campaign {
            subject: self,
            space: Space::new(self.edges(), self.default_world()),
            relations: RELATIONS.to_vec(),
            cases,
            time_max: None,
            seed: 5,
            jobs: 1,
            budget: ShrinkBudget::default(),
        };
        campaign.run(&|_| ()).unwrap()
    }
}

impl lockstep::subject::Wrapper for Engine {
    fn inner(&self) -> &dyn Subject {
        &self.fixture
    }
    fn edges(&self) -> Edges {
        Edges { positions_max: 512, ..self.fixture.edges() }
    }
}

#[test]
fn every_planted_fault_goes_red_and_shrinks() {
    for fault in Fault::ALL {
        let report = Engine::new(Some(fault)).campaign(40);
        assert_eq!(report.verdict(), Verdict::Broken, "{fault:?} was not found");
        let failure = report.failure.as_ref().unwrap();
        assert!(failure.is_repeatable(), "{fault:?}");
        if fault == Fault::ScoreOfAnotherRow {
            assert_eq!(failure.reported().observable, Observable::Logprobs);
        }
        let case = failure.case();
        let sizes = (case.workload.requests.len(), case.schedule.intents.len());
        println!(
            "{fault:?}: case {}, {}, {sizes:?} requests and intents, {}",
            failure.index,
            failure.relation.id,
            failure.reported()
        );
        assert!(failure.shrunk.as_ref().is_some_and(|s| s.minimal), "{fault:?}");
        assert!(sizes.0 <= 3, "{fault:?}: {sizes:?}");
    }
}

#[test]
fn without_a_fault_everything_holds() {
    // Below the number from which on campaign minima are due: they are other tests' business.
    let report = Engine::new(None).campaign(190);
    let missed: Vec<_> = report.tally.relations.iter().flat_map(|r| &r.missed).collect();
    assert_eq!(report.verdict(), Verdict::Held, "{missed:?}");
    assert!(report.tally.relations.iter().all(|r| r.held > 0 || r.not_applicable.is_some()));
}

/// Goal: the counters of launch variants mean on the hash device what they mean on the host. Method: the same
/// executions on both, of requests that no drawn token can end.
#[test]
fn launches_are_counted_as_the_host_counts_them() {
    let fixture = |hash: bool| -> Box<dyn Subject> {
        let source = weights::source("tiny", None).unwrap();
        match hash {
            true => Box::new(Fixture::hash("tiny", source, Mode::Invariant).unwrap()),
            false => Box::new(Fixture::host("tiny", source, Mode::Invariant).unwrap()),
        }
    };
    let variants = [
        Sentinel::GemmSkinnyWalk,
        Sentinel::GemmSkinnyParallel,
        Sentinel::GemmTiledWalk,
        Sentinel::GemmTiledParallel,
        Sentinel::AttentionWalk,
        Sentinel::AttentionParallel,
        Sentinel::NormFused,
        Sentinel::NormPlain,
        Sentinel::GemmFold,
        Sentinel::MultiSplitRow,
        Sentinel::TileBeforeChunk,
    ];
    let (host, hash) = (fixture(false), fixture(true));
    let world = World { pool_blocks: 200, ..host.default_world() };
    for lengths in [&[1][..], &[70], &[3, 40, 5], &[1, 1, 1, 1, 1, 1, 1, 1, 1], &[33, 64, 16, 2]] {
        let requests = lengths.iter().zip(1u64..).map(|(length, uid)| {
            let prompt: Vec<u32> = (0..*length).map(|i| (uid as u32 * 31 + i * 7) % 250).collect();
            Request { ignore_eos: true, ..Request::new(uid, prompt, 6) }
        });
        let workload = Workload { requests: requests.collect() };
        let run = |subject: &dyn Subject| {
            subject.execute(&world, &workload, &Schedule::default(), 1, None).unwrap()
        };
        let (on_host, on_hash) = (run(&*host), run(&*hash));
        assert_eq!(on_host.steps, on_hash.steps);
        for sentinel in variants {
            let counts = (on_host.sentinels.get(sentinel), on_hash.sentinels.get(sentinel));
            assert_eq!(counts.0, counts.1, "{} of {lengths:?}", sentinel.name());
        }
        assert_ne!(on_host.trajectory, on_hash.trajectory);
    }
}
