//! The committed reports are about this tree: its contracts, its kernels. Needs no GPU.

use std::collections::BTreeMap;
use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};
use lockstep::contract::{Constants, Dtype, MatrixUnit, hex};
use lockstep::device::cuda::Program;
use lockstep::relation::x1;
use sha2::{Digest as _, Sha256};

/// sha256 (hex) over the hashes of the contracts that X1 runs under.
pub(crate) fn contract(unit: MatrixUnit) -> String {
    let mut hasher = Sha256::new();
    for constants in [Constants::TINY, Constants::SMALL, Constants::REAL] {
        for dtype in [Dtype::Bf16, Dtype::F16] {
            hasher.update(x1::contract(unit, dtype, constants).hash());
        }
    }
    hex(&hasher.finalize())
}

/// sha256 of each program's text and options.
pub(crate) fn kernels() -> BTreeMap<String, String> {
    Program::all().iter().map(|p| (p.to_string(), p.sha256())).collect()
}

/// Fails for a report of another contract or other kernels, or one in which something differs. Ignored while
/// there is no report.
pub(crate) fn trial() -> Trial {
    let reports = reports();
    let none = reports.is_empty();
    Trial::test("x1::evidence_is_of_this_tree", move || reports.iter().try_for_each(check))
        .with_ignored_flag(none)
}

/// `evidence/x1-*.json`.
fn reports() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/evidence");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|e| e.path()).collect();
    let name = |p: &PathBuf| p.file_name().unwrap_or_default().to_string_lossy().into_owned();
    paths.retain(|p| name(p).starts_with("x1-") && name(p).ends_with(".json"));
    paths.sort();
    paths
}

fn check(path: &PathBuf) -> Result<(), Failed> {
    let fail = |why: &str| Err(Failed::from(format!("{}: {why}", path.display())));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(path)?)?;
    if report["schema"] != "lockstep.x1/1.0" {
        return fail("not of schema lockstep.x1/1.0");
    }
    let number = |name: &str| report["matrix_unit"][name].as_u64().unwrap_or(0) as u32;
    let unit = MatrixUnit { terms: number("terms"), fraction_bits: number("fraction_bits") };
    if report["contract"] != contract(unit).as_str() {
        return fail("made under another contract");
    }
    for (name, sha256) in kernels() {
        if report["kernels"][&name] != sha256.as_str() {
            return fail(&format!("made with another {name}"));
        }
    }
    let rows =
        ["operators", "probes", "schedules", "full_depth"].map(|list| report[list].as_array());
    let mut rows = rows.into_iter().flatten().flatten();
    match rows.find(|row| row["different"] != 0) {
        Some(row) => fail(&format!("something differs: {row}")),
        None => Ok(()),
    }
}
