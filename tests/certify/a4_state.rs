//! Lines 8 to 15: is the state controlled?

use lockstep::certify::pattern::Shape;
use lockstep::certify::{Arm, Verdict};
use serde_json::Value;

use crate::run::{CROWDS, run, small, with};
use crate::server::{Cold, Faults, Flush, How, Usage, When};

const DRIFT: How = How::Drift(1e-3);

/// The first requests after a start are a warm-up, and no fault of crowds; repeats that fall into
/// A,B,B,B and A,A,B,B are told apart.
pub(crate) fn a4_08_a_first_request_is_no_fault_of_crowds() {
    for when in [When::FirstRequests(1), When::FirstOfPrompt] {
        let faulty = run(Faults::disturbed(when, DRIFT), &CROWDS);
        for arm in CROWDS {
            faulty.expect_arm(arm, Verdict::Held);
        }
    }
    let mut options = small(&[]);
    options.repeats = 6;
    let first = with(Faults::disturbed(When::FirstOfPrompt, DRIFT), &options);
    let pattern = first.arm(Arm::Repeat).pattern.clone().expect("a pattern");
    assert_eq!(pattern.shape, Shape::FirstDiffers, "{}", first.said());
    let third = with(Faults::disturbed(When::ThirdOfPrompt, DRIFT), &options);
    let pattern = third.arm(Arm::Repeat).pattern.clone().expect("a pattern");
    assert_eq!(pattern.shape, Shape::Switches, "{}", third.said());
    let clean = with(Faults::default(), &options);
    let pattern = clean.arm(Arm::Repeat).pattern.clone().expect("a pattern");
    assert_eq!(pattern.shape, Shape::Equal);
}

/// Priming is the identical traffic: each request that is judged in the warm arm was sent before,
/// body for body.
pub(crate) fn a4_09_priming_is_the_identical_traffic() {
    let faulty = run(Faults::disturbed(When::FirstOfPrompt, DRIFT), &[Arm::ConcurrentWarm]);
    faulty.expect_arm(Arm::ConcurrentWarm, Verdict::Held);
    let clean = run(Faults::default(), &[Arm::ConcurrentWarm]);
    clean.expect(Verdict::Held);
    let asked = clean.server.completions();
    let (before, crowd) = asked.split_at(asked.len() - 8);
    let primed = |body: &Value| before.iter().filter(|asked| &asked.body == body).count() >= 4;
    let judged = crowd.iter().filter(|asked| primed(&asked.body)).count();
    assert_eq!(judged, 4, "four prompts are judged, the others fill the crowd");
}

/// A fault of cached prompts shows in the prefix arm, and in no arm of crowds.
pub(crate) fn a4_10_cold_and_warm_are_apart_from_alone_and_concurrent() {
    let arms = [Arm::ConcurrentCold, Arm::ConcurrentWarm, Arm::Prefix];
    let faulty = run(Faults::disturbed(When::Warm, DRIFT), &arms);
    faulty.expect(Verdict::Broken).expect_arm(Arm::Prefix, Verdict::Broken);
    faulty.expect_arm(Arm::ConcurrentCold, Verdict::Held);
    faulty.expect_arm(Arm::ConcurrentWarm, Verdict::Held);
    let crowds = run(Faults::disturbed(When::InFlight(2), DRIFT), &arms);
    crowds.expect_arm(Arm::Prefix, Verdict::Held);
    crowds.expect_arm(Arm::ConcurrentCold, Verdict::Broken);
    crowds.expect_arm(Arm::ConcurrentWarm, Verdict::Broken);
    let clean = run(Faults::default(), &arms);
    clean.expect(Verdict::Held);
    arms.iter().for_each(|&arm| assert!(clean.arm(arm).scored > 0, "{arm}"));
}

/// A hit that no counter proves is unknown, not a miss: nothing is scored on it. Counters that
/// are rounded, or that count once a sample, take nothing away.
pub(crate) fn a4_11_a_hit_must_be_proven() {
    let warm = Faults::disturbed(When::Warm, DRIFT);
    for usage in [Usage::None, Usage::WithoutCached, Usage::CachedRounded(2096)] {
        let unproven = run(Faults { usage, ..warm.clone() }, &[Arm::Prefix]);
        unproven.expect_arm(Arm::Prefix, Verdict::Undecided);
        assert!(unproven.arm(Arm::Prefix).reason.is_some(), "{usage:?}");
    }
    for usage in [Usage::Whole, Usage::CachedRounded(32), Usage::CachedTimesSamples] {
        let clean = run(Faults { usage, ..Faults::default() }, &[Arm::Prefix]);
        clean.expect_arm(Arm::Prefix, Verdict::Held);
        let faulty = run(Faults { usage, ..warm.clone() }, &[Arm::Prefix]);
        faulty.expect_arm(Arm::Prefix, Verdict::Broken);
    }
    let without = Faults { prefix_cache: false, ..Faults::default() };
    run(without, &[Arm::Prefix]).expect_arm(Arm::Prefix, Verdict::Undecided);
}

/// Nothing relies on a route that empties the cache: one that refuses or hangs changes nothing.
pub(crate) fn a4_12_no_flush_is_relied_on() {
    for flush in [Flush::Works, Flush::Refused, Flush::Hangs] {
        let seen = run(Faults { flush, ..Faults::default() }, &[Arm::ConcurrentCold, Arm::Prefix]);
        seen.expect(Verdict::Held).expect_arm(Arm::Prefix, Verdict::Held);
    }
    // Where a request can't be kept from the cache, nothing is called cold.
    let never = Faults { cold: Cold::Never, ..Faults::default() };
    run(never, &[Arm::Prefix, Arm::ConcurrentCold])
        .expect_arm(Arm::ConcurrentCold, Verdict::Undecided);
    let prompt = Faults { cold: Cold::Prompt, ..Faults::default() };
    run(prompt, &[Arm::Prefix, Arm::ConcurrentWarm]).expect(Verdict::Held);
}

/// A server that changes in the middle of the run is said to, and is not called a fault of crowds.
pub(crate) fn a4_13_a_server_that_drifts_over_its_life_is_seen() {
    let arms = [Arm::ConcurrentWarm, Arm::Time];
    let clean = run(Faults::default(), &arms);
    clean.expect(Verdict::Held).expect_arm(Arm::Time, Verdict::Held);
    let count = clean.server.completions().len() as u64;
    // The crowds, the probe in the middle and the one at the end are the last 20 requests.
    for before_end in [20, 14, 10, 3] {
        let when = When::AfterRequests(count - before_end);
        let faulty = run(Faults::disturbed(when, DRIFT), &arms);
        faulty.expect(Verdict::Broken).expect_arm(Arm::Time, Verdict::Broken);
        assert_ne!(faulty.arm(Arm::ConcurrentWarm).verdict, Verdict::Broken, "{}", faulty.said());
    }
    let early = run(Faults::disturbed(When::AfterRequests(count / 2), DRIFT), &arms);
    early.expect(Verdict::Undecided).expect_said(&["changes once"]);
}

/// Requests of others are seen while ours rest; the verdict is one under unknown load, and they
/// are no witness of ours.
pub(crate) fn a4_14_strangers_are_seen_and_witness_nothing() {
    let strange = run(Faults { strangers: 3, ..Faults::default() }, &CROWDS);
    assert_eq!(strange.certificate.witness.load_when_idle, Some(3));
    strange.expect_said(&["requests of others"]).expect_not(Verdict::Broken);
    let alone = run(Faults { strangers: 3, cap: 1, ..Faults::default() }, &CROWDS);
    alone.expect(Verdict::Undecided);
    assert_eq!(alone.arm(Arm::ConcurrentWarm).scored, 0, "{}", alone.said());
    let clean = run(Faults::default(), &CROWDS);
    clean.expect(Verdict::Held);
    assert_eq!(clean.certificate.witness.load_when_idle, Some(0));
}

/// What is set beside the client does nothing to a server: the certificate holds what was sent
/// over the wire, and says that the server's own settings are not seen.
pub(crate) fn a4_15_settings_of_the_server_are_not_claimed() {
    let faulty = run(Faults::disturbed(When::InFlight(2), DRIFT), &CROWDS);
    let clean = run(Faults::default(), &CROWDS);
    for seen in [faulty, clean] {
        let scope = seen.certificate.scope.to_lowercase();
        assert!(scope.contains("settings are not seen"), "{scope}");
        assert!(!seen.said().contains("batch-invariant mode"), "{}", seen.said());
    }
}
