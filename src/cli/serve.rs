//! `lockstep serve`: the fixture engine behind an OpenAI-compatible API.

use std::time::Duration;

use clap::Args;
use lockstep::contract::Mode;
use lockstep::device::Device;
use lockstep::engine::DeviceModel;
use lockstep::fixture::Fixture;
use lockstep::serve::{Limits, Options, Running, ServeError, Server};

use super::open::{ModelArguments, Work};
use super::{CliError, Exit};

#[derive(Args, Debug)]
pub(super) struct Serve {
    #[command(flatten)]
    model: ModelArguments,
    /// Mode: invariant, or batch-dependent (in every operator, or in those named after a colon), which is the positive
    /// control.
    #[arg(long, default_value = "invariant")]
    mode: Mode,
    /// Address to bind to; the default can be reached from this machine alone.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port; 0 takes one that is free.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Name of the model for clients, if not the one of --model.
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// KV blocks of the pool; enough for 16 of the longest sequences, or 1 GiB, by default.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pool_blocks: Option<u32>,
    /// Serve nothing from a prefix cache.
    #[arg(long)]
    no_prefix_cache: bool,
    /// Seed that draws of requests without a seed depend on.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Audit the engine at every step.
    #[arg(long)]
    audit: bool,
    /// Sequences that the engine is given at a time.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    max_running: u32,
    /// Rows of a step, over all sequences: longer prompts are computed in several steps.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    max_step_rows: u32,
    /// Sequences that may wait; while there are as many, requests are answered 429.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    max_waiting: u32,
    /// Connections at a time.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Largest body of a request, in bytes.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..))]
    max_body: u32,
    /// Seconds in which a request must be answered.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    request_timeout: u32,
    /// Seconds in which a request must have come, its head and its body each.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    read_timeout: u32,
    /// Seconds that open requests are given on SIGINT or SIGTERM; a second signal ends them at once.
    #[arg(long, default_value_t = 10)]
    grace: u32,
}

impl Serve {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let start = Start { model: &self.model, options: self.options() };
        let running = self.model.open_for(self.mode.clone(), start)?;
        let ended = running.wait().map_err(of_server)?;
        if !ended.panics.is_empty() {
            let line = format!("{} requests ended in a panic", ended.panics.len());
            return Err(CliError { exit: Exit::Broken, line });
        }
        Ok(Exit::Held)
    }

    fn options(&self) -> Options {
        let seconds = |n: u32| Duration::from_secs(n.into());
        Options {
            host: self.host.clone(),
            port: self.port,
            name: self.served_model_name.clone(),
            pool_blocks: self.pool_blocks,
            prefix_cache: !self.no_prefix_cache,
            seed: self.seed,
            audits: self.audit || cfg!(debug_assertions),
            on_signals: true,
            limits: Limits {
                body_bytes_max: self.max_body as usize,
                connections_max: self.max_connections as usize,
                running_max: self.max_running as usize,
                step_rows_max: self.max_step_rows,
                waiting_max: self.max_waiting as usize,
                head_timeout: seconds(self.read_timeout),
                body_timeout: seconds(self.read_timeout),
                request_timeout: seconds(self.request_timeout),
                grace: seconds(self.grace),
                ..Limits::default()
            },
        }
    }
}

/// Starts a server, and says where it is.
struct Start<'a> {
    model: &'a ModelArguments,
    options: Options,
}

impl Start<'_> {
    /// Why texts are refused, if they are.
    fn no_texts(&self) -> Option<String> {
        match self.model.tokenizer() {
            Err(error) => Some(error.line),
            Ok(tokenizer) if tokenizer.has_bytes() => None,
            Ok(_) => Some("the tokenizer's tokens have no bytes of their own".into()),
        }
    }
}

impl Work for Start<'_> {
    type Out = Running;
    fn with<D>(self, fixture: Fixture<D>) -> Result<Running, CliError>
    where
        D: Device + Send + Sync + 'static,
        DeviceModel<D>: Send + Sync,
    {
        let (device, mode) = (fixture.model().device_name(), fixture.mode().clone());
        let name = fixture.model().config().name.clone();
        // Read once more, because only what can be used is kept.
        let no_texts = fixture.model().tokenizer().is_none().then(|| self.no_texts()).flatten();
        let running = Server::start(fixture, self.options).map_err(of_server)?;
        eprintln!("lockstep: serving {name} on {device}, {mode}, at {}/v1", running.url());
        if let Some(why) = no_texts {
            eprintln!("lockstep: texts and stop strings are refused, send token ids: {why}");
        }
        Ok(running)
    }
}

pub(super) fn of_server(error: ServeError) -> CliError {
    let exit = match error {
        ServeError::BadInput(_) => Exit::Usage,
        ServeError::Unavailable(_) => Exit::Undecided,
        ServeError::Engine(lockstep::engine::EngineError::Device(_)) => Exit::Undecided,
        ServeError::Engine(_) | ServeError::Panicked(_) => Exit::Broken,
    };
    CliError { exit, line: error.to_string() }
}
