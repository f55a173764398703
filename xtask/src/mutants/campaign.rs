//! A campaign: the clean control, then a child a mutant.
//!
//! What a child runs depends on the mutant alone: the same stages, seeds and cases on every machine. Only time limits come
//! from the clean control's own time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::format::{Mutant, Target};
use super::process::{self, Ended};
use super::programs::{JUDGE, Programs};
use super::schemata::Numbered;
use super::verdict::{Row, Verdict};
use super::watchers::{GOLDEN, is_blind, tests_of};

/// A child of which the clean control says nothing yet.
const LIMIT_CLEAN: Duration = Duration::from_secs(600);
/// The shortest time limit of a mutant.
const LIMIT_MIN: Duration = Duration::from_secs(20);
/// Time limit in times of the clean control.
const LIMIT_FACTOR: u32 = 5;
/// Cases of a mutant that no relation is expected to see: enough to show that it runs and changes something.
const BLIND_CASES: u64 = 40;
/// Cases of the twin stage: both devices run each of them.
const TWIN_CASES: u64 = 40;
/// Cases of a stage's first turn: about as long on the hash device as elsewhere, and all directed ones on the former.
const TURN_CASES: [u64; 2] = [10, 3];

/// Where mutants are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub(super) enum Device {
    Host,
    Cuda,
}

impl Device {
    pub(super) fn name(self) -> &'static str {
        match self {
            Device::Host => "host",
            Device::Cuda => "cuda",
        }
    }

    /// Whether mutants of this target are judged here.
    pub(super) fn judges(self, target: Target) -> bool {
        (target == Target::Kernel) == (self == Device::Cuda)
    }
}

/// What decides the outcome of a campaign, beside the tree and the mutants.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Settings {
    /// Cases a stage.
    pub(super) cases: u64,
    pub(super) audits: bool,
    /// Seed of the cases.
    pub(super) seed: u64,
}

/// A campaign ready to run.
pub(super) struct Campaign<'c> {
    pub(super) device: Device,
    pub(super) settings: Settings,
    pub(super) programs: Programs,
    /// Digest of the tree.
    pub(super) digest: u64,
    /// Where results, logs and CUBINs go.
    pub(super) folder: &'c Path,
    /// Children at once.
    pub(super) jobs: usize,
    /// Variables that every child gets.
    pub(super) variables: Vec<(String, PathBuf)>,
}

/// What the untouched tree gave.
pub(super) struct Clean {
    /// Digests of runs, by subject.
    digests: BTreeMap<String, Vec<String>>,
    /// Relations that held.
    pub(super) held: Vec<String>,
    /// Time limits by program.
    pub(super) limits: BTreeMap<String, Duration>,
}

/// Why nothing can be scored.
pub(super) enum Unclean {
    /// The untouched tree is not green.
    Red(String),
    /// It can't be judged here.
    Undecided(String),
}

/// Where cases of a mutant run, in order.
pub(super) fn stages(file: &str, device: Device, expect: &[String]) -> Vec<&'static str> {
    if device == Device::Cuda {
        let twin_only = expect.iter().all(|e| e.starts_with("X1"));
        return if twin_only { vec!["twin"] } else { vec!["cuda", "twin"] };
    }
    // Arithmetic does not exist on the hash device.
    let arithmetic = ["src/device/host/", "src/contract/"];
    if arithmetic.iter().any(|start| file.starts_with(start)) {
        vec!["host"]
    } else {
        vec!["hash", "host"]
    }
}

impl Campaign<'_> {
    fn stage(&self, on: &str) -> Value {
        let cases = if on == "twin" { TWIN_CASES } else { self.settings.cases };
        let turn = TURN_CASES[usize::from(on != "hash")];
        json!({"on": on, "model": "tiny", "dtype": "bf16", "cases": cases, "turn": turn})
    }

    pub(super) fn job(&self, stages: &[&str]) -> Value {
        json!({
            "stages": stages.iter().map(|on| self.stage(on)).collect::<Vec<_>>(),
            "seed": self.settings.seed, "relations": [], "expect": [], "needs": [],
            "audits": self.settings.audits, "record": false, "shapes": null, "row": false,
        })
    }

    /// Runs the judge with a job; its answer, unless it ended without one.
    pub(super) fn ask(
        &self,
        program: &Path,
        job: &Value,
        number: u32,
        folder: &Path,
        limit: Duration,
    ) -> anyhow::Result<(Ended, Option<Value>)> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let (asked, answer) = (folder.join("job.json"), folder.join("answer.json"));
        let _ = fs::remove_file(&answer);
        fs::write(&asked, job.to_string())?;
        let variables = [("MUTANT_JOB", asked), ("MUTANT_ANSWER", answer.clone())];
        let ended = self.child(program, &[], &variables, number, folder, limit)?;
        let text = fs::read_to_string(&answer).ok();
        Ok((ended, text.and_then(|text| serde_json::from_str(&text).ok())))
    }

    pub(super) fn child(
        &self,
        program: &Path,
        arguments: &[&str],
        variables: &[(&str, PathBuf)],
        number: u32,
        folder: &Path,
        limit: Duration,
    ) -> anyhow::Result<Ended> {
        let own = self.variables.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let all: Vec<_> = own.chain(variables.iter().cloned()).collect();
        process::run(program, arguments, &all, number, folder, limit)
    }

    pub(super) fn judge(&self) -> anyhow::Result<&Path> {
        self.programs.get(JUDGE).map(PathBuf::as_path).context("no judge was built")
    }

    /// The clean control: no mutant chosen. Everything must be green, and every sentinel that a mutant needs must fire.
    pub(super) fn clean(
        &self,
        mutants: &[Numbered<'_>],
        plain: Option<&Path>,
    ) -> anyhow::Result<Result<Clean, Unclean>> {
        let mut clean =
            Clean { digests: BTreeMap::new(), held: Vec::new(), limits: BTreeMap::new() };
        let on: &[&str] = match self.device {
            Device::Host => &["hash", "host"],
            Device::Cuda => &["cuda", "twin"],
        };
        let mut job = self.job(on);
        job["record"] = json!(true);
        job["shapes"] = json!(self.device.name());
        let folder = self.folder.join("jobs").join("clean");
        let (ended, answer) = self.ask(self.judge()?, &job, 0, &folder, LIMIT_CLEAN)?;
        let Some(answer) = answer else {
            // The judge's own way to say that it has no device.
            let is_refused = ended.status.and_then(|status| status.code()) == Some(2);
            let unclean = if is_refused { Unclean::Undecided } else { Unclean::Red };
            return Ok(Err(unclean(ended.tail)));
        };
        let is_red = answer["by"].as_array().is_none_or(|by| !by.is_empty());
        if is_red || answer["bs1_vs_bsn"] != false || answer["unique_texts"] != false {
            return Ok(Err(Unclean::Red(answer.to_string())));
        }
        if answer["executed"] != 0 || ended.executed {
            return Ok(Err(Unclean::Red(
                "a faulty branch ran although no mutant was chosen".into(),
            )));
        }
        let fired = &answer["sentinels"];
        let judged = mutants.iter().filter(|n| n.mutant.target != Target::Harness);
        for name in judged.flat_map(|n| &n.mutant.needs).collect::<BTreeSet<_>>() {
            if fired[name].as_u64().unwrap_or(0) == 0 {
                return Ok(Err(Unclean::Red(format!("the sentinel {name} never fired"))));
            }
        }
        for (on, digests) in on.iter().zip(answer["digests"].as_array().into_iter().flatten()) {
            let digests = digests.as_array().into_iter().flatten();
            let digests = digests.filter_map(|d| d.as_str().map(str::to_owned)).collect();
            clean.digests.insert((*on).to_owned(), digests);
        }
        clean.held =
            answer["held"].as_object().into_iter().flatten().map(|(id, _)| id.clone()).collect();
        clean.limits.insert(JUDGE.into(), limit(ended.wall));
        if let Some(plain) = plain {
            // The copy with no mutant chosen is the tree: the same run of every case.
            let folder = self.folder.join("jobs").join("plain");
            let (ended, other) = self.ask(plain, &job, 0, &folder, LIMIT_CLEAN)?;
            let other = other.with_context(|| ended.tail)?;
            if other["digests"] != answer["digests"] {
                return Ok(Err(Unclean::Red(
                    "the copy with no mutant chosen differs from the tree".into(),
                )));
            }
        }
        let tests: BTreeSet<&str> =
            mutants.iter().flat_map(|n| tests_of(n.mutant, self.device)).collect();
        for test in tests {
            let (status, wall, tail) = self.test(test, 0, "clean-tests", LIMIT_CLEAN)?;
            if status != Some(0) {
                return Ok(Err(Unclean::Red(format!("{test} ended with {status:?}:\n{tail}"))));
            }
            if !tail.contains(" passed") || tail.contains(" 0 passed") {
                return Ok(Err(Unclean::Red(format!("{test} names no test:\n{tail}"))));
            }
            clean.limits.insert(test.to_owned(), limit(wall));
        }
        Ok(Ok(clean))
    }

    /// Judges the mutants, as many at once as there are jobs; rows in the order given.
    pub(super) fn run(
        &self,
        mutants: &[Numbered<'_>],
        clean: &Clean,
        shapes: bool,
        done: &(dyn Fn(&Row) + Sync),
    ) -> anyhow::Result<Vec<Row>> {
        self.each(mutants, &|numbered| {
            let row = self.one(numbered, clean, shapes)?;
            done(&row);
            Ok(row)
        })
    }

    /// Does something with each mutant, with as many at once as there are jobs; results in the order given.
    pub(super) fn each<T: Send>(
        &self,
        mutants: &[Numbered<'_>],
        does: &(dyn Fn(&Numbered<'_>) -> anyhow::Result<T> + Sync),
    ) -> anyhow::Result<Vec<T>> {
        let next = AtomicUsize::new(0);
        let rows = Mutex::new(BTreeMap::new());
        let work = || -> anyhow::Result<()> {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(numbered) = mutants.get(at) else { return Ok(()) };
                let row = does(numbered)?;
                rows.lock().expect("nobody panics while holding the lock").insert(at, row);
            }
        };
        std::thread::scope(|scope| -> anyhow::Result<()> {
            let threads: Vec<_> = (0..self.jobs.max(1)).map(|_| scope.spawn(work)).collect();
            for thread in threads {
                match thread.join() {
                    Ok(result) => result?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(())
        })?;
        let rows = rows.into_inner().expect("nobody panics while holding the lock");
        Ok(rows.into_values().collect())
    }

    /// Judges one mutant, unless an earlier run of the same tree did.
    fn one(&self, numbered: &Numbered<'_>, clean: &Clean, shapes: bool) -> anyhow::Result<Row> {
        let mutant = numbered.mutant;
        let stored = self.stored(mutant, &("row", shapes, &self.settings));
        if let Some(row) = read(&stored).and_then(|value| Row::from_stored(mutant, &value)) {
            return Ok(row);
        }
        let row = match mutant.target {
            Target::Harness => self.harness_mutant(numbered, clean)?,
            Target::Rust | Target::Kernel => self.engine_mutant(numbered, clean, shapes)?,
        };
        write(&stored, &row.to_stored())?;
        Ok(row)
    }

    /// Where a result is kept that depends on the tree, the mutant, the device and `settings`.
    pub(super) fn stored(&self, mutant: &Mutant, settings: &impl Hash) -> PathBuf {
        let mut key = DefaultHasher::new();
        (&mutant.text, self.digest, settings, self.device).hash(&mut key);
        let name = format!("{}-{:016x}.json", mutant.id, key.finish());
        self.folder.join("results").join(name)
    }

    fn engine_mutant(
        &self,
        numbered: &Numbered<'_>,
        clean: &Clean,
        shapes: bool,
    ) -> anyhow::Result<Row> {
        let mutant = numbered.mutant;
        let on = stages(&mutant.file, self.device, &mutant.expect);
        let mut job = self.job(&on);
        let golden = tests_of(mutant, self.device).first().copied();
        // What nobody else is expected to see is asked of the snapshots first.
        let first = match golden.filter(|_| is_blind(mutant)) {
            Some(test) => Some(self.golden(test, numbered, clean)?),
            None => None,
        };
        if first.is_some_and(|(red, _)| red) {
            for stage in job["stages"].as_array_mut().into_iter().flatten() {
                stage["cases"] = json!(self.settings.cases.min(BLIND_CASES));
            }
        }
        job["expect"] = json!(mutant.expect);
        job["needs"] = json!(mutant.needs);
        let none = Vec::new();
        let digests: Vec<_> = on.iter().map(|on| clean.digests.get(*on).unwrap_or(&none)).collect();
        job["clean"] = json!(digests);
        job["clean_held"] = json!(clean.held);
        let limit = clean.limits[JUDGE];
        let folder = self.folder.join("jobs").join(&mutant.id);
        let (ended, answer) = self.ask(self.judge()?, &job, numbered.number, &folder, limit)?;
        let wall = ended.wall.as_secs_f64();
        if ended.status.is_none() {
            let detail = format!("not done within {} s", limit.as_secs());
            return Ok(Row { seconds: wall, ..Row::new(mutant, Verdict::Timeout, detail) });
        }
        let Some(answer) = answer else {
            return Ok(Row { seconds: wall, ..Row::new(mutant, Verdict::Crashed, ended.tail) });
        };
        let by: Vec<String> = answer["by"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|by| by.as_str().map(str::to_owned))
            .collect();
        let number = |name: &str| answer[name].as_u64().unwrap_or(0);
        let mut by = by;
        let mut expected = answer["expected"] == true;
        let mut seconds = answer["seconds"].as_f64().unwrap_or(wall);
        if let Some((red, wall)) = first {
            seconds = wall;
            expected |= red;
            by.extend(red.then(|| GOLDEN.0.to_owned()));
        } else if !expected && let Some(test) = golden {
            let (red, wall) = self.golden(test, numbered, clean)?;
            seconds += wall;
            expected = red;
            by.extend(red.then(|| GOLDEN.0.to_owned()));
        }
        let differed = number("differed");
        let verdict = if !ended.executed {
            Verdict::NotExercised
        } else if expected {
            Verdict::Killed
        } else if !by.is_empty() {
            Verdict::Unexpected
        } else if differed == 0 {
            Verdict::NotInjected
        } else {
            Verdict::Survived
        };
        // In a process of its own, as these tests would be.
        let seen = if shapes {
            let mut job = self.job(&[]);
            job["shapes"] = json!(self.device.name());
            let folder = self.folder.join("jobs").join(format!("{}-shapes", mutant.id));
            let (ended, answer) = self.ask(self.judge()?, &job, numbered.number, &folder, limit)?;
            // Ended without an answer: these tests would have failed too.
            answer
                .or_else(|| ended.status.map(|_| json!({"bs1_vs_bsn": true, "unique_texts": true})))
        } else {
            None
        };
        let saw = |name: &str| seen.as_ref().and_then(|seen| seen[name].as_bool());
        Ok(Row {
            by,
            expected,
            seconds,
            cases: number("cases"),
            reached: number("reached"),
            executed: number("executed"),
            differed,
            bs1_vs_bsn: saw("bs1_vs_bsn"),
            unique_texts: saw("unique_texts"),
            ..Row::new(mutant, verdict, answer["first"].as_str().unwrap_or_default())
        })
    }
}

/// A stored result; `None` if there is none, or it is damaged.
pub(super) fn read(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

pub(super) fn write(path: &Path, value: &Value) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    fs::write(path, value.to_string()).with_context(|| format!("writing {}", path.display()))
}

fn limit(clean: Duration) -> Duration {
    LIMIT_MIN.max(clean * LIMIT_FACTOR)
}
