//! Two replicas behind one address, each of which repeats its own answers: no fault of batches, whatever deals requests out.

use lockstep::certify::certificate::Clusters;
use lockstep::certify::{Arm, Options, Verdict};

use crate::run::{CROWDS, Run, all, quick, run, with};
use crate::server::{Faults, Front, How, When};

fn replicas(front: Front, replicas_named: bool) -> Faults {
    Faults { front, replicas_named, ..Faults::default() }
}

fn clusters(of: &Run) -> &Clusters {
    let said = of.said();
    let clusters = of.certificate.clusters.as_ref().unwrap_or_else(|| panic!("no kinds: {said}"));
    assert_eq!((clusters.kinds, clusters.answers.len()), (2, 2), "{said}");
    assert!(said.contains("answers fall into 2 kinds"), "{said}");
    clusters
}

/// A client that always gets the same one sees one server.
pub(crate) fn replicas_that_stick_to_their_clients_are_one_server() {
    // The second one scores prompts as the first one does, whatever it generates.
    let arms: Vec<Arm> = Arm::ALL.into_iter().filter(|arm| *arm != Arm::Score).collect();
    for named in [true, false] {
        run(replicas(Front::ReplicasSticky, named), &arms).expect(Verdict::Held);
    }
    let drifting = Faults {
        front: Front::ReplicasSticky,
        ..Faults::disturbed(When::InFlight(2), How::Drift(1e-3))
    };
    run(drifting, &CROWDS).expect(Verdict::Broken);
}

/// The second one gets what is too much for the first: which of both answers follows load at the balancer, not the batch. Two
/// kinds of answers, each stable, are named, with or without a mark that tells the replicas apart.
pub(crate) fn a_balancer_that_spills_over_is_not_called_a_fault_of_batches() {
    for (most, named) in [(1, true), (2, false), (3, false)] {
        let spilling = all(replicas(Front::ReplicasSpilling(most), named));
        spilling.expect(Verdict::Undecided);
        let clusters = clusters(&spilling);
        assert!(clusters.stable && !clusters.alone, "{}", spilling.said());
        assert_eq!(clusters.told_apart_by.is_some(), named, "{}", spilling.said());
        spilling.expect_said(&["each the same to the last digit"]);
    }
    // A fault of crowds as frequent as those answers is one.
    for when in [When::InFlight(5), When::PromptTokensAbove(100), When::PrefillInStep(60)] {
        all(Faults::disturbed(when, How::Drift(1e-4))).expect(Verdict::Broken);
    }
}

/// Requests one at a time get both kinds already.
pub(crate) fn replicas_by_chance_or_in_turn_leave_nothing_to_compare_with() {
    for front in [Front::ReplicasRandom, Front::ReplicasByTurns, Front::ReplicasByConnection] {
        for named in [true, false] {
            let dealt = run(replicas(front, named), &Arm::ALL);
            dealt.expect(Verdict::Undecided);
            let clusters = clusters(&dealt);
            assert!(clusters.alone, "{front:?}: {}", dealt.said());
            assert_eq!(clusters.told_apart_by.is_some(), named, "{front:?}: {}", dealt.said());
        }
    }
}

/// Small plans see less of the kinds, and blame crowds no more for that.
pub(crate) fn small_plans_do_not_blame_crowds_for_replicas() {
    let plans = [(2, vec![2]), (3, vec![3]), (4, vec![16])];
    for (prompts, concurrency) in plans {
        let options = Options { prompts, concurrency, ..quick(&CROWDS) };
        for front in [
            Front::ReplicasRandom,
            Front::ReplicasByTurns,
            Front::ReplicasSpilling(1),
            Front::ReplicasSpilling(3),
        ] {
            let life = prompts.into();
            let seen = with(Faults { life, ..replicas(front, false) }, &options);
            seen.expect_not(Verdict::Broken);
        }
    }
}
