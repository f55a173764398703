//! Requests: what is asked, and how a given server wants to be asked.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::options::Target;
use super::answer::Alternatives;
use super::ending::Endings;

/// Text or token ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

impl Prompt {
    /// In token ids, or in characters.
    pub(crate) fn length(&self) -> usize {
        match self {
            Prompt::Text(text) => text.chars().count(),
            Prompt::Ids(ids) => ids.len(),
        }
    }

    /// Its first `length` token ids or characters.
    pub(crate) fn cut(&self, length: usize) -> Prompt {
        match self {
            Prompt::Text(text) => Prompt::Text(text.chars().take(length).collect()),
            Prompt::Ids(ids) => Prompt::Ids(ids.iter().take(length).copied().collect()),
        }
    }
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
    /// The longest answer is asked for by `max_completion_tokens`, not by `max_tokens`.
    pub(crate) max_completion_tokens: bool,
    /// Fields that the server refuses, and that are never sent.
    pub(crate) left_out: BTreeSet<String>,
    /// What is taken as the end of a whole answer.
    pub(crate) endings: Endings,
    /// Alternatives in streams are not those of their places.
    pub(crate) displaces_in_streams: bool,
    /// Further fields that were asked for. They go before ours.
    pub(crate) fields: Vec<(String, Value)>,
}

/// What makes an answer to a call a whole one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Terms {
    pub(crate) endings: Endings,
    /// Most tokens, as they were asked for.
    pub(crate) answer_tokens: u32,
    /// The best token is picked at each place.
    pub(crate) greedy: bool,
    /// The prompt is part of the answer.
    pub(crate) echo: bool,
    pub(crate) alternatives: Alternatives,
}

/// Fields without which there is no request.
pub(crate) const ESSENTIAL: [&str; 5] = ["model", "prompt", "messages", "max_tokens", "stream"];
const MAX_TOKENS: &str = "max_tokens";
const MAX_COMPLETION_TOKENS: &str = "max_completion_tokens";

impl Dialect {
    /// Nothing beyond OpenAI's fields and those that were asked for.
    pub(crate) fn new(model: &str, target: &Target) -> Dialect {
        Dialect { fields: target.fields.clone(), ..Dialect::plain(model) }
    }

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
            max_completion_tokens: false,
            left_out: BTreeSet::new(),
            endings: Endings::default(),
            displaces_in_streams: false,
            fields: Vec::new(),
        }
    }

    /// What makes an answer to the call a whole one.
    pub(crate) fn terms(&self, call: &Call) -> Terms {
        let body = self.body(call);
        let most = [MAX_TOKENS, MAX_COMPLETION_TOKENS].into_iter();
        let most = most.filter_map(|name| body.get(name)?.as_u64()).next();
        let is_cold = body.get("temperature").and_then(Value::as_f64) == Some(0.0);
        Terms {
            endings: self.endings.clone(),
            answer_tokens: most.map_or(call.answer_tokens, |n| n.try_into().unwrap_or(u32::MAX)),
            greedy: call.sampling == Sampling::Greedy && is_cold && !call.echo,
            echo: call.echo,
            alternatives: match (call.stream, self.displaces_in_streams) {
                (false, _) => Alternatives::ByPlace,
                (true, false) => Alternatives::AllOrNone,
                (true, true) => Alternatives::None,
            },
        }
    }

    /// The body of one request for all of these, which are alike but for their prompts: all texts or all ids.
    pub(crate) fn body_of_many(&self, calls: &[Call]) -> Value {
        assert!(self.route == Route::Completions, "a chat has one prompt");
        let first = calls.first().expect("at least one call");
        let mut body = self.body(&Call { stream: false, ..first.clone() });
        let prompts = calls.iter().map(|call| match &call.prompt {
            Prompt::Text(text) => json!(text),
            Prompt::Ids(ids) => json!(ids),
        });
        body["prompt"] = prompts.collect();
        body
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
        body.retain(|name, _| !self.left_out.contains(name) || ESSENTIAL.contains(&name.as_str()));
        if self.max_completion_tokens
            && let Some(most) = body.remove(MAX_TOKENS)
        {
            body.insert(MAX_COMPLETION_TOKENS.into(), most);
        }
        body.extend(self.fields.iter().cloned());
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

    #[test]
    fn refused_fields_are_left_out_and_those_asked_for_go_before_ours() {
        let call = Call { stream: true, ..Call::greedy(Prompt::Text("a".into()), 8) };
        let left_out = ["top_p", "stream_options", "max_tokens", "model"].map(String::from).into();
        let fields = vec![("temperature".to_owned(), json!(0.5)), ("x".to_owned(), json!([1]))];
        let dialect = Dialect { left_out, max_completion_tokens: true, fields, ..full() };
        let body = dialect.body(&call);
        for gone in ["top_p", "stream_options", "max_tokens"] {
            assert!(body.get(gone).is_none(), "{gone}");
        }
        assert_eq!((&body["max_completion_tokens"], &body["model"]), (&json!(8), &json!("m")));
        assert_eq!((&body["temperature"], &body["x"]), (&json!(0.5), &json!([1])));
    }

    #[test]
    fn the_terms_of_an_answer_are_those_of_the_body() {
        let call = Call::greedy(Prompt::Text("a".into()), 8);
        let terms = full().terms(&call);
        assert_eq!((terms.answer_tokens, terms.greedy, terms.echo), (8, true, false));
        let fields = vec![("temperature".into(), json!(1)), ("max_tokens".into(), json!(3))];
        let terms = Dialect { fields, ..full() }.terms(&call);
        assert_eq!((terms.answer_tokens, terms.greedy), (3, false));
        let echo = Call { echo: true, ..call.clone() };
        assert!(!full().terms(&echo).greedy);
        let drawn = Call { sampling: Sampling::Seeded(1), ..call };
        assert!(!full().terms(&drawn).greedy);
    }

    #[test]
    fn many_prompts_are_one_list() {
        let call = |prompt| Call::greedy(prompt, 8);
        let texts = ["a", "b"].map(|text| call(Prompt::Text(text.into())));
        let body = full().body_of_many(&texts);
        assert_eq!(body["prompt"], json!(["a", "b"]));
        let ids = [vec![1, 2], vec![3]].map(|ids| call(Prompt::Ids(ids)));
        assert_eq!(full().body_of_many(&ids)["prompt"], json!([[1, 2], [3]]));
        assert_eq!(body["max_tokens"], 8);
    }
}
