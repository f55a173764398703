//! What a short script sees and repeats of warm requests do not: first answers that differ from later ones, neighbours whose
//! prompts are read while the judged request decodes, prompts past a threshold, loads between those asked for.

use lockstep::certify::options::PROMPT_TOKENS;
use lockstep::certify::{Api, Arm, Options, Target, Verdict, text};

use crate::run::{CROWDS, all, quick, run, to, with};
use crate::server::{Cold, Disturbance, Faults, Gauge, How, Ids, Stream, Usage, When};

const DRIFT: How = How::Drift(1e-3);

/// Servers that tell as much as others do, or less: of counters, of ids, of tokens' times, of what runs.
fn kinds() -> Vec<Faults> {
    let whole = Faults::default();
    let nothing = Faults { usage: Usage::None, cold: Cold::Never, ..whole.clone() };
    vec![
        Faults { usage: Usage::WithoutCached, ..whole.clone() },
        nothing.clone(),
        Faults { ids: Ids::Nowhere, gauge: Gauge::Missing, ..nothing },
        Faults { chat_only: true, usage: Usage::None, ..whole.clone() },
        Faults { stream: Stream::Refused, cold: Cold::Prompt, ..whole },
    ]
}

/// The first answer to a prompt differs from all later ones: broken, by the arm of first answers and by no crowd, whether hits
/// of a cache are counted or not.
pub(crate) fn a_first_answer_that_differs_is_broken_by_an_arm_of_its_own() {
    for (number, kind) in kinds().into_iter().enumerate() {
        let disturbances = Faults::disturbed(When::FirstOfPrompt, DRIFT).disturbances;
        let faulty = all(Faults { disturbances, ..kind.clone() });
        faulty.expect(Verdict::Broken).expect_arm(Arm::First, Verdict::Broken);
        assert_eq!(faulty.arm(Arm::First).differing, 4, "{}", faulty.said());
        for arm in CROWDS.into_iter().chain([Arm::Repeat, Arm::After, Arm::Time]) {
            assert_ne!(faulty.arm(arm).verdict, Verdict::Broken, "{arm}: {}", faulty.said());
        }
        // Every arm of some, and the fewest of the others.
        let arms = [Arm::First].into_iter().chain(CROWDS).collect::<Vec<Arm>>();
        let clean = if number % 2 == 0 { all(kind) } else { run(kind, &arms) };
        clean.expect(Verdict::Held).expect_arm(Arm::First, Verdict::Held);
        assert_eq!(clean.arm(Arm::First).of, 4, "{}", clean.said());
    }
    // By another way: what a cache serves is other, and nothing counts what it serves.
    let uncounted =
        Faults { usage: Usage::None, cold: Cold::Never, ..Faults::disturbed(When::Warm, DRIFT) };
    all(uncounted).expect(Verdict::Broken).expect_arm(Arm::First, Verdict::Broken);
    // A first answer of the server, not of each prompt, is one of many.
    let one = all(Faults::disturbed(When::FirstRequests(1), DRIFT));
    one.expect(Verdict::Held);
}

/// Others' prompts are read in the steps in which the judged request decodes: only neighbours that are new and arrive later make
/// such steps.
pub(crate) fn a_prefill_among_neighbours_is_found() {
    for kind in kinds().into_iter().skip(1).step_by(2) {
        let disturbances = Faults::disturbed(When::PrefillInStep(40), DRIFT).disturbances;
        let faulty = run(Faults { disturbances, ..kind.clone() }, &[Arm::ConcurrentMixed]);
        faulty.expect(Verdict::Broken).expect_arm(Arm::ConcurrentMixed, Verdict::Broken);
        run(kind, &[Arm::ConcurrentMixed]).expect(Verdict::Held);
    }
    // All that a default plan asks, of one who reads in company; and the smaller arms are not blamed.
    let faulty = all(Faults::disturbed(When::ReadInCompany, DRIFT));
    faulty.expect(Verdict::Broken).expect_arm(Arm::ConcurrentCold, Verdict::Broken);
    for arm in [Arm::First, Arm::Repeat, Arm::Prefix, Arm::Stream, Arm::Time] {
        faulty.expect_arm(arm, Verdict::Held);
    }
}

/// Prompts of more than so many tokens differ in company: a plan with longer ones finds it, and one without claims no more than
/// its own lengths.
pub(crate) fn a_difference_past_a_length_is_found_and_no_length_is_claimed_that_was_not_asked() {
    for (tokens, lengths, expected) in
        [(512, vec![17, 513, 64, 511], 1), (1023, vec![1025, 1024, 33, 16], 2)]
    {
        let faults = Faults::disturbed(When::PromptTokensAbove(tokens), DRIFT);
        let long = Options { prompt_tokens: lengths, ..quick(&CROWDS) };
        let found = with(faults.clone(), &long);
        found.expect(Verdict::Broken);
        let record = found.arm(Arm::ConcurrentWarm);
        assert_eq!(record.prompts_differing, expected, "{tokens}: {}", found.said());
        let short = Options { prompt_tokens: vec![tokens as u32, 17, 40, 96], ..quick(&CROWDS) };
        let held = with(faults.clone(), &short);
        held.expect(Verdict::Held);
        let words = format!("prompts of 17 to {} tokens", tokens.max(96));
        for said in [text::summary(&held.certificate), held.certificate.scope.clone()] {
            assert!(said.contains(&words), "{said}");
        }
    }
    assert!(PROMPT_TOKENS.iter().any(|n| *n > 1024) && PROMPT_TOKENS.iter().any(|n| *n < 16));
    // The lengths that are asked by default are past it.
    let faults = Faults::disturbed(When::PromptTokensAbove(1000), DRIFT);
    let usual = Options { prompt_tokens: PROMPT_TOKENS.to_vec(), prompts: 4, ..quick(&CROWDS) };
    with(faults, &usual).expect(Verdict::Broken);
}

/// The smallest number at once that shows a difference lies between those that were asked for.
pub(crate) fn the_smallest_number_at_once_is_found() {
    for (least, levels) in [(2, vec![8]), (3, vec![2, 16]), (6, vec![4, 8]), (11, vec![4, 8, 16])] {
        let faults = Faults::disturbed(When::InFlight(least), DRIFT);
        let options = Options { concurrency: levels, shrinks: true, ..quick(&CROWDS) };
        let found = with(faults, &options);
        found.expect(Verdict::Broken);
        let smallest = found.certificate.smallest.as_ref();
        let smallest = smallest.unwrap_or_else(|| panic!("no number: {}", found.said()));
        assert_eq!(smallest.sent as usize, least, "{}", found.said());
        let below = smallest.below.map(|[sent, _]| sent as usize);
        assert_eq!(below, (least > 2).then(|| least - 1), "{}", found.said());
        for level in &found.certificate.levels {
            let asked_and_held = level.verdict == Verdict::Held;
            assert_eq!(asked_and_held, (level.sent as usize) < least, "{}", found.said());
        }
    }
    let clean = run(Faults::default(), &CROWDS);
    clean.expect(Verdict::Held);
    assert!(clean.certificate.smallest.is_none());
}

/// A fault of one life in three is broken in that one, and in the others nothing is claimed of it.
pub(crate) fn a_fault_of_one_life_is_found_in_it() {
    let fault = Disturbance { when: When::InFlightInLife(2, 1), how: DRIFT, rate: 1.0 };
    let verdicts = [0, 1, 2].map(|life| {
        let faults = Faults { life, disturbances: vec![fault], ..Faults::default() };
        run(faults, &CROWDS).certificate.verdict
    });
    assert_eq!(verdicts, [Verdict::Held, Verdict::Broken, Verdict::Held]);
}

/// The chat route with a template, asked for though there are completions: the same faults are found.
pub(crate) fn faults_show_through_the_chat_route_too() {
    let chat = |target: Target| Target { api: Api::Chat, ..target };
    for when in [When::FirstOfPrompt, When::PrefillInStep(60), When::InFlight(3)] {
        let found = to(Faults::disturbed(when, DRIFT), &quick(&Arm::ALL), chat);
        found.expect(Verdict::Broken);
        let asked = found.server.completions();
        assert!(asked.iter().all(|asked| asked.path.ends_with("/chat/completions")));
    }
    to(Faults::default(), &quick(&Arm::ALL), chat).expect(Verdict::Held);
}
