//! `lockstep replay CASE`: carry out a case file again, and compare with what it recorded.

use std::path::PathBuf;

use clap::Args;
use lockstep::case::CaseFile;
use lockstep::env::Environment;
use lockstep::harness::{ledger, localise, stored};
use lockstep::relation::{Executions, Judgement, Relation, compare};
use lockstep::subject::{Subject, SubjectError};
use lockstep::weights::{self, Preset};

use super::open::{self as open_arguments, DeviceArgument};
use super::out::say;
use super::{CliError, Exit};

#[derive(Args, Debug)]
pub(super) struct Replay {
    /// Case file.
    case: PathBuf,
    #[command(flatten)]
    device: DeviceArgument,
    /// Print the trajectory hash only.
    #[arg(long, hide = true)]
    trajectory: bool,
}

impl Replay {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let file = CaseFile::read(&self.case).map_err(CliError::usage)?;
        let relations = relations(&file)?;
        let fixture = open(&file, &self.device)?;
        let case = file.case();
        if self.trajectory {
            let executions = Executions::new(&*fixture, &case)?;
            say!("{}", executions.run().trajectory.hash());
            return Ok(Exit::Held);
        }
        say!("{}", ledger::describe(&case).trim_end());
        print_environments(&file.env, &fixture.environment());

        let mut exit = Exit::Held;
        match Executions::new(&*fixture, &case) {
            Err(SubjectError::Failed(why)) => {
                say!("broken: {}", compare::crash(why));
                exit = Exit::Broken;
            }
            Err(error) => return Err(error.into()),
            Ok(mut executions) => {
                let mut held = false;
                for relation in relations {
                    match judge(&*fixture, relation, &file, &mut executions)? {
                        Judgement::Held(_) => held = true,
                        Judgement::Broken(_) => exit = Exit::Broken,
                        Judgement::Inapplicable(_) => {}
                    }
                }
                if !held && exit == Exit::Held {
                    say!("undecided: the case exercised no relation");
                    exit = Exit::Undecided;
                }
                let hash = executions.run().trajectory.hash();
                let (recorded, present) = (&file.env.device, fixture.device());
                let hashed = |device: &str| device == open_arguments::HASH;
                match &file.observed.trajectory {
                    _ if hashed(recorded) != hashed(present) => {
                        say!("trajectory {hash}; not compared: recorded on device {recorded}");
                    }
                    None => say!("trajectory {hash}, recorded: not recorded"),
                    Some(recorded) if *recorded == hash => {
                        say!("trajectory {hash}, equals the recorded one");
                    }
                    Some(recorded) => {
                        say!("trajectory {hash} differs from the recorded {recorded}");
                        exit = Exit::Broken;
                    }
                }
            }
        }
        if let Some(summary) = &file.observed.summary {
            // From a file: no control characters for the terminal.
            say!("recorded: {}", summary.lines().next().unwrap_or_default().escape_debug());
        }
        Ok(exit)
    }
}

/// The relations that a case file is about.
pub(super) fn relations(file: &CaseFile) -> Result<Vec<&'static Relation>, CliError> {
    let found = stored::relations(file);
    match (&file.relation, found.is_empty()) {
        (Some(name), true) => {
            Err(CliError::usage(format!("the case names an unknown relation {name:?}")))
        }
        _ => Ok(found),
    }
}

/// Opens the model that a case file names. A model that is not there, or is another one, leaves the case undecided.
pub(super) fn open(file: &CaseFile, device: &DeviceArgument) -> Result<Box<dyn Subject>, CliError> {
    let world = &file.world;
    if Preset::from_name(&world.model).is_none() && !std::path::Path::new(&world.model).exists() {
        return Err(CliError::undecided(format!("model {} is missing", world.model)));
    }
    let model = weights::source(&world.model, Some(world.dtype)).map_err(CliError::usage)?;
    let digest = model.digest();
    if digest != world.model_digest {
        return Err(CliError::undecided(format!(
            "model {} has digest {}, the case was recorded with {}",
            world.model, digest, world.model_digest
        )));
    }
    device.fixture(&world.model, model, world.mode.clone())
}

/// Judges and prints one relation.
fn judge(
    subject: &dyn Subject,
    relation: &Relation,
    file: &CaseFile,
    executions: &mut Executions<'_>,
) -> Result<Judgement, CliError> {
    let judgement = match relation.judge(executions) {
        Err(SubjectError::Failed(why)) => Judgement::Broken(Box::new(compare::crash(why))),
        other => other?,
    };
    match &judgement {
        Judgement::Held(compared) => say!("{} held: {compared} compared", relation.id),
        Judgement::Inapplicable(why) => say!("{} inapplicable: {why}", relation.id),
        Judgement::Broken(divergence) => {
            say!("{} broken: {divergence}", relation.id);
            // As the file has it, not resolved: a continuation is a role.
            say!("{}", localise::explain(subject, &file.case(), divergence, file.minimal));
        }
    }
    Ok(judgement)
}

/// Recorded and present environment, differences marked.
fn print_environments(recorded: &Environment, present: &Environment) {
    say!("environment:");
    let recorded = recorded.lines();
    for (field, now) in present.lines() {
        let then = recorded.iter().find(|(f, _)| *f == field).map(|(_, then)| then.as_str());
        let then = then.unwrap_or("not recorded");
        if then == now {
            say!("  {field}: {now}");
        } else {
            say!("  {field}: recorded {then}, present {now}");
        }
    }
}
