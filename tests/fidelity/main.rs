//! F1's bounds: measured again, and shown to be missed by faults that no schedule shows.

#[path = "../support/altered.rs"]
mod altered;
mod calibration;
mod faults;
mod planted;

use lockstep::relation::Executions;
use lockstep::strategy::{Space, cases};
use lockstep::subject::Subject;
use proptest::strategy::ValueTree;

/// The cases of a seed that a campaign about F1 draws: what `measure` makes of each.
fn each_case(
    subject: &dyn Subject,
    seed: u64,
    count: u64,
    mut measure: impl FnMut(&mut Executions<'_>),
) {
    let cases = cases(Space::new(subject.edges(), subject.default_world()));
    for i in 0..count {
        let case = cases.nth(seed, i).current();
        let mut executions = Executions::new(subject, &case).expect("a case is executable");
        measure(&mut executions);
    }
}
