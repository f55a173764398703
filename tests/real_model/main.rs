//! SmolLM2 from its file, against other readers and runtimes, and on a GPU against the host. Without the file, or the
//! GPU, trials are listed as ignored, never passed; `cargo xtask model smollm2` fetches the file.
//!
//! `LOCKSTEP_SMOLLM2` names the file if it lies elsewhere, `LOCKSTEP_DATA` the folder of the references: `tests/data`.

mod candle;
#[cfg(feature = "cuda")]
mod cuda;
mod stop;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use lockstep::contract::{Constants, Dtype, Mode, hex};
use lockstep::device::host::Host;
use lockstep::fixture::Fixture;
use lockstep::harness::policy::Choice;
use lockstep::record::Run;
use lockstep::schedule::Schedule;
use lockstep::subject::Subject;
use lockstep::weights::{Family, Model};
use lockstep::workload::{Request, Workload};
use sha2::{Digest as _, Sha256};

const FILE: &str = "LOCKSTEP_SMOLLM2";
const DATA: &str = "LOCKSTEP_DATA";

fn given(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn data() -> PathBuf {
    given(DATA).unwrap_or_else(|| root().join("tests/data"))
}

fn file() -> PathBuf {
    given(FILE).unwrap_or_else(|| root().join("target/models/smollm2-135m-instruct.gguf"))
}

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let choice = match Choice::from_env() {
        Ok(choice) => choice,
        Err(why) => {
            eprintln!("lockstep: {why}");
            return ExitCode::from(2);
        }
    };
    let absent = !file().exists();
    if absent && !args.list {
        let file = file();
        eprintln!("ignored: {} is absent; run `cargo xtask model smollm2`", file.display());
    }
    let trials = [
        Trial::test("smollm2::tensors_are_those_of_another_reader", tensors),
        Trial::test("smollm2::ids_are_those_of_llama_cpp", ids),
        Trial::test("smollm2::greedy_tokens_are_those_of_llama_cpp", greedy),
        Trial::test("smollm2::logits_are_those_of_candle", candle::engine),
        Trial::test("smollm2::wrong_constants_and_logits_are_not_candles", candle::control),
        Trial::test("smollm2::logits_in_f64_are_those_of_candle", candle::exact),
        Trial::test("smollm2::stop_strings_end_an_output", stop::strings),
    ];
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(absent));
    let trials = trials.chain([cuda_trial(choice, absent, args.list)]).collect();
    libtest_mimic::run(&args, trials).exit_code()
}

const CUDA: &str = "smollm2::cuda_gives_the_hosts_bits";

/// The trial on a GPU: ignored without the file, or without a GPU unless one is required.
fn cuda_trial(choice: Choice, absent: bool, list: bool) -> Trial {
    match choice.gpu() {
        #[cfg(feature = "cuda")]
        Ok(context) => {
            Trial::test(CUDA, move || cuda::hosts_bits(&context)).with_ignored_flag(absent)
        }
        #[cfg(not(feature = "cuda"))]
        Ok(never) => match never {},
        Err(reason) => {
            let ignored = absent || !choice.requires_gpu();
            if ignored && !list {
                eprintln!("ignored: {CUDA}: {reason}");
            }
            Trial::test(CUDA, move || Err(reason.into())).with_ignored_flag(ignored)
        }
    }
}

/// Goal: the model in memory is the one in the file. Method: sha256 of whole tensors, made by the `gguf` package for
/// Python as tests/data/weights/make_references.py says.
fn tensors() -> Result<(), Failed> {
    let model = Model::load(&file(), None)?;
    let c = &model.config;
    if (c.family, c.layers, c.hidden, c.heads) != (Family::Llama, 30, 576, 9)
        || (c.kv_heads, c.head_dim, c.ffn, c.vocab) != (3, 64, 1536, 49152)
        || (c.norm_eps, c.rope_base, c.context) != (1e-5, 1e5, 8192)
        || (&c.eos[..], c.bos, c.constants) != (&[2][..], None, Constants::SMALL)
        || (model.dtype, model.head.is_none()) != (Dtype::F16, true)
    {
        return Err(format!("not SmolLM2's configuration: {c:?}").into());
    }
    let json = std::fs::read(data().join("weights/smollm2-tensors.json"))?;
    let json: serde_json::Value = serde_json::from_slice(&json)?;
    let expected = json["sha256"].as_object().ok_or("no list of sums")?;
    let mut compared = 0;
    for (name, values) in model.tensors() {
        let Some(sum) = expected.get(&name) else { continue };
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        if *sum != hex(&Sha256::digest(&bytes)) {
            return Err(format!("{name} differs").into());
        }
        compared += 1;
    }
    match compared {
        20 => Ok(()),
        n => Err(format!("{n} tensors compared, not 20").into()),
    }
}

/// Goal: the committed slice of metadata stands for the file. Method: both tokenizers on every reference text.
fn ids() -> Result<(), Failed> {
    let tokenizer = lockstep::text::Tokenizer::from_path(&file())?;
    let json = std::fs::read(data().join("text/smollm2-ids.json"))?;
    let json: serde_json::Value = serde_json::from_slice(&json)?;
    for case in json["cases"].as_array().ok_or("no cases")? {
        let text = case["text"].as_str().ok_or("no text")?;
        let ids = serde_json::to_value(tokenizer.encode(text)?)?;
        if ids != case["ids"] {
            return Err(format!("{text:?}: {ids}, not {}", case["ids"]).into());
        }
    }
    Ok(())
}

/// Goal: the forward pass is the model's, not only repeatable. Method: greedy continuations of three prompts, against
/// llama.cpp on the same weights after the same rounding, in f32. Ours are rounded to f16 between operators, so a token
/// may differ, and all after it, but only where llama.cpp's own two best tokens were within `NEAR_TIE`.
fn greedy() -> Result<(), Failed> {
    /// Natural-log distance. The smallest margin in the references is 0.0119, so today every token must agree.
    const NEAR_TIE: f64 = 0.01;
    let json = std::fs::read(data().join("text/smollm2-greedy.json"))?;
    let json: serde_json::Value = serde_json::from_slice(&json)?;
    let name = file().display().to_string();
    let fixture = Fixture::host(&name, &Model::load(&file(), None)?, Mode::Invariant)?;
    let cases = json["cases"].as_array().ok_or("no cases")?;
    let rounded = |c: &&serde_json::Value| {
        c["weights"].as_str().is_some_and(|w| w.starts_with("dequantised"))
    };
    let mut compared = 0;
    for case in cases.iter().filter(rounded) {
        let expected = ids_of(&case["ids"])?;
        let got = complete(&fixture, ids_of(&case["prompt_ids"])?, expected.len())?;
        let same = got.iter().zip(&expected).take_while(|(a, b)| a == b).count();
        compared += same;
        if same < expected.len() {
            let best = case["top5"][same].as_array().ok_or("no top5")?;
            let logprob = |i: usize| best[i][1].as_f64().ok_or("no logprob");
            let margin = logprob(0)? - logprob(1)?;
            if margin > NEAR_TIE {
                let prompt = &case["prompt"];
                return Err(
                    format!("{prompt}: token {same} differs at a margin of {margin}").into()
                );
            }
        }
    }
    eprintln!("smollm2: {compared} greedy tokens equal llama.cpp's");
    if compared < 100 {
        return Err(format!("only {compared} tokens were compared").into());
    }
    Ok(())
}

fn ids_of(json: &serde_json::Value) -> Result<Vec<u32>, Failed> {
    Ok(serde_json::from_value(json.clone())?)
}

fn complete(
    fixture: &Fixture<Host>,
    prompt: Vec<u32>,
    max_tokens: usize,
) -> Result<Vec<u32>, Failed> {
    let run = continuation(fixture, prompt, max_tokens, false)?;
    Ok(run.first(1).ok_or("no output")?.tokens.clone())
}

/// A greedy continuation of a prompt alone.
fn continuation(
    subject: &dyn Subject,
    prompt: Vec<u32>,
    max_tokens: usize,
    ignore_eos: bool,
) -> Result<Run, Failed> {
    let request = Request { ignore_eos, ..Request::new(1, prompt, max_tokens as u32) };
    let mut world = subject.default_world();
    let workload = Workload { requests: vec![request] };
    world.pool_blocks = workload.lengths()[0].blocks(world.block_size) as u32;
    Ok(subject.execute(&world, &workload, &Schedule::default(), 0, None)?)
}
