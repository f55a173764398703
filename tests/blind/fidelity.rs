//! Arithmetic that is wrong in every execution alike: the pass in f64 sees it.

use std::sync::Arc;

use lockstep::contract::Mode;
use lockstep::device::host::Host;
use lockstep::fixture::Fixture;
use lockstep::harness::Verdict;
use lockstep::relation::{Observable, g1, named};
use lockstep::subject::Subject;
use lockstep::weights;

use super::altered::{self, Alteration};
use super::faults::HalfAccumulation;
use super::fold::{ReversedAttention, ReversedGemm};
use super::model_faults::{Faulty, HostFault, Wrong};
use super::{broken, campaign, golden, no_schedule_shows};

/// Cases of a campaign about F1 in which these faults are seen.
const CASES: u64 = 6;

fn altered<A: Alteration<Host> + Send + Sync + 'static>(alteration: A) -> Box<dyn Subject + Send> {
    Box::new(altered::fixture("tiny", Host::new, alteration).unwrap())
}

fn f1_breaks(subject: &dyn Subject) {
    assert_eq!(broken(subject, "F1", CASES), Observable::Fidelity);
}

fn holds(subject: &dyn Subject, relation: &str) {
    let report = campaign(subject, named(relation), CASES);
    assert_eq!(report.verdict(), Verdict::Held, "{relation}: {:?}", report.failure);
}

#[test]
fn operators_that_err_alike_are_beyond_bounds() {
    // A row that sees the next one of its chunk sees more the longer the chunk is: schedules show that.
    for fault in HostFault::ALL.into_iter().filter(|f| *f != HostFault::SeesTooMuch) {
        println!("{}", fault.name());
        let subject = altered(fault);
        no_schedule_shows(&*subject, 12);
        f1_breaks(&*subject);
    }
    f1_breaks(&*altered(HalfAccumulation));
}

#[test]
fn models_that_are_not_what_they_are_said_to_be_are_beyond_bounds_and_have_other_digests() {
    let honest = Arc::new(weights::open("tiny", None).unwrap());
    for wrong in Wrong::ALL {
        println!("{}", wrong.name());
        let model = wrong.model(&honest);
        assert_ne!(model.tensors_digest(), honest.tensors_digest());
        let engine = Box::new(Fixture::host("tiny", &model, Mode::Invariant).unwrap());
        let subject = Faulty { engine, honest: Arc::clone(&honest), forgets: false };
        no_schedule_shows(&subject, 12);
        f1_breaks(&subject);
    }
    assert_eq!((*honest).clone().tensors_digest(), honest.tensors_digest());
}

/// Goal: a reversed fold is as near to the exact result as the right one, so the snapshot alone sees it.
#[test]
fn reversed_folds_are_within_bounds_and_the_plain_engine_repeats_them() {
    for subject in [altered(ReversedGemm), altered(ReversedAttention::new(true))] {
        holds(&*subject, "F1");
        holds(&*subject, "D1");
    }
}

/// Goal: a snapshot of a faulty engine holds, and so does a plain engine that shares the faulty operator; F1 tells.
#[test]
fn a_faulty_engines_snapshot_and_a_shared_operator_hold_and_are_beyond_bounds() {
    let subject = altered(HostFault::Scale);
    let prompts = golden::prompts("tiny", &*subject);
    let baseline = g1::alone(&*subject, &prompts).unwrap();
    let served = g1::served(&*subject, &prompts).unwrap();
    assert!(baseline.differences(&served).is_empty());
    holds(&*subject, "D1");
    f1_breaks(&*subject);
}
