//! A child: one mutant, one process, an end by a time limit.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::tree::{CHOICE, TRACE};

/// How often a child is looked at.
const POLL: Duration = Duration::from_millis(10);
/// Of a child's output, the end is what is kept for reports.
const TAIL_BYTES: usize = 4000;

/// How a child ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// `None` if the time limit ended it.
    pub(super) status: Option<ExitStatus>,
    /// Whether the faulty branch ran in it.
    pub(super) executed: bool,
    pub(super) wall: Duration,
    /// The end of what it printed.
    pub(super) tail: String,
}

/// Runs `program` with a mutant (0: none) in `folder`, which is made, and is the child's working folder.
pub(super) fn run(
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, PathBuf)],
    number: u32,
    folder: &Path,
    limit: Duration,
) -> anyhow::Result<Ended> {
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let trace = folder.join("executed");
    let _ = fs::remove_file(&trace);
    let log = folder.join("output.txt");
    let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(folder)
        .env(CHOICE, number.to_string())
        .env(TRACE, &trace)
        // Fixed whatever the caller's environment says: same mutant, same cases, nothing accepted, nothing stored.
        .env("PROPTEST_RNG_SEED", "0")
        .env("INSTA_UPDATE", "no")
        .env("INSTA_FORCE_PASS", "0")
        .env_remove("PROPTEST_CASES")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    for (name, value) in variables {
        command.env(name, value);
    }
    own_group(&mut command);
    let started = Instant::now();
    let child = command.spawn();
    let mut child = child.with_context(|| format!("starting {}", program.display()))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if started.elapsed() >= limit {
            end(&mut child);
            break None;
        }
        std::thread::sleep(POLL);
    };
    let wall = started.elapsed();
    let text = fs::read(&log).unwrap_or_default();
    let from = text.len().saturating_sub(TAIL_BYTES);
    let tail = String::from_utf8_lossy(&text[from..]).into_owned();
    Ok(Ended { status, executed: trace.exists(), wall, tail })
}

/// A group of its own, so that what it started ends with it.
#[cfg(unix)]
fn own_group(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    command.process_group(0);
}

#[cfg(not(unix))]
fn own_group(_: &mut Command) {}

fn end(child: &mut Child) {
    #[cfg(unix)]
    {
        // The group has the child's number; `kill` is everywhere, and this crate has no binding to the call.
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_does_not_end_is_ended_with_what_it_started() {
        let folder = std::env::temp_dir().join(format!("lockstep-child-{}", std::process::id()));
        let run = |script: &str, limit: u64| {
            let limit = Duration::from_millis(limit);
            run(Path::new("/bin/sh"), &["-c", script], &[], 3, &folder, limit).unwrap()
        };
        let ended = run("echo $MUTANT_CHOSEN; sleep 60 & sleep 60", 300);
        assert!(ended.status.is_none() && ended.wall < Duration::from_secs(20));
        assert!(!ended.executed);
        assert_eq!(ended.tail, "3\n");
        let ended = run("touch $MUTANT_TRACE; exit 101", 20_000);
        assert_eq!(ended.status.and_then(|s| s.code()), Some(101));
        assert!(ended.executed);
        fs::remove_dir_all(&folder).unwrap();
    }
}
