//! What an answer is: its text, its tokens with their log-probabilities, and how far these can be compared.

use std::collections::BTreeMap;

use super::decimal::Decimal;

/// Values closer than this are one value that was written twice, with other digits.
const SAME_VALUE: f64 = 1e-3;

/// What names a token, best first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Id(u32),
    Bytes(Vec<u8>),
    Text(String),
}

impl Key {
    /// Whether it names one token: text that holds U+FFFD may be any of several.
    pub(crate) fn is_certain(&self) -> bool {
        !matches!(self, Key::Text(text) if text.contains('\u{fffd}'))
    }
}

/// One token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) key: Key,
    pub(crate) text: String,
    pub(crate) logprob: Option<Decimal>,
    pub(crate) top: BTreeMap<Key, Decimal>,
    /// Alternatives without a finite value, or that can't belong to this place.
    pub(crate) unreadable: u64,
}

impl Token {
    /// Takes an alternative. Of two with one name, the token's own goes first and then the better one, in whatever order they
    /// came; the other can't be told from it.
    pub(super) fn alternative(&mut self, key: Key, value: Option<Decimal>) {
        let Some(value) = value.filter(|_| key.is_certain()) else {
            self.unreadable += 1;
            return;
        };
        let Some(kept) = self.top.get(&key) else {
            self.top.insert(key, value);
            return;
        };
        if *kept == value {
            return;
        }
        self.unreadable += 1;
        let own = self.logprob.as_ref().filter(|_| key == self.key);
        let is_better = match own {
            Some(own) if own == kept => false,
            Some(own) if *own == value => true,
            _ => value.value() > kept.value(),
        };
        if is_better {
            self.top.insert(key, value);
        }
    }

    /// Whether the alternatives list the token with another value than its own.
    fn is_listed_otherwise(&self) -> bool {
        let own = self.logprob.as_ref().map(Decimal::value);
        let listed = self.top.get(&self.key).map(Decimal::value);
        own.zip(listed).is_some_and(|(own, listed)| (listed - own).abs() > SAME_VALUE)
    }

    /// Whether a better token was there, and was not picked.
    fn is_not_the_best(&self) -> bool {
        let Some(own) = self.logprob.as_ref().map(Decimal::value) else { return false };
        self.top.values().any(|value| value.value() > own + SAME_VALUE)
    }

    /// Whether the alternatives are those of the place before, although another token or another value is there.
    fn repeats_those_of(&self, before: &Token) -> bool {
        let differs = self.key != before.key || self.logprob != before.logprob;
        differs && self.top.len() > 1 && self.top == before.top
    }

    fn drop_alternatives(&mut self) -> bool {
        self.unreadable += self.top.len() as u64;
        !std::mem::take(&mut self.top).is_empty()
    }
}

/// Which alternatives of an answer are taken to belong where they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Alternatives {
    /// All but those of places that they can't belong to.
    #[default]
    ByPlace,
    /// All or none: chunks of several tokens displace them, and where one place shows that, others may hide it.
    AllOrNone,
    /// None: plain answers showed that they don't.
    None,
}

/// Whether there is a record for each token of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Records {
    /// There are none.
    #[default]
    None,
    /// They spell the text, or are as many as the tokens.
    Whole,
    /// Some tokens have none, so that places mean nothing.
    Partial,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) id: Option<String>,
    pub(crate) fingerprint: Option<String>,
    pub(crate) text: String,
    /// Empty where the server names no tokens. [`Answer::comparable_tokens`] are those whose places mean something.
    pub(crate) tokens: Vec<Token>,
    pub(crate) records: Records,
    /// Places whose alternatives were another place's, and were dropped.
    pub(crate) foreign: u64,
    pub(crate) prompt_ids: Option<Vec<u32>>,
    pub(crate) finish: Option<String>,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    pub(crate) cached_tokens: Option<u64>,
    /// Whether ids were sent that do not fit the tokens beside them.
    pub(crate) mismatched: bool,
    /// What may tell one replica from another.
    pub(crate) marks: BTreeMap<String, String>,
}

impl Answer {
    /// Ids of the tokens, if each has one.
    pub(crate) fn ids(&self) -> Option<Vec<u32>> {
        let id = |token: &Token| match token.key {
            Key::Id(id) => Some(id),
            _ => None,
        };
        let ids: Option<Vec<u32>> = self.tokens.iter().map(id).collect();
        ids.filter(|ids| !ids.is_empty())
    }

    /// Tokens that can be compared place by place; none where some are missing.
    pub(crate) fn comparable_tokens(&self) -> &[Token] {
        match self.records {
            Records::Partial => &[],
            Records::None | Records::Whole => &self.tokens,
        }
    }

    /// Drops the alternatives of places that they can't belong to: they list the token with another value than its own, or are
    /// those of the place before, or, where the best token is picked, hold a better one.
    pub(crate) fn drop_foreign_alternatives(&mut self, taken: Alternatives, greedy: bool) {
        let is_displaced = |i: usize| {
            let token = &self.tokens[i];
            token.is_listed_otherwise() || (i > 0 && token.repeats_those_of(&self.tokens[i - 1]))
        };
        let displaced: Vec<bool> = (0..self.tokens.len()).map(is_displaced).collect();
        let all = match taken {
            Alternatives::ByPlace => false,
            Alternatives::AllOrNone => displaced.contains(&true),
            Alternatives::None => true,
        };
        for (token, displaced) in self.tokens.iter_mut().zip(displaced) {
            let drops = all || displaced || (greedy && token.is_not_the_best());
            self.foreign += u64::from(drops && token.drop_alternatives());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    fn token(own: &str, alternatives: &[(u32, &str)]) -> Token {
        let mut token = Token {
            key: Key::Id(1),
            text: "t".into(),
            logprob: Decimal::parse(own),
            top: BTreeMap::new(),
            unreadable: 0,
        };
        for (id, value) in alternatives {
            token.alternative(Key::Id(*id), Some(decimal(value)));
        }
        token
    }

    fn dropped(own: &str, alternatives: &[(u32, &str)], greedy: bool) -> (u64, usize, u64) {
        let tokens = vec![token(own, alternatives)];
        let mut answer = Answer { tokens, ..Answer::default() };
        answer.drop_foreign_alternatives(Alternatives::ByPlace, greedy);
        (answer.foreign, answer.tokens[0].top.len(), answer.tokens[0].unreadable)
    }

    #[test]
    fn alternatives_of_another_place_are_dropped_and_counted() {
        // Listed with another value than its own.
        assert_eq!(dropped("-0.5", &[(1, "-0.51"), (2, "-1")], false), (1, 0, 2));
        // Better than the best.
        assert_eq!(dropped("-0.5", &[(2, "-0.4")], true), (1, 0, 1));
        assert_eq!(dropped("-0.5", &[(2, "-0.4")], false), (0, 1, 0));
    }

    #[test]
    fn alternatives_of_their_own_place_stay() {
        for list in [
            &[][..],
            &[(1, "-0.5"), (2, "-1")],
            &[(2, "-0.5")],
            // The same value with other digits.
            &[(1, "-0.50000001"), (2, "-0.5")],
        ] {
            assert_eq!(dropped("-0.5", list, true), (0, list.len(), 0), "{list:?}");
        }
        // Without a value of its own, nothing is known.
        assert_eq!(dropped("null", &[(1, "-0.1")], true), (0, 1, 0));
    }

    /// Which of the lists are another place's can't be told, once one is.
    #[test]
    fn alternatives_of_a_stream_are_taken_all_or_none() {
        let place = |id: u32, own: &str, list: &[(u32, &str)]| Token {
            key: Key::Id(id),
            ..token(own, list)
        };
        // The first place's list again, which neither lists the second's token nor holds a better one.
        let list = [(1, "-0.5"), (2, "-1")];
        let repeated =
            [place(1, "-0.5", &list), place(7, "-0.1", &list), place(8, "-0.1", &[(9, "-1")])];
        let left = |tokens: &[Token], taken| {
            let mut answer = Answer { tokens: tokens.to_vec(), ..Answer::default() };
            answer.drop_foreign_alternatives(taken, true);
            answer.tokens.iter().map(|token| token.top.len()).collect::<Vec<_>>()
        };
        assert_eq!(left(&repeated, Alternatives::ByPlace), [2, 0, 1]);
        assert_eq!(left(&repeated, Alternatives::AllOrNone), [0, 0, 0]);
        assert_eq!(left(&repeated[..1], Alternatives::AllOrNone), [2]);
        assert_eq!(left(&repeated[..1], Alternatives::None), [0]);
        // The same token with the same values again is a loop of the model's.
        let loops = [place(1, "-0.5", &list), place(1, "-0.5", &list)];
        assert_eq!(left(&loops, Alternatives::AllOrNone), [2, 2]);
        // A better one that may not be picked is its own place's alone.
        let masked = [place(1, "-0.5", &[(3, "-0.1")]), place(1, "-0.5", &list)];
        assert_eq!(left(&masked, Alternatives::AllOrNone), [0, 2]);
    }

    /// Two tokens of one name: which is kept does not depend on their order.
    #[test]
    fn of_two_alternatives_with_one_name_the_same_is_kept_in_any_order() {
        for list in [[(2, "-1"), (2, "-3")], [(2, "-3"), (2, "-1")]] {
            let token = token("-0.5", &list);
            assert_eq!((token.top[&Key::Id(2)].as_str(), token.unreadable), ("-1", 1));
        }
        for list in [[(1, "-0.5"), (1, "-0.1")], [(1, "-0.1"), (1, "-0.5")]] {
            assert_eq!(token("-0.5", &list).top[&Key::Id(1)].as_str(), "-0.5");
        }
        assert_eq!(token("-0.5", &[(2, "-1"), (2, "-1.0")]).unreadable, 0);
    }

    #[test]
    fn an_answer_with_gaps_has_no_token_to_compare() {
        let whole = Answer { tokens: vec![token("-1", &[])], ..Answer::default() };
        assert_eq!(whole.comparable_tokens().len(), 1);
        let partial = Answer { records: Records::Partial, ..whole };
        assert_eq!(partial.comparable_tokens(), &[]);
    }
}
