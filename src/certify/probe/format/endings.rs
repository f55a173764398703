//! How a server ends its answers, if not as others do: with no reason, or with one of its own. It is judged by answers that
//! have as many tokens as were asked for.

use super::super::super::session::Session;
use super::super::super::wire::ending::{is_whole, words};
use super::super::super::wire::{Answer, Call, Endings};
use super::super::{Facts, ask};

/// Answers asked for at most. Short ones are more likely to be as long as they may be.
const TOKENS: [u32; 4] = [6, 6, 2, 2];

/// Takes the end that plain answers alone show twice. Returns whether there is one.
pub(super) fn find(session: &mut Session<'_>, facts: &mut Facts, call: &Call) -> bool {
    let usual = std::mem::replace(&mut session.dialect.endings, Endings::Any);
    let mut seen: Option<Option<String>> = None;
    let mut agreed = None;
    for answer_tokens in TOKENS {
        let call = Call { answer_tokens, ..call.clone() };
        let terms = session.dialect.terms(&call);
        let Ok(exchange) = ask(session, &call) else { break };
        let answer = exchange.answer;
        if !is_full(&answer, terms.answer_tokens) {
            continue;
        }
        if seen.as_ref() == Some(&answer.finish) {
            agreed = Some(answer.finish);
            break;
        }
        seen = Some(answer.finish);
    }
    session.dialect.endings = usual;
    let Some(reason) = agreed else { return false };
    let reason = reason.as_deref();
    let name = "reasons of ends";
    if reason.is_some_and(is_whole) {
        return true;
    }
    let how = words(reason);
    match session.dialect.endings.accept(reason) {
        true => {
            let evidence = format!("whole answers end {how}: taken where all tokens are there");
            facts.notes.push(format!("the server's whole answers end {how}"));
            facts.ability(name, false, evidence);
            true
        }
        false => {
            facts.ability(name, false, format!("answers end {how}"));
            false
        }
    }
}

/// Whether nothing says that tokens are missing.
fn is_full(answer: &Answer, asked: u32) -> bool {
    let named = (!answer.tokens.is_empty()).then_some(answer.tokens.len() as u64);
    answer.completion_tokens.or(named).is_none_or(|counted| counted >= u64::from(asked))
}
