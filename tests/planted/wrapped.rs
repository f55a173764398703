//! A fault for each relation that looks at more than one run, or at draws: planted in what the real engine reports, it must
//! break that relation, at what it looks at.

use std::sync::atomic::{AtomicU64, Ordering};

use lockstep::case::Case;
use lockstep::contract::Mode;
use lockstep::device::hash::Hash;
use lockstep::fixture::Fixture;
use lockstep::harness::{Campaign, Report, ShrinkBudget, Verdict};
use lockstep::record::{Capture, Draw, Finish, Held, Output, Run, Sentinel};
use lockstep::relation::{Observable, by_id};
use lockstep::schedule::Schedule;
use lockstep::strategy::Space;
use lockstep::subject::{Capabilities, Subject, SubjectError};
use lockstep::weights;
use lockstep::workload::{SampleId, Workload};
use lockstep::world::World;

/// What is wrong with a run of this workload and run seed.
type Spoil = fn(&Workload, u64, &mut Run);

/// The real engine on the hash device, with a fault in its reports.
struct Spoilt {
    inner: Fixture<Hash>,
    spoil: Spoil,
}

impl Spoilt {
    fn new(spoil: Spoil) -> Spoilt {
        let source = weights::source("tiny", None).unwrap();
        Spoilt { inner: Fixture::hash("tiny", source, Mode::Invariant).unwrap(), spoil }
    }

    fn campaign(&self, relation: &str) -> Report {
        campaign(self, relation).unwrap()
    }
}

fn campaign(subject: &dyn Subject, relation: &str) -> Result<Report, SubjectError> {
    let relation = by_id(relation).unwrap();
    let mut space = Space::new(subject.edges(), subject.default_world());
    space.focus.extend_from_slice(relation.focus);
    let campaign = Campaign {
        subject,
        space,
        relations: vec![relation],
        cases: 64,
        time_max: None,
        seed: 2,
        jobs: 1,
        budget: ShrinkBudget::default(),
    };
    campaign.run(&|_| ())
}

/// An engine with a fault whose device is lost after so many executions.
struct Lost {
    inner: Spoilt,
    executions: AtomicU64,
    lost_after: u64,
}

impl lockstep::subject::Wrapper for Lost {
    fn inner(&self) -> &dyn Subject {
        &self.inner
    }
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        if self.executions.fetch_add(1, Ordering::SeqCst) >= self.lost_after {
            return Err(SubjectError::Unavailable("the device was lost".into()));
        }
        Subject::execute(&self.inner, world, workload, schedule, seed, capture)
    }
}

/// Wherever the device is lost: what was found stays found, and nothing is called minimal that was not proved to be.
#[test]
fn a_device_that_is_lost_proves_nothing() {
    let run = |lost_after: u64| {
        let spoil: Spoil = |_, _, run| flip(run, |_, output| output.shared_steps > 0);
        let lost = Lost { inner: Spoilt::new(spoil), executions: AtomicU64::new(0), lost_after };
        let report = campaign(&lost, "I1");
        (report, lost.executions.into_inner())
    };
    let (whole, executions) = run(u64::MAX);
    assert!(whole.unwrap().failure.unwrap().shrunk.unwrap().minimal);
    let mut seen = [0; 3];
    for lost_after in (0..executions).step_by(5) {
        let kind = match run(lost_after).0 {
            Err(error) => {
                assert_eq!(error, SubjectError::Unavailable("the device was lost".into()));
                0
            }
            Ok(report) => {
                let failure = report.failure.expect("it was found");
                let ended = match &failure.shrunk {
                    Some(shrunk) => shrunk.ended_by.as_deref(),
                    None => failure.interrupted.as_deref(),
                };
                assert_eq!(ended, Some("the device was lost"), "after {lost_after}");
                assert!(failure.shrunk.as_ref().is_none_or(|shrunk| !shrunk.minimal));
                1 + usize::from(failure.shrunk.is_some())
            }
        };
        seen[kind] += 1;
    }
    assert!(seen[2] > 0, "{seen:?} of {executions}");
}

impl lockstep::subject::Wrapper for Spoilt {
    fn inner(&self) -> &dyn Subject {
        &self.inner
    }
    fn device(&self) -> &str {
        "spoilt"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { fresh_process: true, ..self.inner.capabilities() }
    }
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        let mut run = self.inner.execute(world, workload, schedule, seed, capture)?;
        (self.spoil)(workload, seed, &mut run);
        Ok(run)
    }
    fn replay_in_fresh_process(&self, case: &Case) -> Result<String, SubjectError> {
        // Another process, whose engine has not the fault.
        let Case { world, workload, schedule, seed } = case;
        Ok(self.inner.execute(world, workload, schedule, *seed, None)?.trajectory.hash())
    }
}

fn ran(run: &Run, sentinel: Sentinel) -> bool {
    run.sentinels.get(sentinel) > 0
}

/// Flips a bit of the last logits of each output that is told.
fn flip(run: &mut Run, which: impl Fn(SampleId, &Output) -> bool) {
    for (_, output) in run.outputs.iter_mut().filter(|(id, output)| which(**id, output)) {
        output.positions.last_mut().into_iter().for_each(|last| last.logits ^= 1);
    }
}

/// Changes the key of each sampled draw.
fn rekey(run: &mut Run, key: impl Fn(&Draw) -> [u32; 2]) {
    for draw in run.outputs.values_mut().flat_map(|o| &mut o.draws) {
        draw.key = draw.key.map(|_| key(draw));
    }
}

/// (relation, observable, what is wrong, requests of the smallest case at most)
const FAULTS: [(&str, Observable, Spoil, usize); 13] = [
    // The later of two siblings.
    (
        "I1.siblings",
        Observable::Logits,
        |_, _, run| {
            let met = ran(run, Sentinel::SiblingsMet);
            let first = run.outputs.keys().next().copied();
            flip(run, |id, _| met && Some(id) != first);
        },
        2,
    ),
    // Whoever was submitted first, in company.
    (
        "I1.order",
        Observable::Logits,
        |workload, _, run| {
            let first = workload.requests[0].uid;
            flip(run, |id, output| id.uid == first && output.shared_steps > 0);
        },
        2,
    ),
    // A decoded position, in the canonical execution too: nothing else compares the two paths.
    (
        "I2.path",
        Observable::Logits,
        |_, _, run| {
            let decoded = ran(run, Sentinel::Decoded);
            flip(run, |_, _| decoded);
        },
        1,
    ),
    // A token that is drawn in a decode.
    (
        "I2.path",
        Observable::Tokens,
        |_, _, run| {
            let decoded = ran(run, Sentinel::Decoded);
            for output in run.outputs.values_mut().filter(|_| decoded) {
                output.tokens.last_mut().into_iter().for_each(|token| *token ^= 1);
            }
        },
        1,
    ),
    // Whoever comes after an abort, alone.
    (
        "I2.restore",
        Observable::Logits,
        |_, _, run| {
            let aborted = ran(run, Sentinel::Abort);
            let stays = |output: &Output| output.finish != Some(Finish::Aborted);
            flip(run, |_, output| aborted && stays(output) && output.shared_steps == 0);
        },
        1,
    ),
    // A block that a swapped request leaves behind.
    (
        "I2.restore",
        Observable::Held,
        |_, _, run| {
            if ran(run, Sentinel::SwapOut) {
                run.held = Some(Held { blocks: 1, swap_blocks: 0 });
            }
        },
        1,
    ),
    // Something of this process in the state.
    (
        "I3.process",
        Observable::Trajectory,
        |_, _, run| {
            run.trajectory.boundaries.last_mut().into_iter().for_each(|hash| hash[0] ^= 1);
        },
        2,
    ),
    // The place in the step is a part of the key.
    ("I4", Observable::Draws, |_, _, run| rekey(run, |draw| [draw.place, 7]), 2),
    // Everybody is drawn for by the run's seed.
    (
        "I4",
        Observable::Draws,
        |_, seed, run| rekey(run, |_| lockstep::contract::philox::key_of(seed)),
        2,
    ),
    // The position is counted in the chunk.
    (
        "I4",
        Observable::Draws,
        |_, _, run| {
            for draw in run.outputs.values_mut().flat_map(|o| &mut o.draws) {
                draw.position = 0;
            }
        },
        2,
    ),
    // The right key, but the token of another draw, in company.
    (
        "I4",
        Observable::Draws,
        |_, _, run| {
            for output in run.outputs.values_mut().filter(|o| o.shared_steps > 0) {
                output.draws.last_mut().into_iter().for_each(|draw| draw.token ^= 1);
                output.tokens.last_mut().into_iter().for_each(|token| *token ^= 1);
            }
        },
        2,
    ),
    // The stated key, but the run's seed has a part in what is drawn by a request's own.
    (
        "I4",
        Observable::Draws,
        |workload, seed, run| {
            let is_seeded = |uid| workload.get(uid).is_some_and(|r| r.seed.is_some());
            for (_, output) in run.outputs.iter_mut().filter(|(id, _)| is_seeded(id.uid)) {
                output.draws.last_mut().into_iter().for_each(|d| d.token ^= seed as u32 & 1);
                output.tokens.last_mut().into_iter().for_each(|t| *t ^= seed as u32 & 1);
            }
        },
        2,
    ),
    // A draw that is not reported.
    (
        "I4",
        Observable::Coverage,
        |_, _, run| {
            run.outputs
                .values_mut()
                .for_each(|o| o.draws.truncate(o.draws.len().saturating_sub(1)));
        },
        2,
    ),
];

#[test]
fn each_relation_finds_what_it_is_there_for() {
    for (relation, observable, spoil, most) in FAULTS {
        let report = Spoilt::new(spoil).campaign(relation);
        let Some(failure) = &report.failure else {
            panic!("{relation}, {}: not found", observable.name());
        };
        let requests = failure.case().workload.requests.len();
        println!(
            "{relation}: case {}, {requests} requests and {} intents: {}",
            failure.index,
            failure.case().schedule.intents.len(),
            failure.reported()
        );
        assert_eq!(failure.reported().observable, observable, "{relation}");
        assert!(failure.shrunk.as_ref().is_some_and(|s| s.minimal), "{relation}");
        assert!(requests <= most, "{relation}: {requests} requests");
    }
}

/// Goal: the faults are what goes red. Method: the same campaigns without one hold.
#[test]
fn without_a_fault_each_holds() {
    for relation in ["I1.siblings", "I1.order", "I2.path", "I2.restore", "I3.process", "I4"] {
        let report = Spoilt::new(|_, _, _| ()).campaign(relation);
        let tally = &report.tally.relations[0];
        assert_eq!(report.verdict(), Verdict::Held, "{relation}: {:?}", report.failure);
        println!("{}", lockstep::harness::ledger::line(relation, tally));
        assert!(tally.held * 5 > tally.cases, "{relation} held in {}", tally.held);
    }
}
