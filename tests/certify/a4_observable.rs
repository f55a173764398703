//! Lines 16 to 26: is the observable strong, and the same on both sides?

use lockstep::certify::{Arm, Verdict};

use crate::run::{CROWDS, Run, attempt, run, small};
use crate::server::{
    Alternatives, Faults, How, Ids, Logprobs, Parameters, Seeds, Server, Stream, When,
};

const DRIFT: How = How::Drift(1e-3);

fn drifting() -> Faults {
    Faults::disturbed(When::InFlight(2), DRIFT)
}

fn ability(run: &Run, words: &str) -> Option<bool> {
    let abilities = &run.certificate.server.abilities;
    abilities.iter().find(|ability| ability.name.contains(words)).and_then(|found| found.known)
}

/// Tokens may be equal where logprobs are not; a server that rounds hides that, and the
/// certificate says to how many digits. Without logprobs it is blind, not clean.
pub(crate) fn a4_16_the_resolution_is_stated() {
    let tiny = Faults::disturbed(When::InFlight(2), How::Drift(1e-6));
    let fine = run(tiny.clone(), &[Arm::ConcurrentWarm]);
    fine.expect(Verdict::Broken);
    assert!(fine.certificate.server.resolution.expect("digits").decimals > 5);
    // Smaller still: of some 800 values, one in 13 runs would round to another side.
    let tinier = Faults::disturbed(When::InFlight(2), How::Drift(1e-9));
    let rounded = run(Faults { decimals: Some(2), ..tinier }, &[Arm::ConcurrentWarm]);
    rounded.expect_not(Verdict::Broken).expect_said(&["2 decimals", "digits"]);
    assert_eq!(rounded.certificate.server.resolution.expect("digits").decimals, 2);
    assert!(!rounded.said().contains("bit for bit"));
    let blind = run(Faults { logprobs: Logprobs::Null, ..tiny }, &[Arm::ConcurrentWarm]);
    blind.expect(Verdict::Undecided).expect_said(&["blind"]);
    assert!(blind.arm(Arm::ConcurrentWarm).blind);
}

/// Alternatives are compared as maps over what both sides have: cut, without the sampled token,
/// doubled, in any order, with values that are no numbers.
pub(crate) fn a4_17_only_alternatives_that_both_sides_have_are_compared() {
    for alternatives in [
        Alternatives::AsAsked,
        Alternatives::Cut(1),
        Alternatives::WithoutSampled,
        Alternatives::SampledTwice,
        Alternatives::OddValues,
        Alternatives::Shuffled,
        Alternatives::FewerByTurns,
    ] {
        let clean = run(Faults { alternatives, ..Faults::default() }, &[Arm::ConcurrentWarm]);
        clean.expect(Verdict::Held);
        let uneven = [Alternatives::OddValues, Alternatives::FewerByTurns].contains(&alternatives);
        let incomparable = clean.arm(Arm::ConcurrentWarm).incomparable;
        assert_eq!(incomparable > 0, uneven, "{alternatives:?}: {incomparable}");
        let faulty = run(Faults { alternatives, ..drifting() }, &[Arm::ConcurrentWarm]);
        faulty.expect(Verdict::Broken);
    }
}

/// Logprobs after the temperature are told from raw ones; where a server mixes both, they are not
/// compared.
pub(crate) fn a4_18_raw_and_processed_logprobs_are_told_apart() {
    for logprobs in [Logprobs::Raw, Logprobs::Processed] {
        let arms = [Arm::ConcurrentWarm, Arm::Seed, Arm::Score];
        let clean = run(Faults { logprobs, ..Faults::default() }, &arms);
        clean.expect(Verdict::Held).expect_arm(Arm::Seed, Verdict::Held);
        let raw = logprobs == Logprobs::Raw;
        assert_eq!(ability(&clean, "before temperature"), Some(raw), "{}", clean.said());
        let scored = if raw { Verdict::Held } else { Verdict::Undecided };
        clean.expect_arm(Arm::Score, scored);
    }
    let mixed = run(Faults { logprobs: Logprobs::Mixed, ..Faults::default() }, &CROWDS);
    mixed.expect(Verdict::Undecided);
    CROWDS.iter().for_each(|&arm| assert_eq!(mixed.arm(arm).of, 0, "{arm}"));
}

/// A drawn token need not be the best: it is found by its id, wherever it stands.
pub(crate) fn a4_19_the_sampled_token_is_found_by_id() {
    for alternatives in [Alternatives::AsAsked, Alternatives::Shuffled, Alternatives::SampledTwice]
    {
        let clean = run(Faults { alternatives, ..Faults::default() }, &[Arm::Seed]);
        clean.expect_arm(Arm::Seed, Verdict::Held);
        let noisy = Faults::disturbed(When::SampledInFlight, DRIFT);
        let faulty = run(Faults { alternatives, ..noisy }, &[Arm::Seed]);
        faulty.expect_arm(Arm::Seed, Verdict::Broken);
    }
}

/// Two tokens of one text are two tokens: seen by ids. Without ids the certificate says that text
/// alone was compared.
pub(crate) fn a4_20_the_text_of_a_token_is_not_the_token() {
    let twins = Faults::disturbed(When::InFlight(2), How::Twin);
    let seen = run(twins.clone(), &[Arm::ConcurrentWarm]);
    seen.expect(Verdict::Broken);
    assert!(seen.certificate.server.tokens_named_by.contains("ids"));
    let unseen = run(Faults { ids: Ids::Nowhere, ..twins }, &[Arm::ConcurrentWarm]);
    unseen.expect_not(Verdict::Broken).expect_said(&["text only"]);
    let clean = run(Faults { ids: Ids::Nowhere, ..Faults::default() }, &[Arm::ConcurrentWarm]);
    clean.expect_not(Verdict::Broken);
    let mismatched = run(Faults { ids: Ids::Mismatched, ..Faults::default() }, &CROWDS);
    mismatched.expect_not(Verdict::Broken).expect_said(&["do not fit", "mismatch"]);
}

/// Events are joined before anything is compared. A stream that loses its end breaks the stream
/// arm, one without logprobs can't be held, and neither is a fault of crowds.
pub(crate) fn a4_21_streams_are_joined_and_are_an_arm_of_their_own() {
    let arms = [Arm::ConcurrentWarm, Arm::Stream];
    for stream in [Stream::Whole, Stream::Merged] {
        let clean = run(Faults { stream, ..Faults::default() }, &arms);
        clean.expect(Verdict::Held).expect_arm(Arm::Stream, Verdict::Held);
    }
    let short = run(Faults { stream: Stream::WithoutLast, ..Faults::default() }, &arms);
    short.expect_arm(Arm::Stream, Verdict::Broken);
    assert_ne!(short.arm(Arm::ConcurrentWarm).verdict, Verdict::Broken);
    for stream in [Stream::CutOff, Stream::Refused] {
        let refused = run(Faults { stream, ..Faults::default() }, &arms);
        refused.expect_arm(Arm::Stream, Verdict::Undecided);
        assert!(refused.arm(Arm::Stream).reason.is_some(), "{stream:?}");
    }
    let bare = run(Faults { logprobs: Logprobs::NullInStream, ..Faults::default() }, &arms);
    assert_ne!(bare.arm(Arm::Stream).verdict, Verdict::Held, "{}", bare.said());
    bare.expect_said(&["stream"]);
    let streamed = run(Faults::disturbed(When::Streamed, DRIFT), &arms);
    streamed.expect_arm(Arm::Stream, Verdict::Broken);
    streamed.expect_arm(Arm::ConcurrentWarm, Verdict::Held);
}

/// A shorter answer is a difference, and so is another finish reason.
pub(crate) fn a4_22_finish_reason_and_length_are_compared() {
    for how in [How::Shorter, How::FinishReason] {
        let faulty = run(Faults::disturbed(When::InFlight(2), how), &[Arm::ConcurrentWarm]);
        faulty.expect(Verdict::Broken).expect_arm(Arm::ConcurrentWarm, Verdict::Broken);
    }
    run(Faults::default(), &[Arm::ConcurrentWarm]).expect(Verdict::Held);
}

/// Text that comes from tokens may give other tokens: without ids in prompts, what was generated
/// is not scored as a prompt unless it comes back as the same tokens.
pub(crate) fn a4_23_text_that_does_not_come_back_is_not_scored() {
    let clean = run(Faults::default(), &[Arm::Score]);
    clean.expect_arm(Arm::Score, Verdict::Held);
    assert!(clean.arm(Arm::Score).values > 0);
    let text = run(Faults { ids: Ids::Nowhere, ..Faults::default() }, &[Arm::Score]);
    assert_ne!(text.arm(Arm::Score).verdict, Verdict::Broken, "{}", text.said());
    let drifts = Faults { echo: crate::server::Echo::Drifts, ..Faults::default() };
    run(drifts, &[Arm::Score]).expect_arm(Arm::Score, Verdict::Broken);
    let refused = Faults { echo: crate::server::Echo::Refused, ..Faults::default() };
    run(refused, &[Arm::Score]).expect_arm(Arm::Score, Verdict::Undecided);
}

/// A token in front of text, and a template that moves: answers to prompts of other lengths are
/// no answers to the same prompt.
pub(crate) fn a4_24_prompts_of_other_token_counts_are_not_compared() {
    let begun = Faults { begins_text: true, ..Faults::default() };
    run(begun.clone(), &[Arm::ConcurrentWarm, Arm::Score]).expect_not(Verdict::Broken);
    run(Faults { ids: Ids::Nowhere, ..begun }, &[Arm::ConcurrentWarm, Arm::Score])
        .expect_not(Verdict::Broken);
    let chat = Faults { chat_only: true, ..Faults::default() };
    run(chat.clone(), &[Arm::ConcurrentWarm]).expect(Verdict::Held);
    let drifting = Faults { chat_only: true, ..drifting() };
    run(drifting, &[Arm::ConcurrentWarm]).expect(Verdict::Broken);
    let moving = run(Faults { moving_template: true, ..chat }, &[Arm::ConcurrentWarm]);
    moving.expect(Verdict::Undecided).expect_said(&["prompt tokens", "token counts"]);
}

/// Every parameter that changes an answer is sent; a server that refuses the later ones is asked
/// without them, and one that takes 0 as not set is not repeatable.
pub(crate) fn a4_25_no_default_of_the_server_decides() {
    let clean = run(Faults::default(), &[Arm::ConcurrentWarm]);
    clean.expect(Verdict::Held);
    for asked in clean.server.completions() {
        for name in ["temperature", "top_p", "n", "presence_penalty", "frequency_penalty"] {
            assert!(!asked.body[name].is_null(), "{name} is missing from {}", asked.body);
        }
    }
    let last = &clean.server.completions().last().expect("requests").body.clone();
    for name in ["top_k", "min_p", "repetition_penalty"] {
        assert!(!last[name].is_null(), "{name} is missing from {last}");
    }
    let refused = Faults { parameters: Parameters::ExtrasRefused, ..Faults::default() };
    let refused = run(refused, &[Arm::ConcurrentWarm]);
    refused.expect_not(Verdict::Broken);
    assert!(refused.arm(Arm::ConcurrentWarm).scored > 0, "{}", refused.said());
    let unset = Faults { parameters: Parameters::ZeroIsUnset, ..Faults::default() };
    let server = Server::start(unset);
    let unset = attempt(&server, &small(&CROWDS)).expect("a certificate");
    for arm in CROWDS {
        assert_eq!(unset.arm(arm).expect("a record").verdict, Verdict::Undecided);
    }
}

/// A seed is tried before it is trusted: two seeds must give two answers, and one seed one.
pub(crate) fn a4_26_a_seed_must_do_something() {
    for seeds in [Seeds::Ignored, Seeds::OfProcess] {
        let faulty = run(Faults { seeds, ..Faults::default() }, &[Arm::Seed]);
        faulty.expect_arm(Arm::Seed, Verdict::Undecided);
        assert!(faulty.arm(Arm::Seed).reason.is_some(), "{seeds:?}");
    }
    run(Faults::default(), &[Arm::Seed]).expect_arm(Arm::Seed, Verdict::Held);
    let noisy = Faults::disturbed(When::SampledInFlight, How::Drift(0.5));
    run(noisy, &[Arm::Seed]).expect_arm(Arm::Seed, Verdict::Broken);
}
