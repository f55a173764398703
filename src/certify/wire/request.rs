//! Requests: what is asked, and how a given server wants to be asked.

use serde_json::{Map, Value, json};

/// Text or token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

/// How the tokens of an answer are picked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sampling {
    Greedy,
    /// At temperature 1.
    Seeded(u64),
    /// Greedy in effect, at another temperature: for seeing what is done to log-probabilities.
    Hot,
}

/// Which endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Completions,
    Chat,
}

impl Route {
    /// Path below the address.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Route::Completions => "completions",
            Route::Chat => "chat/completions",
        }
    }
}

/// How a request is kept from finding its prompt in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cold {
    /// The server caches nothing that it counts.
    Always,
    /// A field `cache_salt`, as in vLLM.
    Salt,
    /// A field `cache_prompt`, as in llama.cpp.
    Refuse,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) prompt: Prompt,
    pub(crate) answer_tokens: u32,
    pub(crate) sampling: Sampling,
    pub(crate) stream: bool,
    pub(crate) echo: bool,
    /// A salt that no other request has: nothing of the prompt may come from a cache.
    pub(crate) cold: Option<u64>,
}

impl Call {
    /// Greedy, plain, with whatever is cached.
    pub(crate) fn greedy(prompt: Prompt, answer_tokens: u32) -> Call {
        let sampling = Sampling::Greedy;
        Call { prompt, answer_tokens, sampling, stream: false, echo: false, cold: None }
    }
}

/// How a server wants to be asked, as the probe found out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dialect {
    pub(crate) model: String,
    pub(crate) route: Route,
    /// Alternatives to ask for; `None` without log-probabilities.
    pub(crate) logprobs: Option<u32>,
    /// Fields that switch off samplers beyond OpenAI's.
    pub(crate) extra_sampling: bool,
    /// Fields that keep an answer from ending early.
    pub(crate) fixed_length: bool,
    /// Fields that ask for token ids in the answer.
    pub(crate) return_ids: bool,
    pub(crate) cold: Option<Cold>,
}

impl Dialect {
    /// Nothing beyond OpenAI's fields.
    pub(crate) fn plain(model: &str) -> Dialect {
        Dialect {
            model: model.into(),
            route: Route::Completions,
            logprobs: None,
            extra_sampling: false,
            fixed_length: false,
            return_ids: false,
            cold: None,
        }
    }

    /// The body. Every parameter that changes an answer is sent, so that no default of the server's does.
    pub(crate) fn body(&self, call: &Call) -> Value {
        let mut body = Map::new();
        let mut set = |key: &str, value: Value| {
            body.insert(key.into(), value);
        };
        set("model", json!(self.model));
        match (self.route, &call.prompt) {
            (Route::Completions, Prompt::Text(text)) => set("prompt", json!(text)),
            (Route::Completions, Prompt::Ids(ids)) => set("prompt", json!(ids)),
            (Route::Chat, prompt) => {
                let Prompt::Text(text) = prompt else { unreachable!("the chat route takes text") };
                set("messages", json!([{ "role": "user", "content": text }]));
            }
        }
        set("max_tokens", json!(call.answer_tokens));
        let (temperature, seed) = match call.sampling {
            Sampling::Greedy => (json!(0), None),
            Sampling::Seeded(seed) => (json!(1), Some(seed)),
            Sampling::Hot => (json!(2), Some(1)),
        };
        set("temperature", temperature);
        if let Some(seed) = seed {
            set("seed", json!(seed));
        }
        for (key, value) in
            [("top_p", 1), ("n", 1), ("presence_penalty", 0), ("frequency_penalty", 0)]
        {
            set(key, json!(value));
        }
        if self.extra_sampling {
            set("top_k", json!(-1));
            set("min_p", json!(0));
            set("repetition_penalty", json!(1));
            set("repeat_penalty", json!(1));
        }
        // An answer of at most one token has nothing to be kept from.
        if self.fixed_length && call.answer_tokens > 1 {
            set("ignore_eos", json!(true));
        }
        if let Some(alternatives) = self.logprobs {
            match self.route {
                Route::Completions => set("logprobs", json!(alternatives)),
                Route::Chat => {
                    set("logprobs", json!(true));
                    set("top_logprobs", json!(alternatives));
                }
            }
        }
        if self.return_ids {
            set("return_token_ids", json!(true));
            set("return_tokens_as_token_ids", json!(true));
        }
        if call.echo {
            set("echo", json!(true));
        }
        if call.stream {
            set("stream", json!(true));
            set("stream_options", json!({ "include_usage": true }));
        }
        match (self.cold, call.cold) {
            (Some(Cold::Salt), Some(salt)) => {
                set("cache_salt", json!(format!("lockstep-{salt:016x}")))
            }
            (Some(Cold::Refuse), Some(_)) => set("cache_prompt", json!(false)),
            _ => {}
        }
        Value::Object(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Dialect {
        Dialect {
            logprobs: Some(5),
            extra_sampling: true,
            fixed_length: true,
            return_ids: true,
            cold: Some(Cold::Salt),
            ..Dialect::plain("m")
        }
    }

    #[test]
    fn every_parameter_that_changes_an_answer_is_sent() {
        let call = Call::greedy(Prompt::Ids(vec![1, 2]), 8);
        let body = full().body(&call);
        for key in
            ["temperature", "top_p", "n", "presence_penalty", "frequency_penalty", "top_k", "min_p"]
        {
            assert!(!body[key].is_null(), "{key}");
        }
        assert_eq!(body["prompt"], json!([1, 2]));
        assert_eq!(body["max_tokens"], 8);
        assert!(body.get("seed").is_none() && body.get("stream").is_none());
    }

    #[test]
    fn a_cold_call_differs_from_a_warm_one_in_its_salt_alone() {
        let warm = Call::greedy(Prompt::Text("a".into()), 8);
        let cold = Call { cold: Some(7), ..warm.clone() };
        let mut body = full().body(&cold);
        assert_eq!(body["cache_salt"], "lockstep-0000000000000007");
        body.as_object_mut().unwrap().remove("cache_salt");
        assert_eq!(body, full().body(&warm));
    }

    #[test]
    fn chat_asks_with_its_own_names() {
        let dialect = Dialect { route: Route::Chat, ..full() };
        let body = dialect.body(&Call::greedy(Prompt::Text("a".into()), 8));
        assert_eq!(body["top_logprobs"], 5);
        assert_eq!(body["messages"][0]["content"], "a");
        assert!(body.get("prompt").is_none());
    }
}
