//! Each arm sees the fault that is its own, and no other arm is blamed for it.

use lockstep::certify::{Arm, Verdict};

use crate::run::run;
use crate::server::{Echo, Faults, How, When};

const DRIFT: How = How::Drift(1e-3);

/// One server of each kind, every arm asked.
pub(crate) fn a_fault_shows_in_its_own_arm() {
    let of = |when: When| Faults::disturbed(when, DRIFT);
    let table: [(Faults, &[Arm]); 4] = [
        (of(When::Streamed), &[Arm::Stream]),
        // First answers are cold, later ones warm; what was generated warm is scored cold.
        (of(When::Warm), &[Arm::First, Arm::Prefix, Arm::Score]),
        (of(When::SampledInFlight), &[Arm::Seed]),
        (Faults { echo: Echo::Drifts, ..Faults::default() }, &[Arm::Score]),
    ];
    for (faults, broken) in table {
        let seen = run(faults, &Arm::ALL);
        seen.expect(Verdict::Broken);
        for arm in Arm::ALL {
            let is_broken = seen.arm(arm).verdict == Verdict::Broken;
            assert_eq!(is_broken, broken.contains(&arm), "{arm}: {}", seen.said());
        }
    }
    let clean = run(Faults::default(), &Arm::ALL);
    clean.expect(Verdict::Held);
    for arm in Arm::ALL {
        clean.expect_arm(arm, Verdict::Held);
    }
}

/// Who came first matters: seen where one order of arrival meets the other.
pub(crate) fn the_order_of_arrival_shows_in_the_order_arm() {
    let faulty = run(Faults::disturbed(When::OddPlace, DRIFT), &[Arm::Order]);
    faulty.expect(Verdict::Broken).expect_arm(Arm::Order, Verdict::Broken);
    run(Faults::default(), &[Arm::Order]).expect_arm(Arm::Order, Verdict::Held);
}
