//! Observers that are test programs: the harness's own tests, and the golden snapshots, which are no relation over cases.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::campaign::{Campaign, Clean, Device};
use super::format::{Mutant, Target};
use super::schemata::Numbered;
use super::verdict::{Row, Verdict};

/// The observer of golden snapshots, and the test that it is.
pub(super) const GOLDEN: (&str, &str) = ("G1", "golden/g1::golden::tiny");

/// Whether the golden snapshots alone are expected to see a mutant.
pub(super) fn is_blind(mutant: &Mutant) -> bool {
    mutant.expect.iter().all(|expect| expect == GOLDEN.0)
}

/// Test programs that observe a mutant, as `TARGET/FILTER`: all that a harness mutant names, and the golden snapshots,
/// which are no relation over cases.
pub(super) fn tests_of(mutant: &Mutant, device: Device) -> Vec<&str> {
    match (mutant.target, device) {
        (Target::Harness, _) => mutant.expect.iter().map(String::as_str).collect(),
        (Target::Rust, Device::Host) if mutant.expect.iter().any(|e| e == GOLDEN.0) => {
            vec![GOLDEN.1]
        }
        _ => Vec::new(),
    }
}

impl Campaign<'_> {
    /// Runs one self test, named `TARGET/FILTER`; exit code, time, output.
    pub(super) fn test(
        &self,
        name: &str,
        number: u32,
        folder: &str,
        limit: Duration,
    ) -> anyhow::Result<(Option<i32>, Duration, String)> {
        let (target, filter) = name.split_once('/').with_context(|| format!("{name}: no slash"))?;
        let program = self.programs.get(target).with_context(|| format!("no program {target}"))?;
        let folder = self.folder.join("jobs").join(folder);
        // What a snapshot's name begins with is the name of others, too.
        let exact = if name == GOLDEN.1 { &["--exact"][..] } else { &[] };
        let arguments = [&[filter], exact].concat();
        let ended = self.child(program, &arguments, &[], number, &folder, limit)?;
        let executed = if ended.executed { "executed\n" } else { "" };
        let status = ended.status.map(|status| status.code().unwrap_or(-1));
        Ok((status, ended.wall, format!("{executed}{}", ended.tail)))
    }

    /// Whether the snapshots are not those of the faulty engine, and the seconds that it took to see.
    pub(super) fn golden(
        &self,
        test: &str,
        numbered: &Numbered<'_>,
        clean: &Clean,
    ) -> anyhow::Result<(bool, f64)> {
        let limit = clean.limits[test];
        let (status, wall, _) = self.test(test, numbered.number, &numbered.mutant.id, limit)?;
        Ok((status == Some(101), wall.as_secs_f64()))
    }

    /// A faulty harness: the first of its own tests that fails kills it.
    pub(super) fn harness_mutant(
        &self,
        numbered: &Numbered<'_>,
        clean: &Clean,
    ) -> anyhow::Result<Row> {
        let mutant = numbered.mutant;
        let mut row = Row::new(mutant, Verdict::NotExercised, "");
        for test in tests_of(mutant, self.device) {
            let limit = clean.limits[test];
            let (status, wall, tail) = self.test(test, numbered.number, &mutant.id, limit)?;
            row.seconds += wall.as_secs_f64();
            row.cases += 1;
            let executed = tail.starts_with("executed\n");
            row.executed += u64::from(executed);
            if executed && row.verdict == Verdict::NotExercised {
                row.verdict = Verdict::Survived;
            }
            row.reached = row.executed;
            match status {
                Some(0) => {}
                None => {
                    row.verdict = Verdict::Timeout;
                    row.detail = format!("{test} was not done within {} s", limit.as_secs());
                }
                // Tests that fail end with 101.
                Some(101) => {
                    ensure!(executed, "{}: {test} fails, and the mutant did not run", mutant.id);
                    row.by.push(test.to_owned());
                    row.expected = true;
                    row.differed = 1;
                    row.verdict = Verdict::Killed;
                    row.detail = tail;
                    break;
                }
                Some(code) => {
                    row.verdict = Verdict::Crashed;
                    row.detail = format!("{test} ended with {code}:\n{tail}");
                }
            }
        }
        Ok(row)
    }
}
