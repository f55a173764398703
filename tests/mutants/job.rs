//! What `cargo xtask mutants` asks of a process, and what it answers: JSON in files, one process a mutant.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Where cases run, and how many.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stage {
    /// `hash`, `host`, `cuda`, or `twin`: cuda against host.
    pub(crate) on: String,
    /// Preset.
    pub(crate) model: String,
    /// Storage dtype, `bf16` or `f16`.
    pub(crate) dtype: String,
    /// Cases, from number 0.
    pub(crate) cases: u64,
    /// Of these, the cases of the first turn; each further turn of the stage ends at twice as many.
    pub(crate) turn: u64,
}

/// What is asked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    /// In turns, in this order, up to the first case in which an expected observer sees a difference.
    pub(crate) stages: Vec<Stage>,
    /// Seed of the cases.
    pub(crate) seed: u64,
    /// Relations asked, by name; empty for all.
    pub(crate) relations: Vec<String>,
    /// Observers of which one is expected to see the mutant.
    pub(crate) expect: Vec<String>,
    /// Sentinels that a case must fire to count as reaching the mechanism.
    pub(crate) needs: Vec<String>,
    /// Whether the engine audits itself.
    pub(crate) audits: bool,
    /// Whether to go on after a kill, and to report the digest of each case's run: the clean control.
    pub(crate) record: bool,
    /// Digests that the clean control reported, a list a stage.
    #[serde(default)]
    pub(crate) clean: Vec<Vec<String>>,
    /// Relations that held in some case of the clean control: one that holds in none is vacuous.
    #[serde(default)]
    pub(crate) clean_held: Vec<String>,
    /// Device on which to run the two test shapes in use today, if they are asked for.
    pub(crate) shapes: Option<String>,
    /// Whether each relation is asked up to the first case in which it is broken: a row of the matrix.
    pub(crate) row: bool,
}

/// What is answered.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Answer {
    /// Cases judged.
    pub(crate) cases: u64,
    /// Cases in which all of [`Job::needs`] fired.
    pub(crate) reached: u64,
    /// Cases in which a faulty branch ran.
    pub(crate) executed: u64,
    /// Cases whose run is not the clean control's.
    pub(crate) differed: u64,
    /// Observers that saw something, as `RELATION/observable`.
    pub(crate) by: BTreeSet<String>,
    /// Whether one of them is among [`Job::expect`].
    pub(crate) expected: bool,
    /// Seconds from the start of the process to the first kill by an expected observer, else to the first kill, else to
    /// the end.
    pub(crate) seconds: f64,
    /// Cases up to the first kill by an expected observer.
    #[serde(skip)]
    pub(crate) killed_at: Option<u64>,
    /// The first difference in words.
    pub(crate) first: Option<String>,
    /// What broke each relation first, or ended a run; with [`Job::row`] only.
    pub(crate) broken: BTreeMap<String, Broken>,
    /// Whether batch 1 against batch N saw a difference.
    pub(crate) bs1_vs_bsn: Option<bool>,
    /// Whether there was more than one text.
    pub(crate) unique_texts: Option<bool>,
    /// Cases in which each relation held.
    pub(crate) held: BTreeMap<String, u64>,
    /// Digest of each case's run, a list a stage; with [`Job::record`] only.
    pub(crate) digests: Vec<Vec<String>>,
    /// Cases in which each sentinel fired; with [`Job::record`] only.
    pub(crate) sentinels: BTreeMap<String, u64>,
}

/// The first case of a row in which an observer saw something.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Broken {
    /// Cases up to it.
    pub(crate) cases: u64,
    /// What it shrinks to in a few executions; `None` if it ends the run.
    pub(crate) shrunk: Option<Size>,
}

/// The size of a case.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Size {
    pub(crate) requests: u64,
    /// Tokens of all prompts, and those to be generated.
    pub(crate) tokens: u64,
    pub(crate) intents: u64,
}

/// Whether an observer is among the expected ones: `I2` stands for all of I2, `I2.swap` for each of its observables.
pub(crate) fn is_expected(observer: &str, expect: &[String]) -> bool {
    let relation = observer.split('/').next().unwrap_or(observer);
    let family = relation.split('.').next().unwrap_or(relation);
    expect.iter().any(|name| [observer, relation, family].contains(&name.as_str()))
}
