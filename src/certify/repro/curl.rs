//! The script with `curl` lines: what most people paste.

use super::{Case, fill, plain};

/// Ends a body. A body is one line of JSON, which is never this one.
const END: &str = "LOCKSTEP";

pub(super) fn script(case: &Case<'_>) -> String {
    fill(include_str!("reproduce.sh"), |name| match name {
        "header" => case.header.clone(),
        "settings" => vec![
            format!("default_url={}", quoted(case.url)),
            "url=${OPENAI_BASE_URL:-$default_url}".into(),
            format!("path={}", quoted(&case.request.path)),
            format!("default_tries={}", case.tries),
        ],
        "bodies" => bodies(case),
        "prime" => {
            (0..case.neighbours.len()).map(|i| format!("ask neighbour-{i} prime-{i}")).collect()
        }
        "crowd" => crowd(case),
        other => unreachable!("no lines are called {other}"),
    })
}

fn bodies(case: &Case<'_>) -> Vec<String> {
    let neighbours = case.neighbours.iter().enumerate().map(|(i, n)| (format!("neighbour-{i}"), n));
    let all = [("request".to_owned(), case.request)].into_iter().chain(neighbours);
    all.flat_map(|(name, sent)| {
        [format!("cat > \"$dir/{name}.json\" <<'{END}'"), plain(sent), END.into(), String::new()]
    })
    .collect()
}

/// All in the background, in the order in which they were sent.
fn crowd(case: &Case<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut neighbours = 0..case.neighbours.len();
    for place in 0..=case.neighbours.len() {
        let step = case.delays_ms[place].saturating_sub(case.delays_ms[place.saturating_sub(1)]);
        if step > 0 {
            lines.push(format!("    sleep 0.{:03}", step.min(999)));
        }
        lines.push(match place == case.place {
            true => "    ask request \"crowd-$try\" &".into(),
            false => {
                let i = neighbours.next().expect("a place for each");
                format!("    ask neighbour-{i} \"crowd-$try-{i}\" &")
            }
        });
    }
    lines
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
