//! What the certifier hands out: the smallest crowd, counts of samples, and the page.

use lockstep::certify::certificate::Clusters;
use lockstep::certify::{Arm, Certificate, Options, Plan, Verdict, html, repro, text};

use crate::run::{small, with};
use crate::server::{Disturbance, Faults, How, When};

const DRIFT: How = How::Drift(1e-3);

fn warm(faults: Faults, options: &Options) -> Certificate {
    let seen = with(faults, options);
    seen.expect(Verdict::Broken);
    seen.certificate
}

/// A fault that takes three in a step is shown by no fewer than two neighbours, and needs neither long prompts nor long
/// answers.
pub(crate) fn a_crowd_is_shrunk_to_what_the_fault_needs() {
    let options = small(&[Arm::ConcurrentWarm]);
    let found = warm(Faults::disturbed(When::InFlight(3), DRIFT), &options);
    let said = text::report(&found);
    let shrunk = found.divergences[0].shrunk.as_ref().unwrap_or_else(|| panic!("{said}"));
    assert_eq!((shrunk.neighbours.len(), shrunk.to.neighbours), (2, 2), "{said}");
    assert!(shrunk.minimal, "{said}");
    assert!(shrunk.to.prompt <= 2 && shrunk.to.neighbour_prompts <= 2, "{said}");
    assert!(shrunk.to.answer_tokens <= 2, "{said}");
    assert!(shrunk.seen[0] >= 1 && shrunk.seen[0] <= shrunk.seen[1], "{said}");
    assert!(found.requests <= options.requests_max);
    assert_eq!(shrunk.request.body["max_tokens"], shrunk.to.answer_tokens);
    let prompt = shrunk.request.body["prompt"].as_array().expect("ids");
    assert_eq!(prompt.len() as u64, shrunk.to.prompt);
}

/// What a cut would lose is kept: here the length of the prompt.
pub(crate) fn what_the_fault_needs_is_not_cut() {
    let faults = Faults::disturbed(When::PromptTokensAbove(40), DRIFT);
    let found = warm(faults, &small(&[Arm::ConcurrentWarm]));
    let said = text::report(&found);
    let shrunk = found.divergences[0].shrunk.as_ref().unwrap_or_else(|| panic!("{said}"));
    assert_eq!(shrunk.to.prompt, 41, "{said}");
    assert_eq!(shrunk.to.neighbours, 1, "{said}");
}

/// A fault now and then is shrunk as far as it shows, or said not to have been seen again; each cold request has a salt of
/// its own.
pub(crate) fn a_fault_now_and_then_is_shrunk_as_far_as_it_shows() {
    let disturbance = Disturbance { when: When::InFlight(2), how: DRIFT, rate: 0.4 };
    let faults = Faults { disturbances: vec![disturbance], ..Faults::default() };
    let options = Options { requests_max: 600, ..small(&[Arm::Prefix, Arm::ConcurrentCold]) };
    let found = warm(faults, &options);
    let said = text::report(&found);
    let shrunk = found.divergences[0].shrunk.as_ref().unwrap_or_else(|| panic!("{said}"));
    assert_eq!(shrunk.to.neighbours, 1, "{said}");
    assert!(shrunk.request.body["cache_salt"].is_string(), "{said}");
}

/// What was not shrunk is handed out as it was found; and a search that has next to nothing to spend says so.
pub(crate) fn what_was_not_shrunk_is_handed_out_as_it_is() {
    let faults = Faults::disturbed(When::InFlight(2), DRIFT);
    let plan = small(&[Arm::ConcurrentWarm]);
    let found = warm(faults.clone(), &Options { shrinks: false, ..plan.clone() });
    let first = &found.divergences[0];
    assert_eq!((&first.shrunk, &first.not_shrunk), (&None, &None));
    let files = repro::reproducer(&found).expect("of the whole crowd");
    let script = files.file(repro::SHELL_FILE).expect("it is of a crowd");
    let last = first.neighbours.len() - 1;
    assert!(script.contains(&format!("\n0 neighbour-{last} same\n")), "{script}");
    assert!(!script.contains(&format!(" neighbour-{} ", last + 1)), "{script}");
    let requests_max = Plan::new(&plan, false).expect("a plan").requests();
    let found = warm(faults, &Options { requests_max, ..plan });
    assert!(found.requests <= requests_max);
    let first = &found.divergences[0];
    let why = first.shrunk.as_ref().map_or(&first.not_shrunk, |shrunk| &shrunk.ended_by);
    assert!(why.as_ref().is_some_and(|why| why.contains("budget of requests")), "{why:?}");
}

/// One kind of answer to each prompt where nothing is wrong, and more by log-probabilities alone where values drift.
pub(crate) fn samples_are_counted_by_prompt_and_by_batch() {
    let options = small(&[Arm::ConcurrentWarm]);
    let clean = with(Faults::default(), &options).certificate;
    assert!(clean.samples.prompts.iter().all(|s| s.unique == 1 && s.unique_logprobs == Some(1)));
    assert_eq!(clean.samples.prompts.len(), 4);
    let sizes: Vec<u32> = clean.samples.batch_sizes.iter().map(|s| s.batch_size).collect();
    assert_eq!(sizes, [1, 4, 8]);
    let total: u64 = clean.samples.prompts.iter().map(|s| s.total).sum();
    assert_eq!(clean.samples.batch_sizes.iter().map(|s| s.total).sum::<u64>(), total);
    assert!(repro::reproducer(&clean).is_err_and(|why| why == "nothing differed"));
    let drifting = warm(Faults::disturbed(When::InFlight(2), How::Drift(1e-5)), &options);
    let line = &drifting.samples.lines()[0];
    assert!(line.contains("Unique samples: 1, Unique logprobs: "), "{line}");
    assert!(drifting.samples.batch_sizes[1].unique_logprobs > Some(1), "{line}");
}

/// A first answer that differs is shrunk too, and has files of its own beside those of the crowd.
pub(crate) fn company_and_first_answers_have_files_of_their_own() {
    let disturbed = |when| Disturbance { when, how: DRIFT, rate: 1.0 };
    let disturbances = vec![disturbed(When::FirstOfPrompt), disturbed(When::InFlight(2))];
    let faults = Faults { disturbances, ..Faults::default() };
    let found = warm(faults, &small(&[Arm::First, Arm::ConcurrentWarm]));
    let said = text::report(&found);
    assert!(said.contains("\n  first  token") && said.contains("\n  in a crowd  token"), "{said}");
    let files = repro::reproducer(&found).unwrap_or_else(|why| panic!("{why}: {said}"));
    let names: Vec<&str> = files.files.iter().map(|(name, _)| *name).collect();
    let expected =
        [repro::SHELL_FILE, repro::PYTHON_FILE, repro::FIRST_SHELL_FILE, repro::FIRST_PYTHON_FILE];
    assert_eq!(names, expected, "{said}");
    let page = html::page(&found);
    assert!(expected.iter().all(|name| page.contains(&format!("<code>{name}</code>"))));
    // What is broken for another reason than company has no files of company's.
    let mut other = found.clone();
    other.arms.iter_mut().for_each(|record| record.verdict = Verdict::Undecided);
    assert!(repro::reproducer(&other).is_err_and(|why| why.contains("no crowd")));
}

/// Samples of eight prompts are shown one by one, and lines are as wide as a terminal.
pub(crate) fn a_report_is_read_in_a_terminal() {
    let options = Options { prompts: 12, ..small(&[Arm::First, Arm::ConcurrentWarm]) };
    let found = with(Faults::default(), &options).certificate;
    let said = text::report(&found);
    assert_eq!(said.matches("\nPrompt ").count(), 8, "{said}");
    assert!(said.contains("\nand 4 prompts more\n"), "{said}");
    let wide: Vec<&str> = said.lines().filter(|line| line.chars().count() > 120).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    // Counts are of each level and each arm, and never of several together.
    for level in &found.levels {
        let count = format!("0 of {} at {}", level.answers, level.sent);
        assert!(text::summary(&found).contains(&count), "{said}");
    }
}

/// Every part of the page, with and without differences; and nothing that a server says is more than text there.
pub(crate) fn the_page_says_what_the_report_says_and_holds_no_scripts() {
    let options = small(&Arm::ALL);
    let held = with(Faults::default(), &options).certificate;
    let page = html::page(&held);
    assert!(page.contains("None in what was compared.") && !page.contains("Reproducer"));
    let mut broken = warm(Faults::disturbed(When::InFlight(2), How::Foreign), &options);
    broken.server.model = "<script>alert(1)</script>".into();
    broken.divergences[0].got = "<img src=x onerror=y>\u{1b}[2J".into();
    broken.beside = vec!["equal <b>answers</b>".into()];
    let words = "two kinds of answers".to_owned();
    broken.clusters = Some(Clusters {
        kinds: 2,
        prompts: 3,
        answers: vec![9, 4],
        stable: true,
        alone: false,
        told_apart_by: Some("x-replica".into()),
        words: words.clone(),
    });
    let page = html::page(&broken);
    for part in ["equal &lt;b&gt;answers", &words, "told apart by x-replica", "at once"] {
        assert!(page.contains(part), "{part}");
    }
    for part in [
        "Kinds of answers",
        "Claims",
        "Scope",
        "Arms",
        "Differences",
        "Reproducer",
        "Controls",
        "Samples",
        "What could not be seen",
    ] {
        assert!(page.contains(&format!("<h2>{part}</h2>")), "{part}");
    }
    for lines in [&broken.reasons, &broken.samples.lines()] {
        assert!(lines.iter().all(|line| page.contains(&line.replace('/', "&#x2f;"))), "{lines:?}");
    }
    let smallest = broken.smallest.as_ref().expect("a smallest crowd").words();
    assert!(page.contains(&smallest), "{smallest}");
    for never in ["<script", "<img", "\u{1b}", "http-equiv=\"refresh\"", "src="] {
        assert!(!page.replace("onerror=y", "").replace("src=x", "").contains(never), "{never}");
    }
}

/// What differs in a value is marked; equal texts are shown once.
pub(crate) fn the_page_marks_what_differs() {
    let found = warm(Faults::disturbed(When::InFlight(2), DRIFT), &small(&[Arm::ConcurrentWarm]));
    let page = html::page(&found);
    let difference = &found.divergences[0].difference;
    let [a, b] = [&difference.expected, &difference.got]
        .map(|seen| seen.logprob.as_ref().map(ToString::to_string).expect("a value"));
    let equal = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    for value in [a, b] {
        let (same, differs) = value.split_at(equal);
        let marked = format!("log-probability {same}<mark>{differs}</mark>");
        assert!(page.contains(&marked), "{marked}: {page}");
    }
    assert!(!page.contains("<mark></mark>"));
}
