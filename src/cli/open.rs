//! Models, prompts and fixtures as they are named on the command line.

use std::path::Path;

use clap::Args;
use lockstep::contract::{Dtype, Mode};
use lockstep::device::host::Host;
use lockstep::fixture::{Fixture, FreshProcess};
use lockstep::input;
use lockstep::text::{Tokenizer, prompts};
use lockstep::weights::{self, Model, Preset};

use super::CliError;

/// Largest prompts file read, in bytes.
const PROMPTS_BYTES_MAX: u64 = 16 << 20;

/// Which model, as what, where.
#[derive(Args, Debug, Clone)]
pub(super) struct ModelArguments {
    /// Preset (tiny, small), a GGUF file, or a folder with safetensors and config.json.
    #[arg(long, default_value = "tiny", value_name = "PRESET|PATH")]
    pub(super) model: String,
    /// Storage dtype: bf16 or f16. Presets default to bf16, files to what they hold.
    #[arg(long, value_parser = dtype)]
    pub(super) dtype: Option<Dtype>,
    /// Device: host, or auto.
    #[arg(long, default_value = "auto", env = "LOCKSTEP_DEVICE")]
    pub(super) device: String,
}

fn dtype(text: &str) -> Result<Dtype, String> {
    match text {
        "bf16" => Ok(Dtype::Bf16),
        "f16" => Ok(Dtype::F16),
        _ => Err("expected bf16 or f16".into()),
    }
}

impl ModelArguments {
    /// Opens the model on the device.
    pub(super) fn open(&self, mode: Mode) -> Result<Fixture<Host>, CliError> {
        check_device(&self.device)?;
        let model = weights::open(&self.model, self.dtype).map_err(CliError::usage)?;
        fixture(&self.model, &model, mode)
    }

    /// Opens the model's tokenizer.
    pub(super) fn tokenizer(&self) -> Result<Tokenizer, CliError> {
        let path = Path::new(&self.model);
        let opened = match Preset::from_name(&self.model) {
            Some(preset) => return Ok(Tokenizer::for_preset(preset)),
            None if path.is_dir() => Tokenizer::from_dir(path),
            None => Tokenizer::from_gguf(path),
        };
        opened.map_err(CliError::usage)
    }
}

/// The shortest command that replays a stored case: through cargo if that is how this program was started.
pub(super) fn replay_command(path: &Path) -> String {
    let program = match (std::env::var_os("CARGO"), std::env::args().next()) {
        (None, Some(program)) => quoted(&program),
        _ => "cargo run --release --".into(),
    };
    format!("{program} replay {}", quoted(&path.display().to_string()))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Refuses devices that this build does not have.
pub(super) fn check_device(device: &str) -> Result<(), CliError> {
    match device {
        // Set but empty is how some shells unset a variable.
        "host" | "auto" | "" => Ok(()),
        "cuda" => Err(CliError::undecided("device cuda is not in this build")),
        "hash" => Err(CliError::usage("device hash is not in this build")),
        _ => Err(CliError::usage(format!(
            "unknown device {device:?}, expected host, cuda, hash or auto"
        ))),
    }
}

/// A fixture that can repeat cases in a fresh process of this program.
pub(super) fn fixture(name: &str, model: &Model, mode: Mode) -> Result<Fixture<Host>, CliError> {
    let fixture = Fixture::host(name, model, mode)?;
    let program = std::env::current_exe().map_err(CliError::undecided)?;
    Ok(fixture.with_fresh_process(FreshProcess {
        program,
        // Whatever LOCKSTEP_DEVICE says, the repetition belongs on the same device.
        arguments: ["replay", "--device", "host", "--trajectory"].map(Into::into).to_vec(),
        variables: Vec::new(),
    }))
}

/// Token ids of the prompts in a file, or of the committed ones.
pub(super) fn prompts(
    file: Option<&Path>,
    tokenizer: &Tokenizer,
) -> Result<Vec<Vec<u32>>, CliError> {
    let text = match file {
        None => include_str!("../../examples/prompts.txt").to_owned(),
        Some(path) => input::read_text(path, PROMPTS_BYTES_MAX)
            .map_err(|why| CliError::usage(format!("{}: {why}", path.display())))?,
    };
    let list = prompts::parse(&text).map_err(CliError::usage)?;
    let mut ids = Vec::with_capacity(list.len());
    for prompt in &list {
        ids.push(tokenizer.encode(prompt).map_err(CliError::usage)?);
    }
    ids.retain(|prompt| !prompt.is_empty());
    if ids.is_empty() {
        return Err(CliError::usage("the prompts have no tokens"));
    }
    Ok(ids)
}
