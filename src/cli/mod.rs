//! Arguments, exit codes and the way errors are shown.

mod certify;
mod certify_files;
mod certify_lives;
mod certify_merge;
mod certify_options;
mod embedded;
mod env;
mod fuzz;
mod fuzz_json;
mod generate;
#[cfg(feature = "cuda")]
mod kernels;
mod minimize;
mod open;
mod out;
mod replay;
mod serve;

use std::fmt;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lockstep::harness::policy;
use lockstep::subject::SubjectError;

/// Property testing for batch-invariant LLM inference.
#[derive(Parser, Debug)]
#[command(name = "lockstep", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Search generated schedules for one that changes a bit; shrink and store what is found.
    Fuzz(fuzz::Fuzz),
    /// Carry out a case file again and compare.
    Replay(replay::Replay),
    /// Shrink a case file to a 1-minimal one.
    Minimize(minimize::Minimize),
    /// Complete a text, to see that a model works.
    Generate(generate::Generate),
    /// Judge a server: does an answer depend on who else is being served?
    Certify(Box<certify::Certify>),
    /// Serve a model with an OpenAI-compatible API.
    Serve(serve::Serve),
    /// Compile every kernel for every supported architecture, with no GPU.
    #[cfg(feature = "cuda")]
    #[command(hide = true)]
    Kernels(kernels::Kernels),
    /// Print the environment tuple that is recorded beside results.
    Env(env::Env),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Exit {
    /// Held, or done.
    Held = 0,
    /// Broken.
    Broken = 1,
    /// Usage or bad input.
    Usage = 2,
    /// Could not decide.
    Undecided = 3,
}

/// A command could not do its work: one line, and the code to exit with.
#[derive(Debug)]
struct CliError {
    exit: Exit,
    line: String,
}

impl CliError {
    fn usage(line: impl fmt::Display) -> CliError {
        CliError { exit: Exit::Usage, line: line.to_string() }
    }

    fn undecided(line: impl fmt::Display) -> CliError {
        CliError { exit: Exit::Undecided, line: line.to_string() }
    }
}

impl From<SubjectError> for CliError {
    fn from(error: SubjectError) -> CliError {
        let exit = match error {
            SubjectError::BadInput(_) => Exit::Usage,
            SubjectError::Unavailable(_) => Exit::Undecided,
            SubjectError::Failed(_) => Exit::Broken,
        };
        CliError { exit, line: error.to_string() }
    }
}

/// Parses the arguments and carries out the command.
pub(crate) fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let known = policy::check_environment().map_err(CliError::usage);
    let outcome = known.and_then(|()| match arguments.command {
        Command::Fuzz(fuzz) => fuzz.run(),
        Command::Replay(replay) => replay.run(),
        Command::Minimize(minimize) => minimize.run(),
        Command::Generate(generate) => generate.run(),
        Command::Certify(certify) => certify.run(),
        Command::Serve(serve) => serve.run(),
        #[cfg(feature = "cuda")]
        Command::Kernels(kernels) => kernels.run(),
        Command::Env(env) => env.run(),
    });
    let exit = outcome.unwrap_or_else(|error| {
        eprintln!("lockstep: {}", one_line(&error.line));
        error.exit
    });
    let exit = if exit == Exit::Held && out::is_lost() { Exit::Usage } else { exit };
    ExitCode::from(exit as u8)
}

/// Help and version as they are; a usage error as one line.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let line = one_line(paragraph);
    eprintln!("lockstep: {}", line.strip_prefix("error: ").unwrap_or(&line));
    ExitCode::from(Exit::Usage as u8)
}

/// One line that a terminal can show: no control characters, and no more than a few lines' worth of text.
fn one_line(text: &str) -> String {
    const CHARACTERS_MAX: usize = 300;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let safe =
        |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let mut short: String = line.chars().take(CHARACTERS_MAX).map(safe).collect();
    if line.chars().count() > CHARACTERS_MAX {
        short.push_str(" ...");
    }
    short
}
