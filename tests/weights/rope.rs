//! Positions as files state them: which base, which scaling.

use lockstep::contract::rope::{RopeScaling, RopeTable};
use lockstep::reference::exact::{self, Storage};
use serde_json::{Value as Json, json};

use crate::gguf::Scratch;
use crate::gguf_writer::{File, SIZES, Sizes, Value, model};
use crate::safetensors;

/// Base and scaling of a folder whose configuration is changed so.
fn with(changes: Json) -> (f64, RopeScaling) {
    let config = safetensors::load(&changed(changes), &safetensors::model(false)).config;
    (config.rope_base, config.rope_scaling)
}

fn refused(changes: Json) -> String {
    safetensors::refused(safetensors::folder(&changed(changes), &safetensors::model(false)).path())
}

fn changed(changes: Json) -> Json {
    let mut config = safetensors::config("llama");
    for (key, value) in changes.as_object().expect("an object") {
        config[key] = value.clone();
    }
    config
}

#[test]
fn the_inner_rope_base_goes_before_the_outer_one() {
    let inner = json!({ "rope_type": "default", "rope_theta": 5e5 });
    let both = json!({ "rope_theta": 1e4, "rope_parameters": inner });
    assert_eq!(with(both), (5e5, RopeScaling::None));
    let outer = json!({ "rope_theta": 3e4, "rope_parameters": { "rope_type": "default" } });
    assert_eq!(with(outer), (3e4, RopeScaling::None));
    let older = json!({ "rope_scaling": { "type": "linear", "factor": 2, "rope_theta": 9e4 } });
    assert_eq!(with(older), (9e4, RopeScaling::Linear { factor: 2.0 }));
    assert_eq!(with(json!({ "rope_theta": null })), (1e4, RopeScaling::None));
}

#[test]
fn rope_parameters_by_layer_type_are_read_or_refused() {
    let full = json!({ "rope_type": "linear", "factor": 2.0, "rope_theta": 7e4 });
    let one = json!({ "rope_theta": 1e4, "rope_parameters": { "full_attention": full } });
    assert_eq!(with(one), (7e4, RopeScaling::Linear { factor: 2.0 }));
    let sliding = json!({ "rope_type": "default", "rope_theta": 1e4 });
    let two =
        json!({ "rope_parameters": { "full_attention": full, "sliding_attention": sliding } });
    assert!(refused(two).contains("by layer type, \"sliding_attention\""));
    let mixed = json!({ "rope_parameters": { "full_attention": full, "rope_theta": 1e4 } });
    assert!(refused(mixed).contains("full_attention"));
}

#[test]
fn parameters_that_contradict_each_other_or_would_be_ignored_are_refused() {
    let cases = [
        (
            "\"factor\" differs",
            json!({
                "rope_parameters": { "rope_type": "linear", "factor": 2 },
                "rope_scaling": { "rope_type": "linear", "factor": 3 },
            }),
        ),
        ("beside type", json!({ "rope_scaling": { "rope_type": "yarn", "type": "linear" } })),
        ("factor with RoPE scaling \"default\"", json!({ "rope_scaling": { "factor": 2 } })),
        ("is not an object", json!({ "rope_scaling": 3 })),
        ("is not a number", json!({ "rope_theta": "1e4" })),
        (
            "beside 64 outside",
            json!({
                "original_max_position_embeddings": 64,
                "rope_scaling": {
                    "rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 32,
                },
            }),
        ),
        (
            "without the other",
            json!({ "rope_scaling": { "rope_type": "yarn", "factor": 2, "mscale": 1 } }),
        ),
        ("layer_types \"sliding_attention\"", json!({ "layer_types": ["sliding_attention"] })),
        ("sliding_window 4", json!({ "sliding_window": 4 })),
        ("partial_rotary_factor is 0.5", json!({ "partial_rotary_factor": 0.5 })),
    ];
    for (says, changes) in cases {
        let text = refused(changes);
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn a_scaling_factor_without_a_type_is_linear() {
    let scratch = Scratch::new();
    let mut file = model("llama", SIZES);
    file.set("llama.rope.scaling.factor", Value::F32(4.0));
    let linear = RopeScaling::Linear { factor: 4.0 };
    assert_eq!(scratch.load(&file).expect("whole").config.rope_scaling, linear);
    file.set("llama.rope.scaling.type", Value::Text("none"));
    assert!(scratch.refused(&file).contains("RoPE scaling \"none\" by 4"));
    let mut file = model("llama", SIZES);
    file.set("llama.rope.scale_linear", Value::F32(4.0));
    assert_eq!(scratch.load(&file).expect("whole").config.rope_scaling, linear);
    file.set("llama.rope.scaling.type", Value::Text("linear"));
    assert_eq!(scratch.load(&file).expect("whole").config.rope_scaling, linear);
    file.set("llama.rope.scaling.factor", Value::F32(2.0));
    assert!(scratch.refused(&file).contains("beside rope.scale_linear 4"));
}

#[test]
fn a_file_that_is_not_causal_is_refused() {
    let scratch = Scratch::new();
    let mut file = model("llama", SIZES);
    file.set("llama.attention.causal", Value::Bool(true));
    assert!(scratch.load(&file).is_ok());
    file.set("llama.attention.causal", Value::Bool(false));
    assert!(scratch.refused(&file).contains("\"llama.attention.causal\" is false"));
}

/// Goal: YaRN's numbers are those of `transformers`. Method: its function run in f64, as `tests/data/weights/make_yarn.py` says.
#[test]
fn yarn_turns_as_transformers_does() {
    let json = include_str!("../data/weights/yarn.json");
    let json: Json = serde_json::from_str(json).expect("well formed");
    let cases = json["cases"].as_array().expect("a list");
    assert_eq!(cases.len(), 5);
    for case in cases {
        let mut config = safetensors::config("llama");
        config["rope_parameters"] = case["rope"].clone();
        config["max_position_embeddings"] = json!(8);
        let loaded = safetensors::load(&config, &safetensors::model(false)).config;
        let rope = &case["rope"];
        let (factor, original) = (&rope["factor"], &rope["original_max_position_embeddings"]);
        let context = factor.as_f64().expect("a number") * original.as_f64().expect("a number");
        assert_eq!(loaded.context as f64, context);
        let head_dim = case["head_dim"].as_u64().expect("a number") as usize;
        let table = RopeTable::new(head_dim, loaded.rope_base, loaded.rope_scaling, 131_072);
        let attention = case["attention"].as_f64().expect("a number");
        let rotations = case["rotations"].as_array().expect("a list");
        for rotation in rotations {
            let number = |i: usize| rotation[i].as_f64().expect("a number");
            let at = number(0) as usize * (head_dim / 2) + number(1) as usize;
            for (found, wanted) in [(table.cos[at], number(2)), (table.sin[at], number(3))] {
                // One rounding to f32 of values up to the factor, and an angle that f64 holds to 1e-11.
                let off = (f64::from(found) - wanted).abs();
                assert!(off <= 1e-7 * attention, "{rope} {rotation}: {found}");
            }
        }
        assert_eq!(rotations.len(), 3 * head_dim.div_ceil(16));
    }
}

/// Goal: both formats mean the same scaling, llama.cpp's defaults and `transformers`' being equal. Method: Qwen3's as its model card
/// states it, and what only one of the two reads.
#[test]
fn yarn_is_one_scaling_in_both_formats() {
    let scratch = Scratch::new();
    let mut file = model("llama", SIZES);
    file.set("llama.rope.scaling.type", Value::Text("yarn"));
    file.set("llama.rope.scaling.factor", Value::F32(4.0));
    file.set("llama.rope.scaling.original_context_length", Value::U32(32768));
    file.set("llama.context_length", Value::U32(40960));
    let gguf = |file: &File| scratch.load(file).expect("whole").config;
    let mut parameters = json!({
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768,
    });
    let both = gguf(&file);
    assert_eq!(with(json!({ "rope_parameters": parameters })), (both.rope_base, both.rope_scaling));
    assert_eq!(both.context, 131_072);
    let expected = RopeScaling::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_context: 32768.0,
        attention_factor: 1.138_629_436_111_989,
        truncate: true,
    };
    assert_eq!(both.rope_scaling, expected);
    file.set("llama.rope.scaling.yarn_beta_fast", Value::F32(32.0));
    assert_eq!(gguf(&file).rope_scaling, expected);
    // `transformers` has bounds of a file's own. llama.cpp does not read them for these families, so what such a file means is open.
    file.set("llama.rope.scaling.yarn_beta_fast", Value::F32(16.0));
    assert!(scratch.refused(&file).contains("yarn_beta_fast\" is 16"));
    file.set("llama.rope.scaling.yarn_beta_fast", Value::F32(32.0));
    parameters["beta_fast"] = json!(16);
    assert!(with(json!({ "rope_parameters": parameters })).1 != expected);
    // A factor of cos and sin comes on top of YaRN's own.
    file.set("llama.rope.scaling.attn_factor", Value::F32(0.5));
    let RopeScaling::Yarn { attention_factor, .. } = gguf(&file).rope_scaling else {
        panic!("still YaRN");
    };
    assert_eq!(attention_factor, 0.5 * 1.138_629_436_111_989);
    // Where the original context is shorter than every wavelength, the bounds between pairs do not ascend.
    file.set("llama.rope.freq_base", Value::F32(100.0));
    file.set("llama.rope.scaling.original_context_length", Value::U32(2));
    assert!(scratch.refused(&file).contains("RoPE scaling Yarn"));
}

/// Goal: a GGUF file means to us what it means to llama.cpp. Method: models from a formula, written here and by
/// `tests/data/weights/make_rope.py`; the pass in f64 gives the eight best tokens llama.cpp's probabilities, and with plain angles
/// it would not.
#[test]
fn a_statement_about_rope_means_what_it_means_to_llama_cpp() {
    let json = include_str!("../data/weights/rope-llama-cpp.json");
    let json: Json = serde_json::from_str(json).expect("well formed");
    let list = |json: &Json| json.as_array().expect("a list").clone();
    let number = |json: &Json| json.as_f64().expect("a number");
    let prompt: Vec<u32> = list(&json["prompt"]).iter().map(|id| number(id) as u32).collect();
    let sizes = Sizes { hidden: 32, heads: 2, kv_heads: 1, head_dim: 32, ffn: 32, vocab: 32 };
    let scratch = Scratch::new();
    let cases = list(&json["cases"]);
    assert_eq!(cases.len(), 7);
    for case in &cases {
        let arch = if case["arch"] == "qwen3" { "qwen3" } else { "llama" };
        let mut file = model(arch, sizes);
        file.set(&format!("{arch}.context_length"), Value::U32(1024));
        file.set(&format!("{arch}.rope.freq_base"), Value::F32(1e4));
        let worst = |file: &File| {
            let model = scratch.load(file).expect("a whole file");
            let last = exact::pass(&model, &prompt, Storage::Exact).pop().expect("a prompt");
            let sum: f64 = last.logits.iter().map(|x| x.exp()).sum();
            let off = list(&case["best"]).into_iter().map(|best| {
                let found = last.logits[number(&best[0]) as usize] - sum.ln();
                (found - number(&best[1])).abs()
            });
            off.fold(0.0, f64::max)
        };
        let plain = worst(&file);
        let keys = case["keys"].as_object().expect("an object");
        for (key, value) in keys {
            let value = match value {
                Json::String(_) => Value::Text("yarn"),
                Json::Number(n) if n.is_u64() => Value::U32(number(value) as u32),
                _ => Value::F32(number(value) as f32),
            };
            file.set(&format!("{arch}.{key}"), value);
        }
        let off = worst(&file);
        // llama.cpp computes in f32 and gives six decimals.
        assert!(off < 1e-4, "{arch} {keys:?}: {off:e}");
        assert!(keys.is_empty() || plain > 2e-3, "{arch} {keys:?}: plain angles are {plain:e} off");
    }
}
