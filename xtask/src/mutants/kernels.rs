//! Kernel mutants without a GPU: each one compiles, and changes a CUBIN.
//!
//! CUBINs are functions of their text, so an equal one proves that nothing was injected.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::schemata::Numbered;
use super::tree::CHOICE;

/// The architecture that is compiled for.
const ARCH: &str = "sm_90a";

/// Compiles the mutants; prints what is wrong and returns whether nothing is.
pub(super) fn check(
    root: &Path,
    judge: &Path,
    folder: &Path,
    kernels: &[Numbered<'_>],
) -> anyhow::Result<bool> {
    if kernels.is_empty() {
        return Ok(true);
    }
    let path = crate::kernels::library_path(root)?;
    let cubins = |number: u32, names: &BTreeSet<String>| -> anyhow::Result<BTreeMap<_, _>> {
        let mut command = Command::new(judge);
        command.args(names).env("LD_LIBRARY_PATH", &path).env("MUTANT_KERNELS", ARCH);
        command.env("LOCKSTEP_CUBIN_CACHE", folder.join("cubin")).env(CHOICE, number.to_string());
        let output = command.stdin(Stdio::null()).output().context("starting the judge")?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{errors}");
        let text = String::from_utf8(output.stdout)?;
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        Ok(pairs.map(|(name, digest)| (name.to_owned(), digest.to_owned())).collect())
    };
    let mut changed = Vec::new();
    let mut is_fine = true;
    for numbered in kernels {
        match cubins(numbered.number, &BTreeSet::new()) {
            Ok(found) => changed.push((numbered, found)),
            Err(error) => {
                println!("does not compile: {}: {error:#}", numbered.mutant.id);
                is_fine = false;
            }
        }
    }
    let names = changed.iter().flat_map(|(_, found)| found.keys().cloned()).collect();
    let clean = cubins(0, &names)?;
    for (numbered, found) in &changed {
        let differ = found.iter().filter(|(name, digest)| clean.get(*name) != Some(digest)).count();
        if differ == 0 {
            println!("not injected: {}: its CUBINs are those of the tree", numbered.mutant.id);
            is_fine = false;
        } else {
            println!("{}: {differ} of {} CUBINs differ", numbered.mutant.id, found.len());
        }
    }
    Ok(is_fine)
}
