//! Lines 8 to 15: is the state controlled?

use lockstep::certify::pattern::Shape;
use lockstep::certify::{Arm, Verdict};
use serde_json::Value;

use crate::run::{CROWDS, run, small, with};
use crate::server::{Cold, Faults, Flush, How, Usage, When};

const DRIFT: How = How::Drift(1e-3);

/// The first requests after a start are a warm-up, and no fault of crowds; answers alone that fall
/// into A,B,B,B and A,A,B,B are told apart. The arm of first answers says so: an arm of its own, which
/// is broken where the first answer alone differs.
pub(crate) fn a4_08_a_first_request_is_no_fault_of_crowds() {
    for when in [When::FirstRequests(1), When::FirstOfPrompt] {
        let faulty = run(Faults::disturbed(when, DRIFT), &CROWDS);
        for arm in CROWDS {
            faulty.expect_arm(arm, Verdict::Held);
        }
    }
    let mut options = small(&[Arm::First]);
    options.repeats = 6;
    let shape = |of: &crate::run::Run| of.arm(Arm::First).pattern.clone().expect("a pattern").shape;
    let first = with(Faults::disturbed(When::FirstOfPrompt, DRIFT), &options);
    assert_eq!(shape(&first), Shape::FirstDiffers, "{}", first.said());
    first.expect_arm(Arm::First, Verdict::Broken).expect_arm(Arm::Repeat, Verdict::Held);
    let third = with(Faults::disturbed(When::ThirdOfPrompt, DRIFT), &options);
    assert_eq!(shape(&third), Shape::Switches, "{}", third.said());
    third.expect(Verdict::Undecided).expect_arm(Arm::First, Verdict::Undecided);
    let clean = with(Faults::default(), &options);
    assert_eq!(shape(&clean), Shape::Equal);
    clean.expect(Verdict::Held);
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

/// A hit that no counter proves is unknown, not a miss: that nothing differs says nothing then. A
/// difference counts without proof, in the arm of first answers at the latest. Counters that are
/// rounded, or that count once a sample, take nothing away.
pub(crate) fn a4_11_a_hit_must_be_proven() {
    let warm = Faults::disturbed(When::Warm, DRIFT);
    for usage in [Usage::None, Usage::WithoutCached, Usage::CachedRounded(2096)] {
        let unproven = run(Faults { usage, ..Faults::default() }, &[Arm::Prefix]);
        unproven.expect_arm(Arm::Prefix, Verdict::Undecided);
        assert!(unproven.arm(Arm::Prefix).reason.is_some(), "{usage:?}");
        let faulty = run(Faults { usage, ..warm.clone() }, &[Arm::First, Arm::Prefix]);
        faulty.expect(Verdict::Broken).expect_arm(Arm::First, Verdict::Broken);
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
    // Where a request can't be kept from the cache, new prompts are cold once; that their answers alone are equal afterwards says
    // nothing if these are seen to come from the cache.
    let never = Faults { cold: Cold::Never, ..Faults::default() };
    run(never.clone(), &[Arm::Prefix, Arm::ConcurrentCold])
        .expect_arm(Arm::ConcurrentCold, Verdict::Undecided);
    run(Faults { prefix_cache: false, ..never }, &[Arm::ConcurrentCold])
        .expect_arm(Arm::ConcurrentCold, Verdict::Held);
    let prompt = Faults { cold: Cold::Prompt, ..Faults::default() };
    run(prompt, &[Arm::Prefix, Arm::ConcurrentWarm]).expect(Verdict::Held);
}

/// A server that changes in the middle of the run is said to, and is not called a fault of crowds: an
/// answer that differs there is asked for again alone. What changed among the crowds is told by the arm
/// `after`, since they may have left it behind; what changed with no crowd between, by the arm `time`.
pub(crate) fn a4_13_a_server_that_drifts_over_its_life_is_seen() {
    let arms = [Arm::ConcurrentWarm, Arm::After, Arm::Time];
    let clean = run(Faults::default(), &arms);
    clean.expect(Verdict::Held).expect_arm(Arm::Time, Verdict::Held);
    let count = clean.server.completions().len() as u64;
    // At the end: 12 requests in crowds, 4 alone after them, and 4 once more.
    for (before_end, arm) in [(18, Arm::After), (14, Arm::After), (10, Arm::After), (3, Arm::Time)]
    {
        let when = When::AfterRequests(count - before_end);
        let faulty = run(Faults::disturbed(when, DRIFT), &arms);
        faulty.expect(Verdict::Broken).expect_arm(arm, Verdict::Broken);
        assert_ne!(faulty.arm(Arm::ConcurrentWarm).verdict, Verdict::Broken, "{}", faulty.said());
    }
    // Among the first answers, which come before those: 12 alone, 4 of the arm `time`, 12 in crowds of the control.
    let when = When::AfterRequests(count - 20 - 12 - 4 - 4);
    let early = run(Faults::disturbed(when, DRIFT), &[Arm::First, Arm::ConcurrentWarm]);
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
