//! `lockstep minimize CASE`: shrink a case file.

use std::path::{Path, PathBuf};

use clap::Args;
use lockstep::case::CaseFile;
use lockstep::harness::ledger;
use lockstep::harness::persist::{self, Provenance};
use lockstep::harness::shrink::{ShrinkBudget, failure_of, shrink};

use super::open::DeviceArgument;
use super::replay::{open, relations};
use super::{CliError, Exit};

#[derive(Args, Debug)]
pub(super) struct Minimize {
    /// Case file.
    case: PathBuf,
    /// Folder for the minimum [default: the case's folder].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgument,
}

impl Minimize {
    /// Exit code 1 when a minimum was written, 0 when nothing fails.
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let file = CaseFile::read(&self.case).map_err(CliError::usage)?;
        let relations = relations(&file)?;
        let fixture = open(&file, &self.device)?;
        let case = file.case();
        for relation in relations {
            let Some(divergence) = failure_of(&*fixture, relation, &case, true)? else { continue };
            println!("{} is broken: {divergence}", relation.id);
            let shrunk = shrink(&*fixture, relation, &case, &divergence, ShrinkBudget::default());
            let command = |path: &Path| format!("lockstep replay {}", path.display());
            let provenance = Provenance { env: fixture.environment(), command: &command };
            let folder = match &self.out {
                Some(folder) => folder.clone(),
                None => self.case.parent().unwrap_or(Path::new("")).to_path_buf(),
            };
            let run = fixture
                .execute(
                    &shrunk.case.world,
                    &shrunk.case.workload,
                    &shrunk.case.schedule,
                    shrunk.case.seed,
                    None,
                )
                .ok();
            let minimum = persist::file(
                &shrunk.case,
                Some(relation.id),
                Some(&shrunk.divergence),
                (shrunk.minimal, shrunk.checks),
                run.as_ref(),
                &provenance,
                &folder,
            );
            let path = minimum.write_into(&folder).map_err(CliError::usage)?;
            print!("{}", ledger::describe(&shrunk.case));
            println!(
                "{} after {} executions, {} checks: {}",
                if shrunk.minimal { "1-minimal" } else { "not minimal, the budget ended" },
                shrunk.executions,
                shrunk.checks,
                path.display()
            );
            return Ok(Exit::Broken);
        }
        println!("nothing fails");
        Ok(Exit::Held)
    }
}
