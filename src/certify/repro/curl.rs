//! The script with `curl` lines: what most people paste.

use super::case::{Case, Kind, Prompts};
use super::{fill, lines};

/// Ends a body. A body is one line of JSON, which is never this one.
const END: &str = "LOCKSTEP";

pub(super) fn script(case: &Case) -> String {
    fill(include_str!("common.sh"), |name| match name {
        "header" => case.header.clone(),
        "settings" => settings(case),
        "bodies" => bodies(case),
        "functions" => functions(case),
        "tries" => lines(match case.kind {
            Kind::Warm => include_str!("warm.sh"),
            Kind::New => include_str!("new.sh"),
            Kind::First => include_str!("first.sh"),
        }),
        other => unreachable!("no lines are called {other}"),
    })
}

fn settings(case: &Case) -> Vec<String> {
    let mut settings = vec![
        format!("default_url={}", quoted(&case.url)),
        "url=${OPENAI_BASE_URL:-$default_url}".into(),
        format!("path={}", quoted(&case.path)),
        format!("default_tries={}", case.tries),
    ];
    match case.prompts {
        Some(Prompts::Ids) => {
            let ids: Vec<String> = case.pool.iter().map(u64::to_string).collect();
            settings.push("# Ids that new prompts are made of.".into());
            settings.push(format!("pool='{}'", ids.join(" ")));
        }
        Some(Prompts::Text(start)) => {
            settings.push("# Where the text of a prompt begins in a body.".into());
            settings.push(format!("text_start={start}"));
        }
        None => {}
    }
    settings
}

/// A file a body, and one that says who is sent when.
fn bodies(case: &Case) -> Vec<String> {
    let here = |name: &str, text: Vec<String>| {
        let begin = format!("cat > \"$dir/{name}\" <<'{END}'");
        [vec![begin], text, vec![END.into(), String::new()]].concat()
    };
    let mut out = match case.requests {
        Some(file) => from_file(file, case.neighbours.len()),
        None => here("request.json", vec![case.request.clone()]),
    };
    for (i, body) in case.neighbours.iter().enumerate().filter(|_| case.requests.is_none()) {
        out.extend(here(&format!("neighbour-{i}.json"), vec![body.clone()]));
    }
    if case.kind != Kind::First {
        out.push(
            "# The crowd: seconds after the first, body, and whether its prompt is new each time."
                .into(),
        );
        out.extend(here("crowd", crowd(case)));
    }
    out
}

/// Bodies are the lines that begin like one.
fn from_file(file: &str, neighbours: usize) -> Vec<String> {
    let last = match neighbours {
        0 => "request".to_owned(),
        n => format!("neighbour-{}", n - 1),
    };
    vec![
        format!("awk -v dir=\"$dir\" '/^\\{{\"/ {{"),
        "    sub(/,$/, \"\")".into(),
        "    print > (dir \"/\" (n ? \"neighbour-\" (n - 1) : \"request\") \".json\")".into(),
        "    n++".into(),
        format!("}}' \"$(dirname \"$0\")/{file}\""),
        format!("if [ ! -s \"$dir/{last}.json\" ]; then"),
        format!(
            "    echo \"{file} is missing beside this script, or has not a line for each body\" >&2"
        ),
        "    exit 2".into(),
        "fi".into(),
        String::new(),
    ]
}

/// A line a request, in the order in which they are sent.
fn crowd(case: &Case) -> Vec<String> {
    let mut neighbours = 0..case.neighbours.len();
    let line = |place: usize| {
        let (body, is_new) = match place == case.place {
            true => ("request".to_owned(), case.new.request),
            false => {
                let i = neighbours.next().expect("a place for each");
                (format!("neighbour-{i}"), case.new.neighbours)
            }
        };
        let delay = match case.delays_ms.get(place) {
            None | Some(0) => "0".to_owned(),
            Some(ms) => format!("{}.{:03}", ms / 1000, ms % 1000),
        };
        format!("{delay} {body} {}", if is_new { "new" } else { "same" })
    };
    (0..=case.neighbours.len()).map(line).collect()
}

fn functions(case: &Case) -> Vec<String> {
    let mut out = Vec::new();
    match case.prompts {
        Some(Prompts::Ids) => out.extend(lines(include_str!("renew_ids.sh"))),
        Some(Prompts::Text(_)) => out.extend(lines(include_str!("renew_text.sh"))),
        None => {}
    }
    if case.kind != Kind::First {
        out.extend(lines(include_str!("crowd.sh")));
    }
    out
}

/// A word of a shell that is taken as it is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_ends_a_quoted_word() {
        assert_eq!(quoted("a b$(c)`d`\"e"), "'a b$(c)`d`\"e'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
