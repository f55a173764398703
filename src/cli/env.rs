//! `lockstep env`: the environment tuple.

use clap::Args;
use lockstep::env::{Environment, Tool};

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
        let env = Environment::current("host", None, None);
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
            device.map_or("auto (default)".into(), |d| format!("{d} (environment)"))
        );
        Ok(Exit::Held)
    }
}
