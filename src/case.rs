//! A case, and the file that carries it from one machine to another.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::contract::hex;
use crate::env::{Environment, Tool};
use crate::schedule::Schedule;
use crate::schema::{Schema, SchemaError};
use crate::workload::Workload;
use crate::world::World;

/// Schema of case files.
pub const CASE_SCHEMA: Schema = Schema { name: "lockstep.case", major: 1, minor: 1 };

/// Largest case file read, in bytes.
pub const CASE_BYTES_MAX: u64 = 64 << 20;

/// All inputs of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What is fixed.
    pub world: World,
    /// The requests.
    pub workload: Workload,
    /// The deviations.
    pub schedule: Schedule,
    /// Seed of unseeded draws.
    pub seed: u64,
}

impl Case {
    /// sha256 (hex) of the case's canonical JSON.
    pub fn digest(&self) -> String {
        let json = serde_json::to_vec(self).expect("a case serialises");
        hex(&Sha256::digest(&json))
    }

    /// Checks the limits of all parts; the error is one line.
    pub fn validate(&self) -> Result<(), String> {
        self.world.validate()?;
        self.workload.validate()?;
        self.schedule.validate()
    }
}

/// What was seen when the case was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observed {
    /// Trajectory hash of the run; `None` if it did not come to its end.
    pub trajectory: Option<String>,
    /// Observable that differed first, by name; `None` if the relation held.
    pub observable: Option<String>,
    /// The failure in words.
    pub summary: Option<String>,
}

/// A case file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// `lockstep.case/1.0`.
    pub schema: String,
    /// See [`Case`].
    pub world: World,
    /// See [`Case`].
    pub workload: Workload,
    /// See [`Case`].
    pub schedule: Schedule,
    /// See [`Case`].
    pub seed: u64,
    /// Relation that the case is about; `None` means all.
    pub relation: Option<String>,
    /// What was seen.
    pub observed: Observed,
    /// Whether every single deletion and lowering was tried and made the failure go away.
    pub minimal: bool,
    /// Executions that prove it.
    pub checks: u64,
    /// Tool that wrote the file.
    pub tool: Tool,
    /// Environment that it was written in.
    pub env: Environment,
    /// Sentinel counts of the run.
    pub sentinels: BTreeMap<String, u64>,
    /// Command that replays it.
    pub command: String,
}

/// A case file could not be read or written.
#[derive(Debug)]
pub enum CaseError {
    /// The file can't be opened, read or written.
    Io(PathBuf, std::io::Error),
    /// Another schema.
    Schema(PathBuf, SchemaError),
    /// Not JSON, or not the fields of a case.
    Json(PathBuf, serde_json::Error),
    /// Out of limits.
    Invalid(PathBuf, String),
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaseError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            CaseError::Schema(path, error) => write!(f, "{}: {error}", path.display()),
            CaseError::Json(path, error) => write!(f, "{}: not a case: {error}", path.display()),
            CaseError::Invalid(path, why) => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for CaseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CaseError::Io(_, error) => Some(error),
            CaseError::Schema(_, error) => Some(error),
            CaseError::Json(_, error) => Some(error),
            CaseError::Invalid(..) => None,
        }
    }
}

impl CaseFile {
    /// The case itself.
    pub fn case(&self) -> Case {
        Case {
            world: self.world.clone(),
            workload: self.workload.clone(),
            schedule: self.schedule.clone(),
            seed: self.seed,
        }
    }

    /// File name by content, so that the same case is stored once.
    pub fn file_name(&self) -> String {
        format!("{}.json", &self.case().digest()[..12])
    }

    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<CaseFile, CaseError> {
        let at = || path.to_path_buf();
        let io = |error| CaseError::Io(at(), error);
        let text = crate::input::read_text(path, CASE_BYTES_MAX).map_err(io)?;
        let mut value: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| CaseError::Json(at(), e))?;
        let schema = value.get("schema").and_then(|s| s.as_str()).unwrap_or("").to_owned();
        let newer = CASE_SCHEMA.check(&schema).map_err(|e| CaseError::Schema(at(), e))?;
        // A newer minor version may add envelope fields. Inside world, workload and schedule everything must be
        // understood: ignoring a part of them would replay another case.
        if let (true, Some(object)) = (newer, value.as_object_mut()) {
            object.retain(|key, _| FIELDS.contains(&key.as_str()));
        }
        let file: CaseFile = serde_json::from_value(value).map_err(|e| CaseError::Json(at(), e))?;
        file.case().validate().map_err(|why| CaseError::Invalid(at(), why))?;
        Ok(file)
    }

    /// The file's text in one line.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("a case file serialises")
    }

    /// Writes the file under its content name in `folder`, whole or not at all, and returns its path.
    pub fn write_into(&self, folder: &Path) -> Result<PathBuf, CaseError> {
        let path = folder.join(self.file_name());
        let io = |error| CaseError::Io(path.clone(), error);
        std::fs::create_dir_all(folder).map_err(io)?;
        let mut text = serde_json::to_string_pretty(self).expect("a case file serialises");
        text.push('\n');
        let partial = path.with_extension(format!("{}.partial", std::process::id()));
        std::fs::write(&partial, text).map_err(io)?;
        std::fs::rename(&partial, &path).map_err(io)?;
        Ok(path)
    }
}

/// Fields of [`CaseFile`].
const FIELDS: [&str; 13] = [
    "schema",
    "world",
    "workload",
    "schedule",
    "seed",
    "relation",
    "observed",
    "minimal",
    "checks",
    "tool",
    "env",
    "sentinels",
    "command",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Dtype, Mode};
    use crate::schedule::{Act, Intent, Mark, PreemptKind};
    use crate::workload::Request;

    fn sample() -> CaseFile {
        let intent = |mark, act| Intent { uid: 1, sample: 0, mark, act };
        CaseFile {
            schema: CASE_SCHEMA.to_string(),
            world: World {
                model: "tiny".into(),
                model_digest: "ab".into(),
                dtype: Dtype::F16,
                mode: Mode::batch_dependent(),
                block_size: 4,
                pool_blocks: 9,
                token_budget: Some(7),
                prefix_cache: false,
                hash_bits: 3,
                swap_blocks: 2,
                buckets: vec![2, 8],
                poison: true,
            },
            workload: Workload {
                requests: vec![Request {
                    seed: Some(u64::MAX),
                    ignore_eos: true,
                    ..Request::new(1, vec![3, 4], 5)
                }],
            },
            schedule: Schedule {
                intents: vec![
                    intent(Mark::Start, Act::Arrive { steps: 2 }),
                    intent(Mark::Offer { n: 1 }, Act::Hit { at_most: 0 }),
                    intent(
                        Mark::Computed { residency: 1, tokens: 2 },
                        Act::Preempt { kind: PreemptKind::Recompute, away: 1 },
                    ),
                    intent(Mark::Computed { residency: 2, tokens: 0 }, Act::Victim),
                    intent(Mark::Offer { n: 2 }, Act::Place { nth: 3 }),
                    intent(Mark::Offer { n: 2 }, Act::Evict { block: 1 }),
                    intent(Mark::Computed { residency: 2, tokens: 1 }, Act::Bucket { extra: 1 }),
                    intent(Mark::Computed { residency: 2, tokens: 1 }, Act::Land { late: 2 }),
                ],
            },
            seed: 6,
            relation: Some("I1".into()),
            observed: Observed::default(),
            minimal: true,
            checks: 12,
            tool: Tool::current(),
            env: Environment::current("host", None, None),
            sentinels: BTreeMap::from([("cut".to_owned(), 1)]),
            command: "lockstep replay x".into(),
        }
    }

    fn read(text: &str) -> Result<CaseFile, CaseError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        CaseFile::read(file.path())
    }

    #[test]
    fn a_case_file_reads_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = sample();
        let path = file.write_into(folder.path()).unwrap();
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), file.file_name());
        assert_eq!(CaseFile::read(&path).unwrap(), file);
        let text = std::fs::read_to_string(&path).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let fields: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = FIELDS.to_vec();
        expected.sort_unstable();
        assert_eq!(fields, expected);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a partial file is left");
    }

    #[test]
    fn the_name_of_a_case_depends_on_its_inputs_only() {
        let (a, mut b) = (sample(), sample());
        b.minimal = false;
        b.relation = None;
        assert_eq!(a.file_name(), b.file_name());
        b.seed = 7;
        assert_ne!(a.file_name(), b.file_name());
    }

    #[test]
    fn unknown_fields_are_refused_in_this_version_and_dropped_from_a_newer_envelope() {
        let json = serde_json::to_value(sample()).unwrap();
        let mut known = json.clone();
        known["extra"] = 1.into();
        assert!(matches!(read(&known.to_string()), Err(CaseError::Json(..))));
        let mut newer = known.clone();
        newer["schema"] = "lockstep.case/1.7".into();
        assert!(read(&newer.to_string()).is_ok());
        // What decides the execution must be understood, whatever the minor version.
        newer["world"]["extra"] = 1.into();
        assert!(matches!(read(&newer.to_string()), Err(CaseError::Json(..))));
    }

    /// Smallest, empty, malformed and truncated files give an error of one line, and no panic.
    #[test]
    fn what_is_not_a_case_is_refused_in_one_line() {
        let text = serde_json::to_string(&sample()).unwrap();
        let with = |path: &str, value: serde_json::Value| {
            let mut json = serde_json::to_value(sample()).unwrap();
            *json.pointer_mut(path).unwrap() = value;
            json.to_string()
        };
        let mut bad = vec![
            String::new(),
            "{}".into(),
            "[]".into(),
            "null".into(),
            "\u{0}".into(),
            with("/schema", "lockstep.case/2.0".into()),
            with("/schema", "lockstep.case/0.9".into()),
            with("/schema", "lockstep.fuzz/1.0".into()),
            with("/schema", 1.into()),
            with("/world/block_size", 0.into()),
            with("/world/block_size", (-1).into()),
            with("/world/hash_bits", 65.into()),
            with("/world/pool_blocks", 0.into()),
            with("/world/token_budget", 0.into()),
            with("/world/buckets", serde_json::json!([0])),
            with("/world/buckets", serde_json::json!([4, 4])),
            with("/world/buckets", serde_json::json!([8, 4])),
            with("/world/buckets", serde_json::json!([1_000_000])),
            with("/workload/requests", serde_json::json!([])),
            with("/workload/requests/0/prompt", serde_json::json!([])),
            with("/workload/requests/0/max_tokens", 0.into()),
            with("/workload/requests/0/sampling/temperature", (-1).into()),
            with("/schedule/0/act", serde_json::json!({"arrive": {"steps": 1_000_000}})),
            with("/schedule/0/act", serde_json::json!({"explode": {}})),
        ];
        bad.extend((0..text.len()).step_by(7).map(|n| text[..n].to_owned()));
        for text in &bad {
            let error = read(text).expect_err(text).to_string();
            assert!(!error.contains('\n'), "{error}");
        }
        let missing = CaseFile::read(Path::new("/no/such/case.json")).unwrap_err();
        assert!(missing.to_string().contains("/no/such/case.json"));
    }
}
