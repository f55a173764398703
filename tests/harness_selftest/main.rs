//! The harness tested on faults that it must report, in children whose exit codes and output are asserted.
//!
//! Method: this program is both the test and the fixture. With `LOCKSTEP_SELFTEST=FAULT` it runs the example `own_engine`
//! with that fault, as a user's test target would; without it, it runs itself as a child for each fault. A
//! harness that dropped its exit code, passed without exercising anything, or shrank what does not repeat would fail
//! here.

#[path = "../../examples/own_engine/engine.rs"]
mod engine;
#[path = "../../examples/own_engine/suite.rs"]
mod suite;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use lockstep::case::CaseFile;

const FAULT: &str = "LOCKSTEP_SELFTEST";
const FOLDER: &str = "LOCKSTEP_SELFTEST_FOLDER";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match std::env::var(FAULT) {
        Ok(fault) => {
            let folder = std::env::var_os(FOLDER).unwrap_or_default();
            let fault = engine::Fault::from_name(&fault).expect("a fault of the engine");
            suite::run(&arguments, fault, folder.into())
        }
        Err(_) => libtest_mimic::run(&arguments, trials()).exit_code(),
    }
}

type Test = fn() -> Result<(), String>;

fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 11] = [
        ("a_sound_engine_passes", sound),
        ("a_leak_between_requests_fails_and_its_case_replays", leak),
        ("a_pass_that_exercised_nothing_fails", vacuous),
        ("a_mechanism_that_never_fired_is_missed_from_200_cases_on", minimum),
        ("what_does_not_repeat_is_a_class_of_its_own", unrepeatable),
        ("an_engine_that_reports_nothing_fails", blind),
        ("a_crash_is_a_failure_and_is_shrunk", crash),
        ("proptest_cases_is_honoured", cases),
        ("few_cases_are_not_vacuous", few),
        ("trials_are_listed_and_filtered", listing),
        ("unknown_arguments_are_refused", refused),
    ];
    tests
        .into_iter()
        .map(|(name, test)| Trial::test(name, move || test().map_err(Failed::from)))
        .collect()
}

/// Runs this program as a child with a fault, in a folder of its own.
fn child(fault: &str, arguments: &[&str], cases: &str) -> (Output, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program)
        .args(arguments)
        .env(FAULT, fault)
        .env(FOLDER, folder.path())
        .env("PROPTEST_CASES", cases)
        .output()
        .expect("this program runs");
    (output, folder)
}

/// Asserts exit code and texts of a child's output.
fn expect(output: &Output, code: i32, texts: &[&str]) -> Result<(), String> {
    let all = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if output.status.code() != Some(code) {
        return Err(format!("exit {:?}, expected {code}\n{all}", output.status.code()));
    }
    match texts.iter().find(|t| !all.contains(**t)) {
        Some(text) => Err(format!("no {text:?} in\n{all}")),
        None => Ok(()),
    }
}

fn sound() -> Result<(), String> {
    let (output, _folder) = child("none", &[], "64");
    expect(&output, 0, &["4 passed; 0 failed", "i1::cohabitants::toy: ", " held of 64 cases"])
}

fn leak() -> Result<(), String> {
    let (output, folder) = child("leak", &[], "64");
    let texts = ["reproduce: ", "relation I1", "logits differ", "1-minimal", "case file: "];
    expect(&output, 101, &texts)?;
    let files: Vec<PathBuf> = std::fs::read_dir(folder.path())
        .map_err(|e| e.to_string())?
        .flatten()
        .map(|e| e.path())
        .collect();
    let file = files.first().ok_or("no case file was written")?;
    let case = CaseFile::read(file).map_err(|e| e.to_string())?;
    if case.workload.requests.len() != 2 || !case.schedule.is_empty() || !case.minimal {
        return Err(format!("not the known minimum: {case:?}"));
    }
    // The stored case alone fails on the faulty engine, and passes on the sound one.
    for (fault, code) in [("leak", 101), ("none", 0)] {
        let program = std::env::current_exe().expect("this program has a path");
        let output = Command::new(program)
            .arg("regressions::")
            .env(FAULT, fault)
            .env(FOLDER, folder.path())
            .output()
            .map_err(|e| e.to_string())?;
        expect(&output, code, &["regressions::"])?;
    }
    Ok(())
}

fn vacuous() -> Result<(), String> {
    let (output, _folder) = child("sequential", &["i1::"], "64");
    expect(&output, 101, &["vacuous pass: no case passed its gate"])
}

fn minimum() -> Result<(), String> {
    let (output, _folder) = child("boastful", &["i2::"], "199");
    expect(&output, 0, &["1 passed"])?;
    let (output, _folder) = child("boastful", &["i2::"], "200");
    expect(&output, 101, &["vacuous pass: cut_mid_block in 0 of "])
}

fn unrepeatable() -> Result<(), String> {
    let (output, folder) = child("unrepeatable", &["i1::"], "64");
    expect(&output, 101, &["not repeatable: it failed again in"])?;
    let file = std::fs::read_dir(folder.path()).map_err(|e| e.to_string())?.flatten().next();
    let case = CaseFile::read(&file.ok_or("no case file")?.path()).map_err(|e| e.to_string())?;
    if case.minimal { Err("what does not repeat was called minimal".into()) } else { Ok(()) }
}

fn blind() -> Result<(), String> {
    let (output, _folder) = child("blind", &["i1::"], "64");
    expect(&output, 101, &["not everything was observed", "compared 0 of"])
}

fn crash() -> Result<(), String> {
    let (output, _folder) = child("crash", &["i1::"], "64");
    expect(&output, 101, &["the engine failed: two requests met", "1-minimal"])?;
    // A panic is the same, with its place, and without a backtrace for each execution of the shrink.
    let (output, _folder) = child("panic", &["i1::"], "64");
    expect(&output, 101, &["the engine failed: panicked at", "two requests met", "1-minimal"])?;
    match String::from_utf8_lossy(&output.stderr).contains("stack backtrace") {
        true => Err("a backtrace was printed".into()),
        false => Ok(()),
    }
}

fn cases() -> Result<(), String> {
    for cases in ["7", "300"] {
        let (output, _folder) = child("none", &["i1::"], cases);
        let header = format!("{cases} cases a trial");
        let ledger = format!(" held of {cases} cases");
        // From 200 cases on the spread minima are due: of the mechanisms that the toy says it has.
        expect(&output, 0, &[&header, &ledger])?;
    }
    Ok(())
}

fn few() -> Result<(), String> {
    let (output, _folder) = child("none", &[], "3");
    expect(&output, 0, &["4 passed; 0 failed"])
}

fn listing() -> Result<(), String> {
    let (output, _folder) = child("none", &["--list", "--format", "terse"], "64");
    expect(&output, 0, &[])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = ["i1::cohabitants", "i2::chunk", "i3::replay", "c0::one_bit::i1::cohabitants"];
    let lines: String = names.iter().map(|name| format!("{name}::toy: test\n")).collect();
    if text != lines || !output.stderr.is_empty() {
        return Err(format!("listed {text:?}"));
    }
    let (output, _folder) = child("none", &["i2::chunk::toy", "--exact"], "64");
    expect(&output, 0, &["1 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out"])
}

fn refused() -> Result<(), String> {
    let (output, _folder) = child("none", &["--no-such-argument"], "64");
    expect(&output, 2, &[])
}
