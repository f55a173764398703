//! Judges an engine that may be faulty: what `cargo xtask mutants` runs, a process a mutant, in a copy of the tree.
//!
//! In the tree itself there is no mutant, and the trials here see to it that then nobody sees one: neither the cases that
//! mutants are judged by, nor the test shapes that they are compared with. With `MUTANT_JOB=FILE` the program does what
//! the file says and writes its answer to `MUTANT_ANSWER`.

mod job;
mod judge;
mod marker;
mod open;
mod shapes;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use libtest_mimic::{Arguments, Trial};

use job::{Answer, Job, Stage};

/// Names the file with the job.
const JOB: &str = "MUTANT_JOB";
/// Names the file for the answer.
const ANSWER: &str = "MUTANT_ANSWER";
/// Names an architecture (`sm_90a`): digests of programs are printed, and nothing else is done.
const KERNELS: &str = "MUTANT_KERNELS";

fn main() -> ExitCode {
    let started = Instant::now();
    if std::env::var_os(open::REPEAT).is_some() {
        return open::repeat();
    }
    if let Some(arch) = std::env::var_os(KERNELS) {
        return done(kernels(&arch.to_string_lossy()));
    }
    match std::env::var_os(JOB) {
        Some(path) => done(answer(path.as_ref(), started)),
        None => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mutants: {why}");
            ExitCode::from(2)
        }
    }
}

fn answer(path: &Path, started: Instant) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let job: Job = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let to = std::env::var_os(ANSWER).ok_or_else(|| format!("{ANSWER} is not set"))?;
    let answer = judge::judge(&job, started)?;
    let text = serde_json::to_string(&answer).map_err(|e| e.to_string())?;
    std::fs::write(&to, text).map_err(|e| format!("{}: {e}", Path::new(&to).display()))
}

/// Prints `PROGRAM SHA256` for each bf16 program of an architecture that the chosen mutant changes; those named by the
/// arguments if none is chosen.
#[cfg(feature = "cuda")]
fn kernels(arch: &str) -> Result<(), String> {
    use lockstep::contract::Dtype;
    use lockstep::device::cuda::{Arch, Compiler, Program};
    let arch = Arch::CHECKED.into_iter().find(|a| a.to_string() == arch);
    let arch = arch.ok_or("an architecture that kernels are checked for was expected")?;
    let cache = std::env::var_os("LOCKSTEP_CUBIN_CACHE").map(Into::into);
    let compiler = Compiler::new(cache).map_err(|e| e.to_string())?;
    let named: Vec<String> = std::env::args().skip(1).collect();
    for program in Program::all().into_iter().filter(|p| p.dtype == Dtype::Bf16) {
        let before = marker::hits();
        drop(program.text());
        if marker::hits() > before || named.contains(&program.to_string()) {
            let cubin = compiler.cubin(&program, arch).map_err(|e| e.to_string())?;
            println!("{program} {}", cubin.sha256);
        }
    }
    Ok(())
}

#[cfg(not(feature = "cuda"))]
fn kernels(_: &str) -> Result<(), String> {
    Err("this build has no feature cuda".into())
}

/// The tree as it is: nothing is seen in it.
fn trials() -> Vec<Trial> {
    ["hash", "host"]
        .map(|on| {
            Trial::test(format!("clean::{on}"), move || {
                let (model, dtype) = ("tiny".into(), "bf16".into());
                let stage = Stage { on: on.into(), model, dtype, cases: 24, turn: 24 };
                let job = Job {
                    stages: vec![stage],
                    seed: 0,
                    relations: Vec::new(),
                    expect: Vec::new(),
                    needs: vec!["shared_step".into()],
                    audits: true,
                    record: true,
                    clean: Vec::new(),
                    clean_held: Vec::new(),
                    shapes: Some(on.into()),
                    row: false,
                };
                let answer = judge::judge(&job, Instant::now())?;
                let Answer { cases, reached, executed, by, bs1_vs_bsn, unique_texts, .. } = &answer;
                let seen = !by.is_empty() || [bs1_vs_bsn, unique_texts].contains(&&Some(true));
                if seen || *cases != 24 || *reached == 0 || *executed != 0 {
                    return Err(format!("{answer:?}").into());
                }
                Ok(())
            })
        })
        .into()
}
