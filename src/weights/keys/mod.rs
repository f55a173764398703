//! What becomes of each key that a model's files may hold.
//!
//! A key that could change a number is honoured or refused, never skipped. The lists, one file a format, are three: keys that
//! are read and decide, keys that are refused unless their value asks for nothing, and keys without effect on numbers. A key of
//! the groups rope, attention and tokenizer that is in none of them is refused: nobody here knows what it asks for.

pub(super) mod gguf;
pub(super) mod hf;

#[cfg(feature = "cli")]
pub(crate) use gguf::check_tokenizer as check_gguf_tokenizer;

/// The keys of a group of files.
pub(super) struct Lists {
    /// Read; the loader decides by the value, and refuses what it cannot do.
    pub(super) honoured: &'static [&'static str],
    /// Refused unless the value asks for what is done anyway.
    pub(super) refused: &'static [(&'static str, Unless)],
    /// No number depends on them. An ending `*` stands for any rest.
    pub(super) no_effect: &'static [&'static str],
}

/// The value of a refused key that asks for nothing; null, where a format has it, never does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unless {
    /// No value does.
    Never,
    /// This truth value.
    Is(bool),
    /// This number.
    Number(f64),
    /// This text.
    Text(&'static str),
    /// An empty list.
    Empty,
}

/// A value, as far as [`Unless`] asks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen<'a> {
    Bool(bool),
    Number(f64),
    Text(&'a str),
    List(usize),
    Null,
    Other,
}

/// Which list a key is in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Honoured,
    Refused(Unless),
    NoEffect,
}

impl Lists {
    /// What becomes of a key; `None` when no list has it. A name that is spelt out goes before one that ends in `*`.
    pub(super) fn fate(&self, key: &str) -> Option<Fate> {
        if self.honoured.contains(&key) {
            return Some(Fate::Honoured);
        }
        if let Some((_, unless)) = self.refused.iter().find(|(name, _)| *name == key) {
            return Some(Fate::Refused(*unless));
        }
        let matches = |name: &str| match name.strip_suffix('*') {
            Some(start) => key.starts_with(start),
            None => name == key,
        };
        self.no_effect.iter().any(|name| matches(name)).then_some(Fate::NoEffect)
    }
}

impl Unless {
    /// Whether this value asks for nothing.
    pub(super) fn holds(self, seen: Seen<'_>) -> bool {
        match (self, seen) {
            (_, Seen::Null) => true,
            (Unless::Is(harmless), Seen::Bool(value)) => harmless == value,
            (Unless::Number(harmless), Seen::Number(value)) => harmless == value,
            (Unless::Text(harmless), Seen::Text(value)) => harmless == value,
            (Unless::Empty, Seen::List(0)) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// Every key of the formats, as other programs list them: see the file's head.
    fn table() -> Value {
        let json = include_str!("../../../tests/data/weights/keys.json");
        serde_json::from_str(json).expect("well formed")
    }

    fn keys(of: &Value) -> Vec<String> {
        let list = of.as_array().expect("a list");
        list.iter().map(|key| key.as_str().expect("text").to_owned()).collect()
    }

    /// Keys that no list has.
    fn unlisted(lists: &Lists, of: &Value) -> Vec<String> {
        let all = keys(of);
        assert!(all.len() > 5, "{all:?}");
        all.into_iter().filter(|key| lists.fate(key).is_none()).collect()
    }

    /// Goal: no key of the formats is skipped unseen. Method: the tables of the `gguf` package and of llama.cpp, and the fields of
    /// `transformers`, each key in a list.
    #[test]
    fn every_key_of_the_formats_is_in_a_list() {
        let table = table();
        assert_eq!(unlisted(&gguf::MODEL, &table["gguf"]["arch"]), [""; 0]);
        assert_eq!(unlisted(&gguf::TOKENIZER, &table["gguf"]["tokenizer"]), [""; 0]);
        assert_eq!(unlisted(&gguf::GENERAL, &table["gguf"]["general"]), [""; 0]);
        assert_eq!(unlisted(&hf::CONFIG, &table["hf"]["config"]), [""; 0]);
        assert_eq!(unlisted(&hf::ROPE, &table["hf"]["rope"]), [""; 0]);
        assert_eq!(unlisted(&hf::TOKENIZER_CONFIG, &table["hf"]["tokenizer_config"]), [""; 0]);
        assert_eq!(unlisted(&hf::TOKENIZER, &table["hf"]["tokenizer"]), [""; 0]);
    }

    #[test]
    fn no_key_is_in_two_lists() {
        for lists in [
            &gguf::MODEL,
            &gguf::TOKENIZER,
            &gguf::GENERAL,
            &hf::CONFIG,
            &hf::ROPE,
            &hf::TOKENIZER_CONFIG,
            &hf::TOKENIZER,
        ] {
            let refused = lists.refused.iter().map(|(key, _)| *key);
            let all: Vec<&str> = lists
                .honoured
                .iter()
                .copied()
                .chain(refused)
                .chain(lists.no_effect.iter().copied())
                .collect();
            let each: BTreeSet<&str> = all.iter().copied().collect();
            let twice: Vec<&&str> =
                each.iter().filter(|key| all.iter().filter(|k| k == key).count() > 1).collect();
            assert!(twice.is_empty(), "{twice:?}");
        }
    }

    #[test]
    fn null_asks_for_nothing_and_other_values_only_where_they_are_named() {
        assert!(Unless::Never.holds(Seen::Null) && !Unless::Never.holds(Seen::Number(0.0)));
        assert!(Unless::Number(1.0).holds(Seen::Number(1.0)));
        assert!(!Unless::Number(1.0).holds(Seen::Number(1.5)));
        assert!(
            Unless::Is(true).holds(Seen::Bool(true)) && !Unless::Is(true).holds(Seen::Bool(false))
        );
        assert!(!Unless::Is(false).holds(Seen::Other) && Unless::Empty.holds(Seen::List(0)));
    }
}
