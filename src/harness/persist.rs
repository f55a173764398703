//! Failures as case files.

use std::path::{Path, PathBuf};

use crate::case::{CASE_SCHEMA, Case, CaseError, CaseFile, Observed};
use crate::env::{Environment, Tool};
use crate::record::Run;
use crate::relation::{Divergence, resolve};
use crate::subject::{Subject, guard};

use super::campaign::Failure;
use super::localise::Explanation;

/// What a case file says beside the case.
pub struct Provenance<'p> {
    /// Environment tuple.
    pub env: Environment,
    /// Command that replays a file at this path.
    pub command: &'p dyn Fn(&Path) -> String,
}

/// Writes a failure's smallest case into `folder`, and where it was localised. If it can't be written, the file comes
/// back with the reason, so that the case is not lost.
pub fn write(
    failure: &Failure,
    explanation: &Explanation,
    subject: &dyn Subject,
    provenance: &Provenance<'_>,
    folder: &Path,
) -> Result<PathBuf, Box<(CaseError, CaseFile)>> {
    let case = failure.case();
    let run = run_of(subject, case);
    let mut file = file(
        case,
        Some(failure.relation.id),
        Some(failure.reported()),
        failure.shrunk.as_ref().map_or((false, 0), |s| (s.minimal, s.checks)),
        run.as_ref(),
        provenance,
        folder,
    );
    if let (Some(summary), Some(localisation)) =
        (&mut file.observed.summary, &explanation.localisation)
    {
        summary.push('\n');
        summary.push_str(&localisation.to_string());
    }
    file.write_into(folder).map_err(|error| Box::new((error, file)))
}

/// The case's run, if it comes to its end.
pub fn run_of(subject: &dyn Subject, case: &Case) -> Option<Run> {
    let Case { world, workload, schedule, seed } = &resolve(subject, case).ok()?;
    guard::execute(subject, world, workload, schedule, *seed, None).ok()
}

/// A case file. `certificate` is (minimal, checks).
pub fn file(
    case: &Case,
    relation: Option<&str>,
    divergence: Option<&Divergence>,
    certificate: (bool, u64),
    run: Option<&Run>,
    provenance: &Provenance<'_>,
    folder: &Path,
) -> CaseFile {
    let mut file = CaseFile {
        schema: CASE_SCHEMA.to_string(),
        world: case.world.clone(),
        workload: case.workload.clone(),
        schedule: case.schedule.clone(),
        seed: case.seed,
        relation: relation.map(Into::into),
        observed: Observed {
            trajectory: run.map(|r| r.trajectory.hash()),
            observable: divergence.map(|d| d.observable.name().into()),
            summary: divergence.map(ToString::to_string),
        },
        minimal: certificate.0,
        checks: certificate.1,
        tool: Tool::current(),
        env: provenance.env.clone(),
        sentinels: run.map(|r| r.sentinels.by_name()).unwrap_or_default(),
        command: String::new(),
    };
    file.command = (provenance.command)(&folder.join(file.file_name()));
    file
}
