//! Certificates as they may come together.

use super::super::certificate::{Certificate, Reference};
use super::*;

const HERE: &str = "http://host/v1";
const THERE: &str = "http://other/v1";

/// An answer to a prompt. Answers of one letter are equal.
fn answer(prompt: u32, letter: &str) -> Reference {
    Reference {
        prompt,
        prompt_sha256: format!("prompt {prompt}"),
        prompt_tokens: None,
        text_sha256: "text".into(),
        values_sha256: Some(letter.into()),
        repeatable: true,
    }
}

/// Answers to prompts 0, 1 and so on, a letter each.
fn answers(letters: &str) -> Vec<Reference> {
    let letters = letters.split_terminator("").skip(1);
    letters.enumerate().map(|(prompt, letter)| answer(prompt as u32, letter)).collect()
}

fn part(url: &str, verdict: Verdict, answers: Vec<Reference>) -> Part {
    let member = Member {
        file: None,
        url: url.into(),
        model: "m".into(),
        verdict,
        reasons: vec!["its reason".into()],
        claim: format!("{}: m at {url}", verdict.name()),
        levels: Vec::new(),
        kind: None,
    };
    let written = Some(("token ids".into(), 17));
    Part { member, answers, written, digest: Some(String::new()) }
}

/// Parts as different certificates.
fn merged(parts: Vec<Part>) -> Merged {
    let different = parts.into_iter().enumerate().map(|(at, mut part)| {
        part.digest = part.digest.map(|_| at.to_string());
        part
    });
    let merged = merge(different.collect()).expect("two parts at least");
    // What is written is read.
    let text = serde_json::to_string(&merged).expect("a document");
    assert_eq!(serde_json::from_str::<Merged>(&text).expect("the same"), merged);
    merged
}

fn held(letters: &str) -> Part {
    part(HERE, Verdict::Held, answers(letters))
}

#[test]
fn all_held_with_equal_answers_is_held() {
    let merged = merged(vec![held("aaaa"), held("aaaa"), held("aaaa")]);
    assert_eq!((merged.verdict, merged.between), (Verdict::Held, Between::Lives));
    let counts = &merged.counts;
    assert_eq!((counts.of, counts.broken, counts.held, counts.undecided), (3, 0, 3, 0));
    // binom.test(0, 3) of R 4.
    assert!((counts.interval[1] - 0.707_598).abs() < 1e-6 && counts.interval[0] == 0.0);
    assert_eq!((merged.compared.pairs, merged.compared.pairs_compared), (3, 3));
    assert_eq!((merged.compared.prompts, merged.compared.answers), (4, 12));
    assert_eq!(merged.groups.len(), 1);
    assert_eq!(merged.groups[0].members, [1, 2, 3]);
    let line = summary(&merged);
    assert!(line.starts_with("held: m at http://host/v1: 0 of 3 lives broken, 3 held"), "{line}");
    assert!(line.contains("answers alone to 4 prompts are equal"), "{line}");
}

#[test]
fn one_broken_life_of_three_is_broken_with_its_share() {
    let broken = part(HERE, Verdict::Broken, answers("aaaa"));
    let merged = merged(vec![held("aaaa"), broken, held("aaaa")]);
    assert_eq!(merged.verdict, Verdict::Broken);
    assert_eq!(merged.reasons, ["life 2 of 3 is broken: its reason"]);
    // binom.test(1, 3) of R 4.
    let expected = [0.008_403_759, 0.905_700_7];
    for (got, expected) in merged.counts.interval.into_iter().zip(expected) {
        assert!((got - expected).abs() < 1e-6, "{got} against {expected}");
    }
    assert!(summary(&merged).contains(
        "1 of 3 lives broken, 2 held, 0 undecided, share of broken lives [0.0084, 0.9057]"
    ));
    assert!(report(&merged).contains("\nlife 2, kind A: broken: m at"));
}

#[test]
fn answers_that_differ_between_lives_are_broken_though_each_is_held() {
    let merged = merged(vec![held("aaaa"), held("bbba"), held("aaaa")]);
    assert_eq!(merged.verdict, Verdict::Broken);
    let expected = "answers alone to the same prompts differ between lives: life 2 of 3 answers 3 of 4 prompts otherwise than lives 1 and 3";
    assert_eq!(merged.reasons, [expected]);
    let kinds: Vec<_> = merged.members.iter().map(|member| member.kind.as_deref()).collect();
    assert_eq!(kinds, [Some("A"), Some("B"), Some("A")]);
    assert_eq!(merged.compared.differing, 6);
    assert!(summary(&merged).contains(expected));
    assert!(
        report(&merged).ends_with(
            "kind A: lives 1 and 3\nkind B: life 2, 3 of 4 prompts otherwise than kind A"
        )
    );
}

#[test]
fn it_is_said_whether_lives_or_addresses_differ() {
    let there = |letters| part(THERE, Verdict::Held, answers(letters));
    let addresses = merged(vec![held("aa"), there("ab")]);
    assert_eq!(addresses.between, Between::Addresses);
    assert!(
        addresses.reasons[0].contains("differ between addresses: address 2 of 2 answers 1 of 2")
    );
    let all = merged(vec![held("aa"), there("ab"), held("ac")]);
    assert_eq!(all.between, Between::Both);
    assert!(all.reasons[0].contains("differ between lives and addresses: certificate 2 of 3"));
    assert!(all.reasons[1].starts_with("certificate 3 of 3 answers 1 of 2"));
    // Of one server alone, and the other agrees with one of its lives.
    let lives = merged(vec![held("aa"), held("ab"), there("zz")]);
    assert!(lives.reasons[0].contains("differ between lives and addresses"));
    let mut other = there("zz");
    other.answers.clear();
    let lives = merged(vec![held("aa"), held("ab"), other]);
    assert!(
        lives.reasons[0].contains("differ between lives: certificate 2 of 3"),
        "{:?}",
        lives.reasons
    );
}

#[test]
fn nothing_in_common_is_undecided_and_says_what_to_do() {
    let mut other = held("aaaa");
    for answer in &mut other.answers {
        answer.prompt_sha256.push_str(" of another seed");
    }
    let merged = merged(vec![held("aaaa"), other, held("aaaa")]);
    assert_eq!(merged.verdict, Verdict::Undecided);
    let expected = "no prompt in common in 2 of 3 pairs, lives 1 and 2 first: run them with the same --seed and --nonce";
    assert_eq!(merged.reasons, [expected]);
    assert_eq!(merged.members[1].kind, None);
    assert_eq!(merged.groups.len(), 1);
    assert!(summary(&merged).contains("run them with the same --seed and --nonce"));
}

#[test]
fn answers_that_do_not_repeat_themselves_are_not_compared() {
    let mut loose = held("bbbb");
    loose.answers.iter_mut().for_each(|answer| answer.repeatable = false);
    let all = merged(vec![held("aaaa"), loose.clone()]);
    assert_eq!((all.verdict, all.compared.answers), (Verdict::Undecided, 0));
    assert!(all.reasons[0].contains("repeat themselves in lives 1 and 2"), "{:?}", all.reasons);
    loose.answers[2] = answer(2, "a");
    let one = merged(vec![held("aaaa"), loose]);
    assert_eq!((one.verdict, one.compared.prompts), (Verdict::Held, 1));
}

#[test]
fn one_held_and_one_undecided_are_undecided() {
    let merged = merged(vec![held("aa"), part(HERE, Verdict::Undecided, answers("aa"))]);
    assert_eq!(merged.verdict, Verdict::Undecided);
    assert_eq!(merged.reasons, ["life 2 of 2 is undecided: its reason"]);
    let counts = &merged.counts;
    assert_eq!((counts.broken, counts.held, counts.undecided), (0, 1, 1));
    // Undecided is not held: the share is of those that are decided, 0 of 1.
    assert!((counts.interval[1] - 0.975).abs() < 1e-9);
}

#[test]
fn a_life_without_a_certificate_is_undecided_and_broken_beats_it() {
    let failed = || Part::failed(HERE.into(), "the restart command failed".into());
    let all = merged(vec![held("aa"), failed()]);
    assert_eq!(all.verdict, Verdict::Undecided);
    assert_eq!(all.reasons, ["life 2 of 2 is undecided: the restart command failed"]);
    assert_eq!(all.compared.pairs, 0);
    let broken = merged(vec![held("aa"), failed(), held("ab")]);
    assert_eq!(broken.verdict, Verdict::Broken);
    assert_eq!(broken.reasons.len(), 2);
}

/// Values are compared only where both servers write them alike; a server always writes like itself.
#[test]
fn values_that_are_written_otherwise_are_compared_by_text() {
    let coarse = |url| {
        let mut part = part(url, Verdict::Held, answers("bb"));
        part.written = Some(("token ids".into(), 5));
        part
    };
    let by_text = merged(vec![held("aa"), coarse(THERE)]);
    assert_eq!((by_text.verdict, by_text.compared.by_text), (Verdict::Held, 2));
    assert!(by_text.reasons[0].ends_with("2 of 2 comparisons by text alone"));
    assert_eq!(merged(vec![held("aa"), coarse(HERE)]).verdict, Verdict::Broken);
    let mut texts = coarse(THERE);
    texts.answers[1].text_sha256 = "other".into();
    assert_eq!(merged(vec![held("aa"), texts]).compared.differing, 1);
    let mut bytes = coarse(HERE);
    bytes.written = Some(("bytes".into(), 17));
    assert_eq!(merged(vec![held("aa"), bytes]).compared.by_text, 2);
}

#[test]
fn the_same_certificate_twice_is_refused() {
    let text = super::super::certificate::tests::empty().to_string();
    let certificate = Certificate::parse(&text).expect("a certificate");
    let of = |file: &str| Part::of(&certificate, Some(file.into()));
    let error = merge(vec![of("a.json"), of("b.json")]).expect_err("twins");
    assert_eq!(error.to_string(), "a.json and b.json are the same certificate: each counts once");
    assert!(merge(vec![of("a.json")]).is_err());
    let mut later = certificate.clone();
    later.seconds = 1.0;
    assert!(merge(vec![of("a.json"), Part::of(&later, None)]).is_ok());
}

#[test]
fn many_of_a_kind_are_named_up_to_a_few() {
    let parts = (0..9).map(|_| part(HERE, Verdict::Broken, answers("a"))).collect();
    let merged = merged(parts);
    assert_eq!(merged.reasons.len(), NAMED_MAX + 1);
    assert_eq!(merged.reasons[NAMED_MAX], "so it is with 5 more");
}
