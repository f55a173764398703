//! Fields that a server refuses. A refusal names one, or else all that may go are left out and put back one by one: what is
//! lost is that field alone, not what was asked for with it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::super::session::Session;
use super::super::super::wire::request::ESSENTIAL;
use super::super::super::wire::{Call, Dialect, Exchange, WireError};
use super::super::{Facts, ask};

/// Refusals of one request that are followed up by what they name.
const NAMED_MAX: usize = 12;
/// The one field that has another name with some servers.
const RENAMED: (&str, &str) = ("max_tokens", "max_completion_tokens");

/// Asks, and leaves out the fields that are refused, of those that may go. Says which in the abilities. With an error, the
/// dialect is as it was.
pub(super) fn settle(
    session: &mut Session<'_>,
    facts: &mut Facts,
    call: &Call,
    may_go: &dyn Fn(&str) -> bool,
) -> Result<Exchange, WireError> {
    let before = session.dialect.clone();
    let first = match ask(session, call) {
        Err(error) if error.may_be_a_field() => error,
        result => return result,
    };
    let mut reasons = Vec::new();
    let settled = match by_name(session, call, &first, may_go, &mut reasons) {
        Some(result) => result,
        None => {
            session.dialect = before.clone();
            reasons.clear();
            one_by_one(session, call, &first, may_go, &mut reasons)
        }
    };
    if settled.is_err() {
        session.dialect = before;
        return settled;
    }
    for (name, why) in reasons {
        let renamed = name == RENAMED.0;
        if !renamed && !session.dialect.left_out.contains(&name) {
            continue;
        }
        let what = if renamed { format!("sent as {}", RENAMED.1) } else { "left out".to_owned() };
        facts.ability(&format!("field {name}"), false, format!("{what}, refused: {why}"));
        if name == "temperature" {
            let note = "temperature is refused and left out: answers may be drawn at random";
            facts.notes.push(note.into());
        }
    }
    settled
}

/// Follows the names in refusals. `None` if they lead nowhere.
fn by_name(
    session: &mut Session<'_>,
    call: &Call,
    first: &WireError,
    may_go: &dyn Fn(&str) -> bool,
    reasons: &mut Vec<(String, String)>,
) -> Option<Result<Exchange, WireError>> {
    let mut error = first.clone();
    let mut tried = BTreeSet::new();
    for _ in 0..NAMED_MAX {
        let body = session.dialect.body(call);
        let names = names(&error, &body);
        // What was asked for on purpose is what is refused.
        if !names.is_empty() && names.iter().all(|name| !may_go(name)) {
            return Some(Err(error));
        }
        let name = names.into_iter().find(|n| may_go(n) && tried.insert(n.clone()))?;
        leave_out(&mut session.dialect, &name);
        reasons.push((name, error.to_string()));
        match ask(session, call) {
            Ok(exchange) => {
                put_back_needless(session, call, reasons);
                return Some(Ok(exchange));
            }
            Err(other) if other.may_be_a_field() => error = other,
            Err(other) => return Some(Err(other)),
        }
    }
    None
}

/// The last one that was named made the difference; the others may have been named for another reason.
fn put_back_needless(session: &mut Session<'_>, call: &Call, reasons: &[(String, String)]) {
    let Some((_, others)) = reasons.split_last() else { return };
    for (name, _) in others {
        let before = session.dialect.clone();
        put_back(&mut session.dialect, name);
        if ask(session, call).is_err() {
            session.dialect = before;
        }
    }
}

/// Leaves out all that may go, and puts back what is taken.
fn one_by_one(
    session: &mut Session<'_>,
    call: &Call,
    first: &WireError,
    may_go: &dyn Fn(&str) -> bool,
    reasons: &mut Vec<(String, String)>,
) -> Result<Exchange, WireError> {
    let body = session.dialect.body(call);
    let names = body.as_object().into_iter().flat_map(|body| body.keys());
    let mut names: Vec<String> = names.filter(|name| may_go(name)).cloned().collect();
    names.iter().for_each(|name| leave_out(&mut session.dialect, name));
    let mut last = match ask(session, call) {
        Err(error) if error.may_be_a_field() && may_go(RENAMED.0) => {
            leave_out(&mut session.dialect, RENAMED.0);
            names.push(RENAMED.0.into());
            ask(session, call)
        }
        result => result,
    };
    if last.is_err() || names.is_empty() {
        return last.and(Err(first.clone()));
    }
    // One field that may go is the one that is refused.
    if let [only] = names.as_slice() {
        reasons.push((only.clone(), first.to_string()));
        return last;
    }
    for name in names {
        let before = session.dialect.clone();
        put_back(&mut session.dialect, &name);
        match ask(session, call) {
            Ok(exchange) => last = Ok(exchange),
            Err(error) => {
                session.dialect = before;
                reasons.push((name, error.to_string()));
                if !error.may_be_a_field() {
                    return Err(error);
                }
            }
        }
    }
    last
}

/// For a request as such: everything that it does not need, and the other name.
pub(super) fn is_optional(name: &str) -> bool {
    name == RENAMED.0 || !ESSENTIAL.contains(&name)
}

fn leave_out(dialect: &mut Dialect, name: &str) {
    match name == RENAMED.0 {
        true => dialect.max_completion_tokens = true,
        false => drop(dialect.left_out.insert(name.to_owned())),
    }
}

fn put_back(dialect: &mut Dialect, name: &str) {
    match name == RENAMED.0 {
        true => dialect.max_completion_tokens = false,
        false => drop(dialect.left_out.remove(name)),
    }
}

/// Fields of the body that a refusal names, in its order.
fn names(error: &WireError, body: &Value) -> Vec<String> {
    let WireError::Status { message, .. } = error else { return Vec::new() };
    let mut names: Vec<String> = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut from = 0;
    while let Some(start) = message[from..].find(is_word).map(|at| from + at) {
        let end = message[start..].find(|c| !is_word(c)).map_or(message.len(), |at| start + at);
        let word = &message[start..end];
        from = end;
        // A server that wants the other name may name only that.
        let name = if word == RENAMED.1 { RENAMED.0 } else { word };
        let is_there = body.get(name).is_some() && !matches!(name, "model" | "prompt" | "messages");
        // A letter alone is a field only in quotes, or in front of all.
        let is_quoted = || {
            let around = [message[..start].chars().next_back(), message[end..].chars().next()];
            let is_quote = |c: Option<char>| c.is_some_and(|c| matches!(c, '"' | '\'' | '`'));
            around.into_iter().all(is_quote) || (start == 0 && message[end..].starts_with(':'))
        };
        if is_there && (name.len() > 2 || is_quoted()) && !names.iter().any(|seen| seen == name) {
            names.push(name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(message: &str) -> Vec<String> {
        let body =
            json!({ "model": "m", "n": 1, "top_p": 1, "max_tokens": 3, "stream_options": {} });
        names(&WireError::Status { code: 400, message: message.into() }, &body)
    }

    #[test]
    fn the_fields_that_a_refusal_names_are_found_in_its_order() {
        for (message, expected) in [
            ("Unrecognized request argument supplied: stream_options", &["stream_options"][..]),
            ("`top_p` must be > 0.0 and < 1.0", &["top_p"]),
            (r#"[{"type":"extra_forbidden","loc":["body","n"]}]"#, &["n"]),
            ("n: must be absent", &["n"]),
            ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.", &["max_tokens"]),
            ("max_completion_tokens is required", &["max_tokens"]),
            ("this model wants top_p and no stream_options", &["top_p", "stream_options"]),
            ("an n of a kind, top_pp, max, é", &[]),
            ("", &[]),
        ] {
            assert_eq!(named(message), expected, "{message}");
        }
    }
}
