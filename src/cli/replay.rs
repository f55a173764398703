//! `lockstep replay CASE`: carry out a case file again, and compare with what it recorded.

use std::path::PathBuf;

use clap::Args;
use lockstep::case::CaseFile;
use lockstep::env::Environment;
use lockstep::harness::{explain, ledger};
use lockstep::relation::{Executions, Judgement, RELATIONS, Relation, compare, named};
use lockstep::subject::{Subject, SubjectError};
use lockstep::weights::{self, Preset};

use super::open::DeviceArgument;
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
            let executions = Executions::new(&*fixture, &case, false)?;
            println!("{}", executions.run().trajectory.hash());
            return Ok(Exit::Held);
        }
        print!("{}", ledger::describe(&case));
        print_environments(&file.env, &fixture.environment());

        let mut exit = Exit::Held;
        match Executions::new(&*fixture, &case, true) {
            Err(SubjectError::Failed(why)) => {
                println!("broken: {}", compare::crash(why));
                exit = Exit::Broken;
            }
            Err(error) => return Err(error.into()),
            Ok(mut executions) => {
                for relation in relations {
                    if !judge(&*fixture, relation, &mut executions)? {
                        exit = Exit::Broken;
                    }
                }
                let hash = executions.run().trajectory.hash();
                match &file.observed.trajectory {
                    None => println!("trajectory {hash}, recorded: not recorded"),
                    Some(recorded) if *recorded == hash => {
                        println!("trajectory {hash}, equals the recorded one");
                    }
                    Some(recorded) => {
                        println!("trajectory {hash} differs from the recorded {recorded}");
                        exit = Exit::Broken;
                    }
                }
            }
        }
        if let Some(summary) = &file.observed.summary {
            println!("recorded: {summary}");
        }
        Ok(exit)
    }
}

/// The relations that a case file is about.
pub(super) fn relations(file: &CaseFile) -> Result<Vec<&'static Relation>, CliError> {
    let Some(name) = &file.relation else { return Ok(RELATIONS.to_vec()) };
    let found = named(name);
    if found.is_empty() {
        return Err(CliError::usage(format!("the case names an unknown relation {name:?}")));
    }
    Ok(found)
}

/// Opens the model that a case file names. A model that is not there, or is another one, leaves the case undecided.
pub(super) fn open(file: &CaseFile, device: &DeviceArgument) -> Result<Box<dyn Subject>, CliError> {
    let world = &file.world;
    if Preset::from_name(&world.model).is_none() && !std::path::Path::new(&world.model).exists() {
        return Err(CliError::undecided(format!("model {} is missing", world.model)));
    }
    let model = weights::open(&world.model, Some(world.dtype)).map_err(CliError::usage)?;
    if model.digest != world.model_digest {
        return Err(CliError::undecided(format!(
            "model {} has digest {}, the case was recorded with {}",
            world.model, model.digest, world.model_digest
        )));
    }
    device.fixture(&world.model, &model, world.mode.clone())
}

/// Judges and prints one relation. Returns whether it is not broken.
fn judge(
    subject: &dyn Subject,
    relation: &Relation,
    executions: &mut Executions<'_>,
) -> Result<bool, CliError> {
    let judgement = match (relation.judge)(executions) {
        Err(SubjectError::Failed(why)) => Judgement::Broken(Box::new(compare::crash(why))),
        other => other?,
    };
    Ok(match judgement {
        Judgement::Held(compared) => {
            println!(
                "{} held: {} positions, {} kv compared",
                relation.id, compared.positions, compared.kv
            );
            true
        }
        Judgement::Inapplicable(why) => {
            println!("{} inapplicable: {why}", relation.id);
            true
        }
        Judgement::Broken(divergence) => {
            println!("{} broken: {divergence}", relation.id);
            if let Some(text) = explain::explain(subject, executions.case(), &divergence) {
                println!("  {text}");
            }
            false
        }
    })
}

/// Recorded and present environment, differences marked.
fn print_environments(recorded: &Environment, present: &Environment) {
    println!("environment:");
    for ((field, then), (_, now)) in recorded.lines().iter().zip(present.lines()) {
        if *then == now {
            println!("  {field}: {now}");
        } else {
            println!("  {field}: recorded {then}, present {now}");
        }
    }
}
