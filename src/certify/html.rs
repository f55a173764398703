//! The certificate as one page: no scripts, nothing loaded from elsewhere, and every value escaped. What a server sent is text
//! there, whatever it holds.

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, context};
use serde::Serialize;

use super::certificate::{Arm, Certificate, Divergence, LevelClaim, Smallest};
use super::compare::Seen;
use super::repro::{Reproducer, reproducer};
use super::text;
use super::words;

/// Characters of an answer that are shown before its first difference and from there on.
const SHOWN: [usize; 2] = [120, 360];

/// The page of a certificate.
pub fn page(certificate: &Certificate) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("percent", |share: f64| format!("{:.2} %", share * 100.0));
    environment.add_filter("small", |value: f64| format!("{value:.3e}"));
    environment.add_filter("interval", |low: f64, high: f64| interval([low, high]));
    environment.add_filter("words", |name: &str| name.replace('_', " "));
    environment.add_filter("statement", statement);
    environment.add_filter("clean", words::clean);
    let (files, no_reproducer) = match reproducer(certificate) {
        Ok(Reproducer { files }) => (files, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let levels: Vec<Level> = certificate.levels.iter().map(Level::of).collect();
    let differences: Vec<Shown> = certificate.divergences.iter().map(Shown::of).collect();
    let not_compared: Vec<Option<String>> = certificate.arms.iter().map(words::compared).collect();
    let controls = &certificate.controls;
    let controls = [("positive", &controls.positive), ("negative", &controls.negative)];
    let control_counts = controls.map(|(_, control)| words::control_counts(control));
    let context = context! {
        certificate => Serde(certificate),
        summary => text::summary(certificate),
        samples => certificate.samples.lines(),
        levels => Serde(&levels),
        smallest => certificate.smallest.as_ref().map(Smallest::words),
        kinds => certificate.clusters.as_ref().map(words::kinds),
        differences => Serde(&differences),
        not_compared,
        not_scored => words::not_scored(certificate.arms.iter()),
        controls => Serde(&controls),
        control_counts => Serde(&control_counts),
        files => Serde(&files),
        no_reproducer,
    };
    // A template of our own and a context of known fields: the tests render every part of it.
    environment.render_str(include_str!("page.html"), context).expect("the page renders")
}

fn interval([low, high]: [f64; 2]) -> String {
    format!("[{low:.4}, {high:.4}]")
}

/// What an arm compares, in words.
fn statement(name: &str) -> &'static str {
    Arm::ALL.into_iter().find(|arm| arm.name() == name).map_or("", Arm::statement)
}

/// A claim, with what is empty left out.
#[derive(Serialize)]
struct Level<'a> {
    claim: &'a LevelClaim,
    interval: Option<String>,
    rate: Option<String>,
}

impl Level<'_> {
    fn of(claim: &LevelClaim) -> Level<'_> {
        let interval = (claim.answers > 0).then(|| interval(claim.interval));
        Level { claim, interval, rate: words::seen_rate(claim) }
    }
}

/// A difference, with what differs marked.
#[derive(Serialize)]
struct Shown<'a> {
    first: &'a Divergence,
    what: &'static str,
    shrunk: Option<String>,
    /// Where both answers have one text.
    same_text: Option<Marked>,
    sides: [Side; 2],
}

#[derive(Serialize)]
struct Side {
    name: &'static str,
    token: Marked,
    logprob: Option<Marked>,
    text: Marked,
}

impl Shown<'_> {
    fn of(first: &Divergence) -> Shown<'_> {
        let difference = &first.difference;
        let (ours, theirs) = words::sides(first.arm);
        let [a, b] = [&difference.expected, &difference.got];
        let side = |name, seen: &Seen, other: &Seen, whole: &str, other_whole: &str| Side {
            name,
            token: Marked::of(&token(seen), &token(other)),
            logprob: seen.logprob.as_ref().map(|value| {
                let other = other.logprob.as_ref().map_or(String::new(), ToString::to_string);
                Marked::of(&value.to_string(), &other)
            }),
            text: Marked::of(whole, other_whole).shortened(),
        };
        let is_same = first.expected == first.got;
        Shown {
            first,
            what: difference.observable.words(),
            shrunk: first.shrunk.as_ref().map(|shrunk| shrunk.words()),
            same_text: is_same.then(|| Marked::of(&first.expected, &first.got).shortened()),
            sides: [
                side(ours, a, b, &first.expected, &first.got),
                side(theirs, b, a, &first.got, &first.expected),
            ],
        }
    }
}

/// A token by its id and its text in quotes, or what stands in its place.
fn token(seen: &Seen) -> String {
    let text = words::clean(&seen.text);
    match seen.id {
        Some(id) if text.is_empty() => format!("token {id}"),
        Some(id) => format!("token {id} {text:?}"),
        None => format!("{text:?}"),
    }
}

/// A text, up to where it is another one, and from there on.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Marked {
    same: String,
    differs: String,
}

impl Marked {
    fn of(text: &str, other: &str) -> Marked {
        let equal = text.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
        let at = text.char_indices().nth(equal).map_or(text.len(), |(at, _)| at);
        let (same, differs) = text.split_at(at);
        Marked { same: words::clean(same), differs: words::clean(differs) }
    }

    /// What stands around the first difference, with a mark where something is left out.
    fn shortened(self) -> Marked {
        let [before, from] = SHOWN;
        let left_out = match self.differs.is_empty() {
            // There is no difference to stand around.
            true => 0,
            false => self.same.chars().count().saturating_sub(before),
        };
        let same: String = self.same.chars().skip(left_out).collect();
        let same = if left_out > 0 { format!("…{same}") } else { same };
        Marked {
            same: words::shortened(&same, before + from),
            differs: words::shortened(&self.differs, from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(same: &str, differs: &str) -> Marked {
        Marked { same: same.into(), differs: differs.into() }
    }

    #[test]
    fn what_differs_is_marked_and_cut_texts_say_so() {
        assert_eq!(Marked::of("-1.776055", "-1.7760551"), marked("-1.776055", ""));
        assert_eq!(Marked::of("-1.7760551", "-1.776055"), marked("-1.776055", "1"));
        assert_eq!(Marked::of("é\u{1b}a", "é\u{1b}b"), marked("é", "a"));
        let (long, end) = ("x".repeat(1000), "y".repeat(400));
        let cut = Marked::of(&(long.clone() + &end), &long).shortened();
        assert_eq!(cut.same, format!("…{}", "x".repeat(120)));
        assert_eq!(cut.differs, format!("{}…", "y".repeat(360)));
        assert_eq!(Marked::of(&long, &long).shortened().same, format!("{}…", "x".repeat(480)));
        assert_eq!(Marked::of("ab", "ab").shortened(), marked("ab", ""));
    }
}
