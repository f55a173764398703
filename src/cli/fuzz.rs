//! `lockstep fuzz`: a campaign on the fixture.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lockstep::contract::Mode;
use lockstep::harness::persist::{self, Provenance};
use lockstep::harness::stored::{self, Outcome};
use lockstep::harness::{Campaign, Progress, Report, ShrinkBudget, Verdict, ledger, localise};
use lockstep::relation::{RELATIONS, Relation, named};
use lockstep::strategy::{Space, Text};
use lockstep::subject::Subject;
use lockstep::weights::Preset;

use super::fuzz_json::{FailureJson, document};
use super::open::{self, ModelArguments, replay_command};
use super::out::{self, say};
use super::{CliError, Exit};

/// Where failing cases are written.
const CASES_FOLDER: &str = "target/lockstep/cases";
/// Cases unless asked otherwise, where no time limit is given.
const CASES_DEFAULT: u64 = 500;
/// The same on loaded weights, which cost about a thousand times what `tiny` costs.
const CASES_DEFAULT_LOADED: u64 = 4;
/// Reasons shown of an undecided campaign; the table has them all.
const REASONS_SHOWN_MAX: usize = 8;

#[derive(Args, Debug)]
pub(super) struct Fuzz {
    #[command(flatten)]
    model: ModelArguments,
    /// The engine under test (invariant), or the positive control, which I1 and I2 must find broken (it repeats itself, so I3
    /// holds): batch-dependent, or batch-dependent:OPERATORS with some of gemm, attention, norm, gemm_tile, sampler.
    #[arg(long, value_name = "MODE", default_value_t = Mode::Invariant)]
    mode: Mode,
    /// Relations to judge, separated by commas: a family (I1, I2, I3), or one (I2.chunk, I4, D1, i1::cohabitants). All by
    /// default.
    #[arg(long, value_delimiter = ',')]
    relations: Vec<String>,
    /// File of real prompts, separated by lines of `---`. Loaded models default to the committed ones.
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Cases to run [default: 500, or 4 on loaded weights, or as many as fit into --seconds].
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
    /// Write the result as JSON (lockstep.fuzz/1.2) to a file, or with - to standard output; everything else then goes to
    /// standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the verdict only.
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s <= 31_536_000.0 => Ok(s),
        _ => Err("expected a number of seconds above 0".into()),
    }
}

impl Fuzz {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let relations = self.relations()?;
        let fixture = self.model.open(self.mode.clone())?;
        match &self.json {
            Some(path) if is_standard_output(path) => out::divert(),
            Some(path) => check_writable(path)?,
            None => {}
        }
        let campaign = Campaign {
            subject: &*fixture,
            space: self.space(&*fixture)?,
            relations,
            cases: self.cases.unwrap_or(match self.seconds {
                Some(_) => u64::MAX,
                None if self.is_preset() => CASES_DEFAULT,
                None => CASES_DEFAULT_LOADED,
            }),
            time_max: self.seconds.map(Duration::from_secs_f64),
            seed: self.seed,
            jobs: self.jobs.map_or_else(cores, |jobs| jobs as usize),
            budget: ShrinkBudget::default(),
        };
        if !self.quiet {
            say!("{}", self.options(&campaign));
            if fixture.device() == open::HASH {
                say!("device hash: no arithmetic: state faults only");
            }
        }
        let mut failures = self.replay_stored(&*fixture, &campaign.relations)?;
        let bar = self.bar(&campaign);
        let report = campaign.run(&|progress| match progress {
            Progress::Cases(done) => bar.set_position(done),
            Progress::Shrinking => bar.set_message("a case failed, shrinking it"),
        })?;
        bar.finish_and_clear();
        self.report(&*fixture, &report, &mut failures);
        let unanswered = self.unanswered(&report);
        let verdict = match report.verdict() {
            _ if !failures.is_empty() => Verdict::Broken,
            Verdict::Held if !unanswered.is_empty() => Verdict::Undecided,
            verdict => verdict,
        };
        if verdict == Verdict::Undecided {
            for why in report.undecided().iter().chain(&unanswered).take(REASONS_SHOWN_MAX) {
                say!("undecided: {why}");
            }
        }
        self.conclude(&report, verdict);
        if let Some(path) = &self.json {
            let json = document(&report, verdict, &*fixture, self.seed, &failures);
            let text = serde_json::to_string_pretty(&json).expect("a report serialises");
            if is_standard_output(path) {
                out::document(&text);
            } else if let Err(error) = std::fs::write(path, text + "\n") {
                // What was found is not lost with the file: broken is still broken.
                eprintln!("lockstep: {}: {error}", path.display());
                return Ok(if verdict == Verdict::Broken { Exit::Broken } else { Exit::Usage });
            }
        }
        Ok(match verdict {
            Verdict::Held => Exit::Held,
            Verdict::Broken => Exit::Broken,
            Verdict::Undecided => Exit::Undecided,
        })
    }

    fn relations(&self) -> Result<Vec<&'static Relation>, CliError> {
        let mut chosen: Vec<&'static Relation> = Vec::new();
        for name in &self.relations {
            let found = named(name.trim());
            if found.is_empty() {
                let all: Vec<&str> = RELATIONS.iter().map(|r| r.id).collect();
                return Err(CliError::usage(format!(
                    "unknown relation {name:?}, expected a family (I1, I2, I3) or one of {} (G1, X1 and C0 are tests: cargo test)",
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

    /// Names that were asked for and stand for no relation that the engine can be judged by: no verdict of the others
    /// answers them.
    fn unanswered(&self, report: &Report) -> Vec<String> {
        let missing = |id: &str| {
            let found = report.tally.relations.iter().find(|r| r.relation.id == id);
            found.and_then(|r| r.not_applicable)
        };
        let unanswered = self.relations.iter().filter_map(|name| {
            let whys: Option<Vec<&str>> =
                named(name.trim()).iter().map(|r| missing(r.id)).collect();
            Some(format!("{name} was asked for, and {}", whys?.first()?))
        });
        // Where all are missing, the report says so already.
        if report.judged_nothing() { Vec::new() } else { unanswered.collect() }
    }

    fn space(&self, subject: &dyn Subject) -> Result<Space, CliError> {
        let mut space = Space::new(subject.edges(), subject.default_world());
        if !self.is_preset() || self.prompts.is_some() {
            let tokenizer = self.model.tokenizer()?;
            let prompts = open::prompts(self.prompts.as_deref(), &tokenizer)?;
            if !self.is_preset() {
                let texts = prompts.iter().map(|ids| tokenizer.decode(ids)).collect();
                space.text = tokenizer.has_bytes().then(|| Text::Like(Arc::new(texts)));
            }
            space.prompts = Some(Arc::new(prompts));
        }
        if !self.is_preset() {
            space.requests_max = 4;
        }
        Ok(space)
    }

    fn is_preset(&self) -> bool {
        Preset::from_name(&self.model.model).is_some()
    }

    /// Everything that decides which cases run, in one line.
    fn options(&self, campaign: &Campaign<'_>) -> String {
        let ids: Vec<&str> = campaign.relations.iter().map(|r| r.id).collect();
        let world = &campaign.space.world;
        let mut length = String::new();
        if campaign.cases < u64::MAX {
            length += &format!(", {} cases", campaign.cases);
        }
        if let Some(seconds) = self.seconds {
            length += &format!(", at most {seconds} s");
        }
        if let Some(path) = &self.prompts {
            length += &format!(", prompts {}", path.display());
        }
        format!(
            "lockstep fuzz: model {} {}, device {}, mode {}, seed {}, relations {}{length}, {} jobs",
            world.model,
            world.dtype.name(),
            campaign.subject.device(),
            world.mode,
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
                (ProgressBar::no_length(), "{spinner} {pos} cases, {per_sec:.1}, {elapsed} {msg}")
            }
            _ => (
                ProgressBar::new(campaign.cases),
                "{wide_bar} {pos}/{len} cases, {per_sec:.1}, {eta} left {msg}",
            ),
        };
        let style = ProgressStyle::with_template(template).expect("a valid template");
        let bar = bar.with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    /// Cases of this model and mode that failed before come first. Returns those that still fail.
    fn replay_stored(
        &self,
        fixture: &dyn Subject,
        asked: &[&'static Relation],
    ) -> Result<Vec<FailureJson>, CliError> {
        let mut failures = Vec::new();
        for (path, file) in stored::list(Path::new(CASES_FOLDER)) {
            let file = match file {
                Ok(file) if stored::is_about(&file, fixture) => file,
                Ok(_) => continue,
                Err(error) => {
                    eprintln!("lockstep: stored case skipped: {error}");
                    continue;
                }
            };
            if file.world.model_digest != fixture.default_world().model_digest {
                eprintln!("lockstep: stored case skipped: {}: other weights", path.display());
                continue;
            }
            let mut relations = stored::relations(&file);
            relations.retain(|r| asked.iter().any(|a| a.id == r.id));
            let Outcome::Broken(relation, divergence) =
                stored::outcome(&file, &relations, fixture)?
            else {
                continue;
            };
            let command = replay_command(&path, fixture.device());
            say!("stored case still fails: {command}\n  {}: {divergence}", relation.id);
            let case = file.case();
            let explanation = localise::explain(fixture, &case, &divergence, file.minimal);
            say!("{explanation}");
            let json =
                FailureJson::stored(relation, &divergence, explanation, &file, &path, command);
            failures.push(json);
        }
        Ok(failures)
    }

    /// Prints table and failure, stores the failing case.
    fn report(&self, subject: &dyn Subject, report: &Report, failures: &mut Vec<FailureJson>) {
        if let Some(failure) = &report.failure {
            let command = |path: &Path| replay_command(path, subject.device());
            let provenance = Provenance { env: subject.environment(), command: &command };
            let explanation = localise::of_failure(subject, failure);
            let folder = Path::new(CASES_FOLDER);
            let stored = persist::write(failure, &explanation, subject, &provenance, folder);
            // What was found is shown whether or not it could be stored.
            let (path, replay) = match stored {
                Ok(path) => (path.clone(), command(&path)),
                Err(unwritten) => {
                    let (error, file) = *unwritten;
                    eprintln!("lockstep: the case could not be stored: {error}");
                    say!("the case's text, to be saved as {}:\n{}", file.file_name(), file.line());
                    (PathBuf::from("(not stored)"), command(Path::new(&file.file_name())))
                }
            };
            say!("{}", ledger::failure(failure, &replay, &path, Some(&explanation)));
            let json = FailureJson::new(failure, explanation, &path, replay);
            failures.retain(|stored| stored.case() != json.case());
            failures.push(json);
        }
        if !self.quiet {
            say!("{}", ledger::table(report));
        }
    }

    /// The last line.
    fn conclude(&self, report: &Report, verdict: Verdict) {
        let tally = &report.tally;
        let seconds = report.elapsed.as_secs_f64();
        let rate = tally.cases as f64 / seconds;
        let rate = match rate {
            1.0.. => format!("{rate:.1} cases/s"),
            _ => format!("{:.1} s/case", rate.recip()),
        };
        say!(
            "{}: {} cases in {seconds:.1} s ({rate}), {} requests, {} tokens, {} vacuous",
            verdict.name(),
            tally.cases,
            tally.requests,
            tally.tokens,
            report.vacuous()
        );
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether the path is a dash, as standard output is called in arguments.
pub(super) fn is_standard_output(path: &Path) -> bool {
    path == Path::new("-")
}

/// Finds out before the campaign, not after it, that the result could not be written.
pub(super) fn check_writable(path: &Path) -> Result<(), CliError> {
    let failed = |e| CliError::usage(format!("{}: {e}", path.display()));
    let is_new = !path.exists();
    std::fs::OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
    // What fails later leaves no empty file behind.
    if is_new { std::fs::remove_file(path).map_err(failed) } else { Ok(()) }
}
