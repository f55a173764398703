//! ARCHITECTURE.md's code map is the list of rooms, and says honestly which of them are there.

use super::rooms::{BINARY, ROOMS};
use super::{Finding, Tree};

const PAGE: &str = "ARCHITECTURE.md";
/// Heading of the section with the table.
const HEADING: &str = "### Rooms";
/// Start of the line that names the rooms without files.
const PLANNED: &str = "Planned rooms, not there yet:";

/// The table names every room in the order of the imports; the line after it names those that have no file.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some((_, text)) = tree.files.iter().find(|(path, _)| path == PAGE) else {
        return Vec::new();
    };
    let section = text.lines().enumerate().skip_while(|(_, line)| *line != HEADING);
    // The section ends with the line of planned rooms.
    let rows: Vec<(usize, &str)> = section
        .clone()
        .take_while(|(_, line)| !line.starts_with(PLANNED))
        .filter(|(_, line)| line.starts_with("| `"))
        .collect();
    let planned = section.clone().find(|(_, line)| line.starts_with(PLANNED));
    let (Some((first, _)), Some((planned_at, planned))) = (rows.first(), planned) else {
        return vec![Finding::error(
            PAGE,
            1,
            format!("no `{HEADING}` with a table, then `{PLANNED}`"),
        )];
    };

    let mut findings = Vec::new();
    let listed: Vec<&str> =
        rows.iter().flat_map(|(_, row)| quoted(row.split('|').nth(1).unwrap_or(""))).collect();
    // The modules of the binary are no room of their own on the page.
    let rooms: Vec<&str> =
        ROOMS.iter().copied().flatten().copied().filter(|room| *room != BINARY[0]).collect();
    if listed != rooms {
        let message = format!("the table lists {listed:?}, the import rule {rooms:?}");
        findings.push(Finding::error(PAGE, first + 1, message));
    }
    let planned = quoted(planned);
    for room in rooms {
        let is_there = [format!("src/{room}.rs"), format!("src/{room}")]
            .iter()
            .any(|path| tree.paths.contains(path));
        let line = planned_at + 1;
        match (planned.contains(&room), is_there) {
            (true, true) => findings.push(Finding::error(
                PAGE,
                line,
                format!("`{room}` is there: take it off the list of planned rooms"),
            )),
            (false, false) => findings.push(Finding::warning(
                PAGE,
                line,
                format!("`{room}` is described, but not there"),
            )),
            _ => {}
        }
    }
    findings
}

/// The words in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    /// A page that lists these rows, and a tree with these rooms.
    fn found(rows: &[&[&str]], planned: &str, there: &[&str]) -> Vec<Finding> {
        let cell = |row: &&[&str]| {
            let names: Vec<String> = row.iter().map(|room| format!("`{room}`")).collect();
            format!("| {} | what it holds |\n", names.join(", "))
        };
        let table: String = rows.iter().map(cell).collect();
        let page = format!(
            "# A\n\n{HEADING}\n\n| room | holds |\n| --- | --- |\n{table}\n{PLANNED} {planned}.\n"
        );
        let sources: Vec<String> = there.iter().map(|room| format!("src/{room}.rs")).collect();
        let mut files = vec![(PAGE, page.as_str())];
        files.extend(sources.iter().map(|path| (path.as_str(), "")));
        check(&Tree::of(&files))
    }

    /// The rows as they should be.
    fn rows() -> Vec<Vec<&'static str>> {
        let row = |row: &&[&'static str]| row.iter().copied().filter(|r| *r != "cli").collect();
        ROOMS.iter().map(row).collect()
    }

    #[test]
    fn a_map_of_what_is_there_is_fine() {
        let rows = rows();
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let mut there: Vec<&str> = rows.concat();
        there.retain(|room| *room != "serve");
        assert_eq!(found(&rows, "`serve`", &there), []);
    }

    #[test]
    fn a_room_that_is_missing_or_out_of_order_is_found() {
        let rows = rows();
        let mut rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let there = rows.concat();
        rows.swap(0, 2);
        assert_eq!(found(&rows, "", &there).len(), 1);
        rows.remove(0);
        assert_eq!(found(&rows, "", &there).len(), 1);
    }

    #[test]
    fn a_stale_list_of_planned_rooms_is_found() {
        let rows = rows();
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let mut there = rows.concat();
        let stale = found(&rows, "`engine`", &there);
        assert_eq!(stale.len(), 1);
        assert_eq!(stale[0].severity, Severity::Error);
        there.retain(|room| *room != "engine");
        let missing = found(&rows, "", &there);
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].severity, Severity::Warning);
    }

    #[test]
    fn a_page_without_the_map_is_found() {
        assert_eq!(check(&Tree::of(&[(PAGE, "# A\n")])).len(), 1);
    }
}
