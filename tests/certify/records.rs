//! Answers that are none, and fields that hold what is compared, or hold it elsewhere.

use std::time::{Duration, Instant};

use lockstep::certify::{Arm, Options, Verdict};

use crate::run::{CROWDS, Run, all, attempt, quick, run, with};
use crate::server::{
    ChatText, Disturbance, Faults, Gauge, How, Ids, Logprobs, Refusals, Server, Stream, When,
};

const DRIFT: How = How::Drift(1e-3);

fn one(when: When, how: How, rate: f64) -> Vec<Disturbance> {
    vec![Disturbance { when, how, rate }]
}

fn drifting(faults: Faults) -> Faults {
    Faults { disturbances: one(When::InFlight(2), DRIFT, 1.0), ..faults }
}

/// Answers in crowds that end before their time void their cases: a shorter answer that says that it was cut, or does not say
/// why it ended, is no answer.
pub(crate) fn answers_that_were_cut_are_not_compared() {
    let chat = Faults { chat_only: true, ids: Ids::Nowhere, ..Faults::default() };
    let plain = Faults { stream: Stream::Refused, ..Faults::default() };
    for (how, rate, faults) in [
        (How::Abort, 0.5, Faults::default()),
        (How::NoReason, 1.0, chat),
        (How::EmptyReason, 0.5, plain.clone()),
        (How::EmptyReason, 1.0, Faults::default()),
        (How::NoReason, 0.5, plain),
    ] {
        let cut = Faults { disturbances: one(When::InFlight(2), how, rate), ..faults.clone() };
        let cut = run(cut, &CROWDS);
        cut.expect(Verdict::Undecided).expect_said(&["ended"]);
        assert!(CROWDS.iter().any(|arm| cut.arm(*arm).voided > 0), "{}", cut.said());
        // Those that are whole are compared.
        let mut both = one(When::InFlight(2), how, 0.4);
        both.extend(one(When::InFlight(2), DRIFT, 1.0));
        run(Faults { disturbances: both, ..faults }, &CROWDS).expect(Verdict::Broken);
    }
    // One in forty: too few to take anything away.
    let few =
        Faults { disturbances: one(When::InFlight(2), How::Abort, 0.025), ..Faults::default() };
    run(few, &CROWDS).expect_not(Verdict::Broken);
}

/// Values that are all 0 say nothing, and neither do no values: blind.
pub(crate) fn values_that_say_nothing_hold_nothing() {
    for (logprobs, chat_only) in
        [(Logprobs::Zeros, false), (Logprobs::Zeros, true), (Logprobs::Null, false)]
    {
        let flat = Faults { logprobs, chat_only, ..Faults::default() };
        // Too small to turn a token of these prompts; of others it may, where two tokens are as good as one another.
        let disturbances = one(When::InFlight(2), How::Drift(1e-9), 1.0);
        let options = Options { nonce: Some(1), ..quick(&CROWDS) };
        let blind = with(Faults { disturbances, ..flat.clone() }, &options);
        blind.expect(Verdict::Undecided).expect_said(&["blind"]);
        // What a token shows, it shows without values.
        let foreign = one(When::InFlight(2), How::Foreign, 1.0);
        run(Faults { disturbances: foreign, ..flat }, &CROWDS).expect(Verdict::Broken);
    }
}

/// Streams with gaps in their records: plain answers are compared in their place.
pub(crate) fn streams_with_gaps_are_not_compared() {
    for (stream, ids) in [
        (Stream::OneRecordAChunk, Ids::Everywhere),
        (Stream::LastRecordOnly, Ids::Nowhere),
        (Stream::AlternativesOfFirst, Ids::Everywhere),
        (Stream::AlternativesOfFirst, Ids::Nowhere),
    ] {
        let gaps = Faults { stream, ids, ..Faults::default() };
        let clean = run(
            gaps.clone(),
            &[
                Arm::ConcurrentCold,
                Arm::ConcurrentWarm,
                Arm::ConcurrentMixed,
                Arm::Stream,
                Arm::First,
            ],
        );
        clean.expect(Verdict::Held);
        assert_ne!(clean.arm(Arm::Stream).verdict, Verdict::Broken, "{stream:?}: {}", clean.said());
        run(drifting(gaps), &CROWDS).expect(Verdict::Broken);
    }
}

/// The text of a chat is compared where it stands; an answer with neither text nor tokens is named.
pub(crate) fn the_text_of_a_chat_is_compared_where_it_stands() {
    for chat_text in [ChatText::Reasoning, ChatText::ReasoningContent] {
        let chat = Faults { chat_only: true, chat_text, ..Faults::default() };
        run(chat.clone(), &CROWDS).expect(Verdict::Held);
        run(drifting(chat.clone()), &CROWDS).expect(Verdict::Broken);
        // By its text alone.
        let bare = Faults { logprobs: Logprobs::Null, ..chat };
        run(bare.clone(), &CROWDS).expect(Verdict::Undecided).expect_said(&["blind"]);
        let foreign = one(When::InFlight(2), How::Foreign, 1.0);
        run(Faults { disturbances: foreign, ..bare }, &CROWDS).expect(Verdict::Broken);
    }
    let nothing = Faults {
        chat_only: true,
        chat_text: ChatText::Nowhere,
        logprobs: Logprobs::Null,
        ..Faults::default()
    };
    let server = Server::start(nothing);
    let said = match attempt(&server, &quick(&CROWDS)) {
        Err(error) => error.to_string(),
        Ok(certificate) => {
            assert_eq!(certificate.verdict, Verdict::Undecided);
            certificate.reasons.join("; ")
        }
    };
    assert!(said.contains("neither text nor tokens"), "{said}");
}

/// A stream that stays open after its end marker is over at the marker.
pub(crate) fn a_stream_is_over_at_its_end_marker() {
    let started = Instant::now();
    let open = Faults { stream: Stream::StaysOpen, ..Faults::default() };
    all(open.clone()).expect(Verdict::Held).expect_arm(Arm::Stream, Verdict::Held);
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
    run(drifting(open), &CROWDS).expect(Verdict::Broken);
}

/// Fields that are refused are left out, named by the refusal or not; the rest is asked as ever.
pub(crate) fn refused_fields_are_left_out() {
    let kinds: [(&'static [&'static str], bool); 5] = [
        (&["stream_options"], true),
        (&["top_p"], true),
        (&["top_p", "stream_options"], false),
        (&["min_p", "presence_penalty", "n"], true),
        (&["frequency_penalty"], false),
    ];
    let sees = |seen: &Run, refused: &[&str]| {
        let asked = seen.server.completions();
        let has =
            |asked: &crate::server::Asked| refused.iter().any(|name| !asked.body[*name].is_null());
        // Found out once, in the beginning.
        let late = asked.iter().skip(asked.len() / 2).filter(|asked| has(asked)).count();
        assert_eq!(late, 0, "{refused:?}: {}", seen.said());
    };
    for (refused_fields, refusals_name_fields) in kinds {
        let picky = Faults { refused_fields, refusals_name_fields, ..Faults::default() };
        let clean = run(picky.clone(), &CROWDS);
        clean.expect(Verdict::Held);
        sees(&clean, refused_fields);
        if !refusals_name_fields {
            run(drifting(picky), &CROWDS).expect(Verdict::Broken);
        }
    }
    let later = Faults { chat_only: true, wants_max_completion_tokens: true, ..Faults::default() };
    run(later.clone(), &CROWDS).expect(Verdict::Held);
    run(drifting(later), &CROWDS).expect(Verdict::Broken);
    // More than is answered at once: what is answered is judged, and the refusal named.
    let busy = Faults { refusals: Refusals::Unavailable(4), chat_only: true, ..Faults::default() };
    run(busy.clone(), &CROWDS).expect(Verdict::Held).expect_said(&["503"]);
    run(drifting(busy), &CROWDS).expect(Verdict::Broken);
}

/// Counters and reasons of a stream that disagree while tokens and values agree are told beside the verdict.
pub(crate) fn what_disagrees_beside_the_tokens_is_told_beside_the_verdict() {
    for (stream, chat_only) in
        [(Stream::WrongUsage, false), (Stream::WrongFinish, true), (Stream::WrongFinish, false)]
    {
        let odd = Faults { stream, chat_only, ..Faults::default() };
        let seen = all(odd.clone());
        seen.expect(Verdict::Held).expect_arm(Arm::Stream, Verdict::Held);
        assert!(!seen.certificate.beside.is_empty(), "{stream:?}: {}", seen.said());
        run(drifting(odd), &CROWDS).expect(Verdict::Broken);
    }
    let clean = all(Faults { gauge: Gauge::Sglang, ..Faults::default() });
    assert_eq!(clean.certificate.beside, Vec::<String>::new());
}
