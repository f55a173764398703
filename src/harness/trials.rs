//! Relations as libtest-mimic trials, native to `cargo test`.
//!
//! A trial is a campaign focused on one relation. It fails if the relation is broken, and also if the campaign was
//! vacuous: a pass that did not exercise its mechanism is a failure too.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Failed, Trial};
use proptest::test_runner::{Config, contextualize_config};

use crate::case::CaseFile;
use crate::relation::Relation;
use crate::strategy::Space;
use crate::subject::{OneBit, Subject};

use super::campaign::{Campaign, Report, Verdict};
use super::ledger;
use super::localise;
use super::persist::{self, Provenance};
use super::shrink::ShrinkBudget;
use super::stored::{self, Outcome};

/// Cases of a trial unless `PROPTEST_CASES` says otherwise.
const CASES_DEFAULT: u32 = 64;

/// Settings of the trials of a test target.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Where failing cases are written, and read from before anything is generated.
    pub regressions: PathBuf,
    /// Cases a trial.
    pub cases: u64,
    /// Seed of every campaign.
    pub seed: u64,
    /// Lines printed after the trials.
    ledger: Arc<Mutex<Vec<String>>>,
}

impl Suite {
    /// Settings from the environment: `PROPTEST_CASES`, `PROPTEST_RNG_SEED`.
    pub fn from_env(regressions: impl Into<PathBuf>) -> Suite {
        let config = contextualize_config(Config {
            cases: CASES_DEFAULT,
            failure_persistence: None,
            ..Config::default()
        });
        let seed = match config.rng_seed {
            proptest::test_runner::RngSeed::Fixed(seed) => seed,
            proptest::test_runner::RngSeed::Random => 0,
        };
        Suite {
            regressions: regressions.into(),
            cases: config.cases.into(),
            seed,
            ledger: Arc::default(),
        }
    }

    /// A trial `i2::chunk::LABEL` that searches for a case that breaks `relation`.
    pub fn search(
        &self,
        subject: &Arc<dyn Subject + Send>,
        label: &str,
        relation: &'static Relation,
        space: Space,
        cases: u64,
    ) -> Trial {
        let name = format!("{}::{label}", relation.path);
        let (suite, subject, trial) = (self.clone(), Arc::clone(subject), name.clone());
        if let Err(why) = (relation.applies)(&subject.capabilities()) {
            // Never a pass.
            return Trial::test(name, move || Err(why.into())).with_ignored_flag(true);
        }
        Trial::test(name, move || {
            let report = suite.campaign(&*subject, relation, space, cases)?;
            suite.note(&trial, &report);
            match report.verdict() {
                Verdict::Held => Ok(()),
                Verdict::Broken => Err(suite.broken(&*subject, &report)),
                Verdict::Undecided => Err(vacuous(&report)),
            }
        })
    }

    /// A trial `c0::CONTROL::PATH::LABEL` that passes only if the relation is *broken* in this space: the positive
    /// control. Returns the report to `check` for what else must be true of it.
    #[allow(clippy::too_many_arguments)]
    pub fn control(
        &self,
        subject: &Arc<dyn Subject + Send>,
        control: &str,
        label: &str,
        relation: &'static Relation,
        space: Space,
        cases: u64,
        check: fn(&Report) -> Result<(), String>,
    ) -> Trial {
        let name = format!("c0::{control}::{}::{label}", relation.path);
        let (suite, subject, trial) = (self.clone(), Arc::clone(subject), name.clone());
        Trial::test(name, move || {
            let report = suite.campaign(&*subject, relation, space, cases)?;
            suite.note(&trial, &report);
            match report.verdict() {
                Verdict::Broken => check(&report).map_err(Failed::from),
                verdict => Err(Failed::from(format!(
                    "the control must be caught, but the campaign ended {}\n{}",
                    verdict.name(),
                    ledger::table(&report)
                ))),
            }
        })
    }

    /// A trial `c0::one_bit::PATH::LABEL`: with [one bit flipped](OneBit) in company, the relation must be broken and the case
    /// shrink to two requests.
    pub fn one_bit(
        &self,
        subject: &Arc<dyn Subject + Send>,
        label: &str,
        relation: &'static Relation,
        space: Space,
        cases: u64,
    ) -> Trial {
        let flipped: Arc<dyn Subject + Send> = Arc::new(OneBit(Arc::clone(subject)));
        self.control(&flipped, "one_bit", label, relation, space, cases, |report| {
            let failure = report.failure.as_ref().ok_or("no failure")?;
            match (&failure.shrunk, failure.case().workload.requests.len()) {
                (Some(shrunk), 1..=2) if shrunk.minimal => Ok(()),
                (_, requests) => Err(format!("{requests} requests: {}", failure.reported())),
            }
        })
    }

    /// One trial `regressions::FILE` for each committed case file, on the first subject that runs its world's model,
    /// dtype and mode; `suffix` ends its name. A case that no subject runs is a failing trial: it must not be lost in
    /// silence.
    pub fn replays(
        &self,
        subjects: &[Arc<dyn Subject + Send>],
        suffix: &str,
    ) -> Result<Vec<Trial>, String> {
        let mut trials = Vec::new();
        for (path, file) in stored::list(&self.regressions) {
            let file = file.map_err(|error| error.to_string())?;
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let subject = subjects.iter().find(|s| stored::is_about(&file, &***s)).map(Arc::clone);
            let name = format!("regressions::{stem}{suffix}");
            trials.push(Trial::test(name, move || match subject {
                Some(subject) => replay(&*subject, &file, &path),
                None => Err(Failed::from(format!(
                    "{}: no subject of this target runs model {} in this dtype and mode",
                    path.display(),
                    file.world.model
                ))),
            }));
        }
        Ok(trials)
    }

    /// Prints seed, cases and device, runs the trials, prints the ledger.
    pub fn run(
        &self,
        arguments: &Arguments,
        device: &str,
        trials: Vec<Trial>,
    ) -> std::process::ExitCode {
        if !arguments.list {
            eprintln!(
                "lockstep: seed {}, {} cases a trial, device {device}",
                self.seed, self.cases
            );
        }
        let conclusion = libtest_mimic::run(arguments, trials);
        if !arguments.list {
            let mut lines = self.ledger.lock().expect("no trial panics while it holds the lock");
            lines.sort();
            for line in lines.iter() {
                eprintln!("{line}");
            }
            eprintln!("lockstep: device {device}, {} ignored", conclusion.num_ignored);
        }
        conclusion.exit_code()
    }

    fn campaign(
        &self,
        subject: &dyn Subject,
        relation: &'static Relation,
        mut space: Space,
        cases: u64,
    ) -> Result<Report, Failed> {
        space.focus.extend_from_slice(relation.focus);
        let campaign = Campaign {
            subject,
            space,
            relations: vec![relation],
            cases,
            time_max: None,
            seed: self.seed,
            jobs: 1,
            budget: ShrinkBudget::default(),
        };
        campaign.run(&|_| ()).map_err(|error| Failed::from(error.to_string()))
    }

    /// Adds a line to those that are printed after the trials.
    pub fn print_later(&self, line: String) {
        self.ledger.lock().expect("no trial panics while it holds the lock").push(line);
    }

    /// One line a trial: what held, and in how many of the judged cases its gates and minima fired.
    fn note(&self, trial: &str, report: &Report) {
        let lines = report.tally.relations.iter().map(|r| ledger::line(trial, r));
        lines.for_each(|line| self.print_later(line));
    }

    fn broken(&self, subject: &dyn Subject, report: &Report) -> Failed {
        let failure = report.failure.as_ref().expect("a broken report has a failure");
        let provenance = Provenance { env: subject.environment(), command: &replay_command };
        let explanation = localise::of_failure(subject, failure);
        let folder = &self.regressions;
        let text = match persist::write(failure, &explanation, subject, &provenance, folder) {
            Ok(path) => ledger::failure(failure, &replay_command(&path), &path, Some(&explanation)),
            Err(unwritten) => {
                let (error, file) = *unwritten;
                format!(
                    "{}\nthe case could not be written: {error}\nits text: {}",
                    failure.reported(),
                    file.line()
                )
            }
        };
        Failed::from(text)
    }
}

/// The command that replays a committed case with this program: cargo's name for it if it is a test target.
fn replay_command(path: &Path) -> String {
    let stem = |p: &Path| p.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let program = std::env::current_exe().unwrap_or_default();
    let case = stem(path);
    match stem(&program).rsplit_once('-') {
        Some((target, hash)) if hash.len() == 16 => {
            format!("cargo test --test {target} regressions::{case}")
        }
        _ => format!("{} regressions::{case}", program.display()),
    }
}

fn vacuous(report: &Report) -> Failed {
    let missed: Vec<&str> =
        report.tally.relations.iter().flat_map(|r| &r.missed).map(String::as_str).collect();
    Failed::from(format!("vacuous pass: {}\n{}", missed.join("; "), ledger::table(report)))
}

/// Carries out a committed case under its relation.
fn replay(subject: &dyn Subject, file: &CaseFile, path: &Path) -> Result<(), Failed> {
    let relations = stored::relations(file);
    if relations.is_empty() {
        return Err(Failed::from(format!("{}: unknown relation", path.display())));
    }
    match stored::outcome(file, &relations, subject) {
        Ok(Outcome::Held) => Ok(()),
        Ok(Outcome::Inapplicable) => Err(Failed::from(format!(
            "{}: the case no longer exercises its relation, so it shows nothing",
            path.display()
        ))),
        Ok(Outcome::Broken(relation, divergence)) => {
            let case = file.case();
            let explanation = localise::explain(subject, &case, &divergence, file.minimal);
            Err(Failed::from(format!(
                "reproduce: {}\n{}: relation {} is broken: {divergence}\n{explanation}\n{}",
                replay_command(path),
                path.display(),
                relation.id,
                ledger::describe(&case)
            )))
        }
        Err(error) => Err(Failed::from(format!("{}: {error}", path.display()))),
    }
}
