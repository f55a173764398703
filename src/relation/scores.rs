//! Log-probabilities: each one that was computed, against that of the standard at the same position.

use crate::record::{Output, TokenScore};
use crate::workload::SampleId;

use super::Compared;
use super::compare::{ByPosition, Differences, Known, Observable, Place, distinct};

/// Compares every log-probability and every list of alternatives.
pub(super) fn compare(
    id: SampleId,
    got: &Output,
    expected: &Output,
    compared: &mut Compared,
    found: &mut Differences<'_>,
) {
    let expected = ByPosition::new(&expected.scores, |s| s.position);
    for score in &got.scores {
        let Some(reference) = expected.get(score.position) else { continue };
        compared.scores += 1;
        let TokenScore { residency: _, position: _, token, logprob, top } = reference;
        if (token, logprob, top) != (&score.token, &score.logprob, &score.top) {
            let place = Place {
                id: Some(id),
                residency: Some(score.residency),
                position: Some(score.position),
                layer: None,
            };
            let detail = detail(score, reference, &found.name);
            found.note_first(Observable::Logprobs, place, detail);
        }
    }
}

fn detail(got: &TokenScore, expected: &TokenScore, name: &str) -> String {
    let value = |s: &TokenScore| {
        format!("token {} {:08x} ({})", s.token, s.logprob, f32::from_bits(s.logprob))
    };
    let mut text = format!("{}, {name} {}", value(got), value(expected));
    let differs =
        (0..got.top.len().max(expected.top.len())).find(|&i| got.top.get(i) != expected.top.get(i));
    if let Some(i) = differs {
        let (a, b) = (got.top.get(i), expected.top.get(i));
        text += &format!("; alternative {i} is {a:x?}, {name} {b:x?}");
    }
    text
}

/// Which tokens were not scored although they should have been.
pub(super) fn blindness(got: &Output, expected: &Output, known: Known) -> Option<String> {
    let positions = |output: &Output| distinct(output.scores.iter().map(|s| s.position));
    let (scored, due) = (positions(got), positions(expected));
    if due.len() != known.scores {
        return Some(format!(
            "the whole output has log-probabilities of {} of {} tokens",
            due.len(),
            known.scores
        ));
    }
    let missing = if known.aborted { None } else { due.iter().find(|p| !scored.contains(p)) };
    let stray = scored.iter().find(|p| !due.contains(p));
    match (missing, stray) {
        (Some(position), _) => Some(format!("the token at position {position} was not scored")),
        (_, Some(position)) => Some(format!("a token at position {position} was scored")),
        _ => None,
    }
}
