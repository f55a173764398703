//! What follows from what was seen: a difference needs no witness, *held* needs all of it, and no arm takes another one's word.

use lockstep::certify::{Arm, Options, Verdict, text};

use crate::run::{CROWDS, all, attempt, quick, run, with};
use crate::server::{
    Cold, Disturbance, Faults, Front, Gauge, How, Keeps, Logprobs, Refusals, Server, Stream, Usage,
    When,
};

const DRIFT: How = How::Drift(1e-3);
/// Slow enough that tokens which arrive late, on a machine with much to do, prove nothing.
const SLOW_US: u64 = 2500;

fn disturbed(all: &[(When, How)]) -> Vec<Disturbance> {
    all.iter().map(|&(when, how)| Disturbance { when, how, rate: 1.0 }).collect()
}

/// Nobody sees whether requests met: what differs is broken all the same, and what is equal is not held on it.
pub(crate) fn a_difference_needs_no_witness() {
    for (stream, logprobs) in [
        (Stream::Refused, Logprobs::Raw),
        (Stream::LastRecordOnly, Logprobs::Raw),
        (Stream::Whole, Logprobs::NullInStream),
    ] {
        let blind = Faults { stream, logprobs, gauge: Gauge::Missing, ..Faults::default() };
        let disturbances = disturbed(&[(When::InFlight(2), DRIFT)]);
        run(Faults { disturbances, ..blind.clone() }, &CROWDS).expect(Verdict::Broken);
        let clean = run(blind, &CROWDS);
        clean.expect_not(Verdict::Broken);
        // Held only where the time that crowds saved stands in for the witnesses.
        let witness = &clean.certificate.witness;
        let is_witnessed = witness.max_in_flight > 1 && witness.by.contains("time");
        assert!(is_witnessed || clean.certificate.verdict == Verdict::Undecided);
    }
    // Nobody ever meets another, and that others wait changes an answer all the same.
    let queue = Faults { cap: 1, ..Faults::default() };
    let disturbances = disturbed(&[(When::OthersWait, DRIFT)]);
    let faulty = run(Faults { disturbances, ..queue.clone() }, &CROWDS);
    faulty.expect(Verdict::Broken);
    assert_eq!(faulty.arm(Arm::ConcurrentWarm).met, 0, "{}", faulty.said());
    run(queue, &CROWDS).expect(Verdict::Undecided);
}

/// The gauge counts what waits, and tokens come in turn: one of both is wrong, so nothing is held, whatever differs or not.
pub(crate) fn witnesses_that_contradict_each_other_decide_nothing() {
    let drifting = disturbed(&[(When::InFlight(2), DRIFT)]);
    for (cap, front, disturbances) in [
        (1, Front::None, Vec::new()),
        (1, Front::None, drifting.clone()),
        (512, Front::OneAtATime, drifting),
    ] {
        let lying = Faults { cap, front, disturbances, gauge: Gauge::Lying, ..Faults::default() };
        let faulty = run(Faults { step_us: SLOW_US, ..lying }, &CROWDS);
        faulty.expect(Verdict::Undecided);
        if front == Front::None {
            faulty.expect_said(&["contradict"]);
            assert!(faulty.certificate.witness.contradicted > 0, "{}", faulty.said());
        }
    }
    // Where tokens have no times, since streams carry no records, answers are ready in turn.
    for front in [Front::None, Front::OneAtATime] {
        let cap = if front == Front::None { 1 } else { 512 };
        let lying = Faults { cap, front, ..plain_and_lying() };
        run(lying, &CROWDS).expect(Verdict::Undecided);
    }
    // What waits is none where nothing has to.
    let honest = Faults { gauge: Gauge::Lying, step_us: SLOW_US, ..Faults::default() };
    run(honest, &CROWDS).expect(Verdict::Held);
    run(plain_and_lying(), &CROWDS).expect(Verdict::Held);
}

/// Above some load nothing is sent that could tell: what was compared below it says nothing of it.
pub(crate) fn a_level_without_values_is_not_claimed() {
    let above = |n: usize, how: How| disturbed(&[(When::InFlight(n), how)]);
    let mut disturbances = above(5, How::Blind);
    disturbances.extend(above(5, How::Drift(1e-5)));
    let blind = run(Faults { disturbances, ..Faults::default() }, &CROWDS);
    assert_eq!(blind.level(4), Verdict::Held, "{}", blind.said());
    assert_eq!(blind.level(8), Verdict::Undecided, "{}", blind.said());
    blind.expect_said(&["log-probabilities are missing in it"]);
}

/// Requests that wait were sent together, and were not in flight together.
pub(crate) fn a_level_that_was_never_in_flight_is_not_claimed() {
    let few = run(Faults { cap: 3, ..Faults::default() }, &CROWDS);
    assert_eq!(few.level(4), Verdict::Held, "{}", few.said());
    assert_eq!(few.level(8), Verdict::Undecided, "{}", few.said());
    few.expect_said(&["at most 3 were in flight together"]);
}

/// A prompt that an earlier run sent has no first answer any more.
pub(crate) fn a_first_answer_from_the_cache_is_none() {
    for usage in [Usage::Whole, Usage::WithoutCached] {
        let server = Server::start(Faults { usage, hit_counters: true, ..Faults::default() });
        let options = Options { nonce: Some(7), ..quick(&[Arm::First]) };
        let [before, again] = [(), ()].map(|()| attempt(&server, &options).expect("a certificate"));
        assert_eq!(before.verdict, Verdict::Held, "{}", text::report(&before));
        assert_eq!(again.verdict, Verdict::Undecided, "{}", text::report(&again));
        assert!(text::report(&again).contains("in the server's cache already"));
    }
}

/// A gauge that counts what waits, and streams without records.
fn plain_and_lying() -> Faults {
    let logprobs = Logprobs::NullInStream;
    Faults { gauge: Gauge::Lying, logprobs, step_us: SLOW_US, ..Faults::default() }
}

/// Warm repeats differ one at a time, cold ones do not: what crowds do to cold requests is broken, and nothing else is said.
pub(crate) fn warm_repeats_that_differ_leave_cold_crowds_judged() {
    for (cold, least) in [(Cold::Salt, 2), (Cold::Prompt, 4)] {
        let each = (When::EachWarm, DRIFT);
        let crowds = (When::InFlight(least), DRIFT);
        let faulty =
            all(Faults { cold, disturbances: disturbed(&[each, crowds]), ..Faults::default() });
        faulty.expect(Verdict::Broken).expect_arm(Arm::ConcurrentCold, Verdict::Broken);
        for arm in [Arm::First, Arm::Prefix, Arm::ConcurrentWarm, Arm::ConcurrentMixed] {
            faulty.expect_arm(arm, Verdict::Undecided);
        }
        let clean = all(Faults { cold, disturbances: disturbed(&[each]), ..Faults::default() });
        clean.expect(Verdict::Undecided).expect_arm(Arm::ConcurrentCold, Verdict::Held);
    }
}

/// What a crowd's prefill leaves in the cache changes later answers alone, as slots do that keep the last computation: broken, by
/// company from cold references, and by what was left behind from warm ones. Time is not blamed.
pub(crate) fn what_a_crowd_leaves_in_the_cache_is_told_from_time() {
    for (cold, gauge) in [(Cold::Prompt, Gauge::LlamaCpp), (Cold::Salt, Gauge::Vllm)] {
        let slots = Faults { cold, gauge, cache_keeps: Keeps::Last, ..Faults::default() };
        let left = (When::WarmFromCrowd, DRIFT);
        if cold == Cold::Prompt {
            let disturbances = disturbed(&[left]);
            let faulty = all(Faults { disturbances, ..slots.clone() });
            faulty.expect(Verdict::Broken).expect_arm(Arm::After, Verdict::Broken);
            for arm in CROWDS.into_iter().chain([Arm::First, Arm::Prefix, Arm::Time]) {
                assert_ne!(faulty.arm(arm).verdict, Verdict::Broken, "{arm}: {}", faulty.said());
            }
        }
        for crowds in [(When::InFlight(2), DRIFT), (When::ReadInCompany, How::Drift(2e-3))] {
            let disturbances = disturbed(&[left, crowds]);
            let faulty = all(Faults { disturbances, ..slots.clone() });
            faulty.expect(Verdict::Broken).expect_arm(Arm::ConcurrentCold, Verdict::Broken);
            assert_ne!(faulty.arm(Arm::Time).verdict, Verdict::Broken, "{}", faulty.said());
            if (cold, crowds.0) == (Cold::Prompt, When::ReadInCompany) {
                faulty.expect_arm(Arm::After, Verdict::Broken);
            }
        }
        all(slots).expect(Verdict::Held);
    }
}

/// A level is claimed from its own answers: one that is refused, or answered too seldom, is not, and the others stand.
pub(crate) fn each_level_is_claimed_or_not_by_itself() {
    let of = |run: &crate::run::Run| -> Vec<(u32, Verdict)> {
        run.certificate.levels.iter().map(|level| (level.sent, level.verdict)).collect()
    };
    let plan = Options { concurrency: vec![4, 8, 12], ..quick(&CROWDS) };
    // So slow that none of a crowd is done before the last one comes.
    let step_us = SLOW_US;
    for refusals in [Refusals::Unavailable(4), Refusals::Above(4)] {
        let refusing = with(Faults { refusals, step_us, ..Faults::default() }, &plan);
        refusing.expect(Verdict::Held);
        let expected = [(4, Verdict::Held), (8, Verdict::Undecided), (12, Verdict::Undecided)];
        assert_eq!(of(&refusing), expected, "{}", refusing.said());
        let code = if refusals == Refusals::Unavailable(4) { "503" } else { "429" };
        refusing.expect_said(&[code]);
        assert!(text::summary(&refusing.certificate).contains("0 of 12 at 4, up to"));
    }
    let (refusals, disturbances) =
        (Refusals::Unavailable(4), disturbed(&[(When::InFlight(3), DRIFT)]));
    with(Faults { refusals, disturbances, ..Faults::default() }, &plan).expect(Verdict::Broken);
    let wide = with(Faults::disturbed(When::InFlight(9), DRIFT), &plan);
    wide.expect(Verdict::Broken);
    assert_eq!(of(&wide), [(4, Verdict::Held), (8, Verdict::Held), (12, Verdict::Broken)]);
    // Twelve answers at each level: enough for what takes so many, and for no more.
    for (answers_min, verdict) in [(12, Verdict::Held), (13, Verdict::Undecided)] {
        let seen = with(Faults::default(), &Options { answers_min, ..plan.clone() });
        seen.expect(verdict);
        assert!(of(&seen).iter().all(|level| level.1 == verdict), "{}", seen.said());
    }
}

/// How finely values were compared stands in the headline.
pub(crate) fn the_headline_says_the_resolution() {
    for decimals in [1, 2, 5] {
        let coarse = Faults { decimals: Some(decimals), ..Faults::default() };
        let held = run(coarse.clone(), &CROWDS);
        held.expect(Verdict::Held);
        let headline = text::summary(&held.certificate).to_lowercase();
        assert!(held.said().starts_with(&headline), "{headline}");
        let words = format!("at a resolution of {decimals} decimals");
        assert!(headline.contains(&words), "{headline}");
        let disturbances = disturbed(&[(When::InFlight(2), How::Drift(0.5))]);
        run(Faults { disturbances, ..coarse }, &CROWDS).expect(Verdict::Broken);
    }
}

/// Caches whose blocks are longer than most prompts: that they exist is seen by a prompt of several blocks.
pub(crate) fn a_cache_of_long_blocks_is_seen() {
    for block_tokens in [64, 256] {
        let plan =
            Options { prompt_tokens: vec![17, 300, 64, 600], ..quick(&[Arm::Prefix, Arm::First]) };
        let clean = with(Faults { block_tokens, ..Faults::default() }, &plan);
        clean.expect(Verdict::Held).expect_arm(Arm::Prefix, Verdict::Held);
        let abilities = &clean.certificate.server.abilities;
        let known = abilities.iter().find(|ability| ability.name == "keeps a prompt cold");
        let known = known.unwrap_or_else(|| panic!("{}", clean.said()));
        assert!(known.evidence.contains("cache_salt"), "{}", clean.said());
        let faulty = Faults { block_tokens, ..Faults::disturbed(When::Warm, DRIFT) };
        with(faulty, &plan).expect_arm(Arm::Prefix, Verdict::Broken);
    }
}
