//! What shows a difference again without Lockstep: `curl` lines, and a file for pytest.
//!
//! Of a crowd and of a first answer a pair each. All fail while the difference is there, and pass on a server without the fault.
//! Bodies are written as the JSON that was sent, where no character of it can end its quotes; keys and other secrets are read
//! from the environment of whoever runs them, and never written.

mod case;
mod curl;
mod pytest;

use super::certificate::{Arm, Certificate, Divergence, Verdict};
use case::Case;

/// Name of the script with `curl` lines that asks a crowd.
pub const SHELL_FILE: &str = "reproduce.sh";
/// Name of the file for pytest that asks a crowd.
pub const PYTHON_FILE: &str = "test_reproduce.py";
/// Name of the file with the requests of both, where they are too long to be pasted.
pub const REQUESTS_FILE: &str = "reproduce.json";
/// The same three for a first answer.
pub const FIRST_SHELL_FILE: &str = "reproduce_first.sh";
/// The one for pytest.
pub const FIRST_PYTHON_FILE: &str = "test_reproduce_first.py";
/// The one with the requests.
pub const FIRST_REQUESTS_FILE: &str = "reproduce_first.json";

/// Files that stand in one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reproducer {
    /// Name and text of each.
    pub files: Vec<(&'static str, String)>,
}

impl Reproducer {
    /// The text of a file.
    pub fn file(&self, name: &str) -> Option<&str> {
        self.files.iter().find(|(other, _)| *other == name).map(|(_, text)| text.as_str())
    }
}

/// Of the difference in a crowd that was shrunk, or else of the first one in a crowd; and of first answers. `Err` says why there
/// is none.
pub fn reproducer(certificate: &Certificate) -> Result<Reproducer, String> {
    if certificate.divergences.is_empty() {
        return Err("nothing differed".into());
    }
    let found = [company(certificate), first(certificate)];
    if found.iter().all(Option::is_none) {
        let why =
            "no crowd and no first answer is broken: requests of other arms are in the certificate";
        return Err(why.into());
    }
    let mut files = Vec::new();
    let (mut why, names) = (
        None,
        [
            [SHELL_FILE, PYTHON_FILE, REQUESTS_FILE],
            [FIRST_SHELL_FILE, FIRST_PYTHON_FILE, FIRST_REQUESTS_FILE],
        ],
    );
    for (divergence, [shell, python, requests]) in found.into_iter().zip(names) {
        let Some(divergence) = divergence else { continue };
        match Case::new(certificate, divergence, requests) {
            Err(refused) => why = Some(refused),
            Ok(case) => {
                files.push((shell, curl::script(&case)));
                files.push((python, pytest::file(&case)));
                files.extend(case.requests_file().map(|text| (requests, text)));
            }
        }
    }
    match why {
        Some(why) if files.is_empty() => Err(why),
        _ => Ok(Reproducer { files }),
    }
}

/// The difference in a crowd that is easiest to see again. A request of many prompts is no crowd of requests.
fn company(certificate: &Certificate) -> Option<&Divergence> {
    let in_crowd = broken(certificate).filter(|d| d.sent > 1 && d.arm != Arm::ManyPrompts);
    let ease = |d: &&Divergence| match (&d.shrunk, d.arm) {
        (Some(_), _) => 0,
        (None, arm) if Arm::COMPANY.contains(&arm) => 1,
        (None, _) => 2,
    };
    in_crowd.min_by_key(ease)
}

fn first(certificate: &Certificate) -> Option<&Divergence> {
    broken(certificate).find(|divergence| divergence.arm == Arm::First)
}

/// First differences of broken arms: others may have a cause that is none of company's.
fn broken(certificate: &Certificate) -> impl Iterator<Item = &Divergence> {
    let verdict = |arm| certificate.arm(arm).map(|record| record.verdict);
    certificate.divergences.iter().filter(move |d| verdict(d.arm) == Some(Verdict::Broken))
}

/// A template with each line `#@ name` replaced by the lines of that name.
fn fill(template: &str, lines_of: impl Fn(&str) -> Vec<String>) -> String {
    let mut out = String::new();
    for line in template.lines() {
        match line.trim_start().strip_prefix("#@ ") {
            None => {
                out.push_str(line);
                out.push('\n');
            }
            Some(name) => {
                for line in lines_of(name) {
                    out.push_str(&line);
                    out.push('\n');
                }
            }
        }
    }
    out
}

/// The lines of a part of a template.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(String::from).collect()
}
