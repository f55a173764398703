//! The id before a text: that of `generate` is that of `serve`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};

use crate::{lockstep, text};

const VOCAB: usize = 8;
const HIDDEN: usize = 32;

/// A model of one layer, and a tokenizer that puts id 3 before a text.
fn write_model(folder: &Path) {
    let config = json!({
        "model_type": "llama", "num_hidden_layers": 1, "hidden_size": HIDDEN,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "intermediate_size": HIDDEN, "vocab_size": VOCAB, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "bos_token_id": 3, "torch_dtype": "bfloat16",
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let special = json!({
        "id": 3, "content": "<s>", "special": true, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false,
    });
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
    });
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [special], "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                { "SpecialToken": { "id": "<s>", "type_id": 0 } },
                { "Sequence": { "id": "A", "type_id": 0 } },
            ],
            "pair": [],
            "special_tokens": { "<s>": { "id": "<s>", "ids": [3], "tokens": ["<s>"] } },
        },
        "model": {
            "type": "BPE", "merges": [],
            "vocab": { "a": 0, "b": 1, "c": 2, "<s>": 3, "d": 4, "e": 5, "f": 6, "g": 7 },
        },
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let shapes = [
        ("model.embed_tokens.weight".to_owned(), vec![VOCAB, HIDDEN]),
        ("lm_head.weight".to_owned(), vec![VOCAB, HIDDEN]),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
        (layer("input_layernorm"), vec![HIDDEN]),
        (layer("post_attention_layernorm"), vec![HIDDEN]),
        (layer("self_attn.q_proj"), vec![32, HIDDEN]),
        (layer("self_attn.k_proj"), vec![16, HIDDEN]),
        (layer("self_attn.v_proj"), vec![16, HIDDEN]),
        (layer("self_attn.o_proj"), vec![HIDDEN, 32]),
        (layer("mlp.gate_proj"), vec![HIDDEN, HIDDEN]),
        (layer("mlp.up_proj"), vec![HIDDEN, HIDDEN]),
        (layer("mlp.down_proj"), vec![HIDDEN, HIDDEN]),
    ];
    let mut state = 1_u32;
    let data: BTreeMap<String, (Vec<usize>, Vec<u8>)> = shapes
        .into_iter()
        .map(|(name, shape)| {
            let bytes = (0..shape.iter().product()).flat_map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let value = (state >> 16) as f32 / 32768.0 - 1.0;
                half::bf16::from_f32(value).to_le_bytes()
            });
            let bytes = bytes.collect();
            (name, (shape, bytes))
        })
        .collect();
    let views: BTreeMap<&String, TensorView<'_>> = data
        .iter()
        .map(|(name, (shape, bytes))| {
            (name, TensorView::new(Dtype::BF16, shape.clone(), bytes).unwrap())
        })
        .collect();
    fs::write(folder.join("model.safetensors"), serialize(views, None).unwrap()).unwrap();
}

/// `lockstep serve`, ended with the test.
struct Serving {
    child: Child,
    address: String,
    stderr: BufReader<ChildStderr>,
}

impl Serving {
    fn start(folder: &Path) -> Serving {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lockstep"))
            .args(["serve", "--model", "m", "--port", "0"])
            .current_dir(folder)
            .env_remove("LOCKSTEP_DEVICE")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        stderr.read_line(&mut line).expect("a line");
        let address = line.trim_end().split("http://").nth(1).unwrap_or_else(|| panic!("{line}"));
        let address = address.trim_end_matches("/v1").to_owned();
        Serving { child, address, stderr }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).expect("the server accepts");
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("the server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {answer}"))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// Goal: a text means the same ids to `generate` as to `serve`. Method: a template with an id before a text; what the server tokenizes
/// has it, and `generate` continues the text as it continues those ids, and not as without it.
#[test]
fn generate_puts_the_id_before_a_text_that_the_server_puts_there() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m");
    fs::create_dir(&model).unwrap();
    write_model(&model);
    let generated = |prompt: &str| {
        let arguments = ["generate", "--model", "m", "--ids", "--max-tokens", "12", prompt];
        let output = lockstep(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let ids: Vec<u32> =
            text(&output.stdout).split_whitespace().map(|id| id.parse().expect("an id")).collect();
        assert_eq!(ids.len(), 12);
        ids
    };
    let serving = Serving::start(folder.path());
    let tokens = serving.post("/tokenize", &json!({ "prompt": "abca" }));
    assert_eq!(tokens["tokens"], json!([3, 0, 1, 2, 0]));
    let served = |prompt: Value| {
        let body = json!({
            "model": "m", "prompt": prompt, "max_tokens": 12, "temperature": 0,
            "return_token_ids": true, "ignore_eos": true,
        });
        serving.post("/v1/completions", &body)["choices"][0]["text"].clone()
    };
    let ours = generated("abca");
    let spelt = |ids: &[u32]| -> String {
        let names = ["a", "b", "c", "<s>", "d", "e", "f", "g"];
        ids.iter().map(|id| names[*id as usize]).collect()
    };
    assert_eq!(served(json!("abca")), json!(spelt(&ours)));
    assert_eq!(served(json!([3, 0, 1, 2, 0])), json!(spelt(&ours)));

    // Without the template the same id can be written out, and is missed where it is not.
    fs::write(model.join("tokenizer_config.json"), r#"{ "add_bos_token": false }"#).unwrap();
    assert_eq!(generated("<s>abca"), ours);
    assert!(generated("abca") != ours, "the id before the text changes nothing");
}

/// A tokenizer that is not read is named when the server starts; where texts are asked for, and where a key of its files is not known,
/// it is the one line of bad input.
#[test]
fn a_tokenizer_that_is_not_read_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m");
    fs::create_dir(&model).unwrap();
    write_model(&model);
    fs::write(model.join("tokenizer.json"), "{}").unwrap();
    let mut serving = Serving::start(folder.path());
    let mut line = String::new();
    serving.stderr.read_line(&mut line).expect("a line");
    let says = "lockstep: texts and stop strings are refused, send token ids: m/tokenizer.json: ";
    assert!(line.starts_with(says), "{line}");
    let refused = |arguments: &[&str], says: &str| {
        let output = lockstep(folder.path(), arguments);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.lines().count() == 1 && err.contains(says), "{err}");
    };
    refused(&["generate", "--model", "m", "a"], "tokenizer.json");
    refused(&["fuzz", "--model", "m", "--cases", "1"], "tokenizer.json");
    fs::write(model.join("tokenizer.json"), r#"{ "twist": 1 }"#).unwrap();
    refused(&["serve", "--model", "m", "--port", "0"], "\"twist\"");
}
