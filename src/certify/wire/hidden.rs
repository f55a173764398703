//! What no text may show: keys, values of headers and of queries, which servers quote back.

use serde_json::Value;

use super::super::options::Target;
use super::address::Address;

/// Bytes of a secret from which on it is hidden wherever it stands; a shorter one is hidden as a word of its own.
const ANYWHERE_BYTES_MIN: usize = 8;
/// Bytes below which it is no secret: hidden, it would be told by what is missing.
const BYTES_MIN: usize = 4;

/// Secrets, and what stands in their place.
#[derive(Clone, Default)]
pub(in crate::certify) struct Hidden(Vec<(String, &'static str)>);

impl Hidden {
    /// Of all that is sent to a server.
    pub(in crate::certify) fn of(target: &Target) -> Hidden {
        let mut all: Vec<(String, &'static str)> = Vec::new();
        let mut hide = |secret: &str, shown| {
            if secret.len() >= BYTES_MIN {
                all.push((secret.to_owned(), shown));
            }
        };
        target.key.iter().for_each(|key| hide(key.expose(), "(key)"));
        for (_, value) in &target.headers {
            hide(value.expose(), "(header)");
            // Of `Bearer KEY`, the second word is the secret. A word of a sentence is none.
            let words = value.expose().split(' ').filter(|word| word.len() >= ANYWHERE_BYTES_MIN);
            words.for_each(|word| hide(word, "(header)"));
        }
        for url in [Some(&target.url), target.control.as_ref(), target.metrics_url.as_ref()] {
            let address = url.and_then(|url| Address::parse(url).ok());
            let secrets = address.iter().flat_map(Address::secrets);
            secrets.for_each(|secret| hide(secret, "(hidden)"));
        }
        // The longest first: one may be a part of another.
        all.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
        Hidden(all)
    }

    /// The text without secrets.
    pub(in crate::certify) fn text(&self, text: &str) -> String {
        let replaced = |text: String, (secret, shown): &(String, &str)| match secret.len() {
            ANYWHERE_BYTES_MIN.. => text.replace(secret, shown),
            _ => without_word(&text, secret, shown),
        };
        self.0.iter().fold(text.to_owned(), replaced)
    }

    /// Takes secrets out of each string of a document. Names of its fields are ours.
    pub(in crate::certify) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(all) => all.iter_mut().for_each(|value| self.value(value)),
            Value::Object(all) => all.values_mut().for_each(|value| self.value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn without_word(text: &str, word: &str, shown: &str) -> String {
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (at, _) in text.match_indices(word) {
        let before = text[..at].chars().next_back().is_some_and(is_inside);
        let after = text[at + word.len()..].chars().next().is_some_and(is_inside);
        if at >= from && !before && !after {
            out.push_str(&text[from..at]);
            out.push_str(shown);
            from = at + word.len();
        }
    }
    out + &text[from..]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::options::Secret;
    use super::*;

    fn hidden() -> Hidden {
        Hidden::of(&Target {
            url: "http://h/v1?api-version=2024-06-01&sig=signature".into(),
            key: Secret::new("sk-very-secret"),
            headers: vec![
                ("x-a".into(), Secret::of_header("Bearer other-secret").unwrap()),
                ("x-b".into(), Secret::of_header("abcd").unwrap()),
                ("x-c".into(), Secret::of_header("1").unwrap()),
            ],
            ..Target::default()
        })
    }

    #[test]
    fn keys_values_of_headers_and_of_queries_are_hidden() {
        let text =
            "sk-very-secretX Bearer other-secret, other-secret signature abcd abcde 1 2024-06-01";
        let shown = "(key)X (header), (header) (hidden) (header) abcde 1 2024-06-01";
        assert_eq!(hidden().text(text), shown);
        assert_eq!(hidden().text("abcd"), "(header)");
        assert_eq!(Hidden::default().text("x"), "x");
    }

    #[test]
    fn strings_of_a_document_are_hidden_and_its_names_stay() {
        let mut value = json!({ "abcd": ["abcd", 1, { "a": "sk-very-secret" }] });
        hidden().value(&mut value);
        assert_eq!(value, json!({ "abcd": ["(header)", 1, { "a": "(key)" }] }));
    }
}
