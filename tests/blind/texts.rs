//! Ids that are wrong in every execution alike: reference ids of another tokenizer see them.
#![cfg(feature = "cli")]

use std::path::Path;

use lockstep::text::Tokenizer;

/// Texts whose ids are not those that llama.cpp made of them (tests/data/text/make_references.py).
fn wrong(encode: impl Fn(&str) -> Vec<u32>) -> (usize, usize) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/text");
    let json = std::fs::read(data.join("smollm2-ids.json")).expect("committed");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("well formed");
    let cases = json["cases"].as_array().expect("a list");
    let differs = |case: &&serde_json::Value| {
        let ids = case["ids"].as_array().expect("ids").iter().map(|id| id.as_u64().unwrap() as u32);
        encode(case["text"].as_str().expect("a text")) != ids.collect::<Vec<_>>()
    };
    (cases.iter().filter(differs).count(), cases.len())
}

#[test]
fn a_token_before_each_prompt_and_a_template_around_it_are_seen_by_reference_ids() {
    let file = "tests/data/text/smollm2-tokenizer.gguf";
    let tokenizer = Tokenizer::from_gguf(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    let tokenizer = tokenizer.expect("the committed metadata is whole");
    let encode = |text: &str| tokenizer.encode(text).expect("encodes");
    let (differ, all) = wrong(encode);
    assert!(differ == 0 && all >= 20, "{differ} of {all}");
    assert_eq!(wrong(|text| [vec![1], encode(text)].concat()), (all, all));
    assert_eq!(wrong(|text| encode(&format!("<|im_start|>user\n{text}<|im_end|>\n"))), (all, all));
}
