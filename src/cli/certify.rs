//! `lockstep certify`: judge a server by its HTTP answers.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lockstep::certify::{
    self, Arm, Certificate, CertifyError, Options, Plan, Progress, Secret, Target, Verdict, text,
};
use lockstep::contract::Mode;
use lockstep::input;
use serde::Deserialize;

use super::certify_files::Files;
use super::embedded::Embedded;
use super::fuzz::{check_writable, is_standard_output, seconds};
use super::open::DeviceArgument;
use super::out::{self, say};
use super::{CliError, Exit};

/// Most runs that power is measured with.
const RUNS_MAX: u64 = 1_000_000;
/// Largest configuration file read, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

#[derive(Args, Debug)]
pub(super) struct Certify {
    /// Address of an OpenAI-compatible server, up to and with /v1. Without one, the embedded server is judged: first in its
    /// batch-dependent mode, which must be found broken, then in the invariant one.
    #[arg(env = "OPENAI_BASE_URL")]
    url: Option<String>,
    /// Model to ask for [default: the first that the server lists]. Of the embedded server, the preset or file to serve
    /// [default: tiny].
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Mode of the embedded server [default: invariant].
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    #[command(flatten)]
    device: DeviceArgument,
    /// Sizes of crowds, separated by commas; 1 is always asked [default: 2,4,8].
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    concurrency: Option<Vec<u32>>,
    /// Prompts that are judged [default: 8].
    #[arg(long)]
    prompts: Option<u32>,
    /// Repeats one at a time, after priming [default: 3].
    #[arg(long)]
    repeats: Option<u32>,
    /// Rounds of each size of crowds [default: 2].
    #[arg(long)]
    rounds: Option<u32>,
    /// Tokens of an answer [default: 24].
    #[arg(long)]
    answer_tokens: Option<u32>,
    /// Arms to ask, separated by commas [default: all].
    #[arg(long, value_delimiter = ',', value_parser = arm)]
    arms: Option<Vec<Arm>>,
    /// Seed of the plan [default: 0].
    #[arg(long)]
    seed: Option<u64>,
    /// Most requests; the plan is made to fit [default: 300].
    #[arg(long)]
    max_requests: Option<u64>,
    /// Most tokens of prompts and answers together [default: 200000].
    #[arg(long)]
    max_tokens: Option<u64>,
    /// Seconds for one request [default: 60].
    #[arg(long, allow_negative_numbers = true, value_parser = seconds)]
    timeout: Option<f64>,
    /// Seconds for the run [default: 600].
    #[arg(long, allow_negative_numbers = true, value_parser = seconds)]
    seconds: Option<f64>,
    /// JSON file with any of the above, by the same names with _ for -. What the command line says goes first.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the plan and its cost; send nothing.
    #[arg(long)]
    dry_run: bool,
    /// Measure detection power instead: FAULTY runs against a planted fault, and CLEAN runs against none.
    #[arg(long, value_name = "FAULTY,CLEAN", value_delimiter = ',', num_args = 0..=1, default_missing_value = "100,1000")]
    power: Option<Vec<u64>>,
    /// Share of the answers in crowds that the planted fault of --power changes.
    #[arg(long, default_value_t = 0.1, requires = "power")]
    rate: f64,
    /// Write the certificate as JSON (lockstep.certificate/1.0) to a file, or with - to standard output; everything else then
    /// goes to standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    files: Files,
    /// Print what was found out about the server too.
    #[arg(long, short)]
    verbose: bool,
    /// Print the verdict only.
    #[arg(long, short)]
    quiet: bool,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    url: Option<String>,
    model: Option<String>,
    concurrency: Option<Vec<u32>>,
    prompts: Option<u32>,
    repeats: Option<u32>,
    rounds: Option<u32>,
    answer_tokens: Option<u32>,
    arms: Option<Vec<Arm>>,
    seed: Option<u64>,
    max_requests: Option<u64>,
    max_tokens: Option<u64>,
    timeout: Option<f64>,
    seconds: Option<f64>,
}

fn arm(name: &str) -> Result<Arm, String> {
    let found = Arm::ALL.into_iter().find(|arm| arm.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = Arm::ALL.iter().map(|arm| arm.name()).collect();
        format!("expected some of {}", names.join(", "))
    })
}

impl From<CertifyError> for CliError {
    fn from(error: CertifyError) -> CliError {
        match error {
            CertifyError::BadInput(why) => CliError::usage(why),
            CertifyError::Unusable(why) => CliError::undecided(why),
        }
    }
}

impl Certify {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let config = self.config()?;
        let options = self.options(&config)?;
        let url = self.url.clone().or(config.url.clone()).filter(|url| !url.is_empty());
        if self.mode.is_some()
            && let Some(url) = &url
        {
            // Else another server than was meant would be asked, and paid.
            let why = "--mode is one of the embedded server, but there is an address";
            return Err(CliError::usage(format!("{why}: {url:?} (OPENAI_BASE_URL counts too)")));
        }
        if self.dry_run {
            say!("{}", Plan::new(&options, url.is_none())?.text());
            return Ok(Exit::Held);
        }
        match &self.json {
            Some(path) if is_standard_output(path) => out::divert(),
            Some(path) => check_writable(path)?,
            None => {}
        }
        self.files.check()?;
        let model = self.model.clone().or(config.model);
        let Some(url) = url else {
            // Here a model is what to serve, not what to ask for. The key is for others.
            let model = model.as_deref().unwrap_or("tiny");
            let mode = self.mode.clone().unwrap_or(Mode::Invariant);
            let embedded = Embedded::start(model, &mode, &self.device)?;
            let control = Some(embedded.control());
            let target = Target { url: embedded.url(), control, ..Target::default() };
            let exit = self.judge(&target, &options)?;
            if self.files.has_reproducer() {
                // The server that was judged ends with this process.
                say!(
                    "they need a server: lockstep serve --model {model} --mode {mode} --port 8000, and OPENAI_BASE_URL=http://127.0.0.1:8000/v1"
                );
            }
            return Ok(exit);
        };
        self.judge(&Target { url, model, key: key()?, ..Target::default() }, &options)
    }

    fn judge(&self, target: &Target, options: &Options) -> Result<Exit, CliError> {
        let bar = Bar::new(self.quiet);
        if let Some(runs) = &self.power {
            return self.measure(target, options, runs, &bar);
        }
        let certificate = certify::run(target, options, &bar);
        bar.0.finish_and_clear();
        let certificate = certificate?;
        if self.verbose {
            say!("{}", text::abilities(&certificate.server.abilities));
        }
        match self.quiet {
            true => say!("{}", text::summary(&certificate)),
            false => say!("{}", text::report(&certificate)),
        }
        let exit = match certificate.verdict {
            Verdict::Held => Exit::Held,
            Verdict::Broken => Exit::Broken,
            Verdict::Undecided => Exit::Undecided,
        };
        self.store(&certificate, exit)
    }

    fn store(&self, certificate: &Certificate, exit: Exit) -> Result<Exit, CliError> {
        // What was found is not lost with a file: broken is still broken.
        let lost = if exit == Exit::Broken { Exit::Broken } else { Exit::Usage };
        let mut result = exit;
        if let Err(why) = self.files.store(certificate) {
            eprintln!("lockstep: {why}");
            result = lost;
        }
        let Some(path) = &self.json else { return Ok(result) };
        let json = serde_json::to_string_pretty(certificate).expect("a certificate serialises");
        if is_standard_output(path) {
            out::document(&json);
        } else if let Err(error) = std::fs::write(path, json + "\n") {
            eprintln!("lockstep: {}: {error}", path.display());
            result = lost;
        }
        Ok(result)
    }

    fn measure(
        &self,
        target: &Target,
        options: &Options,
        runs: &[u64],
        bar: &Bar,
    ) -> Result<Exit, CliError> {
        let (faulty, clean) = match runs {
            [faulty, clean] if (1..=RUNS_MAX).contains(&faulty.saturating_add(*clean)) => {
                (*faulty, *clean)
            }
            _ => {
                let why = format!("power: expected two numbers of runs, 1 to {RUNS_MAX} together");
                return Err(CliError::usage(why));
            }
        };
        let options = certify::small(options);
        let measured = certify::measure(target, &options, self.rate, (faulty, clean), bar);
        bar.0.finish_and_clear();
        let measured = measured?;
        say!("{}", text::measured(&measured));
        if let Some(path) = &self.json {
            let json = serde_json::to_string_pretty(&measured).expect("counts serialise");
            if is_standard_output(path) {
                out::document(&json);
            } else {
                let failed = |e| CliError::usage(format!("{}: {e}", path.display()));
                std::fs::write(path, json + "\n").map_err(failed)?;
            }
        }
        // A false alarm is a fault of the certifier's; a missed detection may be the rate's.
        Ok(match (measured.false_alarms, measured.clean_undecided + measured.faulty_undecided) {
            (0, 0) => Exit::Held,
            (0, _) => Exit::Undecided,
            _ => Exit::Broken,
        })
    }

    fn config(&self) -> Result<Config, CliError> {
        let Some(path) = &self.config else { return Ok(Config::default()) };
        let bad = |why: String| CliError::usage(format!("{}: {why}", path.display()));
        let text = input::read_text(path, CONFIG_BYTES_MAX).map_err(|e| bad(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| bad(e.to_string()))
    }

    fn options(&self, config: &Config) -> Result<Options, CliError> {
        let default = Options::default();
        let time = |flag: Option<f64>, file: Option<f64>, default: Duration| match flag.or(file) {
            None => Ok(default),
            // The flag was checked as it was parsed, the file was not.
            Some(s) => {
                seconds(&s.to_string()).map(Duration::from_secs_f64).map_err(CliError::usage)
            }
        };
        let mut concurrency = self.concurrency.clone().or(config.concurrency.clone());
        if let Some(levels) = &mut concurrency {
            // One request at a time is an arm of its own.
            levels.retain(|level| *level != 1);
        }
        let options = Options {
            seed: self.seed.or(config.seed).unwrap_or(default.seed),
            concurrency: concurrency.unwrap_or(default.concurrency),
            prompts: self.prompts.or(config.prompts).unwrap_or(default.prompts),
            repeats: self.repeats.or(config.repeats).unwrap_or(default.repeats),
            rounds: self.rounds.or(config.rounds).unwrap_or(default.rounds),
            answer_tokens: self
                .answer_tokens
                .or(config.answer_tokens)
                .unwrap_or(default.answer_tokens),
            arms: self.arms.clone().or(config.arms.clone()).unwrap_or(default.arms),
            shrinks: default.shrinks,
            timeout: time(self.timeout, config.timeout, default.timeout)?,
            time_max: time(self.seconds, config.seconds, default.time_max)?,
            requests_max: self.max_requests.or(config.max_requests).unwrap_or(default.requests_max),
            tokens_max: self.max_tokens.or(config.max_tokens).unwrap_or(default.tokens_max),
            answers_min: default.answers_min,
        };
        options.check()?;
        Ok(options)
    }
}

/// The key from the environment; never from the command line, where others can read it.
fn key() -> Result<Option<Secret>, CliError> {
    match std::env::var("OPENAI_API_KEY") {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => match Secret::new(&text) {
            Some(key) => Ok(Some(key)),
            None => Err(CliError::usage("OPENAI_API_KEY: not a key")),
        },
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(_) => Err(CliError::usage("OPENAI_API_KEY: not a key")),
    }
}

/// A progress bar on a terminal, nothing elsewhere.
struct Bar(ProgressBar);

impl Bar {
    fn new(quiet: bool) -> Bar {
        if quiet || !std::io::stderr().is_terminal() {
            return Bar(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{msg:<18} {wide_bar} {pos}/{len} {elapsed}");
        bar.set_style(style.expect("a fixed template"));
        Bar(bar)
    }
}

impl Progress for Bar {
    fn stage(&self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    fn requests(&self, done: u64, of: u64) {
        self.0.set_length(of);
        self.0.set_position(done);
    }
}
