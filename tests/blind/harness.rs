//! What the harness itself must notice: mechanisms that never run, and observers that see nothing.

use lockstep::contract::{MatrixUnit, Mode};
use lockstep::device::Device;
use lockstep::device::host::Host;
use lockstep::engine::contract_of;
use lockstep::fixture::Fixture;
use lockstep::harness::Verdict;
use lockstep::relation::named;
use lockstep::weights;

use super::altered::{self, Altered};
use super::asked::{self, Asked};
use super::faults::BlindObserver;
use super::{campaign, folds, no_schedule_shows};

/// Goal: an engine without a fault, in which the mechanisms never run, is not said to hold. Method: every relation is asked
/// about them for as many cases as make minima due.
#[test]
fn mechanisms_that_never_run_are_vacuous() {
    let source = weights::source("tiny", None).unwrap();
    let engine = Box::new(Fixture::hash("tiny", source, Mode::Invariant).unwrap());
    let subject = Asked { engine, change: asked::nothing_happens };
    for id in ["I2.chunk", "I2.swap", "I2.prefix", "I2.land"] {
        let report = campaign(&subject, named(id), 200);
        assert!(report.failure.is_none(), "{id}");
        assert_eq!(report.verdict(), Verdict::Undecided, "{id}");
        let missed: Vec<_> = report.tally.relations.iter().flat_map(|r| &r.missed).collect();
        println!("{id}: missed {missed:?}");
        assert!(!missed.is_empty(), "{id}");
    }
}

/// Elements of a row, of which one bit is changed, that leave its digest as it is.
fn unseen(device: &mut impl Device<F32 = Vec<f32>>, width: usize) -> usize {
    let row: Vec<f32> = (0..width).map(|i| i as f32 * 0.37 - 3.0).collect();
    let mut digest = |row: &Vec<f32>| device.digest_rows(1, width, row).unwrap()[0];
    let before = digest(&row);
    let mut flipped = |at: usize| {
        let mut other = row.clone();
        other[at] = f32::from_bits(other[at].to_bits() ^ 1);
        digest(&other)
    };
    (0..width).filter(|at| flipped(*at) == before).count()
}

/// Goal: an observer that sees nothing is no witness. Method: every schedule agrees on digests of nothing; one bit planted at
/// each place in turn does not, and neither does the snapshot.
#[test]
fn an_observer_that_hashes_nothing_is_seen_by_one_planted_bit() {
    let subject = altered::fixture("tiny", Host::new, BlindObserver).unwrap();
    no_schedule_shows(&subject, 12);
    let source = weights::source("tiny", None).unwrap();
    let (contract, _) = contract_of(&source.config(), source.dtype(), MatrixUnit::SM90, 64);
    let vocab = source.config().vocab;
    let mut sound = Host::new(contract.clone());
    assert_eq!(unseen(&mut sound, vocab), 0);
    let mut blind = Altered::new(Host::new(contract), BlindObserver);
    assert_eq!(unseen(&mut blind, vocab), vocab);
    let lines = folds::lines("tiny", &subject, usize::MAX);
    assert!(lines.iter().all(|(a, b)| a.logits != b.logits && a.layers == b.layers));
}
