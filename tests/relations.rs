//! Every relation on the fixture engine, as trials of `cargo test`.
//!
//! Case numbers: `PROPTEST_CASES` (64 by default) for `tiny`; `small` costs about sixty times as much and runs a
//! sixteenth of them. The batch-dependent mode is the positive control: it must go red in every run.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use lockstep::case::CaseFile;
use lockstep::contract::{Dtype, Mode};
use lockstep::device::host::Host;
use lockstep::fixture::{Fixture, FreshProcess};
use lockstep::harness::{Report, Suite};
use lockstep::relation::{Observable, RELATIONS};
use lockstep::strategy::Space;
use lockstep::subject::Subject;
use lockstep::weights;

/// Set for a fresh process that repeats one case: it prints the trajectory hash.
const CHILD: &str = "LOCKSTEP_REPEAT_CASE";

fn main() -> ExitCode {
    if std::env::var_os(CHILD).is_some() {
        return repeat();
    }
    let arguments = Arguments::from_args();
    let suite = Suite::from_env(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions"));
    let tiny = fixture("tiny", Dtype::Bf16);
    let subjects: [Arc<dyn Subject + Send>; 3] = [
        Arc::new(tiny.in_mode(Mode::Invariant)),
        Arc::new(fixture("tiny", Dtype::F16)),
        Arc::new(fixture("small", Dtype::Bf16)),
    ];
    let mut trials = match suite.replays(&subjects) {
        Ok(replays) => replays,
        Err(error) => {
            eprintln!("lockstep: {error}");
            return ExitCode::from(2);
        }
    };
    let shares = [("tiny", 1), ("tiny_f16", 2), ("small", 16)];
    for (subject, (label, share)) in subjects.iter().zip(shares) {
        searches(&suite, subject, label, suite.cases.div_ceil(share), &mut trials);
    }

    let control: Arc<dyn Subject + Send> = Arc::new(tiny.in_mode(Mode::batch_dependent()));
    for relation in RELATIONS.into_iter().filter(|r| r.id != "I3") {
        let space = Space::new(control.edges(), control.default_world());
        trials.push(suite.control(
            &control,
            "batch_dependent",
            relation,
            space,
            suite.cases,
            control_is_sharp,
        ));
    }
    suite.run(&arguments, "host", trials)
}

fn fixture(preset: &str, dtype: Dtype) -> Fixture<Host> {
    let model = weights::open(preset, Some(dtype)).expect("presets are always there");
    let fixture = Fixture::host(preset, &model, Mode::Invariant).expect("the host is always there");
    fixture.with_fresh_process(FreshProcess {
        program: std::env::current_exe().expect("this program has a path"),
        arguments: Vec::new(),
        variables: vec![(CHILD.into(), "1".into())],
    })
}

fn searches(
    suite: &Suite,
    subject: &Arc<dyn Subject + Send>,
    label: &str,
    cases: u64,
    trials: &mut Vec<Trial>,
) {
    for relation in RELATIONS {
        let space = Space::new(subject.edges(), subject.default_world());
        trials.push(suite.search(subject, label, relation, space, cases));
    }
}

/// The control is caught for the right reason, and shrinks to what a person can read.
fn control_is_sharp(report: &Report) -> Result<(), String> {
    let failure = report.failure.as_ref().ok_or("no failure")?;
    let requests = failure.case().workload.requests.len();
    let observable = failure.reported().observable;
    match &failure.shrunk {
        Some(shrunk) if shrunk.minimal && requests <= 2 && observable == Observable::Logits => {
            Ok(())
        }
        shrunk => Err(format!(
            "{requests} requests, {} differ, minimal: {:?}",
            observable.name(),
            shrunk.as_ref().map(|s| s.minimal)
        )),
    }
}

/// The fresh process: reads the case named by the last argument and prints its trajectory hash.
fn repeat() -> ExitCode {
    let path = std::env::args_os().next_back().unwrap_or_default();
    let hash = CaseFile::read(path.as_ref()).map_err(|e| e.to_string()).and_then(|file| {
        let world = &file.world;
        let model = weights::open(&world.model, Some(world.dtype)).map_err(|e| e.to_string())?;
        let fixture =
            Fixture::host(&world.model, &model, world.mode.clone()).map_err(|e| e.to_string())?;
        let run = fixture
            .execute(world, &file.workload, &file.schedule, file.seed, None)
            .map_err(|e| e.to_string())?;
        Ok(run.trajectory.hash())
    });
    match hash {
        Ok(hash) => {
            println!("{hash}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
