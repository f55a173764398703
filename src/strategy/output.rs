//! What ends an output and what is returned with it: stop tokens, stop strings, log-probabilities.

use crate::workload::{Request, STOP_STRINGS_MAX};

use super::draw::Draw;
use super::swarm::{Feature, Swarm};
use super::workload::Planned;
use super::{Space, Text};

/// A penalty far below one: what was seen is repeated.
const REPEATING: f32 = 0.1;

/// Draws both for a request.
pub(super) fn draw(draw: &mut Draw<'_>, space: &Space, swarm: &Swarm, plan: &mut Planned) {
    let request = &mut plan.request;
    if draw.percent(swarm.level(Feature::Stops) / 2) {
        // Enough of them that an output of a few tokens now and then meets one.
        let count = draw.between(1, 24);
        let vocab = space.edges.vocab as usize;
        request.stop_token_ids = (0..count).map(|_| draw.below(vocab) as u32).collect();
        request.stop_token_ids.sort_unstable();
        request.stop_token_ids.dedup();
    }
    if let Some(text) = &space.text
        && draw.percent(swarm.level(Feature::Stops) / 2)
    {
        request.stop = match text {
            Text::Bytes => bytes(draw, request),
            Text::Like(texts) => excerpts(draw, texts),
        };
    }
    if draw.percent(swarm.level(Feature::Scored)) {
        request.logprobs = Some(draw.pick(&[0, 1, 5]));
    }
    // Nothing of such a prompt is served by a cache, so samples and hits would have nothing to do.
    let alone = request.samples == 1 && plan.shared == 0 && plan.follows.is_none();
    if alone && draw.percent(swarm.level(Feature::Scored)) {
        request.prompt_logprobs = Some(draw.pick(&[0, 2]));
    }
}

/// Strings for a model whose tokens are bytes and whose outputs are no language: a few single characters, or pairs of what
/// the prompt holds, which end across two tokens, in an output that repeats what was seen before.
fn bytes(draw: &mut Draw<'_>, request: &mut Request) -> Vec<String> {
    let mut seen = request.prompt.own_tokens().to_vec();
    seen.retain(|token| *token < 128);
    seen.sort_unstable();
    seen.dedup();
    if seen.is_empty() || draw.percent(20) {
        return (0..draw.between(1, 16)).map(|_| ascii(&[draw.below(128) as u32])).collect();
    }
    request.sampling.repetition_penalty = REPEATING;
    seen.truncate(STOP_STRINGS_MAX / 2);
    // What repeats most is one token again and again.
    let mut strings: Vec<String> = seen.iter().map(|token| ascii(&[*token; 2])).collect();
    let others = seen.len().min(STOP_STRINGS_MAX / 2);
    strings.extend((0..others).map(|_| ascii(&[draw.pick(&seen), draw.pick(&seen)])));
    strings
}

/// The text of tokens that are ASCII.
fn ascii(tokens: &[u32]) -> String {
    tokens.iter().filter_map(|token| char::from_u32(*token)).collect()
}

/// Excerpts of a few characters from texts. Tokens of words begin with the space before them, so a string that ends with a
/// space ends across two tokens.
fn excerpts(draw: &mut Draw<'_>, texts: &[String]) -> Vec<String> {
    let mut strings = Vec::new();
    for _ in 0..draw.between(1, 6) {
        let text: Vec<char> = draw.pick(&texts.iter().collect::<Vec<_>>()).chars().collect();
        let spaces = (1..text.len()).filter(|at| text[*at] == ' ' && text[*at - 1] != ' ');
        let spaces: Vec<usize> = spaces.collect();
        let (start, length) = match spaces.is_empty() || draw.percent(40) {
            true => (draw.below(text.len().max(1)), draw.between(1, 3)),
            false => (draw.pick(&spaces) - 1, 2),
        };
        strings.extend(text.get(start..(start + length).min(text.len())).map(String::from_iter));
    }
    strings.retain(|string| !string.is_empty());
    strings
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::strategy::ValueTree;

    use super::super::cases;
    use super::super::tests::space;
    use super::*;

    /// Stop strings of the first 300 cases.
    fn drawn(text: Option<Text>) -> Vec<String> {
        let mut space = space();
        (space.text, space.focus) = (text, vec![Feature::Stops]);
        let cases = cases(space);
        let all = (0..300).map(|index| cases.nth(4, index).current());
        all.flat_map(|case| case.workload.requests).flat_map(|request| request.stop).collect()
    }

    #[test]
    fn stop_strings_are_drawn_where_the_subject_has_bytes_and_of_what_it_may_write() {
        assert!(drawn(None).is_empty());
        let bytes = drawn(Some(Text::Bytes));
        assert!(bytes.iter().any(|s| s.len() == 1) && bytes.iter().any(|s| s.len() == 2));
        let text = "Der Zug h\u{e4}lt in K\u{f6}ln.";
        let excerpts = drawn(Some(Text::Like(Arc::new(vec![text.into()]))));
        assert!(excerpts.iter().all(|s| !s.is_empty() && text.contains(s.as_str())));
        let across = excerpts.iter().filter(|s| s.len() > 1 && s.ends_with(' ')).count();
        assert!(across * 2 > excerpts.len(), "{across} of {}", excerpts.len());
        // A text of one character, and one of none.
        assert!(drawn(Some(Text::Like(Arc::new(vec!["a".into(), String::new()])))).len() > 9);
    }
}
