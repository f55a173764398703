//! `lockstep minimize CASE`: shrink a case file.

use std::path::{Path, PathBuf};

use clap::Args;
use lockstep::case::CaseFile;
use lockstep::harness::ledger;
use lockstep::harness::localise::explain;
use lockstep::harness::persist::{self, Provenance};
use lockstep::harness::shrink::{ShrinkBudget, failure_of, judgement_of, shrink};
use lockstep::relation::Judgement;

use super::open::{DeviceArgument, replay_command};
use super::out::say;
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
    /// Exit code 1 when a minimum was written, 0 when nothing fails, 3 when the case exercises nothing that could.
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let file = CaseFile::read(&self.case).map_err(CliError::usage)?;
        let relations = relations(&file)?;
        let fixture = open(&file, &self.device)?;
        let case = file.case();
        let folder = match &self.out {
            Some(folder) => folder.clone(),
            None => self.case.parent().unwrap_or(Path::new("")).to_path_buf(),
        };
        // Found out before the shrink, not after it.
        std::fs::create_dir_all(if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &folder
        })
        .map_err(|e| CliError::usage(format!("{}: {e}", folder.display())))?;
        let mut held = false;
        for relation in relations {
            let divergence = match judgement_of(&*fixture, relation, &case)? {
                Judgement::Broken(divergence) => *divergence,
                Judgement::Held(_) => {
                    held = true;
                    continue;
                }
                Judgement::Inapplicable(_) => continue,
            };
            for _ in 0..2 {
                if failure_of(&*fixture, relation, &case)?.is_none() {
                    let line = format!("{} fails only sometimes: {divergence}", relation.id);
                    return Err(CliError { exit: Exit::Broken, line });
                }
            }
            let shrunk = shrink(&*fixture, relation, &case, &divergence, ShrinkBudget::default());
            let command = |path: &Path| replay_command(path, fixture.device());
            let provenance = Provenance { env: fixture.environment(), command: &command };
            let run = persist::run_of(&*fixture, &shrunk.case);
            let minimum = persist::file(
                &shrunk.case,
                Some(relation.id),
                Some(&shrunk.divergence),
                (shrunk.minimal, shrunk.checks),
                run.as_ref(),
                &provenance,
                &folder,
            );
            let path = minimum.write_into(&folder).map_err(|error| {
                let (name, line) = (minimum.file_name(), minimum.line());
                say!("the minimum's text, to be saved as {name}:\n{line}");
                CliError::usage(error)
            })?;
            say!("reproduce: {}", minimum.command);
            say!("{} is broken: {}", relation.id, shrunk.divergence);
            let (case, minimal) = (&shrunk.case, shrunk.minimal);
            say!("{}", explain(&*fixture, case, &shrunk.divergence, minimal));
            let ended = shrunk.ended_by.as_deref();
            say!(
                "{} after {} executions, {} checks: {}",
                ended.map_or("1-minimal".into(), |why| format!("not known to be minimal ({why})")),
                shrunk.executions,
                shrunk.checks,
                path.display()
            );
            say!("{}", ledger::describe(&shrunk.case).trim_end());
            return Ok(Exit::Broken);
        }
        if !held {
            return Err(CliError::undecided("undecided: the case exercised no relation"));
        }
        say!("nothing fails");
        Ok(Exit::Held)
    }
}
