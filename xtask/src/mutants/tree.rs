//! The copy of the tree in which every mutant is a choice at run time.
//!
//! It holds the files that git knows or would take, and one module that production does not have: the choice, read from
//! the environment once, and the count of times that a faulty branch ran. A file is written only if it changed, so
//! that a second build is short.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::format::{Mutant, Target};
use super::schemata::{self, Numbered};

/// Variable that chooses a mutant by its number; 0 or absent is none.
pub(super) const CHOICE: &str = "MUTANT_CHOSEN";
/// Variable that names the file which appears when a faulty branch ran.
pub(super) const TRACE: &str = "MUTANT_TRACE";

/// The file whose function gives the texts of kernels, and that function.
const KERNEL_TEXTS: (&str, &str) = ("src/device/cuda/compile.rs", "text");
/// What every kernel's text begins with.
const PRELUDE: &str = "kernels/prelude.cuh";
/// Gives the judge in the copy the count that the tree's own has not.
const MARKER_FILE: (&str, &str) = (
    "tests/mutants/marker.rs",
    "//! Times that a faulty branch ran in this process.\n\npub(crate) fn hits() -> u64 {\n    \
     lockstep::mutant::hits()\n}\n",
);
const MODULE_FILE: &str = "src/mutant.rs";

/// A copy on disk.
pub(super) struct Copy {
    /// Its root.
    pub(super) root: PathBuf,
    /// Digest of the tree that it was made from, mutants left out: results of another tree are not this one's.
    pub(super) digest: u64,
    /// (file, first line, last line, number of the mutant).
    lines: Vec<(String, usize, usize, u32)>,
}

impl Copy {
    /// The mutant whose text holds a line of the copy.
    pub(super) fn mutant_at(&self, file: &str, line: usize) -> Option<u32> {
        let at = self
            .lines
            .iter()
            .find(|(f, first, last, _)| f == file && (*first..=*last).contains(&line));
        at.map(|(.., number)| *number)
    }
}

/// Makes or renews the copy in `to`.
pub(super) fn copy(root: &Path, to: &Path, numbered: &[Numbered<'_>]) -> anyhow::Result<Copy> {
    let files = listed(root)?;
    let mut digest = DefaultHasher::new();
    let mut written: BTreeSet<PathBuf> = BTreeSet::new();
    let mut lines = Vec::new();
    for file in &files {
        // What was deleted and not committed yet is listed too.
        let Ok(bytes) = fs::read(root.join(file)) else { continue };
        let is_about_results = ["src/", "kernels/", "tests/", "golden/", "Cargo."];
        if is_about_results.iter().any(|start| file.starts_with(start)) {
            (file, &bytes).hash(&mut digest);
        }
        let mut mine = numbered.iter().filter(|n| n.mutant.file == *file).copied().peekable();
        let bytes = match mine.peek() {
            Some(first) if first.mutant.target != Target::Kernel => {
                let text = String::from_utf8(bytes).with_context(|| file.clone())?;
                let built = schemata::build(&text, &mine.collect::<Vec<_>>());
                let built = built.with_context(|| file.clone())?;
                lines.extend(built.lines.into_iter().map(|(a, b, n)| (file.clone(), a, b, n)));
                built.text.into_bytes()
            }
            _ => bytes,
        };
        let bytes = match file.as_str() {
            path if path == MARKER_FILE.0 => MARKER_FILE.1.as_bytes().to_vec(),
            path if path == KERNEL_TEXTS.0 => {
                let text = String::from_utf8(bytes).with_context(|| file.clone())?;
                schemata::wrap(&text, KERNEL_TEXTS.1, "crate::mutant::kernel_text")?.into_bytes()
            }
            "src/lib.rs" => [bytes, b"\npub mod mutant;\n".to_vec()].concat(),
            _ => bytes,
        };
        write(&to.join(file), &bytes)?;
        written.insert(to.join(file));
    }
    let kernels: Vec<_> =
        numbered.iter().filter(|n| n.mutant.target == Target::Kernel).copied().collect();
    check_kernels(root, &kernels)?;
    write(&to.join(MODULE_FILE), module(&kernels).as_bytes())?;
    written.insert(to.join(MODULE_FILE));
    remove_others(to, &written)?;
    Ok(Copy { root: to.to_owned(), digest: digest.finish(), lines })
}

/// Files that git tracks, and new ones that it does not ignore.
fn listed(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.stdin(Stdio::null()).output().context("starting git")?;
    ensure!(output.status.success(), "git ls-files ended with {}", output.status);
    let mut files: Vec<String> = String::from_utf8(output.stdout)?
        .split('\0')
        .filter(|file| !file.is_empty())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// A kernel mutant's text before must occur once in what a program of its file is compiled from.
fn check_kernels(root: &Path, kernels: &[Numbered<'_>]) -> anyhow::Result<()> {
    let prelude = fs::read_to_string(root.join(PRELUDE))?;
    for Numbered { mutant, .. } in kernels {
        let text =
            fs::read_to_string(root.join(&mutant.file)).with_context(|| mutant.id.clone())?;
        let mut count = text.matches(&mutant.before).count();
        if mutant.file != PRELUDE {
            count += prelude.matches(&mutant.before).count();
        }
        ensure!(count == 1, "{}: its text before occurs {count} times", mutant.id);
    }
    Ok(())
}

/// The module that the copy has and production has not.
fn module(kernels: &[Numbered<'_>]) -> String {
    let rows: String = kernels
        .iter()
        .map(|Numbered { number, mutant: Mutant { file, before, after, .. } }| {
            let name = file.trim_start_matches("kernels/");
            format!("    ({number}, {name:?}, {before:?}, {after:?}),\n")
        })
        .collect();
    format!(
        r##"//! The mutant that this process runs with, and the times that its faulty branch ran.

use std::sync::OnceLock;
use std::sync::atomic::{{AtomicU64, Ordering}};

/// (number, file of `kernels/`, text before, text after).
const KERNELS: &[(u32, &str, &str, &str)] = &[
{rows}];

static CHOSEN: OnceLock<u32> = OnceLock::new();
static HITS: AtomicU64 = AtomicU64::new(0);

/// Whether mutant `number` was chosen.
#[inline]
pub fn is(number: u32) -> bool {{
    number == *CHOSEN.get_or_init(chosen)
}}

#[cold]
fn chosen() -> u32 {{
    let text = std::env::var("{CHOICE}").unwrap_or_default();
    if text.is_empty() {{ 0 }} else {{ text.parse().expect("{CHOICE} is a number") }}
}}

/// A faulty branch runs.
#[inline]
pub fn hit() {{
    if HITS.fetch_add(1, Ordering::Relaxed) == 0 {{
        first();
    }}
}}

/// Outlives the process, whatever becomes of it.
#[cold]
fn first() {{
    if let Some(path) = std::env::var_os("{TRACE}") {{
        std::fs::write(path, "executed\n").expect("{TRACE} can be written");
    }}
}}

/// Times that a faulty branch ran.
pub fn hits() -> u64 {{
    HITS.load(Ordering::Relaxed)
}}

/// The text of a program, mutated if that was chosen.
pub fn kernel_text(text: String) -> String {{
    for (number, file, before, after) in KERNELS {{
        if is(*number) && text.contains(&format!("#line 1 \"{{file}}\"")) {{
            hit();
            return text.replacen(before, after, 1);
        }}
    }}
    text
}}
"##
    )
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}

/// Removes what an earlier copy had and this one has not.
fn remove_others(folder: &Path, keep: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, keep)?;
        } else if !keep.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}
