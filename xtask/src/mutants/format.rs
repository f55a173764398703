//! A mutant as a file: a header of `key: value` lines, then the text before and the text after.
//!
//! ```text
//! kind: SRF
//! target: rust
//! file: src/engine/blocks.rs
//! needs: evict
//! expect: I2.evict/logits, audit
//! source: https://github.com/vllm-project/vllm/issues/42571
//! why: the same block twice in one release list; a line that begins with two
//!   blanks continues the one before
//! --- before
//! self.cached.remove(at);
//! --- after
//! mutant::hit();
//! ```
//!
//! The file's name without `.mutant` is the identity, in whatever folder it lies. Nothing is optional but `needs`, and
//! nothing is ignored: a key that nobody reads is an error, with its line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

/// What a Rust mutant's text calls in its faulty branch.
pub(super) const MARKER: &str = "mutant::hit()";
/// Ends a mutant's file name.
const EXTENSION: &str = "mutant";

/// What a mutant is a fault of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// The engine, or a device that runs without a GPU; judged by the relations on the host.
    Rust,
    /// A kernel; judged by the relations on a GPU.
    Kernel,
    /// The harness itself; judged by its own tests.
    Harness,
}

impl Target {
    pub(super) fn name(self) -> &'static str {
        match self {
            Target::Rust => "rust",
            Target::Kernel => "kernel",
            Target::Harness => "harness",
        }
    }
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    /// Identity.
    pub(super) id: String,
    /// Kind of the fault, an abbreviation of `mutants/README.md`.
    pub(super) kind: String,
    pub(super) target: Target,
    /// The file that is changed, from the root of the repository.
    pub(super) file: String,
    /// Text that occurs once in it.
    pub(super) before: String,
    /// What stands there instead.
    pub(super) after: String,
    /// Sentinels that the clean control must fire, or the fault could not show.
    pub(super) needs: Vec<String>,
    /// Observers of which one must see the fault: `RELATION/observable`, `RELATION`, or `audit`, `panic`, `ledger`,
    /// `liveness`; for a harness mutant `TEST TARGET/test name`.
    pub(super) expect: Vec<String>,
    /// The public report or the list that it is modelled on.
    pub(super) source: String,
    /// When it shows, and why it is expected to be seen there.
    pub(super) why: String,
    /// The file itself, for digests.
    pub(super) text: String,
}

impl Mutant {
    /// Whether a relation, or what ends runs, is among its expected observers; `I2` stands for all of I2.
    pub(super) fn expects(&self, observer: &str) -> bool {
        let family = observer.split('.').next().unwrap_or(observer);
        let named = self.expect.iter().map(|expect| expect.split('/').next().unwrap_or(expect));
        named.into_iter().any(|name| name == observer || name == family)
    }
}

/// All mutants below `folder`, by identity.
pub(super) fn read_all(folder: &Path) -> anyhow::Result<Vec<Mutant>> {
    let mut found: BTreeMap<String, Mutant> = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()));
        for entry in entries? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|e| e != EXTENSION) {
                continue;
            }
            let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path);
            let text = text.with_context(|| format!("reading {}", path.display()))?;
            let mutant = parse(&id, &text).with_context(|| format!("{}", path.display()))?;
            ensure!(
                found.insert(id.clone(), mutant).is_none(),
                "{}: a mutant called {id} is in another folder too",
                path.display()
            );
        }
    }
    Ok(found.into_values().collect())
}

/// Parses a file. Errors name the line.
pub(super) fn parse(id: &str, text: &str) -> anyhow::Result<Mutant> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    ensure!(!id.is_empty() && id.chars().all(is_name), "{id:?}: names are snake case");
    let (header, code) = text.split_once("--- before\n").context("no line `--- before`")?;
    let (before, after) = code.split_once("--- after\n").context("no line `--- after`")?;
    let mut fields = header_fields(header)?;
    let mut take = |key: &str| fields.remove(key).with_context(|| format!("no line `{key}: `"));
    let target = match take("target")?.as_str() {
        "rust" => Target::Rust,
        "kernel" => Target::Kernel,
        "harness" => Target::Harness,
        other => bail!("unknown target {other:?}, expected rust, kernel or harness"),
    };
    let list = |text: &str| -> Vec<String> {
        text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
    };
    let mutant = Mutant {
        id: id.into(),
        kind: take("kind")?,
        target,
        file: take("file")?,
        before: trimmed(before),
        after: trimmed(after),
        needs: take("needs").map(|text| list(&text)).unwrap_or_default(),
        expect: list(&take("expect")?),
        source: take("source")?,
        why: take("why")?,
        text: text.into(),
    };
    if let Some(key) = fields.keys().next() {
        bail!("unknown key {key:?}");
    }
    ensure!(!mutant.expect.is_empty(), "`expect` names no observer");
    ensure!(!mutant.before.trim().is_empty(), "the text before is empty");
    ensure!(mutant.before != mutant.after, "before and after are equal");
    let known = [("src/", "rs"), ("kernels/", "cu"), ("kernels/", "cuh")];
    let fits = known.iter().any(|(folder, end)| {
        mutant.file.starts_with(folder)
            && mutant.file.ends_with(&format!(".{end}"))
            && (*folder == "kernels/") == (target == Target::Kernel)
    });
    ensure!(fits, "{}: no file that a {} mutant changes", mutant.file, target.name());
    let markers = mutant.after.matches(MARKER).count();
    match target {
        Target::Kernel => ensure!(markers == 0, "a kernel has no {MARKER}"),
        _ => {
            ensure!(markers == 1, "{MARKER} must stand in the text after once, not {markers} times")
        }
    }
    Ok(mutant)
}

fn header_fields(header: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    let mut last: Option<String> = None;
    for (number, line) in header.lines().enumerate() {
        if let Some(more) = line.strip_prefix("  ") {
            let key =
                last.as_ref().with_context(|| format!("line {}: continues nothing", number + 1))?;
            let value = fields.get_mut(key).expect("the key was inserted");
            value.push(' ');
            value.push_str(more.trim());
            continue;
        }
        if line.trim().is_empty() {
            continue;
        }
        let (key, value) = line
            .split_once(':')
            .with_context(|| format!("line {}: neither `key: value` nor continued", number + 1))?;
        last = Some(key.to_owned());
        let twice = fields.insert(key.into(), value.trim().into()).is_some();
        ensure!(!twice, "line {}: {key} for the second time", number + 1);
    }
    Ok(fields)
}

/// Without the line break that ends a section: the code may begin and end inside a line.
fn trimmed(section: &str) -> String {
    section.trim_matches('\n').to_owned()
}

/// Mutants whose text before does not occur exactly once in the tree: (id, what is wrong).
pub(super) fn stale(mutants: &[Mutant], root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut wrong = Vec::new();
    let files: BTreeSet<&str> = mutants.iter().map(|m| m.file.as_str()).collect();
    for file in files {
        let text = fs::read_to_string(root.join(file)).ok();
        for mutant in mutants.iter().filter(|m| m.file == file) {
            let what = match &text {
                None => format!("there is no {file}"),
                Some(text) => match text.matches(&mutant.before).count() {
                    1 => continue,
                    n => format!("its text before occurs {n} times in {file}, not once"),
                },
            };
            wrong.push((mutant.id.clone(), what));
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "kind: SRF\ntarget: rust\nfile: src/a.rs\nneeds: evict, cut\nexpect: I1/logits\n\
        source: https://example.org/1\nwhy: one line\n  and another\n--- before\n    a();\n--- after\n    \
        mutant::hit();\n    b();\n";

    fn error(text: &str) -> String {
        format!("{:#}", parse("x", text).unwrap_err())
    }

    #[test]
    fn a_file_is_read_to_the_letter() {
        let mutant = parse("x", GOOD).unwrap();
        assert_eq!((mutant.kind.as_str(), mutant.target), ("SRF", Target::Rust));
        assert_eq!(mutant.needs, ["evict", "cut"]);
        assert_eq!(mutant.why, "one line and another");
        assert_eq!(mutant.before, "    a();");
        assert_eq!(mutant.after, "    mutant::hit();\n    b();");
    }

    #[test]
    fn what_is_missing_doubled_or_unknown_is_named() {
        let without = |line: &str| error(&GOOD.replace(line, ""));
        assert!(without("kind: SRF\n").contains("no line `kind: `"));
        assert!(without("--- after\n").contains("no line `--- after`"));
        assert!(without("    mutant::hit();\n").contains("once, not 0 times"));
        assert!(error(&GOOD.replace("b();", "mutant::hit();")).contains("not 2 times"));
        assert!(error(&GOOD.replace("kind: SRF", "kind: SRF\nkind: SKR")).contains("line 2: kind"));
        assert!(error(&GOOD.replace("kind: SRF", "kind: SRF\ncolour: red")).contains("\"colour\""));
        assert!(error(&GOOD.replace("kind: SRF", "kind")).contains("line 1: neither"));
        assert!(error(&GOOD.replace("src/a.rs", "kernels/a.cu")).contains("no file that a rust"));
        assert!(error(&GOOD.replace("target: rust", "target: c")).contains("unknown target"));
        assert!(parse("Bad-Name", GOOD).is_err());
    }

    #[test]
    fn the_same_name_in_two_folders_is_refused() {
        let root = std::env::temp_dir().join(format!("lockstep-mutants-{}", std::process::id()));
        for folder in ["a", "b"] {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::write(root.join(folder).join("same.mutant"), GOOD).unwrap();
        }
        let error = format!("{:#}", read_all(&root).unwrap_err());
        assert!(error.contains("called same is in another folder too"), "{error}");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_text_that_occurs_twice_or_never_is_stale() {
        let root = std::env::temp_dir().join(format!("lockstep-stale-{}", std::process::id()));
        fs::create_dir_all(root.join("src")).unwrap();
        let mutant = parse("x", GOOD).unwrap();
        for (text, count) in [("    a();\n", 1), ("    a();\n    a();\n", 2), ("", 0)] {
            fs::write(root.join("src/a.rs"), text).unwrap();
            let wrong = stale(std::slice::from_ref(&mutant), &root).unwrap();
            assert_eq!(wrong.is_empty(), count == 1, "{text:?}");
            if let Some((_, what)) = wrong.first() {
                assert!(what.contains(&format!("occurs {count} times")), "{what}");
            }
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
