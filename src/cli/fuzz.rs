//! `lockstep fuzz`: a campaign on the fixture.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use lockstep::contract::Mode;
use lockstep::harness::persist::{self, Provenance};
use lockstep::harness::{Campaign, Report, ShrinkBudget, Verdict, explain, ledger};
use lockstep::relation::{RELATIONS, Relation, named};
use lockstep::strategy::Space;
use lockstep::subject::Subject;
use lockstep::weights::Preset;

use super::fuzz_json::{FailureJson, document};
use super::open::{self, ModelArguments};
use super::{CliError, Exit};

/// Where failing cases are written.
const CASES_FOLDER: &str = "target/lockstep/cases";
/// Cases unless asked otherwise, where no time limit is given.
const CASES_DEFAULT: u64 = 500;

#[derive(Args, Debug)]
pub(super) struct Fuzz {
    #[command(flatten)]
    model: ModelArguments,
    /// The engine under test, or the positive control, which must be found broken.
    #[arg(long, value_enum, default_value = "invariant")]
    mode: ModeArgument,
    /// Relations to judge, separated by commas: I1, I2 (or I2.chunk, I2.preempt, I2.prefix), I3. All by default.
    #[arg(long, value_delimiter = ',')]
    relations: Vec<String>,
    /// File of real prompts, separated by lines of `---`. Loaded models default to the committed ones.
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Cases to run [default: 500, or as many as fit into --seconds].
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    cases: Option<u64>,
    /// Seconds to run for.
    #[arg(long, allow_negative_numbers = true, value_parser = seconds)]
    seconds: Option<f64>,
    /// Seed: case i depends on (seed, i) only.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
    /// Threads [default: all cores]. Changes how fast cases come, never which.
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=1024))]
    jobs: Option<u64>,
    /// Write the result as JSON (lockstep.fuzz/1.0).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the verdict only.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArgument {
    Invariant,
    BatchDependent,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s <= 31_536_000.0 => Ok(s),
        _ => Err("expected a number of seconds above 0".into()),
    }
}

impl Fuzz {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let relations = self.relations()?;
        if let Some(path) = &self.json {
            check_writable(path)?;
        }
        let mode = match self.mode {
            ModeArgument::Invariant => Mode::Invariant,
            ModeArgument::BatchDependent => Mode::batch_dependent(),
        };
        let fixture = self.model.open(mode)?;
        let campaign = Campaign {
            subject: &*fixture,
            space: self.space(&*fixture)?,
            relations,
            cases: self.cases.unwrap_or(match self.seconds {
                Some(_) => u64::MAX,
                None => CASES_DEFAULT,
            }),
            time_max: self.seconds.map(Duration::from_secs_f64),
            seed: self.seed,
            jobs: self.jobs.map_or_else(cores, |jobs| jobs as usize),
            budget: ShrinkBudget::default(),
        };
        if !self.quiet {
            println!("{}", self.options(&campaign));
        }
        let bar = self.bar(&campaign);
        let report = campaign.run(&|done| bar.set_position(done))?;
        bar.finish_and_clear();
        let failures = self.report(&*fixture, &report)?;
        if let Some(path) = &self.json {
            let json = document(&report, &*fixture, self.seed, &failures);
            let text = serde_json::to_string_pretty(&json).expect("a report serialises");
            std::fs::write(path, text + "\n")
                .map_err(|e| CliError::usage(format!("{}: {e}", path.display())))?;
        }
        Ok(match report.verdict() {
            Verdict::Held => Exit::Held,
            Verdict::Broken => Exit::Broken,
            Verdict::Undecided => Exit::Undecided,
        })
    }

    fn relations(&self) -> Result<Vec<&'static Relation>, CliError> {
        let mut chosen: Vec<&'static Relation> = Vec::new();
        for name in &self.relations {
            let found = named(name);
            if found.is_empty() {
                let all: Vec<&str> = RELATIONS.iter().map(|r| r.id).collect();
                return Err(CliError::usage(format!(
                    "unknown relation {name:?}, expected I2 or one of {}",
                    all.join(", ")
                )));
            }
            for relation in found {
                if chosen.iter().all(|c| c.id != relation.id) {
                    chosen.push(relation);
                }
            }
        }
        Ok(if chosen.is_empty() { RELATIONS.to_vec() } else { chosen })
    }

    fn space(&self, subject: &dyn Subject) -> Result<Space, CliError> {
        let mut space = Space::new(subject.edges(), subject.default_world());
        let is_preset = Preset::from_name(&self.model.model).is_some();
        if !is_preset || self.prompts.is_some() {
            let tokenizer = self.model.tokenizer()?;
            space.prompts = Some(Arc::new(open::prompts(self.prompts.as_deref(), &tokenizer)?));
        }
        if !is_preset {
            // Real weights cost about a thousand times what `tiny` costs.
            space.requests_max = 4;
        }
        Ok(space)
    }

    /// Everything that decides which cases run, in one line.
    fn options(&self, campaign: &Campaign<'_>) -> String {
        let ids: Vec<&str> = campaign.relations.iter().map(|r| r.id).collect();
        let world = &campaign.space.world;
        format!(
            "lockstep fuzz: model {} {}, device {}, mode {}, seed {}, relations {}, {} jobs",
            world.model,
            world.dtype.name(),
            campaign.subject.device(),
            if world.mode == Mode::Invariant { "invariant" } else { "batch-dependent" },
            self.seed,
            ids.join(","),
            campaign.jobs
        )
    }

    fn bar(&self, campaign: &Campaign<'_>) -> ProgressBar {
        if self.quiet || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let (bar, template) = match self.cases {
            None if self.seconds.is_some() => {
                (ProgressBar::no_length(), "{spinner} {pos} cases, {per_sec}, {elapsed} {msg}")
            }
            _ => (
                ProgressBar::new(campaign.cases),
                "{bar:40} {pos}/{len} cases, {per_sec}, {eta} left {msg}",
            ),
        };
        let style = ProgressStyle::with_template(template).expect("a valid template");
        bar.with_style(style)
    }

    /// Prints table and failure, stores the failing case.
    fn report(&self, subject: &dyn Subject, report: &Report) -> Result<Vec<FailureJson>, CliError> {
        let mut failures = Vec::new();
        let mut text = None;
        if let Some(failure) = &report.failure {
            let command = |path: &Path| self.replay_command(path);
            let provenance = Provenance { env: subject.environment(), command: &command };
            let path = persist::write(failure, subject, &provenance, Path::new(CASES_FOLDER))
                .map_err(CliError::usage)?;
            let explanation = explain::explain(subject, failure.case(), failure.reported());
            text = Some(ledger::failure(failure, &command(&path), &path, explanation.as_deref()));
            failures.push(FailureJson::new(failure, &path, command(&path)));
        }
        if let Some(text) = text {
            println!("{text}");
        }
        if !self.quiet {
            println!("{}", ledger::table(report));
        }
        let tally = &report.tally;
        let seconds = report.elapsed.as_secs_f64();
        println!(
            "{}: {} cases in {seconds:.1} s ({:.1} cases/s), {} requests, {} tokens, {} vacuous",
            report.verdict().name(),
            tally.cases,
            tally.cases as f64 / seconds,
            tally.requests,
            tally.tokens,
            report.vacuous()
        );
        Ok(failures)
    }

    /// The shortest command that replays a stored case.
    fn replay_command(&self, path: &Path) -> String {
        let program = match std::env::var_os("CARGO") {
            Some(_) => "cargo run --release -- replay",
            None => "lockstep replay",
        };
        format!("{program} {}", path.display())
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Finds out before the campaign, not after it, that the result could not be written.
fn check_writable(path: &Path) -> Result<(), CliError> {
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map(drop)
        .map_err(|e| CliError::usage(format!("{}: {e}", path.display())))
}
