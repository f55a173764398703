//! Two answers to the same request: where they first differ, and how much before that.
//!
//! Positions are compared up to the first other token, since what follows has another context. Alternatives are maps by
//! token, and only what both sides have is compared; the rest is counted. Counters that disagree about equal tokens are a
//! finding beside the difference, not one.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::wire::decimal::Decimal;
use super::wire::{Answer, Key, Token};

/// What was looked at, and the first difference.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Comparison {
    /// Positions at which both have a token.
    pub(crate) positions: u64,
    /// Log-probabilities that both have.
    pub(crate) values: u64,
    /// Log-probabilities that one has, or that are no numbers.
    pub(crate) incomparable: u64,
    /// Some of the values compared: where all are the same they say nothing.
    pub(crate) distinct: BTreeSet<String>,
    pub(crate) difference: Option<Difference>,
    /// What the server counts otherwise although tokens and values are equal.
    pub(crate) beside: Option<String>,
}

/// Different values that are kept of a comparison.
const DISTINCT_MAX: usize = 4;

/// What differs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observable {
    /// The token at a position.
    Token,
    /// The log-probability of the token at a position.
    Logprob,
    /// The log-probability of an alternative at a position.
    Alternative,
    /// The number of tokens.
    Length,
    /// Why the answer ended.
    Finish,
    /// Tokens of the prompt, as the server counts them: the two requests are not the same to it.
    PromptTokens,
    /// The text.
    Text,
}

impl Observable {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Observable::Token => "token",
            Observable::Logprob => "log-probability of the token",
            Observable::Alternative => "log-probability of an alternative",
            Observable::Length => "number of tokens",
            Observable::Finish => "finish reason",
            Observable::PromptTokens => "number of prompt tokens",
            Observable::Text => "text",
        }
    }
}

/// The first difference between a reference and another answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// What differs first.
    pub observable: Observable,
    /// Position in the answer; absent where the answers differ as a whole.
    pub position: Option<u64>,
    /// The reference's token there, and its log-probability as received.
    pub expected: Seen,
    /// The other's.
    pub got: Seen,
    /// First position with another token.
    pub token_position: Option<u64>,
    /// Gap between the best and the second of the reference, at the first other token or else at the first difference.
    pub margin: Option<f64>,
    /// Positions before the first other token at which a log-probability differed.
    pub drifted: u64,
    /// Largest difference of a log-probability before the first other token.
    pub earlier_drift: Option<f64>,
    /// Largest difference of a log-probability at the first other token. What one side alone lists has moved at least to
    /// below all that the other one lists.
    pub drift_there: Option<f64>,
}

/// A token as it was received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Its id, if the server says it.
    pub id: Option<u32>,
    /// Its text, or the thing that differs where it is no token.
    pub text: String,
    /// Its log-probability as received.
    pub logprob: Option<Decimal>,
}

impl Seen {
    fn token(token: Option<&Token>) -> Seen {
        let Some(token) = token else { return Seen { text: "(none)".into(), ..Seen::default() } };
        let id = match token.key {
            Key::Id(id) => Some(id),
            _ => None,
        };
        Seen { id, text: token.text.clone(), logprob: token.logprob.clone() }
    }

    fn whole(text: impl Into<String>) -> Seen {
        Seen { text: text.into(), ..Seen::default() }
    }
}

/// Which parts of an answer belong to the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// All.
    All,
    /// Tokens, log-probabilities and text; how an answer ended is told beside it.
    Content,
    /// Tokens and their log-probabilities alone.
    Tokens,
}

/// Compares an answer with the reference.
pub(crate) fn compare(reference: &Answer, other: &Answer, parts: Parts) -> Comparison {
    let mut comparison = Comparison::default();
    let mut first: Option<(u64, Observable, Seen, Seen)> = None;
    let mut token_position = None;
    let mut drift = Drift::default();
    let (ours, theirs) = (reference.comparable_tokens(), other.comparable_tokens());
    if ours.is_empty() != theirs.is_empty() {
        comparison.incomparable += ours.len().max(theirs.len()) as u64;
    }
    for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
        let position = i as u64;
        comparison.positions += 1;
        let same = same_token(a, b);
        let here = values(a, b, same, &mut comparison);
        if let Some(largest) = here.largest {
            drift.take(same, largest);
        }
        let observable = match (same, here.differs) {
            (false, _) => Some(Observable::Token),
            (true, differs) => differs,
        };
        if let (None, Some(observable)) = (&first, observable) {
            let (expected, got) = match (observable, here.alternative) {
                (Observable::Alternative, Some(seen)) => seen,
                _ => (Seen::token(Some(a)), Seen::token(Some(b))),
            };
            first = Some((position, observable, expected, got));
        }
        if !same {
            token_position = Some(position);
            break;
        }
    }
    let prompts = counts(Observable::PromptTokens, reference.prompt_tokens, other.prompt_tokens);
    let first = first
        .map(|(position, observable, expected, got)| (Some(position), observable, expected, got))
        .or_else(|| whole(reference, other, parts));
    let first = match (prompts, first) {
        // To the server these were two prompts: that goes before all that follows from it.
        (Some(prompts), Some(_)) if parts == Parts::All => Some(prompts),
        (_, first) => first,
    };
    if first.is_none() && parts != Parts::Tokens {
        comparison.beside = beside(reference, other);
    }
    comparison.difference = first.map(|(position, observable, expected, got)| {
        let at = token_position.or(position).map(|p| p as usize);
        Difference {
            observable,
            position,
            expected,
            got,
            token_position,
            margin: at.and_then(|p| ours.get(p)).and_then(margin),
            drifted: drift.positions,
            earlier_drift: drift.earlier,
            drift_there: drift.there,
        }
    });
    comparison
}

#[derive(Default)]
struct Drift {
    positions: u64,
    earlier: Option<f64>,
    there: Option<f64>,
}

impl Drift {
    fn take(&mut self, same_token: bool, largest: f64) {
        if !same_token {
            self.there = Some(largest);
            return;
        }
        self.positions += u64::from(largest > 0.0);
        self.earlier = Some(self.earlier.unwrap_or(0.0).max(largest));
    }
}

/// The log-probabilities of one position.
#[derive(Default)]
struct Here {
    /// Largest difference of those that both have.
    largest: Option<f64>,
    differs: Option<Observable>,
    alternative: Option<(Seen, Seen)>,
}

fn values(a: &Token, b: &Token, same: bool, comparison: &mut Comparison) -> Here {
    let mut here = Here::default();
    if !same {
        let moved = unlisted(a, b).into_iter().chain(unlisted(b, a)).reduce(f64::max);
        here.largest = moved.filter(|moved| *moved > 0.0);
    }
    let mut pair = |a: &Decimal, b: &Decimal| {
        comparison.values += 1;
        if comparison.distinct.len() < DISTINCT_MAX {
            comparison.distinct.insert(a.as_str().into());
        }
        // Decimals that differ may be one float: that is a difference of no size.
        let size = if a == b { 0.0 } else { (a.value() - b.value()).abs() };
        here.largest = Some(here.largest.unwrap_or(0.0).max(size));
        a != b
    };
    let mut logprob_differs = false;
    if same && let (Some(a), Some(b)) = (&a.logprob, &b.logprob) {
        logprob_differs = pair(a, b);
    }
    let mut alternative = None;
    for (key, value) in &a.top {
        if let Some(other) = b.top.get(key)
            && pair(value, other)
            && alternative.is_none()
        {
            alternative = Some((named(key, value), named(key, other)));
        }
    }
    if same && a.logprob.is_some() != b.logprob.is_some() {
        comparison.incomparable += 1;
    }
    let only = |a: &Token, b: &Token| a.top.keys().filter(|key| !b.top.contains_key(key)).count();
    comparison.incomparable += (only(a, b) + only(b, a)) as u64 + a.unreadable + b.unreadable;
    here.differs = match (logprob_differs, &alternative) {
        (true, _) => Some(Observable::Logprob),
        (false, Some(_)) => Some(Observable::Alternative),
        (false, None) => None,
    };
    here.alternative = alternative;
    here
}

/// How far the token of one side has moved at least, if the other side does not list it: to below the list's lowest. The
/// other's own token does not count, since it is listed wherever it stands.
fn unlisted(a: &Token, b: &Token) -> Option<f64> {
    let value = a.logprob.as_ref()?.value();
    let is_whole = b.top.contains_key(&b.key) && b.unreadable == 0;
    if !is_whole || b.top.contains_key(&a.key) {
        return None;
    }
    let others = b.top.iter().filter(|(key, _)| **key != b.key);
    others.map(|(_, other)| value - other.value()).reduce(f64::max)
}

fn named(key: &Key, value: &Decimal) -> Seen {
    let logprob = Some(value.clone());
    match key {
        Key::Id(id) => Seen { id: Some(*id), text: String::new(), logprob },
        Key::Bytes(bytes) => {
            Seen { id: None, text: String::from_utf8_lossy(bytes).into_owned(), logprob }
        }
        Key::Text(text) => Seen { id: None, text: text.clone(), logprob },
    }
}

/// Whether two tokens are the same, by the best name that both have.
fn same_token(a: &Token, b: &Token) -> bool {
    match (&a.key, &b.key) {
        (Key::Id(_), Key::Id(_)) | (Key::Bytes(_), Key::Bytes(_)) => a.key == b.key,
        // A token that has an id and no text can't be told from one that has text and no id.
        (Key::Id(_), _) | (_, Key::Id(_)) if a.text.is_empty() || b.text.is_empty() => true,
        _ => a.text == b.text,
    }
}

type Whole = (Option<u64>, Observable, Seen, Seen);

/// What differs although no position does.
fn whole(a: &Answer, b: &Answer, parts: Parts) -> Option<Whole> {
    let (ours, theirs) = (a.comparable_tokens(), b.comparable_tokens());
    let (n, m) = (ours.len(), theirs.len());
    // A side without any tokens named is no shorter answer: its text is compared.
    if n != m && n > 0 && m > 0 {
        let at = n.min(m);
        let (a, b) = (Seen::token(ours.get(at)), Seen::token(theirs.get(at)));
        return Some((Some(at as u64), Observable::Length, a, b));
    }
    if parts == Parts::Tokens {
        return None;
    }
    if a.text != b.text {
        let (expected, got) = around(&a.text, &b.text);
        return Some((None, Observable::Text, expected, got));
    }
    if parts == Parts::All && a.finish != b.finish {
        let (a, b) = (ending(a), ending(b));
        return Some((None, Observable::Finish, Seen::whole(a), Seen::whole(b)));
    }
    None
}

fn ending(answer: &Answer) -> String {
    answer.finish.clone().unwrap_or_else(|| "(none)".into())
}

/// What is told otherwise of equal answers: counts, and how they ended.
fn beside(a: &Answer, b: &Answer) -> Option<String> {
    let counted = [
        ("prompt tokens", a.prompt_tokens, b.prompt_tokens),
        ("answer tokens", a.completion_tokens, b.completion_tokens),
    ];
    let count = counted.into_iter().find_map(|(what, a, b)| match (a?, b?) {
        (a, b) if a != b => Some(format!("{a} and {b} {what} are counted for equal answers")),
        _ => None,
    });
    let (ours, theirs) = (ending(a), ending(b));
    let ended = (ours != theirs)
        .then(|| format!("equal answers are said to have ended by {ours:?} and {theirs:?}"));
    count.or(ended)
}

/// Two counts that differ. One that is not sent is unknown, not another one.
fn counts(observable: Observable, a: Option<u64>, b: Option<u64>) -> Option<Whole> {
    let (a, b) = (a?, b?);
    let seen = |count: u64| Seen::whole(count.to_string());
    (a != b).then(|| (None, observable, seen(a), seen(b)))
}

/// What stands where two texts part; what is left out on either side is marked.
fn around(a: &str, b: &str) -> (Seen, Seen) {
    const CHARACTERS: usize = 24;
    let common = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let from = common.saturating_sub(8);
    let cut = |text: &str| {
        let part: String = text.chars().skip(from).take(CHARACTERS).collect();
        let before = if from > 0 { "…" } else { "" };
        let after = if text.chars().count() > from + CHARACTERS { "…" } else { "" };
        Seen::whole(format!("{before}{part}{after}"))
    };
    (cut(a), cut(b))
}

/// Gap between best and second of a token's alternatives, the token among them.
fn margin(token: &Token) -> Option<f64> {
    let mut all: BTreeMap<&Key, f64> = token.top.iter().map(|(k, v)| (k, v.value())).collect();
    if let Some(logprob) = &token.logprob {
        all.entry(&token.key).or_insert(logprob.value());
    }
    let mut sorted: Vec<f64> = all.into_values().collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    (sorted.len() >= 2).then(|| sorted[0] - sorted[1])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A token: id, logprob, and alternatives of the same.
    type Written<'a> = (u32, &'a str, &'a [(u32, &'a str)]);

    /// An answer of these tokens.
    pub(crate) fn answer(tokens: &[Written<'_>]) -> Answer {
        let decimal = |text: &str| Decimal::parse(text).unwrap();
        let tokens = tokens.iter().map(|(id, logprob, top)| Token {
            key: Key::Id(*id),
            text: format!("t{id}"),
            logprob: Some(decimal(logprob)),
            top: top.iter().map(|(id, value)| (Key::Id(*id), decimal(value))).collect(),
            unreadable: 0,
        });
        Answer { tokens: tokens.collect(), ..Answer::default() }
    }

    fn difference(a: &Answer, b: &Answer) -> Difference {
        compare(a, b, Parts::All).difference.expect("they differ")
    }

    #[test]
    fn a_digit_of_a_log_probability_is_a_difference() {
        let a = answer(&[(1, "-0.5", &[]), (2, "-0.25", &[])]);
        let b = answer(&[(1, "-0.5", &[]), (2, "-0.250000001", &[])]);
        let found = difference(&a, &b);
        assert_eq!((found.observable, found.position), (Observable::Logprob, Some(1)));
        assert_eq!(found.got.logprob.unwrap().as_str(), "-0.250000001");
        assert_eq!((found.token_position, found.drifted), (None, 1));
        assert_eq!(compare(&a, &a, Parts::All).difference, None);
    }

    /// Lists cut elsewhere, and the sampled token listed or not, are no difference; they are counted.
    #[test]
    fn only_alternatives_that_both_sides_have_are_compared() {
        let a = answer(&[(1, "-0.5", &[(1, "-0.5"), (2, "-1"), (3, "-2")])]);
        let b = answer(&[(1, "-0.5", &[(2, "-1"), (4, "-2")])]);
        let comparison = compare(&a, &b, Parts::All);
        assert_eq!(comparison.difference, None);
        assert_eq!((comparison.values, comparison.incomparable), (2, 3));
        let c = answer(&[(1, "-0.5", &[(2, "-1.0001")])]);
        assert_eq!(difference(&a, &c).observable, Observable::Alternative);
    }

    #[test]
    fn what_follows_another_token_is_not_compared() {
        let a = answer(&[(1, "-0.5", &[]), (2, "-0.7", &[(3, "-0.71")]), (5, "-1", &[])]);
        let b = answer(&[(1, "-0.6", &[]), (3, "-0.7", &[(3, "-0.7")]), (9, "-1", &[])]);
        let found = difference(&a, &b);
        assert_eq!((found.observable, found.position), (Observable::Logprob, Some(0)));
        assert_eq!(found.token_position, Some(1));
        assert!((found.margin.unwrap() - 0.01).abs() < 1e-9);
        assert!((found.earlier_drift.unwrap() - 0.1).abs() < 1e-9);
        assert!((found.drift_there.unwrap() - 0.01).abs() < 1e-9);
        assert_eq!(compare(&a, &b, Parts::All).positions, 2);
    }

    #[test]
    fn a_shorter_answer_another_end_and_another_count_are_differences() {
        let a = answer(&[(1, "-0.5", &[]), (2, "-0.5", &[])]);
        let short = answer(&[(1, "-0.5", &[])]);
        assert_eq!(difference(&a, &short).observable, Observable::Length);
        let stopped = Answer { finish: Some("stop".into()), ..a.clone() };
        assert_eq!(difference(&a, &stopped).observable, Observable::Finish);
        let counted = Answer { prompt_tokens: Some(3), ..a.clone() };
        let other = Answer { prompt_tokens: Some(4), ..short.clone() };
        assert_eq!(difference(&counted, &other).observable, Observable::PromptTokens);
        assert_eq!(compare(&a, &counted, Parts::All).difference, None);
    }
}
