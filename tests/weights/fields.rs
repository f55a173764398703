//! A field that changes numbers is honoured or refused, never skipped: each field of both formats, wrong on purpose.

use std::fs;

use lockstep::weights::Model;
use serde_json::{Value as Json, json};

use crate::gguf::Scratch;
use crate::gguf_writer::{File, SIZES, Value, model};
use crate::safetensors;

/// Every key of both formats, as other programs list them.
fn table(format: &str, group: &str) -> Vec<String> {
    let json = include_str!("../data/weights/keys.json");
    let json: Json = serde_json::from_str(json).expect("well formed");
    let list = json[format][group].as_array().expect("a list");
    list.iter().map(|key| key.as_str().expect("text").to_owned()).collect()
}

/// A llama file, one that scales by YaRN, and a qwen3 file.
fn files() -> [(&'static str, File); 3] {
    let mut yarn = model("llama", SIZES);
    yarn.set("llama.rope.scaling.type", Value::Text("yarn"));
    yarn.set("llama.rope.scaling.factor", Value::F32(4.0));
    [("llama", model("llama", SIZES)), ("llama", yarn), ("qwen3", model("qwen3", SIZES))]
}

/// Goal: no number of GGUF metadata is skipped. Method: each key under the architecture's name that anybody lists gets numbers and
/// texts that no file of these families has; the model must be another one, or refused. The exceptions are named here.
#[test]
fn every_wrong_field_of_a_gguf_file_changes_the_model_or_is_refused() {
    let none = [
        "classifier.activation",
        "classifier.output_labels",
        "classifier.pooling_type",
        "dense_2_feat_in",
        "dense_2_feat_out",
        "dense_3_feat_in",
        "dense_3_feat_out",
        "pooling_type",
        "rope.scaling.finetuned",
        "tensor_data_layout",
    ];
    let scratch = Scratch::new();
    let keys = table("gguf", "arch");
    assert!(keys.len() > 150 && none.iter().all(|key| keys.iter().any(|k| k == key)));
    for (arch, file) in files() {
        let whole = scratch.load(&file).expect("a whole file").digest;
        let mut skipped = Vec::new();
        for key in &keys {
            for value in [Value::U32(7), Value::F32(3.5), Value::Text("x")] {
                let mut file = file.clone();
                file.set(&format!("{arch}.{key}"), value);
                if scratch.load(&file).is_ok_and(|model| model.digest == whole) {
                    skipped.push(key.as_str());
                }
            }
        }
        skipped.dedup();
        assert_eq!(skipped, none, "{arch}");
    }
}

/// The same for `config.json`, top level and RoPE parameters.
#[test]
fn every_wrong_field_of_a_configuration_changes_the_model_or_is_refused() {
    let none = [
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "id2label",
        "initializer_range",
        "label2id",
        "max_window_layers",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "pretraining_tp",
        "problem_type",
        "return_dict",
        "transformers_version",
        "use_cache",
    ];
    let yarn = json!({ "rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4 });
    let scales = json!({
        "rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "mscale": 1.0, "mscale_all_dim": 0.5,
    });
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 1e4,
    });
    let wrong = [json!(7), json!(3.5), json!("x"), json!([1, 2])];
    let default = json!({ "rope_type": "default", "rope_theta": 1e4 });
    for parameters in [default, yarn, scales, llama3] {
        for model_type in ["llama", "qwen3"] {
            let mut config = safetensors::config(model_type);
            config["rope_parameters"] = parameters.clone();
            let folder = safetensors::folder(&config, &safetensors::model(model_type == "qwen3"));
            let load = |config: &Json| {
                fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
                Model::load(folder.path(), None)
            };
            let whole = load(&config).expect("a whole folder").digest;
            let mut skipped = Vec::new();
            for key in table("hf", "config") {
                for value in &wrong {
                    let mut config = config.clone();
                    config[&key] = value.clone();
                    if load(&config).is_ok_and(|model| model.digest == whole) {
                        skipped.push(key.clone());
                    }
                }
            }
            skipped.dedup();
            let also: &[&str] = match model_type {
                // A base outside of the parameters gives way to the one inside; an id that nothing asks for is not used; a window
                // of Qwen3 needs its flag.
                "llama" => &["bos_token_id", "rope_theta"],
                _ => &["bos_token_id", "rope_theta", "sliding_window"],
            };
            skipped.retain(|key| !also.contains(&key.as_str()));
            assert_eq!(skipped, none, "{model_type}");
            let mut skipped = Vec::new();
            for key in table("hf", "rope") {
                for value in &wrong {
                    let mut config = config.clone();
                    config["rope_parameters"][&key] = value.clone();
                    if load(&config).is_ok_and(|model| model.digest == whole) {
                        skipped.push((key.clone(), value.clone()));
                    }
                }
            }
            assert_eq!(skipped, [], "{parameters}");
        }
    }
}

/// Goal: a key that nobody here knows is refused where it could change a number. Method: one of each group, in each format.
#[test]
fn unknown_keys_of_rope_attention_and_tokenizer_are_refused_in_one_line() {
    let scratch = Scratch::new();
    let keys = ["llama.rope.twist", "llama.attention.sharpness", "llama.gain", "tokenizer.ggml.x"];
    for key in keys {
        let mut file = model("llama", SIZES);
        file.set(key, Value::F32(1.0));
        let text = scratch.refused(&file);
        assert!(text.contains(&format!("{key:?}, which is not known here")), "{text}");
    }
    // Another program's note.
    let mut file = model("llama", SIZES);
    file.set("mradermacher.quantized_on", Value::Text("x"));
    assert!(scratch.load(&file).is_ok());

    let folder = safetensors::folder(&safetensors::config("llama"), &safetensors::model(false));
    let write = |name: &str, json: Json| {
        fs::write(folder.path().join(name), json.to_string()).expect("written");
    };
    let refused = |says: &str| {
        let text = safetensors::refused(folder.path());
        assert!(text.contains(says) && text.contains("which is not known here"), "{text}");
    };
    for key in ["rope_twist", "attention_sharpness", "attn_gain", "sliding_window_gain"] {
        let mut config = safetensors::config("llama");
        config[key] = json!(1.0);
        write("config.json", config);
        refused(key);
    }
    let mut config = safetensors::config("llama");
    config["rope_scaling"] = json!({ "rope_type": "default", "twist": 2 });
    write("config.json", config);
    refused("twist");
    write("config.json", safetensors::config("llama"));
    write("tokenizer_config.json", json!({ "add_middle_token": true }));
    refused("add_middle_token");
    write("tokenizer_config.json", json!({ "add_eos_token": false, "model_max_length": 64 }));
    write("tokenizer.json", json!({ "model": {}, "twist": 1 }));
    refused("twist");
    write("tokenizer.json", json!({ "model": {} }));
    assert!(Model::load(folder.path(), None).is_ok());
}
