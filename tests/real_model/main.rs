//! SmolLM2 from its file, against two other readers of it. Without the file the trials are listed as ignored,
//! never passed; `cargo xtask model smollm2` fetches it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use lockstep::contract::{Constants, Dtype, hex};
use lockstep::weights::{Family, Model};
use sha2::{Digest as _, Sha256};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn file() -> PathBuf {
    root().join("target/models/smollm2-135m-instruct.gguf")
}

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let absent = !file().exists();
    if absent && !args.list {
        let file = file();
        eprintln!("ignored: {} is absent; run `cargo xtask model smollm2`", file.display());
    }
    let trials = [
        Trial::test("smollm2::tensors_are_those_of_another_reader", tensors),
        Trial::test("smollm2::ids_are_those_of_llama_cpp", ids),
    ];
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(absent)).collect();
    libtest_mimic::run(&args, trials).exit_code()
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
    let json = std::fs::read(root().join("tests/data/weights/smollm2-tensors.json"))?;
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
    let json = std::fs::read(root().join("tests/data/text/smollm2-ids.json"))?;
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
