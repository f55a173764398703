//! Answers put together from documents: one that is whole, the chunks of a stream, or one of many prompts.

use std::collections::BTreeMap;

use super::answer::{Answer, Key, Records, Token};
use super::document::{Choice, Document, Written};
use super::error::WireError;
use super::request::Terms;
use super::spelling::{self, Spelling};

/// Most tokens of an answer that are kept.
const TOKENS_MAX: usize = 100_000;

/// An answer in the making.
#[derive(Default)]
pub(crate) struct Assembly {
    answer: Answer,
    written: Written,
    ids: Vec<u32>,
    choices: usize,
    index: Option<u64>,
}

/// The answers of a document to so many prompts, in their order.
pub(crate) fn many(text: &str, terms: &Terms, n: usize) -> Result<Vec<Answer>, WireError> {
    let document = Document::parse(text)?;
    let mut by_index = BTreeMap::new();
    for choice in document.choices.into_iter().flatten() {
        let index = choice.index.ok_or_else(|| malformed("a choice of many without an index"))?;
        let mut assembly = Assembly::default();
        assembly.answer.id.clone_from(&document.id);
        assembly.answer.fingerprint.clone_from(&document.system_fingerprint);
        assembly.choice(choice)?;
        if by_index.insert(index, assembly).is_some() {
            return Err(malformed(&format!("two choices of index {index}")));
        }
    }
    let got = by_index.len();
    if got != n || by_index.keys().zip(0u64..).any(|(index, place)| *index != place) {
        return Err(malformed(&format!("{got} choices to {n} prompts, or not one of each")));
    }
    by_index.into_values().map(|assembly| assembly.finish(terms)).collect()
}

fn malformed(why: &str) -> WireError {
    WireError::Malformed(why.into())
}

impl Assembly {
    /// Takes a document: the whole answer, or a chunk. Returns whether it held anything of the answer itself.
    pub(crate) fn absorb(&mut self, text: &str) -> Result<bool, WireError> {
        let document = Document::parse(text)?;
        let answer = &mut self.answer;
        answer.id = answer.id.take().or(document.id);
        answer.fingerprint = document.system_fingerprint.or(answer.fingerprint.take());
        if let Some(usage) = document.usage {
            answer.prompt_tokens = usage.prompt_tokens.or(answer.prompt_tokens);
            answer.completion_tokens = usage.completion_tokens.or(answer.completion_tokens);
            answer.cached_tokens = usage.cached_tokens().or(answer.cached_tokens);
        }
        if let Some(cached) = document.timings.and_then(|timings| timings.cache_n) {
            answer.cached_tokens = answer.cached_tokens.or(Some(cached));
        }
        let mut held = false;
        for choice in document.choices.into_iter().flatten() {
            held |= self.choice(choice)?;
        }
        Ok(held)
    }

    fn choice(&mut self, choice: Choice) -> Result<bool, WireError> {
        self.choices += 1;
        let index = choice.index.unwrap_or(0);
        if *self.index.get_or_insert(index) != index {
            return Err(malformed("more than one choice, and one was asked for"));
        }
        let answer = &mut self.answer;
        let before = (self.written.len(), answer.tokens.len(), self.ids.len());
        if let Some(text) = choice.text {
            self.written.push(&text);
        }
        if let Some(message) = choice.message.or(choice.delta) {
            self.written.take(message);
        }
        // Some send an empty reason with each chunk: it takes nothing back.
        let reason = choice.finish_reason;
        if answer.finish.is_none() || reason.as_ref().is_some_and(|reason| !reason.is_empty()) {
            answer.finish = reason.or(answer.finish.take());
        }
        answer.prompt_ids = choice.prompt_token_ids.or(answer.prompt_ids.take());
        if let Some(logprobs) = choice.logprobs {
            answer.tokens.extend(logprobs.tokens());
        }
        self.ids.extend(choice.token_ids.into_iter().flatten());
        if answer.tokens.len() > TOKENS_MAX || self.ids.len() > TOKENS_MAX {
            return Err(WireError::Malformed(format!("more than {TOKENS_MAX} tokens")));
        }
        Ok(before != (self.written.len(), answer.tokens.len(), self.ids.len()))
    }

    /// Whether anything of an answer came.
    pub(crate) fn is_begun(&self) -> bool {
        self.choices > 0
    }

    /// The answer, if it ended as a whole one.
    pub(crate) fn finish(self, terms: &Terms) -> Result<Answer, WireError> {
        let Assembly { mut answer, written, ids, choices, .. } = self;
        if choices == 0 {
            return Err(malformed("no choices"));
        }
        answer.text = written.text();
        answer.drop_foreign_alternatives(terms.alternatives, terms.greedy);
        answer.records = records(&answer, ids.len() as u64, terms);
        let count = |n: usize| (n > 0 && !terms.echo).then_some(n as u64);
        let counted = answer.completion_tokens.or(count(ids.len()));
        let counted = counted.or(count(answer.tokens.len()));
        let full = counted.map(|counted| counted >= u64::from(terms.answer_tokens));
        terms.endings.check(answer.finish.as_deref(), full)?;
        name(&mut answer, ids);
        if answer.text.is_empty() && answer.tokens.is_empty() {
            return Err(WireError::Ended("with neither text nor tokens".into()));
        }
        if let Some(fingerprint) = &answer.fingerprint {
            answer.marks.insert("system_fingerprint".into(), fingerprint.clone());
        }
        Ok(answer)
    }
}

/// Whether there is a record, or else an id, of each token.
fn records(answer: &Answer, ids: u64, terms: &Terms) -> Records {
    let n = answer.tokens.len() as u64;
    let counted = answer.completion_tokens;
    let prompt = answer.prompt_tokens.filter(|_| terms.echo);
    if n == 0 {
        return match (ids, counted) {
            (0, _) => Records::None,
            (_, Some(counted)) if ids != counted => Records::Partial,
            _ => Records::Whole,
        };
    }
    let spelling = spelling::of(&answer.tokens, &answer.text);
    // Asked for, and given as many: a count of its own, where there is no other.
    let asked = u64::from(terms.answer_tokens);
    let limit = answer.finish.as_deref().is_some_and(|r| !r.eq_ignore_ascii_case("stop"));
    let fits = counted == Some(n)
        || counted.zip(prompt).is_some_and(|(answer, prompt)| answer + prompt == n)
        || ids == n
        || (counted.is_none() && ids == 0 && limit && !terms.echo && n == asked);
    match spelling {
        Spelling::Whole => Records::Whole,
        // Counts of chunks instead of tokens are no counts.
        Spelling::Short => Records::Partial,
        Spelling::Other if fits => Records::Whole,
        Spelling::Other => Records::Partial,
    }
}

/// Gives the tokens the ids that were sent beside them.
fn name(answer: &mut Answer, ids: Vec<u32>) {
    if answer.tokens.is_empty() {
        let bare = |id| Token {
            key: Key::Id(id),
            text: String::new(),
            logprob: None,
            top: BTreeMap::new(),
            unreadable: 0,
        };
        answer.tokens = ids.into_iter().map(bare).collect();
        return;
    }
    // Ids that are beside more or fewer tokens name none of them: the prompt's may be among those.
    if answer.tokens.len() == ids.len() {
        for (token, id) in answer.tokens.iter_mut().zip(ids) {
            match token.key {
                Key::Id(other) => answer.mismatched |= other != id,
                _ => token.key = Key::Id(id),
            }
        }
    } else if !ids.is_empty() {
        answer.mismatched = answer.completion_tokens == Some(answer.tokens.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ending::Endings;
    use super::*;

    /// Terms that take any end.
    fn any() -> Terms {
        Terms { endings: Endings::Any, ..Terms::default() }
    }

    fn put(chunks: &[&str], terms: &Terms) -> Result<Answer, WireError> {
        let mut assembly = Assembly::default();
        for chunk in chunks {
            assembly.absorb(chunk)?;
        }
        assembly.finish(terms)
    }

    fn answer(chunks: &[&str]) -> Answer {
        put(chunks, &any()).unwrap()
    }

    const LEGACY: &str = r#"{"id":"a","choices":[{"text":"xy","finish_reason":"length","token_ids":[7,8],
        "logprobs":{"tokens":["x","y"],"token_logprobs":[-0.10,-1e-3],
        "top_logprobs":[{"x":-0.10,"z":-2.5},null]}}],
        "usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}"#;

    #[test]
    fn the_legacy_format_keeps_its_decimals_and_its_ids() {
        let answer = answer(&[LEGACY]);
        assert_eq!(answer.ids(), Some(vec![7, 8]));
        assert_eq!(answer.tokens[0].logprob.as_ref().unwrap().as_str(), "-0.10");
        assert_eq!(answer.tokens[0].top.len(), 2);
        assert_eq!((answer.cached_tokens, answer.prompt_tokens), (Some(0), Some(3)));
    }

    #[test]
    fn a_stream_joins_to_the_plain_answer() {
        let plain = answer(&[LEGACY]);
        let joined = answer(&[
            r#"{"id":"a","choices":[{"text":"x","token_ids":[7],"logprobs":{"tokens":["x"],"token_logprobs":[-0.10],"top_logprobs":[{"z":-2.5,"x":-0.10}]}}]}"#,
            r#"{"id":"a","choices":[{"text":"y","finish_reason":"length","token_ids":[8],"logprobs":{"tokens":["y"],"token_logprobs":[-1e-3],"top_logprobs":[null]}}]}"#,
            r#"{"id":"a","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}"#,
        ]);
        assert_eq!(joined, plain);
    }

    #[test]
    fn the_chat_format_names_tokens_by_id_before_bytes_before_text() {
        let of = |fields: &str| {
            let text = format!(
                r#"{{"choices":[{{"message":{{"content":"x"}},"logprobs":{{"content":[{{"token":"x","logprob":-1{fields}}}]}}}}]}}"#
            );
            answer(&[&text]).tokens[0].key.clone()
        };
        assert_eq!(of(r#","id":4,"bytes":[120]"#), Key::Id(4));
        assert_eq!(of(r#","bytes":[120]"#), Key::Bytes(vec![120]));
        assert_eq!(of(""), Key::Text("x".into()));
    }

    /// -inf, null and alternatives whose text may be any of several tokens are counted, not compared.
    #[test]
    fn values_that_are_no_numbers_are_absent() {
        let text = r#"{"choices":[{"text":"NaN \"NaN","logprobs":{"tokens":["a"],"token_logprobs":[NaN],
            "top_logprobs":[{"a":-Infinity,"b":null,"\ufffd":-1,"c":-2,"d":-9999.0}]}}]}"#;
        let answer = answer(&[text]);
        assert_eq!(answer.text, "NaN \"NaN");
        assert_eq!(answer.tokens[0].logprob, None);
        assert_eq!((answer.tokens[0].top.len(), answer.tokens[0].unreadable), (1, 4));
    }

    #[test]
    fn ids_that_do_not_fit_the_tokens_are_said_to() {
        let shifted = LEGACY.replace("[7,8]", "[7]");
        assert!(answer(&[&shifted]).mismatched);
        let named = LEGACY.replace(r#"["x","y"]"#, r#"["token_id:7","token_id:9"]"#);
        assert!(answer(&[&named]).mismatched);
    }

    #[test]
    fn what_is_no_answer_is_refused_in_one_line() {
        for bad in [
            "",
            "<html>",
            "[1]",
            "null",
            r#"{"choices":[]}"#,
            r#"{"choices":7}"#,
            r#"{"choices":[{"text":"x","index":0},{"text":"y","index":1}]}"#,
            r#"{"choices":[{"text":"x"}],"error":"no"}"#,
            r#"{"error":{"message":"x"}}"#,
        ] {
            assert!(matches!(put(&[bad], &any()), Err(WireError::Malformed(_))), "{bad}");
        }
    }

    /// A tool's arguments count, its id is another one each time; what is sent twice counts once.
    #[test]
    fn a_chat_is_all_that_its_model_wrote() {
        let of = |message: &str| {
            let text =
                format!(r#"{{"choices":[{{"message":{{{message}}},"finish_reason":"stop"}}]}}"#);
            put(&[&text], &Terms::default()).map(|answer| answer.text)
        };
        for (message, text) in [
            (r#""content":"a""#, "a"),
            (r#""content":null,"reasoning":"a""#, "a"),
            (r#""content":"","reasoning_content":"a""#, "a"),
            (r#""reasoning":"a","reasoning_content":"a""#, "a"),
            (r#""reasoning":"","reasoning_content":"a","content":"b""#, "ab"),
            (r#""content":null,"refusal":"no""#, "no"),
            (r#""content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#, "ab"),
            (r#""tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]"#, "f({})"),
            (
                r#""tool_calls":[{"id":"2","function":{"name":"f","arguments":{"x":1}}}]"#,
                r#"f({"x":1})"#,
            ),
            (r#""function_call":{"name":"g","arguments":"1"}"#, "g(1)"),
        ] {
            assert_eq!(of(message).as_deref(), Ok(text), "{message}");
        }
        for empty in [r#""content":null"#, r#""content":"","tool_calls":[]"#, r#""content":7"#] {
            let error = of(empty).unwrap_err();
            assert_eq!(error.to_string(), "ended with neither text nor tokens", "{empty}");
        }
    }

    #[test]
    fn a_streamed_chat_joins_to_the_plain_one() {
        let plain = answer(&[
            r#"{"choices":[{"message":{"reasoning":"hm","content":"ab","tool_calls":[{"id":"x","function":{"name":"f","arguments":"12"}},{"id":"y","function":{"name":"g","arguments":"3"}}]},"finish_reason":"tool_calls"}]}"#,
        ]);
        let joined = answer(&[
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"h","reasoning_content":"h"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a","reasoning":"m"}}]}"#,
            r#"{"choices":[{"delta":{"content":"b"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"z","function":{"name":"f","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"name":"g","arguments":"3"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"2"}}]},"finish_reason":"tool_calls"}]}"#,
        ]);
        assert_eq!((joined.text.as_str(), &joined), ("hmabf(12)g(3)", &plain));
    }

    #[test]
    fn the_last_reason_counts_and_an_empty_one_takes_none_back() {
        let ended = |reasons: &[&str]| {
            let chunks = reasons.iter().map(|reason| {
                format!(r#"{{"choices":[{{"text":"x","finish_reason":{reason}}}]}}"#)
            });
            let chunks: Vec<String> = chunks.collect();
            let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
            put(&chunks, &Terms::default()).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(ended(&[r#""""#, r#""length""#, r#""""#, "null"]), Ok(()));
        assert_eq!(ended(&[r#"{"type":"length","length":3}"#]), Ok(()));
        let is = |how: &str| Err(how.to_owned());
        assert_eq!(ended(&[r#""stop""#, r#""abort""#]), is("ended by \"abort\""));
        assert_eq!(ended(&["null", r#""""#]), is("ended with an empty reason"));
        assert_eq!(ended(&["null"]), is("ended without a reason"));
        assert_eq!(ended(&["7"]), is("ended by \"7\""));
    }

    /// An end that says nothing is one of a whole answer only if all tokens are there.
    #[test]
    fn an_end_that_a_server_always_gives_needs_all_tokens() {
        let mut endings = Endings::default();
        endings.accept(None);
        let terms = Terms { endings, answer_tokens: 3, ..Terms::default() };
        let of =
            |usage: &str| put(&[&format!(r#"{{"choices":[{{"text":"abc"}}]{usage}}}"#)], &terms);
        assert!(of("").is_ok());
        assert!(of(r#","usage":{"completion_tokens":3}"#).is_ok());
        assert!(of(r#","usage":{"completion_tokens":2}"#).is_err());
        let ids = r#"{"choices":[{"text":"abc","token_ids":[1,2]}]}"#;
        assert!(put(&[ids], &terms).is_err());
    }

    /// Records of these tokens with a text, and what else the answer says.
    fn records_of(tokens: &[&str], text: &str, more: &str, terms: &Terms) -> Records {
        let tokens = serde_json::json!(tokens);
        let n = tokens.as_array().unwrap().len();
        let values = vec![-1.0; n];
        let body = serde_json::json!({ "tokens": tokens, "token_logprobs": values });
        let text = serde_json::json!(text);
        put(&[&format!(r#"{{"choices":[{{"text":{text},"logprobs":{body}{more}}}"#)], terms)
            .unwrap()
            .records
    }

    #[test]
    fn records_are_whole_if_they_spell_the_text_or_are_as_many_as_the_tokens() {
        let counted =
            |n: u64| format!(r#"}}],"usage":{{"prompt_tokens":2,"completion_tokens":{n}}}"#);
        let none = "}]".to_owned();
        let of = |tokens: &[&str], text: &str, more: &str| records_of(tokens, text, more, &any());
        assert_eq!(of(&["a", " b"], "a b", &none), Records::Whole);
        // A decoder of its own; the count says that nothing is missing.
        assert_eq!(of(&["x1", "x2"], "a b", &counted(2)), Records::Whole);
        assert_eq!(of(&["x1", "x2"], "a b", r#","token_ids":[1,2]}]"#), Records::Whole);
        assert_eq!(of(&["token_id:1", "token_id:2"], "a b", &counted(2)), Records::Whole);
        // Three tokens a chunk and one record; the last one missing; none that can be placed.
        assert_eq!(of(&["a", "d"], "abcdef", &counted(6)), Records::Partial);
        assert_eq!(of(&["a", "b"], "abc", &counted(3)), Records::Partial);
        assert_eq!(of(&["c"], "abc", r#","token_ids":[1,2,3]}]"#), Records::Partial);
        assert_eq!(of(&["token_id:1"], "abc", &counted(3)), Records::Partial);
        assert_eq!(of(&["x1", "x2"], "a b", &none), Records::Partial);
        // Chunks that were counted as tokens.
        assert_eq!(of(&["one"], "one two three", &counted(1)), Records::Partial);
        assert_eq!(of(&[], "abc", &counted(3)), Records::None);
    }

    #[test]
    fn an_echo_and_an_answer_of_full_length_have_counts_of_their_own() {
        let usage = r#"}],"usage":{"prompt_tokens":2,"completion_tokens":1}"#;
        let tokens = ["x1", "x2", "x3"];
        let echo = Terms { echo: true, ..any() };
        assert_eq!(records_of(&tokens, "a b c", usage, &echo), Records::Whole);
        assert_eq!(records_of(&tokens, "a b c", usage, &any()), Records::Partial);
        let full = Terms { answer_tokens: 3, ..any() };
        let length = r#","finish_reason":"length"}]"#;
        assert_eq!(records_of(&tokens, "a b c", length, &full), Records::Whole);
        assert_eq!(records_of(&tokens[..2], "a b c", length, &full), Records::Partial);
    }

    #[test]
    fn ids_alone_are_records_if_they_are_as_many_as_the_tokens() {
        let of = |usage: &str| {
            answer(&[&format!(r#"{{"choices":[{{"text":"ab","token_ids":[1,2]}}]{usage}}}"#)])
                .records
        };
        assert_eq!(of(""), Records::Whole);
        assert_eq!(of(r#","usage":{"completion_tokens":2}"#), Records::Whole);
        assert_eq!(of(r#","usage":{"completion_tokens":3}"#), Records::Partial);
    }

    /// The alternatives of a chunk's first token again and again, before ids could hide whose they are.
    #[test]
    fn alternatives_of_another_place_are_dropped_as_the_answer_is_put_together() {
        let text = r#"{"choices":[{"text":"ab","token_ids":[1,2],"logprobs":{"tokens":["a","b"],
            "token_logprobs":[-0.1,-0.9],"top_logprobs":[{"a":-0.1,"c":-3},{"a":-0.1,"c":-3}]}}]}"#;
        let seen = put(&[text], &Terms { greedy: true, ..any() }).unwrap();
        assert_eq!((seen.foreign, seen.tokens[0].top.len(), seen.tokens[1].top.len()), (1, 2, 0));
        let plain = text.replace(r#"{"a":-0.1,"c":-3}]"#, r#"{"b":-0.9,"c":-3}]"#);
        assert_eq!(put(&[&plain], &any()).unwrap().foreign, 0);
    }

    #[test]
    fn many_answers_are_told_apart_by_their_index() {
        let terms = Terms::default();
        let choice = |index: &str, text: &str| {
            format!(r#"{{{index}"text":"{text}","finish_reason":"length"}}"#)
        };
        let of = |choices: &[String], n| {
            many(&format!(r#"{{"choices":[{}]}}"#, choices.join(",")), &terms, n)
        };
        let [a, b] = [choice(r#""index":0,"#, "a"), choice(r#""index":1,"#, "b")];
        let answers = of(&[b.clone(), a.clone()], 2).unwrap();
        assert_eq!([&*answers[0].text, &*answers[1].text], ["a", "b"]);
        for (choices, n) in [
            (vec![a.clone()], 2),
            (vec![a.clone(), a.clone()], 2),
            (vec![a.clone(), choice(r#""index":2,"#, "c")], 2),
            (vec![a.clone(), choice("", "c")], 2),
            (vec![a.clone(), b.clone()], 1),
            (vec![], 1),
        ] {
            assert!(matches!(of(&choices, n), Err(WireError::Malformed(_))), "{choices:?} {n}");
        }
        // One that was cut short makes the whole of it none.
        let cut = a.replace("length", "abort");
        assert!(matches!(of(&[cut, b], 2), Err(WireError::Ended(_))));
    }
}
