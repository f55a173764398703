//! Relative links in Markdown lead somewhere, anchors included.

use super::{Finding, Tree};

/// Every relative link of the page at `path` names a file or folder of the tree, and its anchor a heading there.
pub(super) fn links(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in targets(text) {
        if let Some(message) = fault(tree, path, text, &target) {
            findings.push(Finding::error(path, line, format!("link `{target}` {message}")));
        }
    }
    findings
}

fn fault(tree: &Tree, path: &str, text: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(f, a)| (f, Some(a)));
    let page = if file.is_empty() { path.to_owned() } else { resolve(path, file)? };
    if !page.is_empty() && !tree.paths.contains(&page) {
        return Some(format!("leads nowhere: no `{page}`"));
    }
    let anchor = anchor.filter(|_| page.ends_with(".md"))?;
    let other = tree.files.iter().find(|(p, _)| *p == page).map(|(_, t)| t.as_str());
    let page_text = if page == path { text } else { other? };
    (!headings(page_text).iter().any(|h| h == anchor))
        .then(|| format!("has no heading for `#{anchor}` in `{page}`"))
}

/// The path that `file` means on the page at `path`, from the root of the tree.
fn resolve(path: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    if file.starts_with('/') {
        parts.clear();
    }
    for part in file.split('/') {
        match part {
            "" | "." => {}
            // Out of the tree: what is there is unknown, and differs between checkouts.
            ".." if parts.pop().is_none() => return Some(format!("{file} (outside the tree)")),
            ".." => {}
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The lines of a page that are prose, with their numbers from 1: code blocks are left out.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => {
                fence = Some(mark);
                None
            }
            (Some(open), Some(mark)) if open == mark => {
                fence = None;
                None
            }
            (Some(_), _) => None,
            (None, None) => Some((number + 1, line)),
        }
    })
}

/// Link targets with their lines: `[text](target "title")`, images, and `[label]: target`.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let end = after.find([')', ' ']).unwrap_or(after.len());
            targets.push((number, after[..end].trim_matches(['<', '>']).to_owned()));
            rest = &after[end..];
        }
        let definition = line.trim_start().strip_prefix('[').and_then(|l| l.split_once("]: "));
        if let Some((label, target)) = definition.filter(|(label, _)| !label.contains(']')) {
            let target = target.split_whitespace().next().unwrap_or("");
            if !label.starts_with('^') {
                targets.push((number, target.trim_matches(['<', '>']).to_owned()));
            }
        }
    }
    targets
}

/// The line without its `code`.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Anchors of a page, as GitHub makes them.
fn headings(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if !(1..=6).contains(&level) || !title.starts_with(' ') {
            continue;
        }
        let anchor: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let twins = anchors.iter().filter(|a| **a == anchor).count();
        anchors.push(if twins == 0 { anchor } else { format!("{anchor}-{twins}") });
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let other = "# Contract\n\n## 2. GEMM: `S(N,K)`\n";
        let tree =
            Tree::of(&[("docs/page.md", text), ("docs/contract.md", other), ("src/lib.rs", "")]);
        links(&tree, "docs/page.md", text).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let text = "# Page\n\n[a](contract.md) [b](../src/lib.rs \"title\") [c](../src/) [d](#page)\n\
                    [e](contract.md#2-gemm-snk) ![f](/docs/contract.md) [g](https://docs.rs)\n\n\
                    [h]: contract.md\n";
        assert_eq!(found(text), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "[a](gone.md)\n[b](../src/gone.rs) and [c](#gone)\n[d](contract.md#gone)\n[e]: gone.md\n[f](../../x)\n";
        let found = found(text);
        let lines: Vec<&str> = found.iter().map(|f| f.split(':').nth(1).unwrap()).collect();
        assert_eq!(lines, ["1", "2", "2", "3", "4", "5"], "{found:#?}");
    }

    #[test]
    fn code_holds_no_links() {
        assert_eq!(found("`[a](gone.md)`\n\n```text\n[b](gone.md)\n```\n"), [""; 0]);
    }
}
