//! `lockstep certify --lives`: life after life of one server, restarted by a command of the user's.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use lockstep::certify::merge::{self, LIVES_MAX};
use lockstep::certify::{self, Certificate, Options, Progress, Target, Verdict};

use super::certify_files::Files;
use super::certify_merge;
use super::fuzz::{check_writable, is_standard_output, seconds};
use super::out::say;
use super::{CliError, Exit};

/// Between two looks at the command and at the server.
const LOOK: Duration = Duration::from_millis(100);
/// Seconds for a restart.
const RESTART_SECONDS: f64 = 300.0;

#[derive(Args, Debug)]
pub(super) struct Lives {
    /// Judge so many lives of the server, with the same prompts, and merge them. The server is restarted between them by
    /// --restart-command.
    #[arg(long, value_name = "N", requires = "restart_command", conflicts_with_all = ["power", "dry_run"],
        value_parser = clap::value_parser!(u32).range(2..=i64::from(LIVES_MAX)))]
    lives: Option<u32>,
    /// Run by sh between lives. When it returns with success, or when the address has stopped answering while it runs, the
    /// next life begins with the first answer to GET models.
    #[arg(long, value_name = "COMMAND", requires = "lives")]
    restart_command: Option<String>,
    /// Seconds from the start of the command to that answer [default: 300].
    #[arg(long, value_name = "SECONDS", requires = "lives", allow_negative_numbers = true, value_parser = seconds)]
    restart_timeout: Option<f64>,
}

/// Where a run of several lives leaves things.
pub(super) struct Leaves<'a> {
    pub(super) json: Option<&'a Path>,
    pub(super) files: &'a Files,
    pub(super) quiet: bool,
}

impl Lives {
    /// Whether several were asked for.
    pub(super) fn are_asked(&self) -> bool {
        self.lives.is_some()
    }

    /// Finds out before the run which files of single lives could not be written after it.
    pub(super) fn check(&self, json: Option<&Path>) -> Result<(), CliError> {
        let Some(path) = json.filter(|path| !is_standard_output(path)) else { return Ok(()) };
        (1..=self.lives.unwrap_or(0)).try_for_each(|life| check_writable(&file(path, life)))
    }

    /// Judges the lives, and prints what came of them.
    pub(super) fn judge(
        &self,
        target: &Target,
        options: &Options,
        progress: &dyn Progress,
        leaves: &Leaves<'_>,
    ) -> Result<Exit, CliError> {
        let count = self.lives.unwrap_or(1);
        let command = self.restart_command.as_deref().unwrap_or_default();
        let timeout = Duration::from_secs_f64(self.restart_timeout.unwrap_or(RESTART_SECONDS));
        let mut running = Vec::new();
        let mut restart = |_| {
            restart(command, target, timeout, &mut running)?;
            Ok(target.clone())
        };
        let mut shown = Shown::default();
        let mut lost = None;
        let mut judged = |life: u32, outcome: Result<&Certificate, &str>| {
            let stored = outcome.map(|certificate| store(leaves.json, life, certificate));
            if !leaves.quiet {
                let said = outcome.map_or_else(str::to_owned, certify::text::summary);
                eprintln!("life {life} of {count}: {said}");
            }
            if let Ok(certificate) = outcome {
                shown.take(life, certificate);
            }
            match stored {
                Ok(Ok(file)) => file,
                Ok(Err(why)) => {
                    lost = Some(why);
                    None
                }
                Err(_) => None,
            }
        };
        let merged = certify::lives(target, options, count, progress, &mut restart, &mut judged)?;
        let mut exit = certify_merge::tell(&merged, leaves.quiet, leaves.json);
        if let Some(why) = lost {
            exit = exit.lost(&why);
        }
        let Some((life, mut certificate)) = shown.0 else { return Ok(exit) };
        // Whoever opens the page sees that it is of one life, and what came of all.
        let all = certify::merge::summary(&merged).lines().next().unwrap_or_default().to_owned();
        certificate.beside.insert(0, format!("this is life {life} of {count}: {all}"));
        if !leaves.quiet && certificate.verdict == Verdict::Broken {
            say!("\nlife {life} of {count}: {}", certify::text::report(&certificate));
        }
        if let Err(why) = leaves.files.store(&certificate) {
            exit = exit.lost(&why);
        }
        Ok(exit)
    }
}

/// The life that pages and reproducers are of: the first broken one, else the last.
#[derive(Default)]
struct Shown(Option<(u32, Certificate)>);

impl Shown {
    fn take(&mut self, life: u32, certificate: &Certificate) {
        let is_kept = |(_, kept): &(u32, Certificate)| kept.verdict == Verdict::Broken;
        if !self.0.as_ref().is_some_and(is_kept) {
            self.0 = Some((life, certificate.clone()));
        }
    }
}

/// Writes the certificate of a life beside the merged document, at once: what comes later may not come. Gives the file's name.
fn store(
    json: Option<&Path>,
    life: u32,
    certificate: &Certificate,
) -> Result<Option<String>, String> {
    let Some(path) = json.filter(|path| !is_standard_output(path)) else { return Ok(None) };
    let path = file(path, life);
    let text = serde_json::to_string_pretty(certificate).expect("a certificate serialises");
    certify_merge::write(&path, text)?;
    Ok(Some(path.display().to_string()))
}

/// `out.json` of life 2 is `out.life-2.json`.
fn file(path: &Path, life: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!(".life-{life}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Runs the command and waits for the next life. A command that goes on, because it is the server, is kept among those running.
fn restart(
    command: &str,
    target: &Target,
    timeout: Duration,
    running: &mut Vec<Child>,
) -> Result<(), String> {
    // The last life's command has ended by now if it was the server: it is let go.
    running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    let mut child = start(command)?;
    let began = Instant::now();
    let mut has_stopped = false;
    let mut has_returned = false;
    loop {
        if !has_returned && let Some(status) = returned(&mut child)? {
            if !status.success() {
                return Err(format!("the restart command failed: {status}"));
            }
            has_returned = true;
        }
        let is_up = merge::is_up(target).map_err(|error| error.to_string())?;
        has_stopped |= !is_up;
        if is_up && (has_stopped || has_returned) {
            if !has_returned {
                running.push(child);
            }
            return Ok(());
        }
        if began.elapsed() >= timeout {
            let why = match (has_returned, has_stopped) {
                (false, false) => {
                    "the restart command has not returned, and the address has not stopped answering"
                }
                (false, true) => {
                    "the restart command has not returned, and the address does not answer again"
                }
                (true, _) => "the address does not answer again",
            };
            if !has_returned {
                end(child);
            }
            return Err(format!("{why} within {} s", timeout.as_secs_f64()));
        }
        std::thread::sleep(LOOK.min(timeout.saturating_sub(began.elapsed())));
    }
}

/// Starts the command, in a group of its own so that all of it can be ended. What it prints goes to standard error.
fn start(command: &str) -> Result<Child, String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(std::io::stderr());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    shell.spawn().map_err(|error| format!("the restart command could not be started: sh: {error}"))
}

fn returned(child: &mut Child) -> Result<Option<ExitStatus>, String> {
    child.try_wait().map_err(|error| format!("the restart command: {error}"))
}

/// Ends a command that took too long, and what it started.
fn end(mut child: Child) {
    #[cfg(unix)]
    {
        let group = format!("-{}", child.id());
        // Where there is no such program, the shell at least is ended below.
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_lives_keep_folder_and_extension() {
        let of = |path: &str| file(Path::new(path), 2).display().to_string();
        assert_eq!(of("out.json"), "out.life-2.json");
        assert_eq!(of("a.b/out"), "a.b/out.life-2");
        assert_eq!(of("/x/c.tar.json"), "/x/c.tar.life-2.json");
    }
}
