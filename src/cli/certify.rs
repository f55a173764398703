//! `lockstep certify`: judge a server by its HTTP answers.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use lockstep::certify::{self, CertifyError, Options, Plan, Progress, Target, text};
use lockstep::contract::Mode;

use super::certify_files::Files;
use super::certify_lives::{Leaves, Lives};
use super::certify_merge::{self, Merge};
use super::certify_options::Asked;
use super::embedded::Embedded;
use super::open::DeviceArgument;
use super::out::say;
use super::{CliError, Exit};

/// Most runs that power is measured with.
const RUNS_MAX: u64 = 1_000_000;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct Certify {
    #[command(subcommand)]
    command: Option<Command>,
    /// Address of an OpenAI-compatible server, up to and with /v1. Without one, the embedded server is judged: first in its
    /// batch-dependent mode, which must be found broken, then in the invariant one.
    #[arg(env = "OPENAI_BASE_URL")]
    url: Option<String>,
    #[command(flatten)]
    asked: Asked,
    /// Mode of the embedded server [default: invariant].
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    #[command(flatten)]
    device: DeviceArgument,
    /// Print the plan and its cost; send nothing.
    #[arg(long)]
    dry_run: bool,
    /// Measure detection power instead: FAULTY runs against a planted fault, and CLEAN runs against none.
    #[arg(long, value_name = "FAULTY,CLEAN", value_delimiter = ',', num_args = 0..=1, default_missing_value = "100,1000")]
    power: Option<Vec<u64>>,
    /// Share of the answers in crowds that the planted fault of --power changes.
    #[arg(long, default_value_t = 0.1, requires = "power")]
    rate: f64,
    /// Write the certificate as JSON (lockstep.certificate/2.0) to a file, or with - to standard output; everything else then
    /// goes to standard error. Of several lives, the merged document (lockstep.certificates/1.0); each certificate goes beside
    /// it, with .life-K before the extension.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    lives: Lives,
    /// Print what was found out about the server too.
    #[arg(long, short)]
    verbose: bool,
    /// Print the verdict only.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    Merge(Merge),
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
        if let Some(Command::Merge(merge)) = &self.command {
            return merge.run();
        }
        let config = self.asked.config()?;
        let mut options = self.asked.options(&config)?;
        let url = self.url.clone().or(config.url.clone());
        if url.as_ref().is_some_and(|url| url.trim().is_empty()) {
            // A variable that was not set would else be a green run of the embedded server.
            let why = "an empty address (OPENAI_BASE_URL counts too): leave it out to judge the embedded server";
            return Err(CliError::usage(why));
        }
        if self.mode.is_some()
            && let Some(url) = &url
        {
            // Else another server than was meant would be asked, and paid.
            let why = "--mode is one of the embedded server, but there is an address";
            return Err(CliError::usage(format!("{why}: {url:?} (OPENAI_BASE_URL counts too)")));
        }
        if self.lives.are_asked() && url.is_none() {
            let why = "--lives needs an address: the embedded server ends with this process, and no command restarts it";
            return Err(CliError::usage(why));
        }
        if self.dry_run {
            say!("{}", Plan::new(&options, url.is_none())?.text());
            return Ok(Exit::Held);
        }
        certify_merge::begin(self.json.as_deref())?;
        self.lives.check(self.json.as_deref())?;
        self.files.check()?;
        let Some(url) = url else {
            // Here a model is what to serve, not what to ask for. The key is for others.
            let model = self.asked.model.clone().or(config.model);
            let model = model.as_deref().unwrap_or("tiny");
            let mode = self.mode.clone().unwrap_or(Mode::Invariant);
            let embedded = Embedded::start(model, &mode, &self.device)?;
            let control = Some(embedded.control());
            // A server that begins with this run has seen no prompt.
            options.nonce.get_or_insert(0);
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
        self.judge(&self.asked.target(url, &config)?, &options)
    }

    fn judge(&self, target: &Target, options: &Options) -> Result<Exit, CliError> {
        let bar = Bar::new(self.quiet);
        if let Some(runs) = &self.power {
            return self.measure(target, options, runs, &bar);
        }
        if let Some(why) = Plan::new(options, target.control.is_some())?.shortfall() {
            eprintln!("lockstep: no level can be held: {why}");
        }
        if self.lives.are_asked() {
            let (json, files, quiet) = (self.json.as_deref(), &self.files, self.quiet);
            return self.lives.judge(target, options, &bar, &Leaves { json, files, quiet });
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
        let mut exit = Exit::of(certificate.verdict);
        if let Err(why) = self.files.store(&certificate) {
            exit = exit.lost(&why);
        }
        let Some(path) = &self.json else { return Ok(exit) };
        let json = serde_json::to_string_pretty(&certificate).expect("a certificate serialises");
        let written = certify_merge::write(path, json);
        Ok(written.map_or_else(|why| exit.lost(&why), |()| exit))
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
            certify_merge::write(path, json).map_err(CliError::usage)?;
        }
        // A false alarm is a fault of the certifier's; a missed detection may be the rate's.
        Ok(match (measured.false_alarms, measured.clean_undecided + measured.faulty_undecided) {
            (0, 0) => Exit::Held,
            (0, _) => Exit::Undecided,
            _ => Exit::Broken,
        })
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
