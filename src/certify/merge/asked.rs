//! Which requests ask the same of two servers.
//!
//! Of a body, what can change an answer counts: the prompt, the length, the sampling, and the user's own fields. What does not
//! count is the model's name, by which two addresses may call the same weights, what only says how much of the answer comes back
//! and in how many pieces, and what keeps a prompt out of a cache.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::samples;

/// Fields that don't count.
const LEFT_OUT: [&str; 9] = [
    "model",
    "logprobs",
    "top_logprobs",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "stream",
    "stream_options",
    "cache_salt",
    "cache_prompt",
];
/// Two names of one field.
const LENGTHS: (&str, &str) = ("max_completion_tokens", "max_tokens");

/// sha256 of what a body asks.
pub(crate) fn digest(body: &Value) -> String {
    let fields = body.as_object().into_iter().flatten();
    let counted = fields.filter(|(name, _)| !LEFT_OUT.contains(&name.as_str()));
    let one_name = |name| if name == LENGTHS.0 { LENGTHS.1 } else { name };
    // By name, so that the order in which they were sent is nothing.
    let asked: BTreeMap<&str, &Value> =
        counted.map(|(name, value)| (one_name(name.as_str()), value)).collect();
    samples::sha256(serde_json::to_string(&asked).expect("JSON serialises").as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_name_of_the_model_and_what_comes_back_do_not_count() {
        let bare = json!({"model": "a", "prompt": [1, 2], "max_tokens": 8, "temperature": 0});
        let full = json!({
            "stream_options": {}, "stream": true, "logprobs": 5, "max_completion_tokens": 8, "temperature": 0,
            "prompt": [1, 2], "model": "b", "return_token_ids": true, "cache_prompt": false,
        });
        assert_eq!(digest(&bare), digest(&full));
    }

    #[test]
    fn what_can_change_an_answer_counts() {
        let body = json!({"model": "a", "prompt": [1, 2], "max_tokens": 8, "temperature": 0});
        let others = [
            ("prompt", json!([1, 3])),
            ("max_tokens", json!(9)),
            ("temperature", json!(1)),
            ("ignore_eos", json!(true)),
            ("of_the_user", json!(1)),
        ];
        for (name, value) in others {
            let mut other = body.clone();
            other[name] = value;
            assert_ne!(digest(&body), digest(&other), "{name}");
        }
    }
}
