//! The file for pytest: the standard library alone, and one test.

use super::{Case, fill, plain};

pub(super) fn file(case: &Case<'_>) -> String {
    fill(include_str!("reproduce.py"), |name| match name {
        "header" => case.header.clone(),
        "settings" => settings(case),
        other => unreachable!("no lines are called {other}"),
    })
}

fn settings(case: &Case<'_>) -> Vec<String> {
    let mut lines = vec![
        format!(
            "URL = (os.environ.get(\"OPENAI_BASE_URL\") or {}).rstrip(\"/\")",
            literal(case.url)
        ),
        format!("PATH = {}", literal(&case.request.path)),
        format!("TRIES = os.environ.get(\"TRIES\") or \"{}\"", case.tries),
        format!("DELAYS_MS = {:?}", case.delays_ms),
        format!("REQUEST = {}", body(&plain(case.request))),
        "NEIGHBOURS = [".into(),
    ];
    lines.extend(case.neighbours.iter().map(|sent| format!("    {},", body(&plain(sent)))));
    lines.push("]".into());
    lines.push("# Where the request stands among its neighbours.".into());
    lines.push(format!("PLACE = {}", case.place));
    lines
}

/// JSON as Python reads it. A quote within a string of JSON has a backslash before it, so three in a row never are.
fn body(json: &str) -> String {
    format!("json.loads(r\"\"\"{json}\"\"\")")
}

/// A string of JSON is one of Python, as long as what is no ASCII is not escaped.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
