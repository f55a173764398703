//! Faults of each kind that schedules do not show, and by what factor each is beyond its bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep::contract::Mode;
use lockstep::device::host::Host;
use lockstep::fixture::Fixture;
use lockstep::record::sites::Stage;
use lockstep::relation::f1::bounds::{self, Bounds};
use lockstep::relation::f1::{Measure, sample_errors};
use lockstep::relation::{Executions, Judgement, named};
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

/// Largest error over bound, by measure.
#[derive(Debug, Default)]
struct Factors {
    by_measure: BTreeMap<Measure, f64>,
    positions: u64,
}

impl Factors {
    /// The worst of the operators', or of the whole pass's.
    fn worst(&self, of_operators: bool) -> (String, f64) {
        let kind = |(m, _): &(&Measure, &f64)| m.is_of_an_operator() == of_operators;
        let worst = self.by_measure.iter().filter(kind).max_by(|a, b| a.1.total_cmp(b.1));
        worst.map_or((String::new(), 0.0), |(m, factor)| (m.to_string(), *factor))
    }

    fn add(&mut self, executions: &mut Executions<'_>, bounds: &Bounds) {
        for sample in sample_errors(executions).unwrap() {
            self.positions += sample.rows.len() as u64;
            for row in &sample.rows {
                let mut note = |measure, error: f64| {
                    // A bound of 0 is exceeded by anything.
                    let factor = if error == 0.0 { 0.0 } else { error / bounds.get(measure).bound };
                    let entry = self.by_measure.entry(measure).or_default();
                    *entry = entry.max(factor);
                };
                // A margin is judged where it decides the greedy token.
                note(Measure::Margin, row.greedy.lost);
                let distances = row.distances.iter().filter(|d| d.measure != Measure::Margin);
                distances.for_each(|d| note(d.measure, d.error));
            }
        }
    }
}

/// How far beyond its bounds an engine is that is said to have these weights; and in how many cases the relation is broken.
fn judge(engine: Box<dyn Subject + Send>, honest: &Arc<Model>, cases: u64) -> (Factors, u64) {
    let subject = Faulty { engine, honest: Arc::clone(honest), forgets: false };
    let bounds = bounds::of(&honest.digest).expect("presets have bounds");
    let (mut factors, mut broken) = (Factors::default(), 0);
    each_case(&subject, SEED, cases, |executions| {
        factors.add(executions, bounds);
        match named("F1")[0].judge(executions).unwrap() {
            Judgement::Broken(_) => broken += 1,
            Judgement::Held(_) => {}
            Judgement::Inapplicable(why) => panic!("{why}"),
        }
    });
    (factors, broken)
}

/// One line a fault; returns the factor of the worse kind of bound.
fn report(preset: &str, fault: &str, factors: &Factors, broken: u64, cases: u64) -> f64 {
    let [(operator, a), (whole, b)] = [factors.worst(true), factors.worst(false)];
    println!(
        "{preset}, {fault}: {a:.1} times the bound of {operator}, {b:.1} times that of {whole}; {broken} of {cases} cases broken"
    );
    a.max(b)
}

/// Goal: faults that are the same in every execution are beyond a bound by four times or more, and the relation is broken in
/// the first cases of a campaign. Method: each fault in the device or the model of an engine, with the weights and the
/// reference of the model without it.
#[test]
fn faults_that_no_schedule_shows_are_far_beyond_their_bounds() {
    let honest = Arc::new(weights::open("tiny", None).unwrap());
    let check = |name: &str, engine: Box<dyn Subject + Send>| {
        let (factors, broken) = judge(engine, &honest, CASES);
        let worst = report("tiny", name, &factors, broken, CASES);
        assert!(worst >= FACTOR_MIN && broken == CASES, "{name}: {broken} broken, factor {worst}");
    };
    for wrong in Wrong::ALL {
        let engine = Fixture::host("tiny", &wrong.model(&honest), Mode::Invariant).unwrap();
        check(wrong.name(), Box::new(engine));
    }
    for fault in HostFault::ALL {
        check(fault.name(), Box::new(altered::fixture("tiny", Host::new, fault).unwrap()));
    }
}

/// The same for eight layers with q/k norms, in one case: an epsilon, a base, a mask, and storage.
#[test]
fn faults_of_a_deeper_model_are_far_beyond_their_bounds_too() {
    let honest = Arc::new(weights::open("small", None).unwrap());
    let check = |name: &str, engine: Box<dyn Subject + Send>| {
        let (factors, broken) = judge(engine, &honest, 1);
        let worst = report("small", name, &factors, broken, 1);
        assert!(worst >= FACTOR_MIN && broken == 1, "{name}: {broken} broken, factor {worst}");
    };
    for wrong in [Wrong::Epsilon, Wrong::RopeBase] {
        let engine = Fixture::host("small", &wrong.model(&honest), Mode::Invariant).unwrap();
        check(wrong.name(), Box::new(engine));
    }
    for fault in [HostFault::SeesTooLittle, HostFault::StoredShort] {
        check(fault.name(), Box::new(altered::fixture("small", Host::new, fault).unwrap()));
    }
}

/// Goal: a row that was not looked at does not pass. Method: an engine that keeps one row less than it is asked to.
#[test]
fn a_row_that_is_not_kept_is_a_failure() {
    let honest = Arc::new(weights::open("tiny", None).unwrap());
    let engine = Box::new(Fixture::host("tiny", &*honest, Mode::Invariant).unwrap());
    each_case(&Faulty { engine, honest, forgets: true }, SEED, 2, |executions| {
        let why = named("F1")[0].judge(executions).expect_err("a row is missing").to_string();
        assert!(why.ends_with("computed positions were kept"), "{why}");
    });
}

/// Goal: the same wrapper, without a fault, is within every bound, and the bounds are no looser than they must be. Method:
/// more cases of the same campaign.
#[test]
fn an_engine_without_a_fault_is_within_its_bounds() {
    let honest = Arc::new(weights::open("tiny", None).unwrap());
    let engine = Box::new(Fixture::host("tiny", &*honest, Mode::Invariant).unwrap());
    let cases = 4 * CASES;
    let (factors, broken) = judge(engine, &honest, cases);
    report("tiny", "no fault", &factors, broken, cases);
    assert_eq!(broken, 0);
    assert!(factors.positions > 1000, "{} positions", factors.positions);
    for (measure, factor) in factors.by_measure {
        let exact = [Measure::Operator(Stage::Embed), Measure::Residual(0)].contains(&measure);
        assert!(factor <= 1.0, "{measure}: {factor}");
        let tight = exact || factor > 0.1 || measure == Measure::Margin;
        assert!(tight, "{measure}: the bound is {} times what is seen", 1.0 / factor);
    }
}
