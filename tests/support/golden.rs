//! The committed snapshots of G1, and what they are snapshots of.

use std::path::{Path, PathBuf};

use lockstep::contract::{Dtype, MatrixUnit};
use lockstep::relation::g1::{self, Prompt, Table};
use lockstep::subject::Subject;

/// Folder of the snapshots, if this is not the repository that built this program.
pub(crate) const FOLDER: &str = "LOCKSTEP_GOLDEN";

pub(crate) fn folder() -> PathBuf {
    let given = std::env::var_os(FOLDER).filter(|path| !path.is_empty());
    given.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("golden"), PathBuf::from)
}

/// Name of the snapshot of a preset, a dtype and a matrix unit.
pub(crate) fn name(preset: &str, dtype: Dtype, unit: MatrixUnit) -> String {
    let sm = match unit {
        MatrixUnit::SM90 => "sm90",
        MatrixUnit::SM80 => "sm80",
        other => panic!("no name for matrix unit {other:?}"),
    };
    format!("{preset}-{}-{sm}", dtype.name())
}

pub(crate) fn path(name: &str) -> PathBuf {
    folder().join(format!("{name}.snap"))
}

/// The committed table; the error says why there is none.
pub(crate) fn committed(name: &str) -> Result<Table, String> {
    let path = path(name);
    if !path.exists() {
        return Err(format!("there is no snapshot {}", path.display()));
    }
    let unreadable = |why: String| format!("{}: {why}", path.display());
    let file = insta::Snapshot::from_file(&path).map_err(|e| unreadable(e.to_string()))?;
    let text = file.as_text().ok_or_else(|| unreadable("not a text".into()))?;
    Table::parse(&text.to_string()).map_err(unreadable)
}

/// The prompts of a preset's snapshots.
pub(crate) fn prompts(preset: &str, subject: &dyn Subject) -> Vec<Prompt> {
    // Longest prompt in attention splits: enough of them to fold, and few enough for a host.
    let splits = match preset {
        "tiny" => 4,
        "small" => 2,
        _ => 3,
    };
    g1::prompts(&subject.edges(), subject.default_world().block_size, splits)
}
