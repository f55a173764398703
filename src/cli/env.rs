//! `lockstep env`: the environment tuple.

use clap::Args;
use lockstep::env::{Environment, Tool};
use lockstep::harness::policy::Choice;

use super::out::say;
use super::{CliError, Exit};

#[derive(Args, Debug)]
pub(super) struct Env {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Env {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let choice = Choice::from_env().map_err(CliError::usage)?;
        let (env, absent) = environment(choice);
        let tool = Tool::current();
        if self.json {
            let value = serde_json::json!({ "tool": tool, "env": env });
            say!("{}", serde_json::to_string_pretty(&value).expect("a tuple serialises"));
            return Ok(Exit::Held);
        }
        say!("lockstep {}, rev {}", tool.version, tool.rev.as_deref().unwrap_or("not recorded"));
        for (field, value) in env.lines() {
            say!("{field}: {value}");
        }
        let device = std::env::var("LOCKSTEP_DEVICE");
        say!(
            "LOCKSTEP_DEVICE: {}",
            device.map_or("not set (cargo test takes auto, commands host)".into(), |d| d)
        );
        if let Some(why) = absent {
            say!("no gpu: {why}");
        }
        Ok(Exit::Held)
    }
}

/// The environment of the device that would be used, and why it is not a GPU.
fn environment(choice: Choice) -> (Environment, Option<String>) {
    if choice == Choice::Hash {
        return (Environment::current("hash", None, None), None);
    }
    match choice.gpu() {
        #[cfg(feature = "cuda")]
        Ok(context) => {
            let unit = context.gpu().arch.matrix_unit().unit;
            let facts = Some(context.facts());
            (Environment::current("cuda", None, None).with_unit(unit, facts), None)
        }
        #[cfg(not(feature = "cuda"))]
        Ok(never) => match never {},
        Err(why) => (Environment::current("host", None, None), Some(why)),
    }
}
