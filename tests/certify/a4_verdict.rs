//! Lines 27 to 34: is the verdict honest?

use std::time::Duration;

use lockstep::certify::nature::Nature;
use lockstep::certify::{self, Arm, CertifyError, Options, Silent, Verdict, text};

use crate::run::{CROWDS, attempt, run, small, target, with};
use crate::server::{Disturbance, Faults, Front, How, Refusals, Server, When};

const DRIFT: How = How::Drift(1e-3);

fn drifting() -> Faults {
    Faults::disturbed(When::InFlight(2), DRIFT)
}

/// Small values on all logits are drift; a context that becomes another's is a state fault. The
/// first difference comes with its position, both logprobs and the margin.
pub(crate) fn a4_27_drift_is_told_from_a_state_fault() {
    for (how, nature) in
        [(How::Drift(1e-5), Nature::Drift), (How::Foreign, Nature::LikelyStateFault)]
    {
        let faulty = run(Faults::disturbed(When::InFlight(2), how), &[Arm::ConcurrentWarm]);
        faulty.expect(Verdict::Broken);
        let divergence = faulty.certificate.divergences.first().expect("a divergence");
        assert_eq!(divergence.nature, nature, "{}", faulty.said());
        assert!(!divergence.neighbours.is_empty() && divergence.in_flight > 1);
        assert!(!faulty.said().contains("corrupt"), "{}", faulty.said());
    }
}

/// A control that can't fail proves nothing: with one, nothing is held; with one that fails, and
/// with the control that the certifier brings, what is clean is held.
pub(crate) fn a4_28_the_positive_control_must_be_seen() {
    let clean = Server::start(Faults::default());
    let options = small(&CROWDS);
    for (faults, passed) in [(Faults::default(), false), (drifting(), true)] {
        let control = Server::start(faults);
        let mut target = target(&clean);
        target.control = Some(format!("{}/v1", control.url()));
        let certificate = certify::run(&target, &options, &Silent).expect("a certificate");
        assert_eq!(certificate.controls.positive.passed, Some(passed));
        let verdict = if passed { Verdict::Held } else { Verdict::Undecided };
        assert_eq!(certificate.verdict, verdict, "{}", text::report(&certificate));
    }
    let own = attempt(&clean, &options).expect("a certificate");
    assert_eq!(own.controls.positive.passed, Some(true));
    assert!(own.controls.positive.differing > 0);
    assert_eq!(own.verdict, Verdict::Held);
}

/// Where one request at a time is not repeatable, nothing is said of crowds; the same goes for two
/// replicas behind one address.
pub(crate) fn a4_29_the_negative_control_must_be_clean() {
    let chance = Faults::disturbed(When::EachRequest, DRIFT);
    let turns = Faults { front: Front::ReplicasByTurns, ..Faults::default() };
    let dealt = Faults { front: Front::ReplicasByConnection, ..Faults::default() };
    for faults in [chance, turns, dealt] {
        let faulty = run(faults, &CROWDS);
        assert_eq!(faulty.certificate.controls.negative.passed, Some(false));
        faulty.expect(Verdict::Undecided);
        for arm in CROWDS {
            faulty.expect_arm(arm, Verdict::Undecided);
        }
    }
    let clean = run(Faults::default(), &CROWDS);
    assert_eq!(clean.certificate.controls.negative.passed, Some(true));
}

/// A fault of some requests is n of m with an interval; a fault of one life in three is seen in
/// that life, and the others say how small a rate they would have seen.
pub(crate) fn a4_30_an_intermittent_fault_has_counts_and_an_interval() {
    let fault = |life: u64, rate: f64| Faults {
        life,
        disturbances: vec![Disturbance { when: When::InFlight(2), how: DRIFT, rate }],
        ..Faults::default()
    };
    let some = run(fault(0, 0.3), &CROWDS);
    some.expect(Verdict::Broken);
    let record = some.arm(Arm::ConcurrentWarm);
    let share = record.differing as f64 / record.of as f64;
    assert!(record.differing < record.of);
    assert!(record.interval[0] <= share && share <= record.interval[1], "{:?}", record.interval);
    let lives: Vec<Verdict> = [0.0, 1.0, 0.0]
        .iter()
        .enumerate()
        .map(|(life, &rate)| run(fault(life as u64, rate), &CROWDS).certificate.verdict)
        .collect();
    assert_eq!(lives, [Verdict::Held, Verdict::Broken, Verdict::Held]);
    let clean = run(Faults::default(), &CROWDS).certificate;
    let power = clean.power;
    assert!(power.trials > 0 && power.trials_for_99 > 0);
    let expected = 1.0 - (1.0 - power.rate).powf(power.trials as f64);
    assert!((power.detection - expected).abs() < 1e-9, "{power:?}");
}

/// Many differences of one prompt are one finding.
pub(crate) fn a4_31_differences_are_grouped_by_prompt() {
    let one = run(Faults::disturbed(When::OneLengthInFlight, DRIFT), &CROWDS);
    one.expect(Verdict::Broken);
    for arm in CROWDS {
        let record = one.arm(arm);
        let findings = one.certificate.findings.iter().filter(|finding| finding.arm == arm);
        let prompts: std::collections::BTreeSet<u32> =
            findings.map(|finding| finding.prompt).collect();
        assert_eq!(prompts.len() as u64, record.prompts_differing, "{arm}");
        assert!(record.prompts_differing <= 1 && record.prompts > 1, "{arm}");
    }
    let all = run(drifting(), &CROWDS);
    assert!(all.arm(Arm::ConcurrentWarm).prompts_differing > 1);
}

/// The scope line holds what was asked, of whom, and what was left out and why.
pub(crate) fn a4_32_the_scope_line_says_what_was_asked() {
    let clean = run(Faults::default(), &[Arm::ConcurrentWarm]);
    let certificate = &clean.certificate;
    assert!(certificate.scope.contains("fake"), "{}", certificate.scope);
    assert!(certificate.server.url.contains("127.0.0.1"));
    for arm in Arm::ALL {
        let record = certificate.arm(arm).expect("a record of each arm");
        if record.scored == 0 {
            assert!(record.reason.is_some(), "{arm}");
        }
    }
    for line in [clean.said(), certificate.scope.to_lowercase()] {
        assert!(!line.contains("certified"), "{line}");
    }
}

/// What is inside a server can't be seen from outside: no cause is named.
pub(crate) fn a4_33_no_cause_is_named() {
    for how in [DRIFT, How::Foreign, How::Shorter] {
        let faulty = run(Faults::disturbed(When::InFlight(2), how), &CROWDS);
        faulty.expect(Verdict::Broken);
        for word in ["kernel", "attention", "all-reduce", "because of", "caused by", "gemm"] {
            assert!(!faulty.said().contains(word), "{word}: {}", faulty.said());
        }
    }
}

/// A refusal for load voids its case, and nothing is sent again; a storm of them ends the run
/// soon. Budgets hold.
pub(crate) fn a4_34_refusals_void_cases_and_budgets_hold() {
    for refusals in [Refusals::Every(7), Refusals::Above(3), Refusals::After(30)] {
        let stormy = Server::start(Faults { refusals, ..Faults::default() });
        let certificate = attempt(&stormy, &small(&CROWDS)).expect("a certificate");
        let voided: u64 = certificate.arms.iter().map(|record| record.voided).sum();
        assert!(voided > 0, "{refusals:?}");
        assert_eq!(stormy.completions().len() as u64, certificate.requests, "{refusals:?}");
        assert_ne!(certificate.verdict, Verdict::Broken);
        if refusals == Refusals::After(30) {
            assert_eq!(certificate.verdict, Verdict::Undecided);
            assert!(certificate.requests < 60, "{}", certificate.requests);
        }
    }
    let budgets = [
        Options { requests_max: 80, ..small(&CROWDS) },
        Options { tokens_max: 10_000, ..small(&CROWDS) },
        Options { time_max: Duration::from_millis(300), ..small(&CROWDS) },
    ];
    for options in budgets {
        let stopped = with(Faults::default(), &options);
        let certificate = &stopped.certificate;
        let sent = stopped.server.completions().len() as u64;
        assert!(sent == certificate.requests && sent <= options.requests_max, "{sent}");
        assert!(certificate.tokens <= options.tokens_max, "{}", certificate.tokens);
        if certificate.settings.seconds_max < 1.0 {
            stopped.expect(Verdict::Undecided);
            assert!(certificate.seconds < 3.0, "{}", certificate.seconds);
        }
    }
    let server = Server::start(Faults::default());
    let too_small = attempt(&server, &Options { requests_max: 20, ..small(&CROWDS) });
    assert!(matches!(too_small, Err(CertifyError::BadInput(_))));
    assert!(server.asked().is_empty(), "a plan that can't be carried out sends nothing");
    run(Faults::default(), &CROWDS).expect(Verdict::Held);
}
