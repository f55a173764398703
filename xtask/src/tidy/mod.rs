//! `cargo xtask tidy`: the house rules that neither rustc nor clippy checks.
//!
//! Each rule is a function from the text of the tree to findings; none reads the disk, so that a test can plant a
//! violation in a text fixture. Only [`Tree::read`] touches files, and nothing here changes one.
//! `cargo test -p xtask` checks the real tree as well.

mod code_map;
mod imports;
mod markdown;
mod rooms;
mod source;
mod text;
mod tokens;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

/// One violation, printed as `path:line: message`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    severity: Severity,
    message: String,
}

/// Whether a finding fails the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Printed, exit code unchanged.
    Warning,
    /// Exit code 1.
    Error,
}

impl Finding {
    fn error(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, severity: Severity::Error, message: message.into() }
    }

    fn warning(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, ..Finding::error(path, line, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { path, line, severity, message } = self;
        match severity {
            Severity::Error => write!(f, "{path}:{line}: {message}"),
            Severity::Warning => write!(f, "{path}:{line}: warning: {message}"),
        }
    }
}

/// The tree under check.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// UTF-8 files: path relative to the root with `/` between its parts, and text; ascending by path.
    files: Vec<(String, String)>,
    /// Every file and folder, binary ones included.
    paths: BTreeSet<String>,
}

/// Hidden folders that are ours; any other, and every `target`, holds nothing that is handed in.
const HIDDEN_FOLDERS: [&str; 4] = [".cargo", ".ci", ".config", ".github"];

/// Larger files are data: their existence counts, their text is not read.
const TEXT_BYTES_MAX: u64 = 4 << 20;

impl Tree {
    /// Reads every file below `root`, except build outputs and what symbolic links lead to.
    fn read(root: &Path) -> anyhow::Result<Tree> {
        let mut tree = Tree::default();
        tree.read_folder(root, "")?;
        tree.files.sort();
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> anyhow::Result<()> {
        let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("list {}", folder.display()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            let kind = entry.file_type()?;
            let ours = !name.starts_with('.') || HIDDEN_FOLDERS.contains(&name.as_str());
            if kind.is_dir() && ours && name != "target" {
                self.paths.insert(path.clone());
                self.read_folder(&entry.path(), &path)?;
            } else if kind.is_file() && name != ".git" {
                self.paths.insert(path.clone());
                if entry.metadata()?.len() <= TEXT_BYTES_MAX {
                    let bytes = fs::read(entry.path()).with_context(|| format!("read {path}"))?;
                    if let Ok(text) = String::from_utf8(bytes) {
                        self.files.push((path, text));
                    }
                }
            }
        }
        Ok(())
    }

    /// A tree of text fixtures; folders are implied.
    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.files.push(((*path).to_owned(), (*text).to_owned()));
            let parts: Vec<&str> = path.split('/').collect();
            tree.paths.extend((1..=parts.len()).map(|n| parts[..n].join("/")));
        }
        tree
    }
}

/// Checks the tree below `root` and prints what was found.
pub(crate) fn run(root: &Path) -> anyhow::Result<ExitCode> {
    let tree = Tree::read(root)?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    let files = tree.files.len();
    match (errors, findings.len() - errors) {
        (0, 0) => println!("tidy: {files} files, no findings"),
        (0, warnings) => println!("tidy: {files} files, no findings ({warnings} warnings)"),
        _ => {
            println!("tidy: {files} files, {errors} findings");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Every rule over every file it concerns, ascending by path and line.
fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = code_map::check(tree);
    for (path, text) in &tree.files {
        findings.extend(text::conflict_markers(path, text));
        findings.extend(text::private_hosts(path, text));
        findings.extend(text::foreign_registries(path, text));
        if is_code(path) {
            findings.extend(source::length(path, text));
            findings.extend(source::marks(path, text));
        }
        if path.ends_with(".md") {
            findings.extend(markdown::links(tree, path, text));
        }
        if path.ends_with(".rs") && !is_data(path) {
            findings.extend(source::module_doc(path, text));
            match tokens::flatten(text) {
                Ok(tokens) => {
                    findings.extend(source::banned(path, &tokens));
                    findings.extend(source::unsafe_code(path, text, &tokens));
                }
                Err(finding) => findings.push(Finding::error(path, finding.line, finding.message)),
            }
            findings.extend(imports::check(path, text));
        }
    }
    findings.sort();
    findings
}

/// Files written by hand in a programming language.
fn is_code(path: &str) -> bool {
    let extensions = [".rs", ".cu", ".cuh", ".sh"];
    (extensions.iter().any(|e| path.ends_with(e)) || path == ".ci/run") && !is_data(path)
}

/// Files that tests or the mutation campaign read: broken on purpose, or text of another file.
fn is_data(path: &str) -> bool {
    path.starts_with("mutants/") || path.starts_with("tests/data/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a change that breaks a house rule fails `cargo test`. Method: run the task's rules on this checkout.
    #[test]
    fn this_tree_has_no_findings() {
        let tree = Tree::read(&crate::repository_root()).expect("the checkout is readable");
        assert!(tree.paths.contains("Cargo.toml"), "not the root of the repository");
        let errors: Vec<String> = check(&tree)
            .iter()
            .filter(|f| f.severity == Severity::Error)
            .map(Finding::to_string)
            .collect();
        assert!(errors.is_empty(), "{}", errors.join("\n"));
    }

    #[test]
    fn a_finding_prints_as_path_line_message() {
        let finding = Finding::error("src/lib.rs", 7, "what is wrong");
        assert_eq!(finding.to_string(), "src/lib.rs:7: what is wrong");
        let warning = Finding::warning("src/lib.rs", 7, "what is doubtful");
        assert_eq!(warning.to_string(), "src/lib.rs:7: warning: what is doubtful");
    }

    #[test]
    fn a_clean_tree_has_no_findings() {
        let tree = Tree::of(&[
            ("README.md", "# Title\n\nSee [the code](src/lib.rs) and [above](#title).\n"),
            ("src/lib.rs", "//! A crate.\n\npub mod engine;\n"),
            ("src/engine.rs", "//! A room.\n\nuse crate::contract::Mode;\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn every_rule_reports_through_the_task() {
        let conflict = format!("{} ours\n", "<".repeat(7));
        let host = format!("Use http://mirror.{}/simple.\n", "internal");
        let source = "use crate::main::run;\nfn f() { todo!() }\nunsafe fn g() {}\n";
        let tree = Tree::of(&[
            ("CHANGELOG.md", conflict.as_str()),
            ("README.md", "[gone](gone.md)\n"),
            ("docs/setup.md", host.as_str()),
            ("src/engine.rs", source),
        ]);
        let found: Vec<String> = check(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), 7, "{found:#?}");
        for (finding, start) in found.iter().zip([
            "CHANGELOG.md:1:",
            "README.md:1:",
            "docs/setup.md:1:",
            "src/engine.rs:1: a file starts",
            "src/engine.rs:1: room `engine` imports `main`",
            "src/engine.rs:2: `todo!`",
            "src/engine.rs:3: `unsafe`",
        ]) {
            assert!(finding.starts_with(start), "{finding} does not start with {start}");
        }
    }
}
