//! Stored cases: found failing once, carried out before anything is generated.

use std::path::{Path, PathBuf};

use crate::case::{CaseError, CaseFile};
use crate::relation::{Divergence, Judgement, Observable, RELATIONS, Relation, by_id, named};
use crate::subject::{Subject, SubjectError};

use super::shrink::judgement_of;

/// The case files of a folder in order of their names, each read or not. An absent folder has none.
pub fn list(folder: &Path) -> Vec<(PathBuf, Result<CaseFile, CaseError>)> {
    let mut paths: Vec<PathBuf> = match std::fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => return Vec::new(),
    };
    paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), CaseFile::read(&path))).collect()
}

/// Whether the case is about this subject: same model, dtype and mode.
pub fn is_about(file: &CaseFile, subject: &dyn Subject) -> bool {
    let own = subject.default_world();
    let asked = &file.world;
    own.model == asked.model && own.dtype == asked.dtype && own.mode == asked.mode
}

/// The relations that a case file names: all if it names none, empty if it names an unknown one. What was found is named by
/// its identity; people may write a family.
pub fn relations(file: &CaseFile) -> Vec<&'static Relation> {
    let Some(name) = file.relation.as_deref() else { return RELATIONS.to_vec() };
    by_id(name).map_or_else(|| named(name), |relation| vec![relation])
}

/// What became of a stored case.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A relation is broken.
    Broken(&'static Relation, Divergence),
    /// No relation is broken, and one or more held.
    Held,
    /// No relation was exercised, so nothing is shown.
    Inapplicable,
}

/// Carries out a stored case and judges it by `relations`, up to the first that it breaks.
pub fn outcome(
    file: &CaseFile,
    relations: &[&'static Relation],
    subject: &dyn Subject,
) -> Result<Outcome, SubjectError> {
    let case = file.case();
    let mut outcome = Outcome::Inapplicable;
    for relation in relations {
        match judgement_of(subject, relation, &case)? {
            Judgement::Broken(divergence) => return Ok(Outcome::Broken(relation, *divergence)),
            Judgement::Held(_) => outcome = Outcome::Held,
            Judgement::Inapplicable(_) => {}
        }
    }
    // What failed by a crash is mended when it no longer crashes: there may be nothing to compare.
    let crashed = file.observed.observable.as_deref() == Some(Observable::Crash.name());
    Ok(if crashed && matches!(outcome, Outcome::Inapplicable) { Outcome::Held } else { outcome })
}
