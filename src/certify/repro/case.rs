//! One difference as both files need it: what is sent when, which prompts are new each time, and what a reader should know.

use serde_json::{Value, json};

use super::super::certificate::{Arm, Certificate, Divergence, New, Sent};
use super::super::stats;
use super::super::words::{clean, seen, sides};

/// Times that all is asked, at least and at most.
const TRIES: (u64, u64) = (20, 200);
/// Bytes of bodies from which on they stand in a file of their own: what is longer is not pasted.
const INLINE_BYTES_MAX: usize = 4096;
/// Ids that new prompts are drawn from, at most.
const POOL_MAX: usize = 64;
/// What stands in an address for what is not stored.
const HIDDEN: &str = "(hidden)";
/// Characters at the start of a text that make it a new one.
const HEAD: usize = 8;

/// How answers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request that was sent before, alone and in a crowd.
    Warm,
    /// A crowd that is the first to bring the prompt, and answers alone after it.
    New,
    /// The first answer to a new prompt and later ones, one at a time.
    First,
}

/// What a new prompt is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prompts {
    Ids,
    /// Text that begins so many bytes into a body.
    Text(usize),
}

/// A difference, ready to be written down.
pub(super) struct Case {
    pub(super) kind: Kind,
    /// Address of the server; empty where not all of it is stored.
    pub(super) url: String,
    pub(super) path: String,
    /// Bodies as they are sent, each a line of JSON. One whose prompt is new each time begins with that prompt.
    pub(super) request: String,
    pub(super) neighbours: Vec<String>,
    pub(super) place: usize,
    pub(super) delays_ms: Vec<u64>,
    pub(super) new: New,
    /// What new prompts are, if any is.
    pub(super) prompts: Option<Prompts>,
    /// Ids that new prompts are drawn from.
    pub(super) pool: Vec<u64>,
    pub(super) tries: u64,
    /// Lines of a comment, each without a character that could end it.
    pub(super) header: Vec<String>,
    /// Name of the file with the requests, where there is one.
    pub(super) requests: Option<&'static str>,
}

impl Case {
    pub(super) fn new(
        certificate: &Certificate,
        divergence: &Divergence,
        requests: &'static str,
    ) -> Result<Case, String> {
        let (request, neighbours, place, delays_ms, new, [n, of]) = match &divergence.shrunk {
            Some(s) => (&s.request, &s.neighbours, s.place, &s.delays_ms, s.new, s.seen),
            None => (
                &divergence.request,
                &divergence.neighbours,
                divergence.place,
                &divergence.delays_ms,
                divergence.new,
                divergence.seen,
            ),
        };
        let kind = match divergence.arm {
            Arm::First => Kind::First,
            _ if new.request => Kind::New,
            _ => Kind::Warm,
        };
        let new = New { request: kind != Kind::Warm, neighbours: new.neighbours };
        let (request, prompts) = body(request, new.request)?;
        let mut prompts = prompts;
        let mut others = Vec::new();
        for neighbour in neighbours {
            let (body, of) = body(neighbour, new.neighbours)?;
            prompts = prompts.or(of);
            others.push(body);
        }
        let bytes = request.len() + others.iter().map(String::len).sum::<usize>();
        // Others time their requests otherwise, so a share that was seen is no promise: a tenth of it is enough.
        let rate = (n as f64 / of.max(1) as f64 / 10.0).clamp(0.01, 0.5);
        let url = &certificate.server.url;
        let requests = (bytes > INLINE_BYTES_MAX).then_some(requests);
        Ok(Case {
            kind,
            url: if url.contains(HIDDEN) { String::new() } else { url.clone() },
            path: divergence.request.path.clone(),
            request,
            neighbours: others,
            place: place as usize,
            delays_ms: delays_ms.clone(),
            new,
            prompts,
            pool: if prompts == Some(Prompts::Ids) { pool(divergence) } else { Vec::new() },
            tries: stats::trials_for(rate, 0.99).clamp(TRIES.0, TRIES.1),
            header: header(certificate, divergence, kind, requests),
            requests,
        })
    }

    /// The requests and what belongs to them as JSON, each body on a line of its own: the script reads lines.
    pub(super) fn json(&self) -> String {
        let New { request, neighbours } = self.new;
        let new = json!({ "request": request, "neighbours": neighbours });
        let (path, delays) = (json!(self.path), json!(self.delays_ms));
        let others = self.neighbours.join(",\n");
        let others = if others.is_empty() { "[]".into() } else { format!("[\n{others}\n]") };
        format!(
            "{{\n\"path\": {path},\n\"place\": {},\n\"delays_ms\": {delays},\n\"new\": {new},\n\"pool\": {},\n\"request\":\n{},\n\"neighbours\": {others}\n}}",
            self.place,
            json!(self.pool),
            self.request,
        )
    }

    /// The contents of the file with the requests, if there is one.
    pub(super) fn requests_file(&self) -> Option<String> {
        self.requests.map(|_| self.json() + "\n")
    }
}

/// What a reader should know before anything is run.
fn header(
    certificate: &Certificate,
    divergence: &Divergence,
    kind: Kind,
    requests: Option<&str>,
) -> Vec<String> {
    let server = &certificate.server;
    let shrunk = divergence.shrunk.as_ref();
    let difference = shrunk.map_or(&divergence.difference, |shrunk| &shrunk.difference);
    let place = difference.position.map_or("answer".into(), |at| format!("position {at}"));
    // A search asks a first answer before those that it is compared with.
    let (ours, theirs) = match (kind, shrunk) {
        (Kind::First, Some(_)) => ("later", "first"),
        _ => sides(divergence.arm),
    };
    let mut lines = vec![
        format!("lockstep {}: model {} at {}", certificate.tool.version, server.model, server.url),
        format!("arm {}: {}", divergence.arm, divergence.arm.statement()),
        format!(
            "{place}, {}: {ours} {}, {theirs} {}",
            difference.observable.words(),
            seen(&difference.expected),
            seen(&difference.got)
        ),
    ];
    lines.extend(shrunk.map(|shrunk| shrunk.words()));
    lines.push(String::new());
    lines.push(
        match kind {
            Kind::Warm => "Asks a request alone, then in its crowd again and again: the answers must be equal.",
            Kind::New => "Asks a crowd with a new prompt, then that prompt alone, again and again: the answers must be equal.",
            Kind::First => "Asks new prompts, each three times and one at a time: the first answer must be the second and third.",
        }
        .into(),
    );
    if kind != Kind::First && divergence.new.neighbours {
        lines.push("Prompts of the neighbours are new each time: the server has to read them in the crowd.".into());
    }
    lines.extend(requests.map(|name| format!("The requests stand in {name}, in the same folder.")));
    if server.url.contains(HIDDEN) {
        lines.push("The address had a query whose values are not stored: set OPENAI_BASE_URL to the whole address.".into());
    }
    let names = &certificate.settings.headers;
    if !names.is_empty() {
        let (s, names) = (if names.len() == 1 { "" } else { "s" }, names.join(", "));
        lines.push(format!(
            "Sent with header{s} {names}, whose value{s} {} not stored: set HEADERS to lines \"Name: value\".",
            if s.is_empty() { "is" } else { "are" }
        ));
    }
    lines.iter().map(|line| format!("# {}", clean(line)).trim_end().to_owned()).collect()
}

/// A body as a line, without what asks for a stream: both files read whole answers. If its prompt is to be new each time it comes
/// first, where it can be found without reading JSON.
fn body(sent: &Sent, is_new: bool) -> Result<(String, Option<Prompts>), String> {
    let mut body = sent.body.clone();
    let refused =
        || "its prompts can't be made anew: the requests are in the certificate".to_owned();
    let fields = body.as_object_mut().ok_or_else(refused)?;
    fields.remove("stream");
    fields.remove("stream_options");
    if !is_new {
        return Ok((body.to_string(), None));
    }
    let (head, prompts) = match (fields.remove("prompt"), fields.remove("messages")) {
        (Some(Value::Array(ids)), None) if ids.iter().all(Value::is_u64) => {
            (format!("{{\"prompt\":{}", Value::Array(ids)), Prompts::Ids)
        }
        (Some(Value::String(text)), None) => {
            let start = "{\"prompt\":\"";
            (format!("{start}{}", renewable(&text)), Prompts::Text(start.len()))
        }
        (None, Some(messages)) => {
            let content = messages.get(0).and_then(|first| first["content"].as_str());
            let (Some(content), Some(1)) = (content, messages.as_array().map(Vec::len)) else {
                return Err(refused());
            };
            let start = "{\"messages\":[{\"content\":\"";
            let role = &messages[0]["role"];
            let head = format!("{start}{},\"role\":{role}}}]", renewable(content));
            (head, Prompts::Text(start.len()))
        }
        _ => return Err(refused()),
    };
    let rest = body.to_string();
    let rest = rest.strip_prefix('{').filter(|rest| *rest != "}");
    let body = rest.map_or(format!("{head}}}"), |rest| format!("{head},{rest}"));
    Ok((body, Some(prompts)))
}

/// A string of JSON without its first quote, which begins with hex digits: these are what is made anew.
fn renewable(text: &str) -> String {
    let head: String = text.chars().take(HEAD).collect();
    let is_hex = head.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let head = if is_hex { head } else { "0".repeat(head.chars().count()) };
    let text: String = head.chars().chain(text.chars().skip(HEAD)).collect();
    json!(text).to_string().split_off(1)
}

/// Ids that were sent after the first one. Those of a shrunk prompt would be too few: their orders run out, and then nothing is
/// new.
fn pool(divergence: &Divergence) -> Vec<u64> {
    let mut pool = Vec::new();
    for sent in [&divergence.request].into_iter().chain(&divergence.neighbours) {
        let ids = sent.body["prompt"].as_array().into_iter().flatten().skip(1);
        for id in ids.filter_map(Value::as_u64) {
            if pool.len() < POOL_MAX && !pool.contains(&id) {
                pool.push(id);
            }
        }
    }
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(body: Value) -> Sent {
        Sent { path: "completions".into(), body }
    }

    #[test]
    fn a_prompt_that_is_made_anew_comes_first_in_its_body() {
        let ids = sent(json!({ "a": 1, "prompt": [1, 2, 3], "stream": true }));
        let expected = ("{\"prompt\":[1,2,3],\"a\":1}".to_owned(), Some(Prompts::Ids));
        assert_eq!(body(&ids, true), Ok(expected));
        let text = sent(json!({ "prompt": "say \"a\" to é" }));
        let (line, prompts) = body(&text, true).unwrap();
        assert_eq!(
            (line.as_str(), prompts),
            ("{\"prompt\":\"00000000to é\"}", Some(Prompts::Text(11)))
        );
        let chat = sent(json!({ "messages": [{ "role": "user", "content": "0123abcd" }], "n": 1 }));
        let (line, prompts) = body(&chat, true).unwrap();
        let start = "{\"messages\":[{\"content\":\"";
        assert_eq!(line, format!("{start}0123abcd\",\"role\":\"user\"}}],\"n\":1}}"));
        assert_eq!(prompts, Some(Prompts::Text(start.len())));
    }

    #[test]
    fn what_has_no_single_prompt_is_not_made_anew() {
        for body_of in [
            json!({ "n": 1 }),
            json!({ "prompt": ["a", "b"] }),
            json!({ "messages": [{ "content": "a" }, { "content": "b" }] }),
            json!({ "messages": [{ "content": null }] }),
            json!([]),
        ] {
            assert!(body(&sent(body_of.clone()), true).is_err(), "{body_of}");
        }
        let many = json!({ "prompt": ["a", "b"], "stream": true, "stream_options": {} });
        assert_eq!(body(&sent(many), false), Ok(("{\"prompt\":[\"a\",\"b\"]}".into(), None)));
    }
}
