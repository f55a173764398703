//! The file for pytest: the standard library alone, and one test.

use super::case::{Case, Kind};
use super::{fill, lines};

pub(super) fn file(case: &Case) -> String {
    fill(include_str!("common.py"), |name| match name {
        "header" => case.header.clone(),
        "settings" => settings(case),
        "functions" => functions(case),
        "tries" => lines(match case.kind {
            Kind::Warm => include_str!("warm.py"),
            Kind::New => include_str!("new.py"),
            Kind::First => include_str!("first.py"),
        }),
        other => unreachable!("no lines are called {other}"),
    })
}

fn settings(case: &Case) -> Vec<String> {
    let url = literal(&case.url);
    let mut settings = vec![
        format!("URL = os.environ.get(\"OPENAI_BASE_URL\") or {url}"),
        format!("TRIES = os.environ.get(\"TRIES\") or \"{}\"", case.tries),
    ];
    match case.requests {
        Some(file) => {
            settings.push("FOLDER = os.path.dirname(os.path.abspath(__file__))".into());
            settings.push(format!(
                "with open(os.path.join(FOLDER, {}), encoding=\"utf-8\") as requests:",
                literal(file)
            ));
            settings.push("    CASE = json.load(requests)".into());
        }
        // A quote within a string of JSON has a backslash before it, so three in a row never are.
        None => settings.push(format!("CASE = json.loads(r\"\"\"{}\"\"\")", case.json())),
    }
    settings
}

fn functions(case: &Case) -> Vec<String> {
    let mut out = lines(include_str!("renew.py"));
    if case.kind != Kind::First {
        out.extend(lines(include_str!("crowd.py")));
    }
    out
}

/// A string of JSON is one of Python, as long as what is no ASCII is not escaped.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
