//! Every relation on the fixture engine, as trials of `cargo test`.
//!
//! Case numbers: `PROPTEST_CASES` (64 by default) for `tiny`; `small` costs about sixty times as much and runs a
//! sixteenth of them. The batch-dependent mode is the positive control: it must go red in every run, with all operators
//! (here) and with each alone (`ablation.rs`); so must engines with other faults (`controls.rs`).

mod ablation;
mod controls;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use lockstep::case::CaseFile;
use lockstep::contract::{Dtype, Mode, Operator};
use lockstep::fixture::{Fixture, FreshProcess};
use lockstep::harness::policy::{Choice, DEVICE, Gpu};
use lockstep::harness::{Report, Suite};
use lockstep::relation::{Observable, RELATIONS, Relation};
use lockstep::strategy::Space;
use lockstep::subject::{Subject, SubjectError};
use lockstep::weights::{self, Model};

/// Set for a fresh process that repeats one case: it prints the trajectory hash.
const CHILD: &str = "LOCKSTEP_REPEAT_CASE";
/// Folder of committed cases, if this is not the repository that built this program.
const REGRESSIONS: &str = "LOCKSTEP_REGRESSIONS";

/// Presets, and a divisor of the number of cases: (label, preset, dtype, divisor).
const SEARCHES: [(&str, &str, Dtype, u64); 3] = [
    ("tiny", "tiny", Dtype::Bf16, 1),
    ("tiny_f16", "tiny", Dtype::F16, 2),
    ("small", "small", Dtype::Bf16, 16),
];

type Shared = Arc<dyn Subject + Send>;

fn main() -> ExitCode {
    let choice = match Choice::from_env() {
        Ok(choice) => choice,
        Err(why) => return usage(&why),
    };
    if std::env::var_os(CHILD).is_some() {
        return repeat(choice);
    }
    let arguments = Arguments::from_args();
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions");
    let regressions = std::env::var_os(REGRESSIONS).map_or_else(|| committed.into(), PathBuf::from);
    let suite = Suite::from_env(regressions);
    let gpu = choice.gpu();
    let mut devices = vec![("", host as Open), ("::hash", hash as Open)];
    let mut shown = "host, hash".to_owned();
    match &gpu {
        Ok(_) => {
            devices.push(("::cuda", cuda as Open));
            shown = "host, hash, cuda".into();
        }
        Err(why) if !arguments.list => eprintln!("lockstep: trials on cuda are ignored: {why}"),
        Err(_) => {}
    }
    let mut trials = Vec::new();
    for (suffix, open) in devices {
        let result = (|| -> Result<(), String> {
            let open = |preset, dtype, mode| {
                let model = weights::open(preset, Some(dtype)).expect("presets are always there");
                open(preset, &model, mode, gpu.as_ref().ok()).map_err(|error| error.to_string())
            };
            let subjects = SEARCHES
                .iter()
                .map(|(_, preset, dtype, _)| open(preset, *dtype, Mode::Invariant))
                .collect::<Result<Vec<_>, _>>()?;
            trials.extend(suite.replays(&subjects, suffix)?);
            for (subject, (label, _, _, divisor)) in subjects.iter().zip(SEARCHES) {
                let cases = suite.cases.div_ceil(divisor);
                searches(&suite, subject, &format!("{label}{suffix}"), cases, &mut trials);
            }
            let tiny = |mode| open("tiny", Dtype::Bf16, mode);
            batch_dependent(&suite, &tiny(other_numerics())?, suffix, &mut trials);
            for operator in Operator::ALL {
                let subject = tiny(Mode::ablation(operator))?;
                trials.push(ablation::trial(&suite, operator, subject, suffix));
            }
            controls::add(&suite, &tiny(Mode::Invariant)?, suffix, &mut trials);
            Ok(())
        })();
        if let Err(why) = result {
            return usage(&why);
        }
    }
    if let Err(why) = &gpu {
        trials.extend(absent(why, choice.requires_gpu()));
    }
    suite.run(&arguments, &shown, trials)
}

fn usage(why: &str) -> ExitCode {
    eprintln!("lockstep: {why}");
    ExitCode::from(2)
}

/// Opens a fixture on a device.
type Open = fn(&str, &Model, Mode, Option<&Gpu>) -> Result<Shared, SubjectError>;

fn host(name: &str, model: &Model, mode: Mode, _: Option<&Gpu>) -> Result<Shared, SubjectError> {
    Ok(Arc::new(Fixture::host(name, model, mode)?.with_fresh_process(fresh("host"))))
}

fn hash(name: &str, model: &Model, mode: Mode, _: Option<&Gpu>) -> Result<Shared, SubjectError> {
    Ok(Arc::new(Fixture::hash(name, model, mode)?.with_fresh_process(fresh("hash"))))
}

#[cfg(feature = "cuda")]
fn cuda(name: &str, model: &Model, mode: Mode, gpu: Option<&Gpu>) -> Result<Shared, SubjectError> {
    let context = gpu.expect("opened only where there is a GPU");
    let device = format!("cuda:{}", context.gpu().ordinal);
    Ok(Arc::new(Fixture::cuda(name, model, mode, context)?.with_fresh_process(fresh(&device))))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &str, _: &Model, _: Mode, gpu: Option<&Gpu>) -> Result<Shared, SubjectError> {
    match *gpu.expect("opened only where there is a GPU") {}
}

fn fresh(device: &str) -> FreshProcess {
    FreshProcess {
        program: std::env::current_exe().expect("this program has a path"),
        arguments: Vec::new(),
        variables: vec![(CHILD.into(), "1".into()), (DEVICE.into(), device.into())],
    }
}

fn searches(suite: &Suite, subject: &Shared, label: &str, cases: u64, trials: &mut Vec<Trial>) {
    for relation in RELATIONS {
        let space = Space::new(subject.edges(), subject.default_world());
        trials.push(suite.search(subject, label, relation, space, cases));
    }
}

/// Everything but the sampler follows the batch: what is found is found by its logits.
fn other_numerics() -> Mode {
    let operators = Operator::ALL.into_iter().filter(|o| *o != Operator::Sampler);
    Mode::BatchDependent { operators: operators.collect() }
}

/// Relations that the batch-dependent mode breaks. It repeats itself (I3), identical requests of a step are computed alike
/// (I1.siblings), I4 compares draws from equal logits only, and no order of summation is far from the exact sum (F1).
fn controlled() -> impl Iterator<Item = &'static Relation> {
    let holds = ["I1.siblings", "I3", "I3.process", "I4", "F1"];
    RELATIONS.into_iter().filter(move |r| !holds.contains(&r.id))
}

fn batch_dependent(suite: &Suite, control: &Shared, suffix: &str, trials: &mut Vec<Trial>) {
    let capabilities = control.capabilities();
    for relation in controlled().filter(|r| (r.applies)(&capabilities).is_ok()) {
        let space = Space::new(control.edges(), control.default_world());
        let label = format!("{}{suffix}", control.name());
        let name = "batch_dependent";
        let cases = suite.cases;
        trials.push(suite.control(control, name, &label, relation, space, cases, control_is_sharp));
    }
}

/// The trials on a GPU where there is none: listed as ignored, or failing where one is required.
fn absent(why: &str, required: bool) -> Vec<Trial> {
    let searches = SEARCHES
        .iter()
        .flat_map(|(label, ..)| RELATIONS.map(|r| format!("{}::{label}::cuda", r.path)));
    let controls = controlled().map(|r| format!("c0::batch_dependent::{}::tiny::cuda", r.path));
    let ablations = Operator::ALL.map(|o| ablation::name(o, "::cuda"));
    let others = controls::NAMES.map(|name| format!("{name}::tiny::cuda"));
    let trial = |name| {
        let why = why.to_owned();
        Trial::test(name, move || Err(why.into())).with_ignored_flag(!required)
    };
    searches.chain(controls).chain(ablations).chain(others).map(trial).collect()
}

/// The control is caught for the right reason, and shrinks to what a person can read.
fn control_is_sharp(report: &Report) -> Result<(), String> {
    let failure = report.failure.as_ref().ok_or("no failure")?;
    let requests = failure.case().workload.requests.len();
    let observable = failure.reported().observable;
    // Who is aborted at its first offer is not one of the two that meet.
    let most = if failure.relation.id == "I2.cancel" { 3 } else { 2 };
    match &failure.shrunk {
        Some(shrunk) if shrunk.minimal && requests <= most && observable == Observable::Logits => {
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
fn repeat(choice: Choice) -> ExitCode {
    let path = std::env::args_os().next_back().unwrap_or_default();
    let hash = CaseFile::read(path.as_ref()).map_err(|e| e.to_string()).and_then(|file| {
        let world = &file.world;
        let model = weights::open(&world.model, Some(world.dtype)).map_err(|e| e.to_string())?;
        let (open, gpu) = match choice {
            Choice::Cuda(_) => (cuda as Open, Some(choice.gpu()?)),
            Choice::Hash => (hash as Open, None),
            _ => (host as Open, None),
        };
        let subject = open(&world.model, &model, world.mode.clone(), gpu.as_ref())
            .map_err(|e| e.to_string())?;
        let run = subject
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
