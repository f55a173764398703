//! Models, prompts and fixtures as they are named on the command line.

use std::path::Path;

use clap::Args;
use lockstep::contract::{Dtype, Mode};
use lockstep::device::Device;
use lockstep::engine::DeviceModel;
use lockstep::fixture::{Fixture, FreshProcess};
use lockstep::harness::policy::{Choice, DEVICE};
use lockstep::input;
use lockstep::subject::Subject;
use lockstep::text::{Tokenizer, prompts};
use lockstep::weights::{self, Preset, Source};

use super::CliError;

/// Largest prompts file read, in bytes.
const PROMPTS_BYTES_MAX: u64 = 16 << 20;

/// Name of the device that has no arithmetic.
pub(super) const HASH: &str = "hash";

/// Which model, as what, where.
#[derive(Args, Debug, Clone)]
pub(super) struct ModelArguments {
    /// Preset (tiny, small, qwen3-0.6b, qwen3-8b), a GGUF file, or a folder with safetensors and config.json.
    #[arg(long, default_value = "tiny", value_name = "PRESET|PATH")]
    pub(super) model: String,
    /// Storage dtype: bf16 or f16. Presets default to bf16, files to what they hold.
    #[arg(long, value_parser = dtype)]
    pub(super) dtype: Option<Dtype>,
    #[command(flatten)]
    pub(super) device: DeviceArgument,
}

/// Where to run.
#[derive(Args, Debug, Clone)]
pub(super) struct DeviceArgument {
    /// Device: host, cuda, cuda:N, hash (no arithmetic: state faults only), or auto, which is a GPU where there is one.
    #[arg(long, default_value = "host", env = "LOCKSTEP_DEVICE", value_parser = Choice::parse)]
    device: Choice,
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
    pub(super) fn open(&self, mode: Mode) -> Result<Box<dyn Subject>, CliError> {
        let model = weights::source(&self.model, self.dtype).map_err(CliError::usage)?;
        self.device.fixture(&self.model, model, mode)
    }

    /// Opens the model on the device, for work that needs to know which device it is.
    pub(super) fn open_for<W: Work>(&self, mode: Mode, work: W) -> Result<W::Out, CliError> {
        let model = weights::source(&self.model, self.dtype).map_err(CliError::usage)?;
        self.device.fixture_for(&self.model, model, mode, work)
    }

    /// The same, and the id that the model wants before a text.
    pub(super) fn open_for_text(
        &self,
        mode: Mode,
    ) -> Result<(Box<dyn Subject>, Option<u32>), CliError> {
        let model = weights::source(&self.model, self.dtype).map_err(CliError::usage)?;
        let bos = model.config().bos;
        Ok((self.device.fixture(&self.model, model, mode)?, bos))
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

/// The shortest command that replays a stored case: through cargo if that is how this program was started. A case found
/// on the hash device is about its trajectory too, which is another one anywhere else.
pub(super) fn replay_command(path: &Path, device: &str) -> String {
    let program = match (std::env::var_os("CARGO"), std::env::args().next()) {
        (None, Some(program)) => quoted(&program),
        _ => "cargo run --release --".into(),
    };
    let device = if device == HASH { " --device hash" } else { "" };
    format!("{program} replay {}{device}", quoted(&path.display().to_string()))
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

impl DeviceArgument {
    /// A fixture that can repeat cases in a fresh process of this program.
    pub(super) fn fixture(
        &self,
        name: &str,
        model: Source<'_>,
        mode: Mode,
    ) -> Result<Box<dyn Subject>, CliError> {
        self.fixture_for(name, model, mode, Boxed)
    }

    /// The same, for work that needs to know which device it is.
    pub(super) fn fixture_for<W: Work>(
        &self,
        name: &str,
        model: Source<'_>,
        mode: Mode,
        work: W,
    ) -> Result<W::Out, CliError> {
        let program = std::env::current_exe().map_err(CliError::undecided)?;
        let fresh = |device: String| FreshProcess {
            program,
            arguments: vec!["replay".into(), "--trajectory".into()],
            variables: vec![(DEVICE.into(), device)],
        };
        if self.device == Choice::Hash {
            let fixture = with_text(Fixture::hash(name, model, mode)?, name);
            return work.with(fixture.with_fresh_process(fresh("hash".into())));
        }
        if self.device != Choice::Host {
            match self.device.gpu() {
                #[cfg(feature = "cuda")]
                Ok(context) => {
                    let fixture = with_text(Fixture::cuda(name, model, mode, &context)?, name);
                    let device = format!("cuda:{}", context.gpu().ordinal);
                    return work.with(fixture.with_fresh_process(fresh(device)));
                }
                #[cfg(not(feature = "cuda"))]
                Ok(never) => match never {},
                Err(why) if self.device.requires_gpu() => return Err(CliError::undecided(why)),
                Err(_) => {}
            }
        }
        let fixture = with_text(Fixture::host(name, model, mode)?, name);
        work.with(fixture.with_fresh_process(fresh("host".into())))
    }
}

/// What is done with a fixture on any device.
pub(super) trait Work {
    /// What comes of it.
    type Out;
    /// Does it.
    fn with<D>(self, fixture: Fixture<D>) -> Result<Self::Out, CliError>
    where
        D: Device + Send + Sync + 'static,
        DeviceModel<D>: Send + Sync;
}

/// Makes a subject of it.
struct Boxed;

impl Work for Boxed {
    type Out = Box<dyn Subject>;
    fn with<D>(self, fixture: Fixture<D>) -> Result<Box<dyn Subject>, CliError>
    where
        D: Device + Send + Sync + 'static,
        DeviceModel<D>: Send + Sync,
    {
        Ok(Box::new(fixture))
    }
}

/// The fixture with the tokenizer of its model's file, for texts and stop strings. Without one, or with one that can't be read,
/// requests that have some are refused.
fn with_text<D: Device>(fixture: Fixture<D>, name: &str) -> Fixture<D> {
    let is_file = Preset::from_name(name).is_none();
    match is_file.then(|| Tokenizer::from_path(Path::new(name))) {
        Some(Ok(tokenizer)) => fixture.with_tokenizer(tokenizer),
        Some(Err(_)) | None => fixture,
    }
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
