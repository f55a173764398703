//! Lines 1 to 7: did the load really happen?

use std::collections::BTreeSet;

use lockstep::certify::{Arm, Options, Verdict};

use crate::run::{CROWDS, all, run, small, with};
use crate::server::{Faults, Front, Gauge, How, Server, When};

/// A fault that every crowd of two shows.
fn drifting() -> Faults {
    Faults::disturbed(When::InFlight(2), How::Drift(1e-3))
}

/// Slow enough that tokens which arrive late, on a machine with much to do, prove nothing.
const SLOW_US: u64 = 2500;

fn step_us(gauge: Gauge) -> u64 {
    if gauge == Gauge::Missing { SLOW_US } else { Faults::default().step_us }
}

/// A server that batches nothing hides each fault of batches: it is never scored, with its gauge
/// or without.
pub(crate) fn a4_01_a_sequential_server_is_not_scored() {
    for gauge in [Gauge::Vllm, Gauge::Missing] {
        let faulty = run(Faults { cap: 1, gauge, step_us: step_us(gauge), ..drifting() }, &CROWDS);
        faulty.expect(Verdict::Undecided);
        assert_eq!(faulty.server.running_max(), 1);
        assert!(faulty.certificate.witness.max_in_flight <= 1, "{gauge:?}");
        for arm in CROWDS {
            faulty.expect_arm(arm, Verdict::Undecided);
            let record = faulty.arm(arm);
            assert_eq!((record.scored, record.met), (0, 0), "{gauge:?}");
            assert!(record.unwitnessed > 0 && record.reason.is_some(), "{gauge:?}");
        }
        run(Faults { gauge, step_us: step_us(gauge), ..drifting() }, &CROWDS)
            .expect(Verdict::Broken);
        let clean = run(Faults { gauge, step_us: step_us(gauge), ..Faults::default() }, &CROWDS);
        clean.expect(Verdict::Held);
        assert!(clean.certificate.witness.max_in_flight >= 2, "{gauge:?}");
    }
}

/// The number in flight stands beside the verdict, and is never more than there were. A gauge
/// that stands still is no proof of batching.
pub(crate) fn a4_02_the_number_in_flight_is_measured_and_printed() {
    for gauge in [Gauge::Vllm, Gauge::Sglang, Gauge::LlamaCpp, Gauge::Missing] {
        let clean = run(
            Faults { gauge, step_us: step_us(gauge), ..Faults::default() },
            &[Arm::ConcurrentWarm],
        );
        clean.expect(Verdict::Held);
        let seen = clean.certificate.witness.max_in_flight;
        assert!((2..=clean.server.running_max() as u32).contains(&seen), "{gauge:?}: {seen}");
        assert!(clean.said().contains(&format!("{seen} in flight")), "{}", clean.said());
    }
    let stuck = Faults { gauge: Gauge::Stuck, cap: 1, step_us: SLOW_US, ..drifting() };
    let stuck = run(stuck, &[Arm::ConcurrentWarm]);
    stuck.expect(Verdict::Undecided);
    assert!(stuck.certificate.witness.max_in_flight <= 1);
}

/// A server that never runs more than four hides a fault of six; the certificate says how many
/// ran, level by level.
pub(crate) fn a4_03_a_cap_of_the_server_shows_in_the_levels() {
    let wide = Faults::disturbed(When::InFlight(6), How::Drift(1e-3));
    let capped = run(Faults { cap: 4, ..wide.clone() }, &CROWDS);
    capped.expect_not(Verdict::Broken);
    assert!(capped.certificate.witness.max_in_flight <= 4);
    let record = capped.arm(Arm::ConcurrentWarm);
    assert!(record.levels.iter().all(|level| level.in_flight <= 4), "{:?}", record.levels);
    let open = run(wide, &CROWDS);
    open.expect(Verdict::Broken);
    for level in &open.arm(Arm::ConcurrentWarm).levels {
        assert_eq!(level.differing > 0, level.sent > 6, "{level:?}");
    }
}

/// Answers of one token are over before most of their neighbours arrive: of the equal ones that were not seen to meet, nothing is
/// claimed. What differs counts all the same, since a difference needs no witness. Where the server can be asked for whole
/// answers, it is.
pub(crate) fn a4_04_short_answers_are_no_load() {
    let short = Faults { answer_tokens_max: Some(1), gauge: Gauge::Missing, ..Faults::default() };
    let few = Options { answers_min: 8, ..small(&CROWDS) };
    let clean = with(short.clone(), &few);
    clean.expect_not(Verdict::Broken);
    for level in &clean.certificate.levels {
        let met: u64 = clean
            .certificate
            .arms
            .iter()
            .flat_map(|record| &record.levels)
            .filter(|one| one.sent == level.sent)
            .map(|one| one.met)
            .sum();
        assert!(level.verdict == Verdict::Undecided || met >= 8, "{}", clean.said());
    }
    let disturbances = drifting().disturbances;
    run(Faults { disturbances, ..short }, &CROWDS).expect(Verdict::Broken);
    let whole = run(Faults::default(), &CROWDS);
    whole.expect(Verdict::Held);
    let asked = whole.server.completions();
    let long: Vec<_> = asked.iter().filter(|asked| asked.body["max_tokens"] == 16).collect();
    assert!(long.len() > 8);
    let kept = |asked: &crate::server::Asked| {
        asked.body["ignore_eos"] == true || asked.body["min_tokens"] == 16
    };
    let kept = long.iter().filter(|asked| kept(asked)).count();
    assert!(kept + 8 >= long.len(), "{kept} of {}", long.len());
}

/// A fault that needs neighbours of other lengths is found, since lengths are mixed; and no two
/// prompts share a first block that a cache could serve.
pub(crate) fn a4_05_prompts_differ_in_length_and_from_the_first_block_on() {
    let faulty = run(Faults::disturbed(When::OtherLengths, How::Drift(1e-3)), &CROWDS);
    faulty.expect(Verdict::Broken);
    let clean = run(Faults::default(), &CROWDS);
    clean.expect(Verdict::Held);
    let asked = clean.server.completions();
    let prompts: BTreeSet<Vec<u64>> = asked
        .iter()
        .filter(|asked| asked.body["max_tokens"] == 16)
        .filter_map(|asked| serde_json::from_value(asked.body["prompt"].clone()).ok())
        .collect();
    let lengths: BTreeSet<usize> = prompts.iter().map(Vec::len).collect();
    assert!(lengths.len() >= 3, "{lengths:?}");
    let starts: BTreeSet<&[u64]> = prompts.iter().map(|ids| &ids[..ids.len().min(8)]).collect();
    assert_eq!(starts.len(), prompts.len(), "prompts share their start");
}

/// A proxy that passes one request at a time is seen by the witness; the client itself has a
/// connection for each request of a crowd.
pub(crate) fn a4_06_what_serialises_requests_is_seen() {
    for gauge in [Gauge::Vllm, Gauge::Missing] {
        let front = Front::OneAtATime;
        let serial = run(Faults { front, gauge, step_us: step_us(gauge), ..drifting() }, &CROWDS);
        serial.expect(Verdict::Undecided);
        let record = serial.arm(Arm::ConcurrentWarm);
        assert_eq!((record.scored, record.met), (0, 0));
    }
    let open = run(drifting(), &CROWDS);
    open.expect(Verdict::Broken);
    assert!(open.server.running_max() >= 5, "most of a crowd runs together");
    let connections: BTreeSet<u64> =
        open.server.completions().iter().map(|asked| asked.connection).collect();
    assert!(connections.len() >= 8, "{}", connections.len());
    // The last crowd: every connection was there before the first request was read.
    let asked = open.server.completions();
    let crowd = &asked[asked.len() - 8..];
    let opened = crowd.iter().map(|asked| asked.opened).max();
    let read = crowd.iter().map(|asked| asked.read).min();
    assert!(opened < read, "a connection was opened after the start");
}

/// Stored answers are equal whatever the server would have computed: a gateway that caches is
/// found out, and so is one that runs each request twice, which leaves nothing cold.
pub(crate) fn a4_07_answers_from_a_gateway_are_not_scored() {
    for front in [Front::Cache, Front::CacheFreshIds] {
        // Only repeats of a warm request can come from the store. Without an id it is known by how fast it is, and a machine that is
        // busy may make it slow.
        let slow = Faults { front, step_us: 6000, ..drifting() };
        let is_named = (0..3).any(|_| {
            let cached = run(slow.clone(), &[Arm::ConcurrentWarm]);
            cached.expect(Verdict::Undecided);
            cached.said().contains("come from a cache in front of the model")
        });
        assert!(is_named, "{front:?}");
    }
    let twice = run(Faults { front: Front::RunsTwice, ..Faults::default() }, &[Arm::Prefix]);
    twice.expect_arm(Arm::Prefix, Verdict::Undecided);
    run(drifting(), &[Arm::ConcurrentWarm]).expect(Verdict::Broken);
    run(Faults::default(), &[Arm::ConcurrentWarm, Arm::Prefix])
        .expect(Verdict::Held)
        .expect_arm(Arm::Prefix, Verdict::Held);
}

/// Traffic that was sequential from end to end is never called clean, whatever the arms are.
pub(crate) fn traffic_that_was_sequential_is_never_clean() {
    let sequential = all(Faults { cap: 1, ..Faults::default() });
    sequential.expect(Verdict::Undecided);
    let server: &Server = &sequential.server;
    assert_eq!(server.running_max(), 1);
    for arm in Arm::ALL.into_iter().filter(|arm| arm.needs_company()) {
        sequential.expect_arm(arm, Verdict::Undecided);
        assert_eq!(sequential.arm(arm).met, 0, "{arm}");
    }
}
