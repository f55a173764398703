//! X1 on a GPU: the host and the device agree bit for bit. With no GPU every trial is listed as ignored.
//!
//! How much is compared comes from the environment, so that a first run can be small:
//! `LOCKSTEP_X1_ELEMENTS` per operator, variant and dtype, host against device (100,000; evidence needs 10,000,000);
//! `LOCKSTEP_X1_DEVICE_ELEMENTS` device against device (1,000,000; 1,000,000,000);
//! `LOCKSTEP_X1_GEMM_ROUNDS` weight matrices (9; 26 pass the whole list of shapes);
//! `LOCKSTEP_X1_ROWS=all` every row count of the GEMM in 1..=130 instead of a selection;
//! `LOCKSTEP_X1_POSITIONS` of the Qwen3-0.6B shape at full depth (64; 2,000);
//! `LOCKSTEP_X1_SCHEDULES` cases (50); `LOCKSTEP_X1_JOBS` threads (all cores); `LOCKSTEP_X1_SEED`;
//! `LOCKSTEP_X1_REPORT=FILE` writes the counts as JSON (lockstep.x1/1.0).

mod depth;
#[cfg(feature = "cuda")]
mod evidence;
#[cfg(feature = "cuda")]
mod gpu;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use lockstep::device::DeviceError;
use lockstep::harness::policy::Choice;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let choice = match Choice::from_env() {
        Ok(choice) => choice,
        Err(why) => {
            eprintln!("lockstep: {why}");
            return ExitCode::from(2);
        }
    };
    match choice.gpu() {
        #[cfg(feature = "cuda")]
        Ok(context) if std::env::var_os(gpu::FAULT).is_some() => gpu::fault(&context),
        #[cfg(feature = "cuda")]
        Ok(context) => {
            // Trials share the GPU, and each uses every core.
            arguments.test_threads = Some(1);
            gpu::run(&arguments, &context)
        }
        #[cfg(not(feature = "cuda"))]
        Ok(never) => match never {},
        Err(reason) => {
            let required = choice.requires_gpu();
            arguments.test_threads = Some(1);
            absent(&arguments, &reason, required)
        }
    }
}

/// Lists the trials as ignored, or fails them where a GPU is required.
fn absent(arguments: &Arguments, reason: &str, required: bool) -> ExitCode {
    let trials = names().into_iter().map(|name| {
        let reason = reason.to_owned();
        Trial::test(name, move || Err(reason.into())).with_ignored_flag(!required)
    });
    let trials = trials.chain([depth::trial()]);
    #[cfg(feature = "cuda")]
    let trials = trials.chain([evidence::trial()]);
    let conclusion = libtest_mimic::run(arguments, trials.collect());
    if !arguments.list {
        eprintln!("lockstep: x1: {} ignored: {reason}", conclusion.num_ignored);
    }
    conclusion.exit_code()
}

/// A device's failure decides nothing.
fn undecided(error: DeviceError) -> Failed {
    Failed::from(format!("could not decide: {error}"))
}

/// Every trial that needs a GPU.
fn names() -> Vec<String> {
    let mut names = vec!["x1::failures".to_owned(), "x1::qwen3_06b::bf16".to_owned()];
    for dtype in ["bf16", "f16"] {
        let areas = lockstep::relation::x1::Area::ALL.map(|(_, name)| name);
        for area in ["matrix_unit", "scalars", "weights", "controls"].into_iter().chain(areas) {
            names.push(format!("x1::{area}::{dtype}"));
        }
        for area in ["device_variants", "schedules_tiny", "schedules_small"] {
            names.push(format!("x1::{area}::{dtype}"));
        }
    }
    names
}
