//! Whether a stream holds what a plain answer holds, and whether log-probabilities say anything.

use std::collections::BTreeSet;

use super::super::super::session::Session;
use super::super::super::wire::{Answer, Call, Records};
use super::super::{Facts, ask};
use super::fields;

/// Streams the call whose plain answer is known.
pub(super) fn find(session: &mut Session<'_>, facts: &mut Facts, call: &Call, plain: &Answer) {
    let call = Call { stream: true, ..call.clone() };
    let name = "streams";
    match fields::settle(session, facts, &call, &|name| name == "stream_options") {
        Ok(exchange) if !exchange.arrivals.is_empty() => {
            facts.streams = true;
            let lacks = lacks(plain, &exchange.answer);
            facts.stream_is_whole = lacks.is_none();
            session.dialect.displaces_in_streams = exchange.answer.foreign > plain.foreign;
            let chunks = exchange.arrivals.len();
            let (n, m) = (scored(plain), scored(&exchange.answer));
            let mut evidence =
                format!("{chunks} chunks, {m} log-probabilities against {n} in a plain answer");
            if let Some(lacks) = lacks {
                evidence.push_str(&format!("; {lacks}"));
            }
            facts.ability(name, true, evidence);
        }
        Ok(_) => facts.ability(name, false, "answered at once"),
        Err(error) => facts.ability(name, false, error.to_string()),
    }
}

fn scored(answer: &Answer) -> usize {
    answer.tokens.iter().filter(|token| token.logprob.is_some()).count()
}

/// Why the tokens of a stream can't be compared with those of a plain answer.
fn lacks(plain: &Answer, stream: &Answer) -> Option<String> {
    let (n, m) = (plain.tokens.len(), stream.tokens.len());
    if n == 0 {
        return None;
    }
    if scored(plain) == 0 || scored(stream) == 0 {
        return Some("one of them has no log-probabilities".into());
    }
    if stream.records == Records::Partial {
        return Some(format!("its {m} records do not spell its text"));
    }
    // A text that is another one has tokens of its own.
    if plain.records == Records::Whole && plain.text == stream.text && n != m {
        return Some(format!("{m} records of the text that {n} records spell"));
    }
    let foreign = stream.foreign;
    (foreign > plain.foreign)
        .then(|| format!("the alternatives at {foreign} places are not those of their token"))
}

/// Says of log-probabilities what a longer answer shows: that they are gaps, or one value again and again.
pub(super) fn look_at_values(session: &mut Session<'_>, facts: &mut Facts, long: &Answer) {
    if scored(long) == 0 {
        return;
    }
    let n = long.tokens.len();
    let why = if long.records == Records::Partial {
        Some(format!("{n} records do not spell the text of their answer"))
    } else if is_flat(long) {
        // A text that the model is sure of may have one value by chance. Two have not.
        let text = "Fourteen unlikely words about grey harbours, and a number: ";
        let other = ask(session, &super::greedy(text, super::LONG_TOKENS));
        let flat = other.is_ok_and(|exchange| is_flat(&exchange.answer));
        flat.then(|| format!("all values of {n} places are one: they carry no information"))
    } else {
        None
    };
    let Some(why) = why else { return };
    facts.notes.push(format!("log-probabilities: {why}"));
    let named = facts.server.abilities.iter_mut().find(|a| a.name == super::LOGPROBS);
    if let Some(ability) = named {
        (ability.known, ability.evidence) = (Some(false), why);
    }
}

/// Whether the picked tokens have one value, and the others, if any, one too.
fn is_flat(answer: &Answer) -> bool {
    let own: BTreeSet<&str> =
        answer.tokens.iter().filter_map(|token| Some(token.logprob.as_ref()?.as_str())).collect();
    let others = answer.tokens.iter().flat_map(|token| {
        let alternatives = token.top.iter().filter(|(key, _)| **key != token.key);
        alternatives
            .map(|(_, value)| value.as_str())
            .filter(|value| token.logprob.as_ref().is_none_or(|own| own.as_str() != *value))
    });
    let others: BTreeSet<&str> = others.collect();
    answer.tokens.len() > 1 && own.len() <= 1 && others.len() <= 1
}

#[cfg(test)]
mod tests {
    use super::super::super::super::compare::tests::answer;
    use super::*;

    #[test]
    fn one_value_again_and_again_says_nothing() {
        let flat = answer(&[(1, "0.0", &[(1, "0.0")]), (2, "0.0", &[(2, "0.0")])]);
        assert!(is_flat(&flat));
        assert!(is_flat(&answer(&[(1, "0.0", &[(3, "-9")]), (2, "0.0", &[(4, "-9")])])));
        for says in [
            answer(&[(1, "0.0", &[]), (2, "-0.1", &[])]),
            answer(&[(1, "0.0", &[(3, "-9")]), (2, "0.0", &[(3, "-8")])]),
            answer(&[(1, "0.0", &[])]),
        ] {
            assert!(!is_flat(&says));
        }
    }

    #[test]
    fn a_stream_lacks_what_the_plain_answer_shows_that_it_lacks() {
        let of = |records| Answer { records, ..answer(&[(1, "-1", &[]), (2, "-2", &[])]) };
        let plain = of(Records::Whole);
        assert_eq!(lacks(&plain, &plain), None);
        assert_eq!(lacks(&Answer::default(), &plain), None);
        assert!(lacks(&plain, &of(Records::Partial)).unwrap().contains("2 records"));
        let shorter = Answer { records: Records::Whole, ..answer(&[(1, "-1", &[])]) };
        assert!(lacks(&plain, &shorter).is_some());
        assert_eq!(lacks(&plain, &Answer { text: "other".into(), ..shorter }), None);
        let foreign = |foreign| Answer { foreign, ..of(Records::Whole) };
        assert!(lacks(&foreign(1), &foreign(2)).is_some());
        assert_eq!(lacks(&foreign(2), &foreign(2)), None);
        assert!(lacks(&plain, &Answer::default()).is_some());
    }
}
