//! What `lockstep certify` leaves for people: the page, and the reproducers.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use lockstep::certify::repro;
use lockstep::certify::{Certificate, html};

use super::CliError;
use super::fuzz::{check_writable, is_standard_output};
use super::out::say;

#[derive(Args, Debug)]
pub(super) struct Files {
    /// Write the certificate as one HTML page. Of several lives, the page is of the first broken one, else the last.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Where answers in a crowd differ, write reproduce.sh (curl) and test_reproduce.py (pytest, or Python alone) to a folder;
    /// where first answers do, reproduce_first.sh and test_reproduce_first.py.
    #[arg(long, value_name = "FOLDER")]
    reproducer: Option<PathBuf>,
}

impl Files {
    /// Finds out before the run what could not be written after it.
    pub(super) fn check(&self) -> Result<(), CliError> {
        if let Some(path) = &self.html {
            if is_standard_output(path) {
                return Err(CliError::usage("--html writes a file; - is none"));
            }
            check_writable(path)?;
        }
        if let Some(folder) = &self.reproducer {
            let bad = |e| CliError::usage(format!("{}: {e}", folder.display()));
            fs::create_dir_all(folder).map_err(bad)?;
        }
        Ok(())
    }

    /// Whether a reproducer was asked for.
    pub(super) fn has_reproducer(&self) -> bool {
        self.reproducer.is_some()
    }

    /// Writes what was asked for. Each failure is one line.
    pub(super) fn store(&self, certificate: &Certificate) -> Result<(), String> {
        if let Some(path) = &self.html {
            write(path, &html::page(certificate))?;
        }
        let Some(folder) = &self.reproducer else { return Ok(()) };
        match repro::reproducer(certificate) {
            Err(why) => say!("no reproducer: {why}"),
            Ok(reproducer) => {
                let mut told = Vec::new();
                for (name, text) in &reproducer.files {
                    let path = folder.join(name);
                    write(&path, text)?;
                    let runner = match path.extension().and_then(|ending| ending.to_str()) {
                        Some("sh") => "sh ",
                        Some("py") => "pytest ",
                        _ => "with ",
                    };
                    told.push(format!("{runner}{}", path.display()));
                }
                say!("reproducers: {}", told.join("; "));
            }
        }
        Ok(())
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
