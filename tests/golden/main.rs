//! G1: the bits of a fixed set of prompts are those of the snapshots in `golden/`, each prompt alone and all served together.
//!
//! A snapshot belongs to a preset, a dtype and a matrix unit, not to a device: the host and a GPU are held to the same file.
//! What decides is a comparison of our own; insta only keeps the files and proposes new ones. So a missing snapshot
//! fails, `INSTA_FORCE_PASS` passes nothing, and what would overwrite a snapshot unseen is refused.
//! golden/README.md says how a new snapshot is reviewed.
//!
//! `LOCKSTEP_GOLDEN` names the folder of the snapshots, if it is not that of the repository that built this program.

#[path = "../support/golden.rs"]
mod golden;
mod review;
mod snapshot;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use lockstep::contract::{Dtype, MatrixUnit, Mode};
use lockstep::fixture::Fixture;
use lockstep::harness::policy::Choice;
#[cfg(feature = "cuda")]
use lockstep::harness::policy::Gpu;
use lockstep::relation::g1::{self, Table};
use lockstep::subject::{Subject, SubjectError};
use lockstep::weights;

use snapshot::Snapshot;

/// A model of which there are snapshots.
#[derive(Clone, Copy)]
struct Model {
    /// In the names of trials.
    label: &'static str,
    preset: &'static str,
    dtype: Dtype,
    /// Longest prompt that a host is asked for, in tokens; it is slow on larger models.
    host_tokens: usize,
}

const MODELS: [Model; 3] = [
    Model { label: "tiny", preset: "tiny", dtype: Dtype::Bf16, host_tokens: usize::MAX },
    Model { label: "tiny_f16", preset: "tiny", dtype: Dtype::F16, host_tokens: usize::MAX },
    Model { label: "small", preset: "small", dtype: Dtype::Bf16, host_tokens: usize::MAX },
];
/// Made and checked on a GPU: a host computes the shortest prompts only, and is asked for them by hand.
const LARGE: Model =
    Model { label: "qwen3_06b", preset: "qwen3-0.6b", dtype: Dtype::Bf16, host_tokens: 3 };

type Shared = Arc<dyn Subject + Send>;

fn main() -> ExitCode {
    let choice = match Choice::from_env() {
        Ok(choice) => choice,
        Err(why) => {
            eprintln!("lockstep: {why}");
            return ExitCode::from(2);
        }
    };
    snapshot::silence_insta();
    #[cfg_attr(not(feature = "cuda"), expect(unused_mut, reason = "one thread is for a GPU"))]
    let mut arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for model in MODELS {
        let verified = MatrixUnit::SM90;
        trials.push(trial("g1::golden", model, "", move || host(model, verified)));
        let derived = MatrixUnit::SM80;
        trials.push(trial("g1::golden", model, "::sm80", move || host(model, derived)));
    }
    // By hand: about a minute, and 2 GB of weights.
    let large = trial("g1::golden", LARGE, "", || host(LARGE, MatrixUnit::SM90));
    trials.push(large.with_ignored_flag(true));
    trials.push(Trial::test("c0::batch_dependent::g1::tiny", control));
    trials.extend(review::trials());
    match choice.gpu() {
        #[cfg(not(feature = "cuda"))]
        Ok(never) => match never {},
        #[cfg(feature = "cuda")]
        Ok(gpu) => {
            // Trials share the GPU.
            arguments.test_threads = Some(1);
            for model in MODELS.into_iter().chain([LARGE]) {
                let gpu = gpu.clone();
                trials.push(trial("g1::golden", model, "::cuda", move || cuda(model, &gpu)));
            }
        }
        Err(why) => {
            if !arguments.list {
                eprintln!("lockstep: golden trials on cuda are ignored: {why}");
            }
            for model in MODELS.into_iter().chain([LARGE]) {
                let why = why.clone();
                let absent = trial("g1::golden", model, "::cuda", move || {
                    Err(SubjectError::Unavailable(why.clone()))
                });
                trials.push(absent.with_ignored_flag(!choice.requires_gpu()));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A subject, its matrix unit and the longest prompt that it is asked for.
struct Opened {
    subject: Shared,
    unit: MatrixUnit,
    tokens: usize,
}

fn host(model: Model, unit: MatrixUnit) -> Result<Opened, SubjectError> {
    let source = open(model);
    let fixture = Fixture::host_with(model.preset, source, Mode::Invariant, unit)?;
    Ok(Opened { subject: Arc::new(fixture), unit, tokens: model.host_tokens })
}

fn open(model: Model) -> weights::Source<'static> {
    weights::source(model.preset, Some(model.dtype)).expect("presets are always there")
}

#[cfg(feature = "cuda")]
fn cuda(model: Model, gpu: &Gpu) -> Result<Opened, SubjectError> {
    let unit = gpu.gpu().arch.matrix_unit().unit;
    let fixture = Fixture::cuda(model.preset, open(model), Mode::Invariant, gpu)?;
    Ok(Opened { subject: Arc::new(fixture), unit, tokens: usize::MAX })
}

fn trial(
    group: &str,
    model: Model,
    suffix: &str,
    open: impl Fn() -> Result<Opened, SubjectError> + Send + 'static,
) -> Trial {
    Trial::test(format!("{group}::{}{suffix}", model.label), move || {
        let Opened { subject, unit, tokens } = open().map_err(undecided)?;
        judge(model, &*subject, unit, tokens)
    })
}

fn undecided(error: SubjectError) -> Failed {
    match error {
        SubjectError::Unavailable(why) => format!("could not decide: {why}").into(),
        other => other.to_string().into(),
    }
}

/// Both paths of a subject against the snapshot.
fn judge(
    model: Model,
    subject: &dyn Subject,
    unit: MatrixUnit,
    tokens: usize,
) -> Result<(), Failed> {
    let mut prompts = golden::prompts(model.preset, subject);
    let all = prompts.len();
    prompts.retain(|p| p.tokens.len() <= tokens);
    let snapshot = Snapshot::new(model.preset, model.dtype, unit);
    let alone = g1::alone(subject, &prompts).map_err(undecided)?;
    if prompts.len() < all {
        // Too few for the served path, and for a snapshot.
        return snapshot.holds_part(&alone);
    }
    let served = g1::served(subject, &prompts).map_err(undecided)?;
    snapshot.judge(&alone, &served)
}

/// Goal: the served path can go red. Method: the engine whose launches follow the batch is held to what it computes alone,
/// as if that were its snapshot. It repeats that, and does not when it serves.
fn control() -> Result<(), Failed> {
    let model = MODELS[0];
    let fixture = Fixture::host(model.preset, open(model), Mode::batch_dependent())?;
    let prompts = golden::prompts(model.preset, &fixture);
    let alone = || -> Result<Table, Failed> { g1::alone(&fixture, &prompts).map_err(undecided) };
    let snapshot = alone()?;
    let again = snapshot.differences(&alone()?);
    if !again.is_empty() {
        return Err(format!("alone, it does not repeat: {}", again.join("; ")).into());
    }
    let served = g1::served(&fixture, &prompts).map_err(undecided)?;
    let moved = snapshot.differences(&served);
    eprintln!("c0: {} of {} prompts differ on the served path", moved.len(), prompts.len());
    if moved.is_empty() {
        return Err("the batch-dependent mode was not caught".into());
    }
    Ok(())
}
