//! What became of each mutant, the scores, and the exit code.

use serde_json::{Value, json};

use super::format::{Mutant, Target};

/// Schema of the file that `--json` writes.
const SCHEMA: &str = "lockstep.mutants/1.0";

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// An expected observer saw it.
    Killed,
    /// Another observer saw it, no expected one.
    Unexpected,
    /// Its faulty branch ran and changed something, and nobody saw it.
    Survived,
    /// Its faulty branch never ran.
    NotExercised,
    /// Its faulty branch ran and changed nothing.
    NotInjected,
    /// Its text before does not occur once any more.
    Stale,
    /// It did not end in time.
    Timeout,
    /// The process ended without an answer.
    Crashed,
}

impl Verdict {
    const ALL: [Verdict; 8] = [
        Verdict::Killed,
        Verdict::Unexpected,
        Verdict::Survived,
        Verdict::NotExercised,
        Verdict::NotInjected,
        Verdict::Stale,
        Verdict::Timeout,
        Verdict::Crashed,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Verdict::Killed => "killed",
            Verdict::Unexpected => "unexpected",
            Verdict::Survived => "survived",
            Verdict::NotExercised => "not_exercised",
            Verdict::NotInjected => "not_injected",
            Verdict::Stale => "stale",
            Verdict::Timeout => "timeout",
            Verdict::Crashed => "crashed",
        }
    }

    fn from_name(name: &str) -> Option<Verdict> {
        Verdict::ALL.into_iter().find(|v| v.name() == name)
    }
}

/// Exit codes of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Exit {
    /// All killed, by an observer that was expected.
    Killed = 0,
    /// One survived, or was seen by nobody who was expected to.
    Survived = 1,
    /// Bad arguments, or a mutant that is none.
    Usage = 2,
    /// One was not exercised, not injected, not in time, or crashed.
    Undecided = 3,
    /// The untouched tree is not green, or does not reach what mutants need.
    Baseline = 4,
    /// A text before does not occur once.
    Stale = 5,
}

/// A mutant and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) target: Target,
    pub(super) source: String,
    pub(super) verdict: Verdict,
    /// Observers that saw it.
    pub(super) by: Vec<String>,
    /// Whether one of them was expected.
    pub(super) expected: bool,
    /// To the kill, or to the end.
    pub(super) seconds: f64,
    pub(super) cases: u64,
    pub(super) reached: u64,
    pub(super) executed: u64,
    pub(super) differed: u64,
    /// What the two test shapes saw; `None` where they cannot run.
    pub(super) bs1_vs_bsn: Option<bool>,
    pub(super) unique_texts: Option<bool>,
    /// The first difference, or what went wrong, in words. Not in the evidence.
    pub(super) detail: String,
}

impl Row {
    /// A row without an answer.
    pub(super) fn new(mutant: &Mutant, verdict: Verdict, detail: impl Into<String>) -> Row {
        Row {
            id: mutant.id.clone(),
            kind: mutant.kind.clone(),
            target: mutant.target,
            source: mutant.source.clone(),
            verdict,
            by: Vec::new(),
            expected: false,
            seconds: 0.0,
            cases: 0,
            reached: 0,
            executed: 0,
            differed: 0,
            bs1_vs_bsn: None,
            unique_texts: None,
            detail: detail.into(),
        }
    }

    /// Whether only observers that end a run saw it: no comparison of bits did.
    pub(super) fn died_only_by_itself(&self) -> bool {
        let own = ["audit", "panic", "ledger", "liveness"];
        !self.by.is_empty() && self.by.iter().all(|by| own.contains(&by.as_str()))
    }

    fn json(&self) -> Value {
        json!({
            "id": self.id, "kind": self.kind, "target": self.target.name(), "source": self.source,
            "verdict": self.verdict.name(), "by": self.by, "expected": self.expected,
            "seconds": (self.seconds * 1000.0).round() / 1000.0, "cases": self.cases,
            "reached": self.reached, "executed": self.executed, "differed": self.differed,
        })
    }

    /// For the file that a later run resumes from.
    pub(super) fn to_stored(&self) -> Value {
        let mut value = self.json();
        value["bs1_vs_bsn"] = json!(self.bs1_vs_bsn);
        value["unique_texts"] = json!(self.unique_texts);
        value["detail"] = json!(self.detail);
        value
    }

    /// The row that [`Row::to_stored`] was made of; `None` if it is damaged.
    pub(super) fn from_stored(mutant: &Mutant, value: &Value) -> Option<Row> {
        let number = |name: &str| value[name].as_u64();
        let by = value["by"].as_array()?.iter().map(|by| by.as_str().map(str::to_owned));
        Some(Row {
            by: by.collect::<Option<_>>()?,
            expected: value["expected"].as_bool()?,
            seconds: value["seconds"].as_f64()?,
            cases: number("cases")?,
            reached: number("reached")?,
            executed: number("executed")?,
            differed: number("differed")?,
            bs1_vs_bsn: value["bs1_vs_bsn"].as_bool(),
            unique_texts: value["unique_texts"].as_bool(),
            ..Row::new(
                mutant,
                Verdict::from_name(value["verdict"].as_str()?)?,
                value["detail"].as_str()?,
            )
        })
    }
}

/// The share of the listed mutants that each of three test methods saw, over one denominator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scores {
    pub(super) lockstep: f64,
    pub(super) bs1_vs_bsn: f64,
    pub(super) unique_texts: f64,
}

pub(super) fn scores(rows: &[Row]) -> Scores {
    let share = |seen: fn(&Row) -> bool| {
        let count = rows.iter().filter(|row| seen(row)).count();
        if rows.is_empty() { 0.0 } else { count as f64 / rows.len() as f64 }
    };
    Scores {
        lockstep: share(|row| row.verdict == Verdict::Killed),
        bs1_vs_bsn: share(|row| row.bs1_vs_bsn == Some(true)),
        unique_texts: share(|row| row.unique_texts == Some(true)),
    }
}

/// The evidence: rows of one device.
pub(super) fn document(device: &str, rows: &[Row]) -> Value {
    let Scores { lockstep, bs1_vs_bsn, unique_texts } = scores(rows);
    let rounded = |x: f64| (x * 10_000.0).round() / 10_000.0;
    json!({
        "schema": SCHEMA,
        "device": device,
        "clean": "held",
        "listed": rows.len(),
        "mutants": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "scores": {
            "lockstep": rounded(lockstep),
            "bs1_vs_bsn": rounded(bs1_vs_bsn),
            "unique_texts": rounded(unique_texts),
        },
    })
}

/// The worst of what became of the mutants: a stale one counts before a survivor, that before an undecided one.
pub(super) fn exit(rows: &[Row]) -> Exit {
    let any = |verdicts: &[Verdict]| rows.iter().any(|row| verdicts.contains(&row.verdict));
    if any(&[Verdict::Stale]) {
        Exit::Stale
    } else if any(&[Verdict::Survived, Verdict::Unexpected]) {
        Exit::Survived
    } else if rows.is_empty() || rows.iter().any(|row| row.verdict != Verdict::Killed) {
        Exit::Undecided
    } else {
        Exit::Killed
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::parse;
    use super::*;

    fn mutant() -> Mutant {
        let text = "kind: SRF\ntarget: rust\nfile: src/a.rs\nexpect: I1\nsource: x\nwhy: y\n--- before\na\n\
            --- after\nmutant::hit();\n";
        parse("m", text).unwrap()
    }

    fn row(verdict: Verdict) -> Row {
        Row::new(&mutant(), verdict, "")
    }

    #[test]
    fn the_worst_verdict_decides_the_exit_code_and_nothing_is_no_pass() {
        use Verdict::*;
        let of = |verdicts: &[Verdict]| exit(&verdicts.iter().map(|v| row(*v)).collect::<Vec<_>>());
        assert_eq!(of(&[Killed, Killed]), Exit::Killed);
        assert_eq!(of(&[Killed, NotExercised]), Exit::Undecided);
        assert_eq!(of(&[Timeout, Survived]), Exit::Survived);
        assert_eq!(of(&[Unexpected, Killed]), Exit::Survived);
        assert_eq!(of(&[Survived, Stale]), Exit::Stale);
        assert_eq!(of(&[]), Exit::Undecided);
        assert_eq!(Exit::Stale as u8, 5);
    }

    #[test]
    fn a_row_is_stored_and_read_back() {
        let mut row = row(Verdict::Unexpected);
        row.by = vec!["audit".into()];
        row.seconds = 1.25;
        row.unique_texts = Some(true);
        row.detail = "words".into();
        assert_eq!(Row::from_stored(&mutant(), &row.to_stored()), Some(row.clone()));
        let mut damaged = row.to_stored();
        damaged["verdict"] = json!("fine");
        assert_eq!(Row::from_stored(&mutant(), &damaged), None);
        assert!(row.died_only_by_itself());
        row.by.push("I1/logits".into());
        assert!(!row.died_only_by_itself());
    }

    #[test]
    fn the_three_scores_share_the_number_listed() {
        let mut rows = vec![row(Verdict::Killed), row(Verdict::Survived), row(Verdict::Killed)];
        rows.push(row(Verdict::Unexpected));
        rows[0].bs1_vs_bsn = Some(true);
        let document = document("host", &rows);
        assert_eq!(document["listed"], 4);
        assert_eq!(document["scores"]["lockstep"], 0.5);
        assert_eq!(document["scores"]["bs1_vs_bsn"], 0.25);
        assert_eq!(document["scores"]["unique_texts"], 0.0);
        assert_eq!(document["mutants"].as_array().unwrap().len(), 4);
        assert!(document["mutants"][0].get("detail").is_none());
    }
}
