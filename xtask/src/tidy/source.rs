//! Rules about a source file on its own: length, module doc, names that must not occur, `unsafe`.

use super::Finding;
use super::rooms::{CLOCK_ROOMS, room_of};
use super::tokens::{Token, reads};

/// A longer file usually holds two ideas.
const LINES_WARN: usize = 500;
/// A longer file is not accepted.
const LINES_MAX: usize = 700;

/// Marks of unfinished work; the work belongs into the tracker. Split, or this file would find itself.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Macros that stand for missing code or print while debugging.
const BANNED_MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// A file is short enough to be read in one go.
pub(super) fn length(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    if lines > LINES_MAX {
        let message = format!("{lines} lines, more than {LINES_MAX}: one file, one idea");
        return Some(Finding::error(path, lines, message));
    }
    (lines > LINES_WARN).then(|| {
        let message = format!("{lines} lines, more than {LINES_WARN}: does it hold two ideas?");
        Finding::warning(path, lines, message)
    })
}

/// A file says first what it is for.
pub(super) fn module_doc(path: &str, text: &str) -> Option<Finding> {
    (!text.starts_with("//!")).then(|| {
        Finding::error(
            path,
            1,
            "a file starts with its module doc, `//! purpose, invariant, absent`",
        )
    })
}

/// No marks of unfinished work.
pub(super) fn marks(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        for mark in words.filter(|word| MARKS.contains(word)) {
            findings.push(Finding::error(path, number + 1, format!("`{mark}`: open an issue")));
        }
    }
    findings
}

/// Names that break repeatability, and macros that stand for missing code.
pub(super) fn banned(path: &str, tokens: &[Token]) -> Vec<Finding> {
    // Tests, examples and xtask may time themselves.
    let timeless = path == "src/lib.rs" || room_of(path).is_some_and(|r| !CLOCK_ROOMS.contains(&r));
    let mut findings = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let name = token.text.as_str();
        let message = match name {
            "HashMap" | "HashSet" => {
                let ordered = name.replace("Hash", "BTree");
                format!("`{name}`: its order is random; use `{ordered}`")
            }
            "Instant" | "SystemTime" if timeless && reads(tokens, at + 1, &[":", ":", "now"]) => {
                format!(
                    "`{name}::now` in a room that produces results: only {CLOCK_ROOMS:?} read the clock"
                )
            }
            _ if BANNED_MACROS.contains(&name) && reads(tokens, at + 1, &["!"]) => {
                format!("`{name}!` is not for code that is handed in")
            }
            _ => continue,
        };
        findings.push(Finding::error(path, token.line, message));
    }
    findings
}

/// `unsafe` only where SIMD and CUDA need it, each block with its reason.
pub(super) fn unsafe_code(path: &str, text: &str, tokens: &[Token]) -> Vec<Finding> {
    let lines: Vec<&str> = text.lines().collect();
    let mut findings = Vec::new();
    for (at, token) in tokens.iter().enumerate().filter(|(_, t)| t.text == "unsafe") {
        if !may_be_unsafe(path) {
            let message = "`unsafe` outside the SIMD and CUDA files of contract and device";
            findings.push(Finding::error(path, token.line, message));
        }
        if reads(tokens, at + 1, &["{"]) && !has_reason(&lines, token.line) {
            let message = "an `unsafe` block without a `// SAFETY:` comment before it";
            findings.push(Finding::error(path, token.line, message));
        }
    }
    findings
}

fn may_be_unsafe(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let simd = file.contains("avx2") || file.contains("simd");
    path.starts_with("src/device/")
        || path == "src/contract/matrix_unit.rs"
        || path.starts_with("src/contract/matrix_unit/")
        || (path.starts_with("src/contract/") && simd)
}

/// Whether the statement that holds line `line` (from 1) has a SAFETY comment directly before it, or within it
/// before the block.
fn has_reason(lines: &[&str], line: usize) -> bool {
    let is_reason = |text: &str| text.contains("// SAFETY: ");
    if lines.get(line - 1).is_some_and(|text| is_reason(text)) {
        return true;
    }
    let mut in_comment = false;
    for text in lines[..line - 1].iter().rev().map(|text| text.trim()) {
        if is_reason(text) {
            return true;
        }
        if text.starts_with("//") {
            in_comment = true;
        } else if text.is_empty() || in_comment || text.contains("unsafe") {
            return false;
        } else if text.ends_with([';', '{', '}']) {
            // The end of the statement before this one.
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::super::tokens::flatten;
    use super::*;

    fn lines_of(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|f| f.line).collect()
    }

    fn banned_in(path: &str, text: &str) -> Vec<usize> {
        lines_of(&banned(path, &flatten(text).unwrap()))
    }

    fn unsafe_in(path: &str, text: &str) -> Vec<usize> {
        lines_of(&unsafe_code(path, text, &flatten(text).unwrap()))
    }

    #[test]
    fn length_warns_before_it_fails() {
        assert_eq!(length("a.rs", &"\n".repeat(500)), None);
        assert_eq!(length("a.rs", &"\n".repeat(501)).unwrap().severity, Severity::Warning);
        assert_eq!(length("a.rs", &"\n".repeat(700)).unwrap().severity, Severity::Warning);
        assert_eq!(length("a.rs", &"\n".repeat(701)).unwrap().severity, Severity::Error);
    }

    #[test]
    fn a_file_starts_with_its_module_doc() {
        assert_eq!(module_doc("a.rs", "//! Purpose.\n"), None);
        for text in ["", "// Purpose.\n", "use std::fmt;\n//! Purpose.\n"] {
            assert!(module_doc("a.rs", text).is_some(), "{text:?}");
        }
    }

    #[test]
    fn marks_are_whole_words() {
        let [first, second, third] = MARKS;
        let text =
            format!("// {first}: later\n// {second} and ({third})\n// {first}S, PRE{second}\n");
        assert_eq!(lines_of(&marks("a.rs", &text)), [1, 2, 2]);
    }

    #[test]
    fn hash_containers_are_found_in_code_only() {
        let text = "// HashMap\nuse std::collections::HashMap;\nfn f() { x!(HashSet::new()) }\nconst S: &str = \"HashMap\";\n";
        assert_eq!(banned_in("src/harness/mod.rs", text), [2, 3]);
        assert_eq!(banned_in("tests/a.rs", text), [2, 3]);
    }

    #[test]
    fn clocks_are_read_in_rooms_that_measure_only() {
        let text = "use std::time::{Instant, SystemTime};\nfn f() { Instant::now(); }\nfn g() { SystemTime :: now(); }\n";
        assert_eq!(banned_in("src/engine/mod.rs", text), [2, 3]);
        assert_eq!(banned_in("src/lib.rs", text), [2, 3]);
        for path in ["src/harness/run.rs", "src/main.rs", "src/bench.rs", "tests/a.rs"] {
            assert_eq!(banned_in(path, text), [0usize; 0], "{path}");
        }
    }

    #[test]
    fn macros_for_missing_code_are_found() {
        let text = "fn f() { todo!() }\nfn g() { unimplemented!(\"x\") }\nfn h() { dbg!(1); }\nfn todo() {}\n";
        assert_eq!(banned_in("src/main.rs", text), [1, 2, 3]);
    }

    #[test]
    fn unsafe_is_found_outside_its_rooms() {
        let text = "unsafe fn f() {}\nm!(unsafe { });\n";
        assert_eq!(unsafe_in("src/engine/mod.rs", text), [1, 2, 2]);
        for path in [
            "src/device/host/gemm.rs",
            "src/contract/matrix_unit.rs",
            "src/contract/matrix_unit/avx2.rs",
            "src/contract/scalar_simd.rs",
        ] {
            assert_eq!(unsafe_in(path, "unsafe fn f() {}\n"), [0usize; 0], "{path}");
        }
        assert_eq!(unsafe_in("src/engine/avx2.rs", "unsafe fn f() {}\n"), [1]);
        assert_eq!(unsafe_in("src/contract/tree.rs", "unsafe fn f() {}\n"), [1]);
    }

    #[test]
    fn each_unsafe_block_has_its_reason() {
        let good = [
            "fn f() {\n    // SAFETY: checked above.\n    unsafe { g() }\n}\n",
            "fn f() {\n    // SAFETY: in range,\n    // as asserted.\n    let x =\n        unsafe { g() };\n}\n",
            "fn f() {\n    g(\n        // SAFETY: checked.\n        unsafe { h() },\n    );\n}\n",
            "fn f() {\n    // SAFETY: the feature was detected.\n    #[cfg(target_arch = \"x86_64\")]\n    unsafe { g() }\n}\n",
        ];
        for text in good {
            assert_eq!(unsafe_in("src/device/host/mod.rs", text), [0usize; 0], "{text}");
        }
        let bad = [
            ("fn f() {\n    unsafe { g() }\n}\n", 2),
            ("fn f() {\n    // It is fine.\n    unsafe { g() }\n}\n", 3),
            ("fn f() {\n    // SAFETY: of the other.\n    a();\n    unsafe { g() }\n}\n", 4),
            (
                "fn f() {\n    // SAFETY: one.\n    a(unsafe { g() },\n      unsafe { h() });\n}\n",
                4,
            ),
            ("fn f() {\n    // SAFETY: far away.\n\n    unsafe { g() }\n}\n", 4),
        ];
        for (text, line) in bad {
            assert_eq!(unsafe_in("src/device/host/mod.rs", text), [line], "{text}");
        }
    }
}
