//! `lockstep certify merge`: several certificates as one statement.

use std::path::{Path, PathBuf};

use clap::Args;
use lockstep::certify::merge::{self, Merged, Part};
use lockstep::certify::{Certificate, Verdict};

use super::fuzz::{check_writable, is_standard_output};
use super::out::{self, say};
use super::{CliError, Exit};

/// Merge certificates of several lives of a server, or of several addresses: how many are broken, and whether answers alone to
/// the same prompts are equal between them.
#[derive(Args, Debug)]
pub(super) struct Merge {
    /// Certificates, as certify --json writes them; two or more.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write what came of it as JSON (lockstep.certificates/1.0) to a file, or with - to standard output; everything else then
    /// goes to standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the verdict only.
    #[arg(long, short)]
    quiet: bool,
}

impl Merge {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let parts = self.parts()?;
        let merged = merge::merge(parts)?;
        begin(self.json.as_deref())?;
        Ok(tell(&merged, self.quiet, self.json.as_deref()))
    }

    fn parts(&self) -> Result<Vec<Part>, CliError> {
        // Before a file is read: they may be large.
        let (n, most) = (self.files.len(), merge::PARTS_MAX);
        if !(2..=most).contains(&n) {
            let why = format!("certify merge: {n} files, expected 2 to {most} certificates");
            return Err(CliError::usage(why));
        }
        let part = |path: &PathBuf| {
            let name = path.display().to_string();
            let certificate = Certificate::read(path);
            let certificate =
                certificate.map_err(|why| CliError::usage(format!("{name}: {why}")))?;
            Ok(Part::of(&certificate, Some(name)))
        };
        self.files.iter().map(part).collect()
    }
}

/// Finds out before anything is printed where the document goes, and whether it can.
pub(super) fn begin(json: Option<&Path>) -> Result<(), CliError> {
    match json {
        Some(path) if is_standard_output(path) => out::divert(),
        Some(path) => check_writable(path)?,
        None => {}
    }
    Ok(())
}

/// Prints what came of it, and writes the document.
pub(super) fn tell(merged: &Merged, quiet: bool, json: Option<&Path>) -> Exit {
    match quiet {
        true => say!("{}", merge::summary(merged)),
        false => say!("{}", merge::report(merged)),
    }
    let exit = Exit::of(merged.verdict);
    let Some(path) = json else { return exit };
    let text = serde_json::to_string_pretty(merged).expect("a document serialises");
    match write(path, text) {
        Ok(()) => exit,
        Err(why) => exit.lost(&why),
    }
}

/// Writes a document to a file, or to standard output.
pub(super) fn write(path: &Path, text: String) -> Result<(), String> {
    if is_standard_output(path) {
        out::document(&text);
        return Ok(());
    }
    std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
}

impl Exit {
    /// How a command ends that came to this.
    pub(super) fn of(verdict: Verdict) -> Exit {
        match verdict {
            Verdict::Held => Exit::Held,
            Verdict::Broken => Exit::Broken,
            Verdict::Undecided => Exit::Undecided,
        }
    }

    /// The same when something could not be written. What was found is not lost with a file: broken is still broken.
    pub(super) fn lost(self, why: &str) -> Exit {
        eprintln!("lockstep: {why}");
        if self == Exit::Broken { Exit::Broken } else { Exit::Usage }
    }
}
