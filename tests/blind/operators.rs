//! Operators that are wrong in every execution alike: the snapshot sees them.

use lockstep::device::host::Host;
use lockstep::subject::Subject;

use super::altered;
use super::faults::{HalfAccumulation, RopeOffset};
use super::{folds, no_schedule_shows};

/// Asserts that the snapshot sees a fault in every prompt of several tokens, by logits and by layer digests.
fn golden_moves(subject: &dyn Subject) {
    for (before, after) in folds::lines("tiny", subject, 33) {
        let moved = before.logits != after.logits && before.layers != after.layers;
        assert!(moved, "a prompt of {} tokens", before.length);
    }
}

#[test]
fn rotation_by_the_next_position_moves_the_snapshot() {
    let subject = altered::fixture("tiny", Host::new, RopeOffset).unwrap();
    no_schedule_shows(&subject, 12);
    golden_moves(&subject);
}

#[test]
fn sums_in_f16_move_the_snapshot() {
    let subject = altered::fixture("tiny", Host::new, HalfAccumulation).unwrap();
    no_schedule_shows(&subject, 12);
    golden_moves(&subject);
}
