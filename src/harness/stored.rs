//! Stored cases: found failing once, carried out before anything is generated.

use std::path::{Path, PathBuf};

use crate::case::{CaseError, CaseFile};
use crate::relation::{Divergence, RELATIONS, Relation, named};
use crate::subject::{Subject, SubjectError};

use super::shrink::failure_of;

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

/// The relations that a case file names: all if it names none, empty if it names an unknown one.
pub fn relations(file: &CaseFile) -> Vec<&'static Relation> {
    file.relation.as_deref().map_or_else(|| RELATIONS.to_vec(), named)
}

/// The first of `relations` that the case breaks.
pub fn broken_by(
    file: &CaseFile,
    relations: &[&'static Relation],
    subject: &dyn Subject,
) -> Result<Option<(&'static Relation, Divergence)>, SubjectError> {
    let case = file.case();
    for relation in relations {
        if let Some(divergence) = failure_of(subject, relation, &case, true)? {
            return Ok(Some((relation, divergence)));
        }
    }
    Ok(None)
}
