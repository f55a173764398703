//! `lockstep generate`: complete a text on the fixture engine.

use clap::Args;
use lockstep::contract::Mode;
use lockstep::contract::sampler::SamplerParams;
use lockstep::record::Finish;
use lockstep::schedule::Schedule;
use lockstep::workload::{Request, Workload};

use super::open::ModelArguments;
use super::out::say;
use super::{CliError, Exit};

#[derive(Args, Debug)]
pub(super) struct Generate {
    #[command(flatten)]
    model: ModelArguments,
    /// Text to complete.
    prompt: String,
    /// Most tokens to generate.
    #[arg(long, default_value_t = 48, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_tokens: u32,
    /// Temperature; 0 is greedy.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f32,
    /// Keep the k best tokens; 0 keeps all.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    top_k: u32,
    /// Keep the best tokens up to this mass.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f32,
    /// Seed of the draws.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
    /// Print token ids instead of text.
    #[arg(long)]
    ids: bool,
}

impl Generate {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let sampling = SamplerParams {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            ..SamplerParams::default()
        };
        sampling.validate().map_err(CliError::usage)?;
        let tokenizer = self.model.tokenizer()?;
        let text = tokenizer.encode(&self.prompt).map_err(CliError::usage)?;
        if text.is_empty() {
            return Err(CliError::usage("the prompt has no tokens"));
        }
        let (fixture, bos) = self.model.open_for_text(Mode::Invariant)?;
        // The ids that the server makes of the same text.
        let prompt: Vec<u32> = bos.into_iter().chain(text).collect();
        let request =
            Request { sampling, seed: Some(self.seed), ..Request::new(1, prompt, self.max_tokens) };
        let mut world = fixture.default_world();
        let workload = Workload { requests: vec![request] };
        world.pool_blocks = workload.lengths()[0].blocks(world.block_size) as u32;
        let run = fixture.execute(&world, &workload, &Schedule::default(), self.seed, None)?;
        let output = run.first(1).ok_or_else(|| CliError::undecided("no output"))?;
        if output.finish == Some(Finish::Undecided) {
            return Err(CliError::undecided(
                "a logit was not finite: nothing may be drawn from it",
            ));
        }
        // The token that ends a text is not part of it.
        let ended = output.finish == Some(Finish::Eos) && !self.ids;
        let tokens = &output.tokens[..output.tokens.len() - usize::from(ended)];
        if self.ids {
            let ids: Vec<String> = tokens.iter().map(u32::to_string).collect();
            say!("{}", ids.join(" "));
        } else {
            say!("{}{}", self.prompt, tokenizer.decode(tokens));
        }
        Ok(Exit::Held)
    }
}
