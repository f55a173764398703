//! Folders with `config.json` and safetensors.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use half::bf16;
use lockstep::contract::rope::RopeScaling;
use lockstep::contract::{Constants, Dtype};
use lockstep::weights::{Family, Model};
use safetensors::tensor::{Dtype as Stored, TensorView, serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gguf_writer::{SIZES, tensors, value};
use crate::in_place::InPlace;

/// Published names of the test model's tensors, in the order of `gguf_writer::tensors`.
const NAMES: [&str; 14] = [
    "model.embed_tokens.weight",
    "model.norm.weight",
    "lm_head.weight",
    "model.layers.0.input_layernorm.weight",
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.0.self_attn.k_proj.weight",
    "model.layers.0.self_attn.v_proj.weight",
    "model.layers.0.self_attn.o_proj.weight",
    "model.layers.0.post_attention_layernorm.weight",
    "model.layers.0.mlp.gate_proj.weight",
    "model.layers.0.mlp.up_proj.weight",
    "model.layers.0.mlp.down_proj.weight",
    "model.layers.0.self_attn.q_norm.weight",
    "model.layers.0.self_attn.k_norm.weight",
];

pub(crate) type Tensors = BTreeMap<String, (Stored, Vec<usize>, Vec<u8>)>;

fn bf16_bytes(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(|v| bf16::from_f32(v).to_le_bytes()).collect()
}

pub(crate) fn model(qwen3: bool) -> Tensors {
    let list = tensors(SIZES, qwen3).into_iter().enumerate().zip(NAMES);
    list.map(|((t, (_, shape)), name)| {
        let bytes = bf16_bytes((0..shape.iter().product()).map(|e| value(t, e)));
        (name.to_owned(), (Stored::BF16, shape, bytes))
    })
    .collect()
}

pub(crate) fn config(model_type: &str) -> Value {
    json!({
        "model_type": model_type, "num_hidden_layers": 1, "hidden_size": 16,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "intermediate_size": 24, "vocab_size": 5, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": null, "hidden_act": "silu",
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "eos_token_id": 2,
        "bos_token_id": 1, "attention_bias": false, "architectures": ["Any"],
    })
}

pub(crate) fn write_shard(path: &Path, tensors: &Tensors) {
    let views: BTreeMap<&String, TensorView<'_>> = tensors
        .iter()
        .map(|(n, (d, s, b))| (n, TensorView::new(*d, s.clone(), b).expect("well formed")))
        .collect();
    fs::write(path, serialize(views, None).expect("serialises")).expect("written");
}

pub(crate) fn folder(config: &Value, tensors: &Tensors) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
    write_shard(&folder.path().join("model.safetensors"), tensors);
    folder
}

pub(crate) fn load(config: &Value, tensors: &Tensors) -> Model {
    Model::load(folder(config, tensors).path(), None).expect("a whole folder")
}

/// The message about a folder that must be refused.
pub(crate) fn refused(folder: &Path) -> String {
    let text = Model::load(folder, None).expect_err("must be refused").to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

#[test]
fn a_single_file_gives_its_tensors_in_their_order() {
    for (model_type, family) in [("llama", Family::Llama), ("qwen3", Family::Qwen3)] {
        let qwen3 = family == Family::Qwen3;
        let model = load(&config(model_type), &model(qwen3));
        let bits = |t: usize, n: usize| (0..n).map(move |e| Dtype::Bf16.round(value(t, e)));
        assert_eq!((model.config.family, model.dtype), (family, Dtype::Bf16));
        assert_eq!((model.config.constants, model.config.block_size), (Constants::SMALL, 16));
        assert_eq!((&model.config.eos[..], model.config.bos), (&[2][..], None));
        assert!(model.embedding.data.iter().copied().eq(bits(0, 80)));
        assert!(model.head.expect("untied").data.iter().copied().eq(bits(2, 80)));
        let layer = &model.layers[0];
        let qkv = bits(4, 512).chain(bits(5, 256)).chain(bits(6, 256));
        assert!(layer.qkv.data.iter().copied().eq(qkv));
        assert!(layer.gate_up.data.iter().copied().eq(bits(9, 384).chain(bits(10, 384))));
        assert_eq!(layer.q_norm, qwen3.then(|| bits(12, 16).collect()));
        assert_eq!(layer.k_norm, qwen3.then(|| bits(13, 16).collect()));
    }
}

#[test]
fn shards_read_like_one_file() {
    let (config, tensors) = (config("qwen3"), model(true));
    let whole = load(&config, &tensors);
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
    let mut map = BTreeMap::new();
    let mut shards = [Tensors::new(), Tensors::new(), Tensors::new()];
    for (i, (name, tensor)) in tensors.into_iter().enumerate() {
        map.insert(name.clone(), format!("part-{}.safetensors", i % 3));
        shards[i % 3].insert(name, tensor);
    }
    for (i, shard) in shards.iter().enumerate() {
        write_shard(&folder.path().join(format!("part-{i}.safetensors")), shard);
    }
    let index = folder.path().join("model.safetensors.index.json");
    fs::write(&index, json!({ "metadata": {}, "weight_map": map }).to_string()).expect("written");
    assert_eq!(Model::load(folder.path(), None).expect("whole").digest, whole.digest);

    // A stale copy in another shard changes nothing: the index says which one counts.
    let mut twice = shards[0].clone();
    let (name, (kind, shape, bytes)) = shards[1].first_key_value().expect("not empty");
    twice.insert(name.clone(), (*kind, shape.clone(), vec![0x3f; bytes.len()]));
    write_shard(&folder.path().join("part-0.safetensors"), &twice);
    assert_eq!(Model::load(folder.path(), None).expect("whole").digest, whole.digest);

    // A shard without a tensor that it should have, one that is absent, one outside the folder.
    let mut less = shards[0].clone();
    let (name, _) = less.pop_first().expect("not empty");
    write_shard(&folder.path().join("part-0.safetensors"), &less);
    let says = format!("{name:?}: missing in \"part-0.safetensors\", where the index has it");
    assert!(refused(folder.path()).contains(&says));
    write_shard(&folder.path().join("part-0.safetensors"), &shards[0]);
    fs::remove_file(folder.path().join("part-2.safetensors")).expect("removed");
    assert!(refused(folder.path()).contains("part-2.safetensors: No such file"));
    let outside = json!({ "weight_map": { "x": "../part-0.safetensors" } });
    fs::write(&index, outside.to_string()).expect("written");
    assert!(refused(folder.path()).contains("shard name"));
    fs::write(&index, json!({ "weight_map": {} }).to_string()).expect("written");
    assert!(refused(folder.path()).contains("0 shards"));
}

#[test]
fn stored_types_are_widened_exactly_and_rounded_once() {
    let mut config = config("qwen3");
    let mut tensors = model(true);
    let values: Vec<f32> = (0..16).map(|i| 1.0 + i as f32 / 512.0).collect();
    let f32s = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    tensors.insert(NAMES[1].to_owned(), (Stored::F32, vec![16], f32s));
    let f16s = values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect();
    tensors.insert(NAMES[3].to_owned(), (Stored::F16, vec![16], f16s));
    for (name, dtype) in
        [("float16", Dtype::F16), ("bfloat16", Dtype::Bf16), ("float32", Dtype::Bf16)]
    {
        config["torch_dtype"] = json!(name);
        let model = load(&config, &tensors);
        let expected: Vec<u16> = values.iter().map(|&v| dtype.round(v)).collect();
        assert_eq!((model.dtype, &model.final_norm), (dtype, &expected));
        assert_eq!(model.layers[0].attention_norm, expected);
    }
    let folder = folder(&config, &tensors);
    let model = Model::load(folder.path(), Some(Dtype::F16)).expect("whole");
    assert_eq!(model.dtype, Dtype::F16);
}

#[test]
fn tied_models_ignore_a_head_and_untied_ones_need_it() {
    let (mut config, mut tensors) = (config("llama"), model(false));
    config["tie_word_embeddings"] = json!(true);
    assert_eq!(load(&config, &tensors).head, None);
    tensors.remove("lm_head.weight");
    assert_eq!(load(&config, &tensors).head, None);
    config["tie_word_embeddings"] = json!(false);
    assert!(refused(folder(&config, &tensors).path()).contains("\"lm_head.weight\": missing"));
}

#[test]
fn scalings_and_ids_are_read_in_all_their_spellings() {
    let with = |changes: &[(&str, Value)]| {
        let mut config = config("llama");
        for (key, value) in changes {
            config[*key] = value.clone();
        }
        load(&config, &model(false)).config
    };
    let scaling = |v: Value| with(&[("rope_scaling", v)]).rope_scaling;
    let linear = RopeScaling::Linear { factor: 2.0 };
    assert_eq!(scaling(json!({ "type": "linear", "factor": 2.0 })), linear);
    assert_eq!(scaling(json!({ "rope_type": "linear", "factor": 2.0 })), linear);
    assert_eq!(scaling(json!({ "rope_type": "default" })), RopeScaling::None);
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    });
    let expected = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192.0,
    };
    assert_eq!(scaling(llama3), expected);
    let parameters = json!({ "rope_type": "default", "rope_theta": 7e4 });
    let newer = with(&[("rope_theta", Value::Null), ("rope_parameters", parameters)]);
    assert_eq!((newer.rope_base, newer.rope_scaling), (7e4, RopeScaling::None));
    assert_eq!(with(&[("eos_token_id", json!([4, 2, 4]))]).eos, [2, 4]);
    assert_eq!(with(&[("eos_token_id", Value::Null)]).eos, [0u32; 0]);
}

/// Goal: whether a prompt begins with an id is the tokenizer's word. Method: each place it can stand in.
#[test]
fn the_first_id_and_further_last_ids_come_from_the_companions() {
    let folder = folder(&config("llama"), &model(false));
    let write = |name: &str, v: Value| {
        fs::write(folder.path().join(name), v.to_string()).expect("written");
    };
    let load = || Model::load(folder.path(), None).expect("whole").config;
    write("generation_config.json", json!({ "eos_token_id": [2, 3] }));
    assert_eq!((load().eos, load().bos), (vec![2, 3], None));
    let template =
        json!({ "type": "TemplateProcessing", "single": [{ "SpecialToken": { "id": "x" } }] });
    let sequence = json!({ "type": "Sequence", "processors": [{ "type": "ByteLevel" }, template] });
    write("tokenizer.json", json!({ "model": {}, "post_processor": sequence }));
    assert_eq!(load().bos, Some(1));
    write("tokenizer_config.json", json!({ "add_bos_token": false }));
    assert_eq!(load().bos, None);
    write("tokenizer_config.json", json!({ "add_bos_token": true }));
    assert_eq!(load().bos, Some(1));
}

/// Goal: the id before a text is the template's, and a template that adds more is refused. Method: templates and flags.
#[test]
fn what_a_tokenizer_adds_to_a_text_is_one_id_before_it_or_refused() {
    let folder = folder(&config("llama"), &model(false));
    let write = |name: &str, v: Value| {
        fs::write(folder.path().join(name), v.to_string()).expect("written");
    };
    let bos = || Model::load(folder.path(), None).expect("whole").config.bos;
    let special = |name: &str| json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
    let ids = json!({ "<s>": { "id": "<s>", "ids": [3], "tokens": ["<s>"] } });
    let processor = |single: Value| {
        write(
            "tokenizer.json",
            json!({ "post_processor": {
                "type": "TemplateProcessing", "single": single, "special_tokens": ids,
            } }),
        );
    };
    processor(json!([special("<s>"), text]));
    assert_eq!(bos(), Some(3));
    processor(json!([text]));
    assert_eq!(bos(), None);
    for single in [json!([text, special("</s>")]), json!([special("<s>"), special("<s>"), text])] {
        processor(single);
        assert!(refused(folder.path()).contains("inside or behind a text"));
    }
    write("tokenizer.json", json!({ "post_processor": { "type": "BertProcessing" } }));
    assert!(refused(folder.path()).contains("post-processor \"BertProcessing\""));
    write("tokenizer.json", json!({ "post_processor": null }));
    write("tokenizer_config.json", json!({ "add_eos_token": true }));
    assert!(refused(folder.path()).contains("add_eos_token is true"));
    write("tokenizer_config.json", json!({ "add_prefix_space": true }));
    assert!(refused(folder.path()).contains("add_prefix_space true"));
    let metaspace = json!({ "type": "Metaspace", "prepend_scheme": "first" });
    write("tokenizer.json", json!({ "pre_tokenizer": metaspace }));
    assert_eq!(bos(), None);
    // Asked for, and nothing says which.
    let mut none = config("llama");
    none["bos_token_id"] = Value::Null;
    write("config.json", none);
    write("tokenizer_config.json", json!({ "add_bos_token": true }));
    assert!(refused(folder.path()).contains("a token of no id"));
}

#[test]
fn pointers_of_git_lfs_are_named_as_such() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    let folder = folder(&config("llama"), &model(false));
    for name in ["model.safetensors", "tokenizer.json", "config.json"] {
        fs::write(folder.path().join(name), pointer).expect("written");
        let text = refused(folder.path());
        assert!(text.contains("a Git-LFS pointer") && text.contains(name), "{text}");
    }
}

#[test]
fn configurations_that_cannot_be_right_are_refused() {
    let changes = [
        ("heads 0", "num_attention_heads", json!(0)),
        ("2 heads over 3", "num_key_value_heads", json!(3)),
        ("3 heads over 2", "num_attention_heads", json!(3)),
        ("head size 8", "head_dim", json!(8)),
        ("layers 1000000", "num_hidden_layers", json!(1_000_000)),
        ("layers 0", "num_hidden_layers", json!(0)),
        ("vocabulary 0", "vocab_size", json!(0)),
        ("hidden width 18446744073709551615", "hidden_size", json!(u64::MAX)),
        ("head size 18446744073709551615", "head_dim", json!(u64::MAX)),
        ("invalid value", "vocab_size", json!(-1)),
        ("norm epsilon", "rms_norm_eps", json!(-1.0)),
        ("RoPE base", "rope_theta", json!(0.0)),
        ("id 9 in a vocabulary of 5", "eos_token_id", json!(9)),
        ("token id", "eos_token_id", json!("</s>")),
        ("RoPE scaling \"longrope\"", "rope_scaling", json!({ "rope_type": "longrope" })),
        ("without factor", "rope_scaling", json!({ "rope_type": "linear" })),
        ("RoPE scaling Linear", "rope_scaling", json!({ "rope_type": "linear", "factor": 0.0 })),
        ("model type \"gpt2\"", "model_type", json!("gpt2")),
        ("attention_bias", "attention_bias", json!(true)),
        ("hidden_act \"gelu\"", "hidden_act", json!("gelu")),
        ("use_sliding_window", "use_sliding_window", json!(true)),
        ("quantization_config", "quantization_config", json!({ "bits": 4 })),
        ("dtype \"float8\"", "torch_dtype", json!("float8")),
        ("shape", "intermediate_size", json!(32)),
    ];
    let folder = folder(&config("llama"), &model(false));
    for (says, key, value) in changes {
        let mut config = config("llama");
        config["num_key_value_heads"] = json!(2);
        config[key] = value;
        fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
        let text = refused(folder.path());
        assert!(text.contains(says), "{says}: {text}");
    }
    for text in ["", "{", "[]", "{}", "null"] {
        fs::write(folder.path().join("config.json"), text).expect("written");
        assert!(refused(folder.path()).contains("config.json: damaged"));
    }
    fs::remove_file(folder.path().join("config.json")).expect("removed");
    assert!(refused(folder.path()).contains("config.json: No such file"));
}

#[test]
fn tensors_that_cannot_be_right_are_refused_by_name() {
    let changed = |name: &str, tensor: Option<(Stored, Vec<usize>, Vec<u8>)>| {
        let mut tensors = model(false);
        match tensor {
            Some(tensor) => drop(tensors.insert(name.to_owned(), tensor)),
            None => drop(tensors.remove(name)),
        }
        let text = refused(folder(&config("llama"), &tensors).path());
        assert!(text.contains(&format!("{name:?}")), "{text}");
        text
    };
    let nan = bf16_bytes([1.0, f32::NAN].into_iter().cycle().take(16));
    assert!(changed(NAMES[1], None).contains("missing"));
    assert!(changed(NAMES[1], Some((Stored::BF16, vec![8], vec![0; 16]))).contains("shape [8]"));
    assert!(changed(NAMES[1], Some((Stored::I16, vec![16], vec![0; 32]))).contains("dtype I16"));
    assert!(changed(NAMES[1], Some((Stored::BF16, vec![16], nan))).contains("element 1 is not"));
    let bias = Some((Stored::BF16, vec![32], vec![0; 64]));
    assert!(changed("model.layers.0.self_attn.q_proj.bias", bias).contains("is not part of"));
}

/// Goal: no damaged file makes the loader panic. Method: every truncation, every byte of the header changed.
#[test]
fn truncated_and_changed_files_never_panic() {
    let folder = folder(&config("llama"), &model(false));
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).expect("read");
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let mut noticed = 0;
    let file = InPlace::open(&path);
    for (at, &byte) in bytes[..header].iter().enumerate() {
        for change in [0x01, 0x80, 0xff] {
            file.put(at, byte ^ change);
            noticed += usize::from(Model::load(folder.path(), None).is_err());
        }
        file.put(at, byte);
    }
    assert!(noticed > header * 2, "{noticed} of {}", 3 * header);
    assert!(Model::load(folder.path(), None).is_ok());
    for length in (0..bytes.len()).rev() {
        file.cut(length);
        // Noticed from the sizes, not by running into the end.
        assert!(!refused(folder.path()).contains("failed to fill"), "{length}");
    }
}
