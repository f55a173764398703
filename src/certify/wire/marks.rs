//! What may tell one replica behind an address from another: headers of a response that do not differ by their nature.

use std::collections::BTreeMap;

use ureq::http::HeaderMap;

/// Most marks of an answer.
const MARKS_MAX: usize = 16;
/// Longest value of a mark, in bytes.
const VALUE_BYTES_MAX: usize = 80;
/// Headers of the protocol, and those that are new each time.
const COMMON: [&str; 14] = [
    "accept-ranges",
    "access-control-expose-headers",
    "age",
    "alt-svc",
    "cf-ray",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "etag",
    "expires",
    "keep-alive",
    "transfer-encoding",
    "vary",
];
/// Parts of names whose values are new each time.
const MOVING: [&str; 17] = [
    "time",
    "date",
    "trace",
    "span",
    "cookie",
    "nonce",
    "request",
    "latency",
    "duration",
    "elapsed",
    "remaining",
    "reset",
    "limit",
    "token",
    "cost",
    "retry",
    "idempot",
];

/// The marks among the headers.
pub(super) fn of(headers: &HeaderMap) -> BTreeMap<String, String> {
    let shown = headers.iter().filter_map(|(name, value)| {
        let (name, value) = (name.as_str(), value.to_str().ok()?);
        let fits = !value.is_empty() && value.len() <= VALUE_BYTES_MAX;
        let is_plain = !value.chars().any(char::is_control);
        (fits && is_plain && !moves(name)).then(|| (name.to_owned(), value.to_owned()))
    });
    // Sorted first, so that the same ones are kept whatever their order.
    let all: BTreeMap<String, String> = shown.collect();
    all.into_iter().take(MARKS_MAX).collect()
}

fn moves(name: &str) -> bool {
    let is_id = |word: &str| word.ends_with("id");
    COMMON.contains(&name)
        || MOVING.iter().any(|part| name.contains(part))
        || name.split(['-', '_']).any(is_id)
}

#[cfg(test)]
mod tests {
    use ureq::http::{HeaderName, HeaderValue};

    use super::*;

    fn marks(headers: &[(&str, &str)]) -> Vec<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        of(&map).into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn headers_that_differ_by_nature_are_no_marks() {
        let moving = [
            "date",
            "content-length",
            "connection",
            "x-request-id",
            "traceparent",
            "set-cookie",
            "x-process-time",
            "openai-processing-ms-time",
            "x-uuid",
            "cf-ray",
            "x-ratelimit-remaining",
        ];
        let moving: Vec<(&str, &str)> = moving.into_iter().map(|name| (name, "1")).collect();
        assert_eq!(marks(&moving), Vec::<String>::new());
        assert_eq!(marks(&[("server", "a"), ("x-served-by", "b")]), ["server=a", "x-served-by=b"]);
    }

    #[test]
    fn long_values_and_many_headers_are_cut_off() {
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        assert!(marks(&[("a", &long), ("b", ""), ("c", "\t"), ("d", "\u{e9}")]).is_empty());
        let names: Vec<String> = (0..100).map(|i| format!("x-{i:03}")).collect();
        let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
        assert_eq!(marks(&headers).len(), MARKS_MAX);
    }
}
