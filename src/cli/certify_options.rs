//! What `lockstep certify` is asked to do: from the command line, else from a configuration file, else the defaults.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lockstep::certify::options::{OwnPrompt, PROMPTS_MAX};
use lockstep::certify::{Api, Arm, Options, Secret, Target};
use lockstep::input;
use serde::Deserialize;

use super::CliError;
use super::fuzz::seconds;

/// Largest configuration file read, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Largest file of prompts read, in bytes.
const PROMPTS_BYTES_MAX: u64 = 16 << 20;

#[derive(Args, Debug)]
pub(super) struct Asked {
    /// Model to ask for [default: the first that the server lists]. Of the embedded server, the preset or file to serve
    /// [default: tiny].
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// Sizes of crowds, separated by commas; 1 is always asked [default: 4,16,64].
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    concurrency: Option<Vec<u32>>,
    /// Prompts that are judged [default: 14].
    #[arg(long)]
    prompts: Option<u32>,
    /// Lengths of prompts in tokens, in turn [default: 14 lengths from 5 to 1025, around block and power-of-two edges].
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    prompt_tokens: Option<Vec<u32>>,
    /// Prompts to judge in place of made ones: a JSON array of texts or of arrays of token ids, or else a text a line.
    #[arg(long, value_name = "FILE")]
    prompts_file: Option<PathBuf>,
    /// Answers one at a time after the first one [default: 2].
    #[arg(long)]
    repeats: Option<u32>,
    /// Rounds of each size of crowds [default: as many as held takes, which is 1 for 10 prompts or more].
    #[arg(long)]
    rounds: Option<u32>,
    /// Tokens of an answer [default: 32].
    #[arg(long)]
    answer_tokens: Option<u32>,
    /// Alternatives to ask for at each position [default: 5].
    #[arg(long)]
    alternatives: Option<u32>,
    /// Answers in crowds below which nothing is called held at a level [default: 29].
    #[arg(long)]
    min_answers: Option<u64>,
    /// Arms to ask, separated by commas [default: all]. Held is then a statement about these alone.
    #[arg(long, value_delimiter = ',', value_parser = arm)]
    arms: Option<Vec<Arm>>,
    /// Seed of the plan [default: 0].
    #[arg(long)]
    seed: Option<u64>,
    /// Makes the prompts new to the server [default: one that no other run has]. Two runs with the same seed and nonce send the
    /// same prompts, so that their answers can be compared with `certify merge`.
    #[arg(long)]
    nonce: Option<u64>,
    /// Most requests; the plan is made to fit [default: 600].
    #[arg(long)]
    max_requests: Option<u64>,
    /// Most tokens of prompts and answers together [default: 600000].
    #[arg(long)]
    max_tokens: Option<u64>,
    /// Seconds for one request [default: 60].
    #[arg(long, allow_negative_numbers = true, value_parser = seconds)]
    timeout: Option<f64>,
    /// Seconds for the run [default: 600].
    #[arg(long, allow_negative_numbers = true, value_parser = seconds)]
    seconds: Option<f64>,
    /// Endpoint: auto, completions or chat [default: auto, which takes completions where there are any].
    #[arg(long)]
    api: Option<Api>,
    /// A header for every request; may be given again. Values are never printed or stored.
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// A field for every request's body, the value in JSON; may be given again. It takes the place of ours.
    #[arg(long, value_name = "NAME=JSON")]
    body_field: Vec<String>,
    /// Address of the metrics [default: /metrics beside /v1].
    #[arg(long, value_name = "URL")]
    metrics_url: Option<String>,
    /// JSON file with any of the above, by the same names with _ for -. What the command line says goes first.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) url: Option<String>,
    pub(super) model: Option<String>,
    concurrency: Option<Vec<u32>>,
    prompts: Option<u32>,
    prompt_tokens: Option<Vec<u32>>,
    prompts_file: Option<PathBuf>,
    repeats: Option<u32>,
    rounds: Option<u32>,
    answer_tokens: Option<u32>,
    alternatives: Option<u32>,
    min_answers: Option<u64>,
    arms: Option<Vec<Arm>>,
    seed: Option<u64>,
    nonce: Option<u64>,
    max_requests: Option<u64>,
    max_tokens: Option<u64>,
    timeout: Option<f64>,
    seconds: Option<f64>,
    api: Option<String>,
    #[serde(default)]
    header: Vec<String>,
    #[serde(default)]
    body_field: Vec<String>,
    metrics_url: Option<String>,
}

fn arm(name: &str) -> Result<Arm, String> {
    let found = Arm::ALL.into_iter().find(|arm| arm.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = Arm::ALL.iter().map(|arm| arm.name()).collect();
        format!("expected some of {}", names.join(", "))
    })
}

impl Asked {
    pub(super) fn config(&self) -> Result<Config, CliError> {
        let Some(path) = &self.config else { return Ok(Config::default()) };
        let bad = |why: String| CliError::usage(format!("{}: {why}", path.display()));
        let text = input::read_text(path, CONFIG_BYTES_MAX).map_err(|e| bad(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| bad(e.to_string()))
    }

    /// How a server is asked.
    pub(super) fn target(&self, url: String, config: &Config) -> Result<Target, CliError> {
        let headers = config.header.iter().chain(&self.header).map(|text| header(text));
        let fields = config.body_field.iter().chain(&self.body_field).map(|text| field(text));
        let api = match (&self.api, &config.api) {
            (Some(api), _) => *api,
            (None, Some(name)) => name.parse().map_err(|e| CliError::usage(format!("api: {e}")))?,
            (None, None) => Api::Auto,
        };
        let model = self.model.clone().or(config.model.clone());
        if model.as_ref().is_some_and(String::is_empty) {
            return Err(CliError::usage("model: an empty name"));
        }
        Ok(Target {
            url,
            model,
            key: key()?,
            control: None,
            headers: headers.collect::<Result<_, _>>()?,
            fields: fields.collect::<Result<_, _>>()?,
            api,
            metrics_url: self.metrics_url.clone().or(config.metrics_url.clone()),
        })
    }

    pub(super) fn options(&self, config: &Config) -> Result<Options, CliError> {
        let default = Options::default();
        let time = |flag: Option<f64>, file: Option<f64>, default: Duration| match flag.or(file) {
            None => Ok(default),
            // The flag was checked as it was parsed, the file was not.
            Some(s) => {
                seconds(&s.to_string()).map(Duration::from_secs_f64).map_err(CliError::usage)
            }
        };
        let mut concurrency = self.concurrency.clone().or(config.concurrency.clone());
        if let Some(levels) = &mut concurrency {
            // One request at a time is an arm of its own.
            levels.retain(|level| *level != 1);
        }
        let prompts_file = self.prompts_file.as_ref().or(config.prompts_file.as_ref());
        let lengths = self.prompt_tokens.clone().or(config.prompt_tokens.clone());
        if prompts_file.is_some() && (lengths.is_some() || self.prompts.is_some()) {
            let why = "a file of prompts has its own number and lengths: leave out --prompts and --prompt-tokens";
            return Err(CliError::usage(why));
        }
        let options = Options {
            seed: self.seed.or(config.seed).unwrap_or(default.seed),
            nonce: self.nonce.or(config.nonce),
            concurrency: concurrency.unwrap_or(default.concurrency),
            prompts: self.prompts.or(config.prompts).unwrap_or(default.prompts),
            prompt_tokens: lengths.unwrap_or(default.prompt_tokens),
            own_prompts: prompts_file
                .map(|path| own_prompts(path))
                .transpose()?
                .unwrap_or_default(),
            repeats: self.repeats.or(config.repeats).unwrap_or(default.repeats),
            rounds: self.rounds.or(config.rounds),
            answer_tokens: self
                .answer_tokens
                .or(config.answer_tokens)
                .unwrap_or(default.answer_tokens),
            alternatives: self.alternatives.or(config.alternatives).unwrap_or(default.alternatives),
            arms: self.arms.clone().or(config.arms.clone()).unwrap_or(default.arms),
            shrinks: default.shrinks,
            timeout: time(self.timeout, config.timeout, default.timeout)?,
            time_max: time(self.seconds, config.seconds, default.time_max)?,
            requests_max: self.max_requests.or(config.max_requests).unwrap_or(default.requests_max),
            tokens_max: self.max_tokens.or(config.max_tokens).unwrap_or(default.tokens_max),
            answers_min: self.min_answers.or(config.min_answers).unwrap_or(default.answers_min),
        };
        options.check()?;
        Ok(options)
    }
}

fn header(text: &str) -> Result<(String, Secret), CliError> {
    // The value is not quoted: it may be a secret.
    let bad = |why: &str| CliError::usage(format!("header: {why}, expected \"NAME: VALUE\""));
    let (name, value) = text.split_once(':').ok_or_else(|| bad("no colon"))?;
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) {
        return Err(bad("not a name"));
    }
    let value = Secret::of_header(value.trim()).ok_or_else(|| bad("not a value"))?;
    Ok((name.to_owned(), value))
}

fn field(text: &str) -> Result<(String, serde_json::Value), CliError> {
    let bad = |why: String| CliError::usage(format!("body field {text:?}: {why}"));
    let (name, value) = text.split_once('=').ok_or_else(|| bad("expected NAME=JSON".into()))?;
    if name.is_empty() {
        return Err(bad("no name".into()));
    }
    let value = serde_json::from_str(value).map_err(|e| bad(format!("not JSON: {e}")))?;
    Ok((name.to_owned(), value))
}

/// A JSON array, or a text a line; empty lines are passed over.
fn own_prompts(path: &Path) -> Result<Vec<OwnPrompt>, CliError> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Ids(Vec<u32>),
    }
    let bad = |why: String| CliError::usage(format!("{}: {why}", path.display()));
    let text = input::read_text(path, PROMPTS_BYTES_MAX).map_err(|e| bad(e.to_string()))?;
    let prompts: Vec<OwnPrompt> = if text.trim_start().starts_with('[') {
        let written: Vec<Written> = serde_json::from_str(&text).map_err(|e| {
            bad(format!("expected an array of texts or of arrays of token ids: {e}"))
        })?;
        let of = |written| match written {
            Written::Text(text) => OwnPrompt::Text(text),
            Written::Ids(ids) => OwnPrompt::Ids(ids),
        };
        written.into_iter().map(of).collect()
    } else {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| OwnPrompt::Text(line.to_owned())).collect()
    };
    match prompts.len() {
        n if (2..=PROMPTS_MAX as usize).contains(&n) => Ok(prompts),
        n => Err(bad(format!("{n} prompts: expected 2 to {PROMPTS_MAX}"))),
    }
}

/// The key from the environment; never from the command line, where others can read it.
fn key() -> Result<Option<Secret>, CliError> {
    match std::env::var("OPENAI_API_KEY") {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => match Secret::new(&text) {
            Some(key) => Ok(Some(key)),
            None => Err(CliError::usage("OPENAI_API_KEY: not a key")),
        },
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(_) => Err(CliError::usage("OPENAI_API_KEY: not a key")),
    }
}
