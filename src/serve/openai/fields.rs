//! Parameters of a request, by name.
//!
//! One of a wrong type is an error that names it, and so is one that nobody has read in the end: what it would ask for is not
//! known here, so it can't be left out in silence. Parameters that ask for nothing, or that are about the client alone, may be
//! there.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::super::error::ApiError;

/// The parameters that nobody has read yet.
pub(in crate::serve) struct Fields(Map<String, Value>);

impl Fields {
    pub(in crate::serve) fn parse(body: &[u8]) -> Result<Fields, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Fields(fields)),
            Ok(_) => Err(ApiError::bad("the body is not a JSON object")),
            Err(error) => Err(ApiError::bad(format!("the body is not JSON: {error}"))),
        }
    }

    /// A parameter of this type; null is as good as none.
    pub(in crate::serve) fn get<T: DeserializeOwned>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, ApiError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match serde_json::from_value(value) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(ApiError::param(name, format!("{name}: {error}"))),
            },
        }
    }

    /// A parameter that is false unless it is given.
    pub(in crate::serve) fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        Ok(self.get(name)?.unwrap_or(false))
    }

    /// A parameter as it is; `None` for null.
    pub(in crate::serve) fn value(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    /// Reads parameters that are not supported: an error, unless they ask for nothing.
    pub(in crate::serve) fn refuse(
        &mut self,
        unsupported: &[(&str, Neutral)],
    ) -> Result<(), ApiError> {
        for (name, neutral) in unsupported {
            if self.0.remove(*name).is_some_and(|value| !neutral.is(&value)) {
                return Err(ApiError::unsupported(name));
            }
        }
        Ok(())
    }

    /// Refuses what nobody has read, but for nulls and [what is about the client](OF_CLIENTS).
    pub(in crate::serve) fn end(self) -> Result<(), ApiError> {
        let asks = |(name, value): &(&String, &Value)| {
            !value.is_null() && !OF_CLIENTS.contains(&name.as_str())
        };
        match self.0.iter().find(asks) {
            Some((name, _)) => Err(ApiError::unsupported(name)),
            None => Ok(()),
        }
    }
}

/// Parameters that never change an answer: who asks, what for, how it is billed, whether a cache is used.
const OF_CLIENTS: &[&str] = &[
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
    "request_id",
    "priority",
    "cache_prompt",
];

/// The value of an unsupported parameter that asks for nothing, besides null.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) enum Neutral {
    Null,
    Number(f64),
    Flag(bool),
    Text(&'static str),
    /// An empty list, object or text.
    Empty,
    /// An object whose `type` is `text`.
    TextType,
}

impl Neutral {
    fn is(self, value: &Value) -> bool {
        let same = match self {
            Neutral::Null => false,
            Neutral::Number(number) => value.as_f64() == Some(number),
            Neutral::Flag(flag) => value.as_bool() == Some(flag),
            Neutral::Text(text) => value.as_str() == Some(text),
            Neutral::Empty => match value {
                Value::Array(list) => list.is_empty(),
                Value::Object(object) => object.is_empty(),
                Value::String(text) => text.is_empty(),
                _ => false,
            },
            Neutral::TextType => value.get("type").and_then(Value::as_str) == Some("text"),
        };
        same || value.is_null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_none_and_a_wrong_type_names_the_parameter() {
        let mut fields = Fields::parse(br#"{"a":null,"b":"x","c":3,"d":true}"#).unwrap();
        assert_eq!(fields.get::<u32>("a").unwrap(), None);
        let json = fields.get::<u32>("b").unwrap_err().json();
        assert!(json.contains(r#""param":"b""#), "{json}");
        assert_eq!(fields.get::<u32>("c").unwrap(), Some(3));
        assert!(fields.flag("d").unwrap() && !fields.flag("e").unwrap());
        for bad in ["", "[]", "3", "{", "{\"a\":}", "\u{0}"] {
            assert!(Fields::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_nobody_has_read_is_refused_by_name() {
        let of = |text: &str| Fields::parse(text.as_bytes()).unwrap();
        let mut fields = of(r#"{"a":1,"user":"me","metadata":{"x":1},"flavour":null}"#);
        fields.get::<u32>("a").unwrap();
        fields.end().unwrap();
        let json = of(r#"{"flavour":0}"#).end().unwrap_err().json();
        assert!(json.contains(r#""param":"flavour""#), "{json}");
    }

    #[test]
    fn what_is_not_supported_may_be_named_as_long_as_it_asks_for_nothing() {
        let parsed = || {
            Fields::parse(
                br#"{"a":0,"b":0.0,"c":[],"d":{"type":"text"},"e":"none","f":null,"g":{},"h":false}"#,
            )
            .unwrap()
        };
        let fine = [
            ("a", Neutral::Number(0.0)),
            ("b", Neutral::Number(0.0)),
            ("c", Neutral::Empty),
            ("d", Neutral::TextType),
            ("e", Neutral::Text("none")),
            ("f", Neutral::Null),
            ("g", Neutral::Empty),
            ("h", Neutral::Flag(false)),
            ("absent", Neutral::Null),
        ];
        let mut fields = parsed();
        fields.refuse(&fine).unwrap();
        fields.end().unwrap();
        for (name, neutral) in
            [("a", Neutral::Null), ("b", Neutral::Number(1.0)), ("h", Neutral::Flag(true))]
        {
            let json = parsed().refuse(&[(name, neutral)]).unwrap_err().json();
            assert!(json.contains(&format!(r#""param":"{name}""#)), "{json}");
        }
    }
}
