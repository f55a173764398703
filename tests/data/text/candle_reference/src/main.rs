//! Logits of SmolLM2 from candle, in f32, at every position of the reference sequences.
//!
//! The weights are those of the engine after the rounding to 16 bits, widened to f32; the arithmetic is candle's alone.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama};
use lockstep::contract::rope::RopeScaling;
use lockstep::weights::{Family, Model};
use serde_json::{Value, json};

type Error = Box<dyn std::error::Error>;
/// Name, length of the prompt, ids.
type Case = (Value, usize, Vec<u32>);

/// As in Cargo.toml, and what cargo chose for the matrix products.
const VERSIONS: &str = "candle-core 0.9.2, candle-nn 0.9.2, candle-transformers 0.9.2, gemm 0.19.0";
const COMMAND: &str = "cargo run --manifest-path tests/data/text/candle_reference/Cargo.toml --target-dir target/candle -- \
    target/models/smollm2-135m-instruct.gguf tests/data/text/smollm2-greedy.json DATE";
/// Logits stored at each position.
const IDS: usize = 64;
/// Step between their ids.
const STRIDE: usize = 769;
/// Best ids stored at each position.
const TOP: usize = 8;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().collect();
    let (gguf, greedy, last) = match &args[..] {
        [_, gguf, greedy, date] => (gguf, greedy, Ok(date)),
        [_, gguf, greedy, noise, seed] if noise == "noise" => (gguf, greedy, Err(seed.parse()?)),
        _ => {
            return Err(
                "usage: candle-reference MODEL.gguf smollm2-greedy.json DATE|noise SEED".into()
            );
        }
    };
    let model = Model::load(Path::new(gguf), None)?;
    let (llama, config) = load(&model, None)?;
    let greedy: Value = serde_json::from_slice(&std::fs::read(greedy)?)?;
    let mut cases: Vec<Case> = Vec::new();
    for case in greedy["cases"].as_array().ok_or("no cases")? {
        if !case["weights"].as_str().ok_or("no weights")?.starts_with("dequantised") {
            continue;
        }
        let prompt: Vec<u32> = serde_json::from_value(case["prompt_ids"].clone())?;
        let more: Vec<u32> = serde_json::from_value(case["ids"].clone())?;
        let ids = [&prompt[..], &more[..]].concat();
        cases.push((case["prompt"].clone(), prompt.len(), ids));
    }
    let date = match last {
        Ok(date) => date,
        Err(seed) => return noise(&llama, &load(&model, Some(seed))?.0, &config, &cases),
    };
    // All of them, one after the other: longer than an attention split of the engine.
    let all: Vec<u32> = cases.iter().flat_map(|(_, _, ids)| ids.clone()).collect();
    cases.push((json!("the sequences above, one after the other"), all.len(), all));
    let how = json!({
        "made_by": "tests/data/text/candle_reference",
        "runtime": VERSIONS,
        "program": "candle_transformers::models::llama::Llama on an x86-64 CPU, no flash attention",
        "dtype": "weights rounded to f16 as the engine stores them, then widened to f32; activations and KV cache f32",
    "command": COMMAND,
        "sequences": "prompt_ids and ids of the dequantised cases of smollm2-greedy.json; and all of these one after the other; fed token by token through candle's KV cache",
        "logits": format!("at ids (i * {STRIDE}) mod {}, i = 0..{IDS}", config.vocab_size),
        "top": format!("the {TOP} largest logits with their ids, largest first"),
        "model": greedy["how"]["model"],
        "model_sha256": greedy["how"]["model_sha256"],
        "date": date,
    });
    println!("{{\n \"how\": {how},\n \"cases\": [");
    for (n, (prompt, prompt_len, ids)) in cases.iter().enumerate() {
        let rows = rows(&llama, &config, ids)?;
        // The same sequence in one pass: what candle itself loses to another order of its sums.
        let input = Tensor::new(&ids[..], &Device::Cpu)?.unsqueeze(0)?;
        let mut cache = Cache::new(false, DType::F32, &config, &Device::Cpu)?;
        let whole: Vec<f32> = llama.forward(&input, 0, &mut cache)?.squeeze(0)?.to_vec1()?;
        let last = rows.last().ok_or("no tokens")?;
        let apart = whole.iter().zip(last).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        eprintln!(
            "{prompt}: {} positions, token by token and in one pass {apart:e} apart",
            ids.len()
        );

        println!(
            "  {{\"prompt\": {prompt}, \"prompt_tokens\": {prompt_len}, \"ids\": {},\n   \"positions\": [",
            json!(ids)
        );
        for (position, row) in rows.iter().enumerate() {
            let mut order: Vec<usize> = (0..row.len()).collect();
            order.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
            let top: Vec<Value> =
                order[..TOP].iter().map(|&id| json!([id, number(row[id])])).collect();
            let logits: Vec<Value> =
                (0..IDS).map(|i| number(row[i * STRIDE % row.len()])).collect();
            let end = if position + 1 < rows.len() { "," } else { "" };
            println!("    {}{end}", json!({"argmax": order[0], "top": top, "logits": logits}));
        }
        println!("   ]}}{}", if n + 1 < cases.len() { "," } else { "" });
    }
    println!(" ]\n}}");
    Ok(())
}

/// Prints how far logits move when every weight is changed by a random factor within 1 +- 2^-11.
fn noise(llama: &Llama, other: &Llama, config: &Config, cases: &[Case]) -> Result<(), Error> {
    for (prompt, _, ids) in cases {
        let (rows, others) = (rows(llama, config, ids)?, rows(other, config, ids)?);
        let mut moved = Vec::new();
        for (position, (row, other)) in rows.iter().zip(&others).enumerate() {
            let squares = row.iter().zip(other).map(|(a, b)| f64::from(a - b).powi(2));
            moved.push(((squares.sum::<f64>() / row.len() as f64).sqrt(), position));
        }
        moved.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all = moved.iter().map(|m| m.0 * m.0).sum::<f64>() / moved.len() as f64;
        let (least, median) = (moved[0].0, moved[moved.len() / 2].0);
        println!(
            "{prompt}: root mean square {:.4}; of a position: least {least:.4}, median {median:.4}, largest (position) {:.4?}",
            all.sqrt(),
            &moved[moved.len() - 3..]
        );
    }
    Ok(())
}

/// The shortest decimal that reads back as this f32.
fn number(x: f32) -> Value {
    serde_json::from_str(&x.to_string()).expect("a finite f32 is a JSON number")
}

/// Logits at each position, one token at a time through candle's KV cache.
fn rows(llama: &Llama, config: &Config, ids: &[u32]) -> Result<Vec<Vec<f32>>, Error> {
    let mut cache = Cache::new(true, DType::F32, config, &Device::Cpu)?;
    let mut rows = Vec::new();
    for (position, &id) in ids.iter().enumerate() {
        let input = Tensor::new(&[id][..], &Device::Cpu)?.unsqueeze(0)?;
        rows.push(llama.forward(&input, position, &mut cache)?.squeeze(0)?.to_vec1()?);
    }
    Ok(rows)
}

/// 1, or with a seed the next factor within 1 +- 2^-11 of a linear congruential generator.
fn factor(seed: &mut Option<u64>) -> f32 {
    let Some(seed) = seed else { return 1.0 };
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    1.0 + ((*seed >> 40) as f32 / (1 << 23) as f32 - 1.0) / 2048.0
}

/// candle's Llama with the tensors of `model`, widened, and changed a little if a seed is given.
fn load(model: &Model, mut seed: Option<u64>) -> Result<(Llama, Config), Error> {
    let c = &model.config;
    if c.family != Family::Llama
        || c.rope_scaling != RopeScaling::None
        || c.hidden != c.heads * c.head_dim
    {
        return Err(format!("not a Llama that this program describes: {c:?}").into());
    }
    let mut tensors = HashMap::new();
    let mut add = |name: String, shape: &[usize], data: &[u16]| -> Result<(), Error> {
        let wide = data
            .iter()
            .map(|&bits| model.dtype.widen(bits) * factor(&mut seed))
            .collect::<Vec<_>>();
        tensors.insert(name, Tensor::from_vec(wide, shape, &Device::Cpu)?);
        Ok(())
    };
    let (q, kv, ffn) = (c.heads * c.head_dim, c.kv_heads * c.head_dim, c.ffn);
    add("model.embed_tokens.weight".into(), &[c.vocab, c.hidden], &model.embedding.data)?;
    add("model.norm.weight".into(), &[c.hidden], &model.final_norm)?;
    if let Some(head) = &model.head {
        add("lm_head.weight".into(), &[c.vocab, c.hidden], &head.data)?;
    }
    for (l, layer) in model.layers.iter().enumerate() {
        let mut add = |name: &str, shape: &[usize], data: &[u16]| {
            add(format!("model.layers.{l}.{name}.weight"), shape, data)
        };
        let (qkv, gate_up) = (&layer.qkv.data, &layer.gate_up.data);
        add("input_layernorm", &[c.hidden], &layer.attention_norm)?;
        add("self_attn.q_proj", &[q, c.hidden], &qkv[..q * c.hidden])?;
        add("self_attn.k_proj", &[kv, c.hidden], &qkv[q * c.hidden..(q + kv) * c.hidden])?;
        add("self_attn.v_proj", &[kv, c.hidden], &qkv[(q + kv) * c.hidden..])?;
        add("self_attn.o_proj", &[c.hidden, q], &layer.o.data)?;
        add("post_attention_layernorm", &[c.hidden], &layer.ffn_norm)?;
        add("mlp.gate_proj", &[ffn, c.hidden], &gate_up[..ffn * c.hidden])?;
        add("mlp.up_proj", &[ffn, c.hidden], &gate_up[ffn * c.hidden..])?;
        add("mlp.down_proj", &[c.hidden, ffn], &layer.down.data)?;
    }
    let config = Config {
        hidden_size: c.hidden,
        intermediate_size: c.ffn,
        vocab_size: c.vocab,
        num_hidden_layers: c.layers,
        num_attention_heads: c.heads,
        num_key_value_heads: c.kv_heads,
        use_flash_attn: false,
        rms_norm_eps: f64::from(c.norm_eps),
        rope_theta: c.rope_base as f32,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: c.context,
        tie_word_embeddings: model.head.is_none(),
    };
    let weights = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
    Ok((Llama::load(weights, &config)?, config))
}
