//! What stands between the clients and the engine.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::sync::Mutex;

use super::completions::{self, Call};
use super::http::After;
use super::kinds::Front;

/// The state of a gateway.
#[derive(Default)]
pub(crate) struct Gateway {
    turn: Mutex<()>,
    answers: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
}

/// Passes a call on, by way of the gateway.
pub(crate) fn pass(
    gateway: &Gateway,
    call: &Call,
    body: &[u8],
    output: &mut TcpStream,
) -> io::Result<After> {
    let front = call.faults.front;
    let caches = matches!(front, Front::Cache | Front::CacheFreshIds);
    let _turn = (front == Front::OneAtATime)
        .then(|| gateway.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    if caches {
        let answers = gateway.answers.lock().expect("no thread panics with the answers");
        if let Some(answer) = answers.get(body).cloned() {
            drop(answers);
            let answer =
                if front == Front::CacheFreshIds { renewed(&answer, call.number) } else { answer };
            completions::replay(output, call.params.stream, &answer)?;
            return Ok(After::GoesOn);
        }
    }
    if front == Front::RunsTwice {
        call.plain();
    }
    let keep = |answer: &[u8]| {
        if caches {
            let mut answers = gateway.answers.lock().expect("no thread panics with the answers");
            answers.insert(body.to_vec(), answer.to_vec());
        }
    };
    if call.params.stream { call.stream(output, &keep) } else { call.answer(output, &keep) }
}

/// A stored answer under a fresh id, its usage left out.
fn renewed(answer: &[u8], number: u64) -> Vec<u8> {
    let text = String::from_utf8_lossy(answer);
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let (start, rest) = line.split_once("\"cmpl-").unwrap_or((line, ""));
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let line = match rest {
            "" => start.to_string(),
            rest => format!("{start}\"cmpl-x{number}{rest}"),
        };
        match line.split_once(",\"usage\":") {
            // The counters hold one object and no more braces than that.
            Some((head, usage)) => {
                let end = usage.find("}}").map_or(usage.len(), |at| at + 2);
                out.push_str(head);
                out.push_str(&usage[end..]);
            }
            None => out.push_str(&line),
        }
    }
    out.into_bytes()
}
