//! The matrix: each mutant of the engine against each relation, on the same cases, a process a mutant.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::campaign::{Campaign, Clean, Device, read, stages, write};
use super::format::Mutant;
use super::programs::JUDGE;
use super::schemata::Numbered;
use super::verdict::Row;

/// Time limit of a row, in times of another child's: what is found is shrunk.
const ROW_FACTOR: u32 = 4;

impl Campaign<'_> {
    /// The matrix: of each mutant what saw it, with the first case that did; `None` if the child gave no answer.
    pub(super) fn matrix(
        &self,
        mutants: &[Numbered<'_>],
        clean: &Clean,
        cases: u64,
        done: &(dyn Fn(&str) + Sync),
    ) -> anyhow::Result<Vec<Option<BTreeMap<String, Cell>>>> {
        self.each(mutants, &|numbered| {
            let mutant = numbered.mutant;
            let stored = self.stored(mutant, &("matrix", cases, self.settings.seed));
            let answer = match read(&stored) {
                Some(answer) => Some(answer),
                None => {
                    let answer = self.matrix_row(numbered, clean, cases)?;
                    answer.as_ref().map_or(Ok(()), |answer| write(&stored, answer))?;
                    answer
                }
            };
            done(&mutant.id);
            let broken = answer.as_ref().and_then(|answer| answer["broken"].as_object());
            let cell = |(name, cell): (&String, &Value)| Some((name.clone(), Cell::read(cell)?));
            Ok(broken.map(|broken| broken.iter().filter_map(cell).collect()))
        })
    }

    fn matrix_row(
        &self,
        numbered: &Numbered<'_>,
        clean: &Clean,
        cases: u64,
    ) -> anyhow::Result<Option<Value>> {
        let mutant = numbered.mutant;
        let on = match self.device {
            Device::Host => stages(&mutant.file, self.device, &mutant.expect),
            // The twin is no relation over cases.
            Device::Cuda => vec!["cuda"],
        };
        let mut job = self.job(&on);
        for stage in job["stages"].as_array_mut().into_iter().flatten() {
            stage["cases"] = json!(cases);
        }
        job["row"] = json!(true);
        let folder = self.folder.join("jobs").join(format!("{}-matrix", mutant.id));
        let limit = ROW_FACTOR * clean.limits[JUDGE];
        Ok(self.ask(self.judge()?, &job, numbered.number, &folder, limit)?.1)
    }
}

/// A cell of the matrix: the first case in which an observer saw a mutant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    /// Cases up to it.
    cases: u64,
    /// Requests, tokens and intents of what it shrinks to in a few executions; `None` if it ends the run.
    shrunk: Option<[u64; 3]>,
}

impl Cell {
    /// What the judge answers; `None` if it is damaged.
    pub(super) fn read(value: &Value) -> Option<Cell> {
        let of = |name: &str| value["shrunk"][name].as_u64();
        let shrunk = of("requests").zip(of("tokens")).zip(of("intents"));
        let shrunk = shrunk.map(|((requests, tokens), intents)| [requests, tokens, intents]);
        Some(Cell { cases: value["cases"].as_u64()?, shrunk })
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.cases)?;
        let Some([requests, tokens, intents]) = self.shrunk else { return Ok(()) };
        write!(f, ":{requests}/{tokens}/{intents}")
    }
}

/// The matrix: of each mutant the observers that saw it; `None` if its child gave no answer.
pub(super) struct Table<'t> {
    pub(super) columns: Vec<&'t str>,
    pub(super) rows: Vec<(&'t Mutant, Option<BTreeMap<String, Cell>>)>,
}

impl Table<'_> {
    /// Mutants down, observers across: `*` if the observer was expected, `.` for none, `!` for no answer; then the two test
    /// shapes.
    pub(super) fn text(&self, rows: &[Row]) -> String {
        let mut out = format!("{:<40}", "mutant");
        for column in &self.columns {
            let _ = write!(out, " {column:>13}");
        }
        let _ = writeln!(out, " {:>10} {:>12}", "bs1_vs_bsn", "unique_texts");
        for (mutant, broken) in &self.rows {
            let _ = write!(out, "{:<40}", mutant.id);
            for column in &self.columns {
                let cell = broken.as_ref().map(|broken| broken.get(*column));
                let text = match cell {
                    None => "!".into(),
                    Some(None) => ".".into(),
                    Some(Some(cell)) if mutant.expects(column) => format!("{cell}*"),
                    Some(Some(cell)) => cell.to_string(),
                };
                let _ = write!(out, " {text:>13}");
            }
            let row = rows.iter().find(|row| row.id == mutant.id);
            let seen = |seen: Option<bool>| seen.map_or("", |seen| if seen { "x" } else { "." });
            let bs1_vs_bsn = seen(row.and_then(|row| row.bs1_vs_bsn));
            let unique_texts = seen(row.and_then(|row| row.unique_texts));
            let _ = writeln!(out, " {bs1_vs_bsn:>10} {unique_texts:>12}");
        }
        out += "case:requests/tokens/intents of the first case that was seen, shrunk; * was expected to see it\n";
        out
    }

    /// For the evidence.
    pub(super) fn json(&self) -> Vec<Value> {
        let cell = |mutant: &Mutant, observer: &String, Cell { cases, shrunk }: &Cell| {
            let expected = mutant.expects(observer);
            let mut cell = json!({"observer": observer, "expected": expected, "cases": cases});
            if let Some([requests, tokens, intents]) = shrunk {
                cell["shrunk"] =
                    json!({"requests": requests, "tokens": tokens, "intents": intents});
            }
            cell
        };
        let row = |(mutant, broken): &(&Mutant, Option<BTreeMap<String, Cell>>)| {
            let all = |broken: &BTreeMap<String, Cell>| -> Vec<Value> {
                broken.iter().map(|(observer, seen)| cell(mutant, observer, seen)).collect()
            };
            json!({"id": mutant.id, "seen": broken.as_ref().map(all)})
        };
        self.rows.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::parse;
    use super::*;

    /// Goal: the matrix says who saw what, and who was expected to.
    #[test]
    fn a_row_of_the_matrix_tells_the_expected_observers_from_the_others() {
        let text = "kind: SRF\ntarget: rust\nfile: src/a.rs\nexpect: I2/kv\nsource: x\nwhy: y\n--- before\na\n\
            --- after\nmutant::hit();\n";
        let mutant = parse("m", text).unwrap();
        let shrunk = json!({"requests": 1, "tokens": 9, "intents": 2});
        let cell = Cell::read(&json!({"cases": 4, "shrunk": shrunk})).unwrap();
        let ended = Cell::read(&json!({"cases": 7, "shrunk": null})).unwrap();
        assert_eq!(Cell::read(&json!({})), None);
        let seen = [("I2.swap".to_owned(), cell), ("panic".to_owned(), ended)];
        let rows = vec![(&mutant, Some(BTreeMap::from(seen)))];
        let table = Table { columns: vec!["I1", "I2.swap", "panic"], rows };
        let text = table.text(&[]);
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells, ["m", ".", "4:1/9/2*", "7"]);
        let json = table.json();
        assert_eq!(json[0]["seen"][0]["expected"], true);
        assert_eq!(json[0]["seen"][0]["shrunk"]["tokens"], 9);
        assert_eq!(json[0]["seen"][1], json!({"observer": "panic", "expected": false, "cases": 7}));
    }
}
