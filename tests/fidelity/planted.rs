//! Faults of each kind that schedules do not show, and by what factor each is beyond its bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep::contract::Mode;
use lockstep::device::host::Host;
use lockstep::fixture::Fixture;
use lockstep::relation::f1::bounds::{self, Bounds};
use lockstep::relation::f1::{Measure, sample_errors};
use lockstep::relation::{Judgement, named};
use lockstep::subject::Subject;
use lockstep::weights::{self, Model};

use super::altered;
use super::each_case;
use super::faults::{Faulty, HostFault, Wrong};

/// Cases of a fault: their first, which a campaign of any length has.
const CASES: u64 = 6;
/// Seed of campaigns, not of the calibration.
const SEED: u64 = 0;
/// Least factor, of the larger of both kinds, that a fault must be beyond a bound.
const FACTOR_MIN: f64 = 4.0;

/// What became of a subject.
#[derive(Debug, Default)]
struct Factors {
    /// Largest error over bound, by measure.
    by_measure: BTreeMap<Measure, f64>,
    /// Cases in which the relation is broken.
    broken: u64,
    held: u64,
    positions: u64,
}

impl Factors {
    fn worst(&self, of_operators: bool) -> (String, f64) {
        let kind = |(m, _): &(&Measure, &f64)| m.is_of_an_operator() == of_operators;
        let worst = self.by_measure.iter().filter(kind).max_by(|a, b| a.1.total_cmp(b.1));
        worst.map_or((String::new(), 0.0), |(m, factor)| (m.to_string(), *factor))
    }
}

fn factors(subject: &dyn Subject, bounds: &Bounds, cases: u64) -> Factors {
    let relation = named("F1")[0];
    let mut factors = Factors::default();
    each_case(subject, SEED, cases, |executions| {
        for sample in sample_errors(executions).unwrap() {
            factors.positions += sample.rows.len() as u64;
            for d in sample.rows.iter().flat_map(|row| &row.distances) {
                // A bound of 0 is exceeded by anything.
                let bound = bounds.get(d.measure).bound;
                let factor = if d.error == 0.0 { 0.0 } else { d.error / bound };
                let entry = factors.by_measure.entry(d.measure).or_default();
                *entry = entry.max(factor);
            }
        }
        match relation.judge(executions).unwrap() {
            Judgement::Broken(_) => factors.broken += 1,
            Judgement::Held(_) => factors.held += 1,
            Judgement::Inapplicable(why) => panic!("{why}"),
        }
    });
    factors
}

fn report(preset: &str, fault: &str, factors: &Factors) {
    let [(operator, a), (whole, b)] = [factors.worst(true), factors.worst(false)];
    println!(
        "{preset}, {fault}: {a:.1} times the bound of {operator}, {b:.1} times that of {whole}; {} of {} cases broken",
        factors.broken,
        factors.broken + factors.held
    );
}

/// Goal: faults that are the same in every execution are beyond a bound by four times or more, and the relation is broken in
/// the first cases of a campaign. Method: each fault in the device or the model of an engine, with the weights and the
/// reference of the model without it.
#[test]
fn faults_that_no_schedule_shows_are_far_beyond_their_bounds() {
    for preset in ["tiny", "small"] {
        let cases = if preset == "tiny" { CASES } else { 1 };
        let honest = Arc::new(weights::open(preset, None).unwrap());
        let bounds = bounds::of(&honest.digest).expect("presets have bounds");
        let judge = |name: &str, engine: Box<dyn Subject + Send>| {
            let faulty = Faulty { engine, honest: Arc::clone(&honest) };
            let factors = factors(&faulty, bounds, cases);
            report(preset, name, &factors);
            let worst = factors.worst(true).1.max(factors.worst(false).1);
            assert!(worst >= FACTOR_MIN, "{preset}, {name}: {worst:.1} times its bound");
            assert_eq!(factors.broken, cases, "{preset}, {name}");
        };
        for wrong in Wrong::ALL {
            let model: Model = wrong.model(&honest);
            let engine = Fixture::host(preset, &model, Mode::Invariant).unwrap();
            judge(wrong.name(), Box::new(engine));
        }
        for fault in HostFault::ALL {
            let engine = altered::fixture(preset, Host::new, fault).unwrap();
            judge(fault.name(), Box::new(engine));
        }
    }
}

/// Goal: the same wrapper, without a fault, is within every bound. Method: more cases of the same campaign.
#[test]
fn an_engine_without_a_fault_is_within_its_bounds() {
    let honest = Arc::new(weights::open("tiny", None).unwrap());
    let bounds = bounds::of(&honest.digest).expect("presets have bounds");
    let engine = Box::new(Fixture::host("tiny", &*honest, Mode::Invariant).unwrap());
    let factors = factors(&Faulty { engine, honest }, bounds, 4 * CASES);
    report("tiny", "no fault", &factors);
    assert_eq!((factors.broken, factors.held), (0, 4 * CASES));
    assert!(factors.positions > 1000, "{} positions", factors.positions);
    // The bounds are no more than a few times what is seen.
    for (measure, factor) in factors.by_measure {
        let exact = measure == Measure::Operator(lockstep::record::sites::Stage::Embed)
            || measure == Measure::Residual(0);
        assert!(factor <= 1.0, "{measure}: {factor}");
        assert!(exact || factor > 0.1, "{measure}: the bound is {} times what is seen", 1.0 / factor);
    }
}
