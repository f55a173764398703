//! What the strategies expect of a schedule is what the engine does.
//!
//! The strategies place deviations by a forecast of the run that shares no code with the engine. It knows no token, so an
//! output that ends early makes it wrong; where the two policies drift apart, intents stop firing and nobody notices.

use std::collections::BTreeMap;

use lockstep::contract::Mode;
use lockstep::fixture::Fixture;
use lockstep::record::Finish;
use lockstep::schedule::ActKind;
use lockstep::strategy::{Space, cases, forecast};
use lockstep::subject::Subject;
use lockstep::weights;
use proptest::strategy::ValueTree;

/// Cases compared.
const CASES: u64 = 2000;
/// Least share of the intents that fire if and only if it was expected; outputs that end early cost the rest.
const AGREEMENT_MIN: f64 = 0.96;
/// The same among the intents of one act.
const ACT_AGREEMENT_MIN: f64 = 0.85;
/// Least share of the cases without an output that ends early in which each single intent does as expected.
const EXACT_MIN: f64 = 0.99;

#[test]
fn the_forecast_of_drawn_schedules_agrees_with_the_engine() {
    let source = weights::source("tiny", None).unwrap();
    let fixture = Fixture::hash("tiny", source, Mode::Invariant).unwrap();
    let cases = cases(Space::new(fixture.edges(), fixture.default_world()));
    let mut acts: BTreeMap<ActKind, [u64; 2]> = BTreeMap::new();
    let (mut whole, mut exact) = (0u64, 0u64);
    for index in 0..CASES {
        let case = cases.nth(11, index).current();
        // A continuation is resolved from another run first.
        if case.workload.has_continuations() {
            continue;
        }
        let expected = forecast::fired(&case.world, &case.workload, &case.schedule);
        let run =
            fixture.execute(&case.world, &case.workload, &case.schedule, case.seed, None).unwrap();
        assert_eq!(run.intents.len(), expected.len());
        let mut differ = 0;
        for (outcome, expected) in run.intents.iter().zip(&expected) {
            let agrees = outcome.inert.is_none() == *expected;
            let counts = acts.entry(outcome.intent.act.kind()).or_default();
            counts[0] += u64::from(agrees);
            counts[1] += 1;
            differ += u64::from(!agrees);
        }
        let ends_early = case.workload.requests.iter().any(|request| {
            run.outputs.iter().any(|(id, output)| {
                let is_short = output.tokens.len() < request.max_tokens as usize;
                id.uid == request.uid && is_short && output.finish != Some(Finish::Aborted)
            })
        });
        if !ends_early {
            whole += 1;
            exact += u64::from(differ == 0);
        }
    }
    let share = |n: u64, of: u64| n as f64 / of as f64;
    let [agree, all] = acts.values().fold([0, 0], |sum, n| [sum[0] + n[0], sum[1] + n[1]]);
    println!("{agree} of {all} intents, {exact} of {whole} cases");
    for (act, n) in &acts {
        println!("{}: {} of {}", act.name(), n[0], n[1]);
        assert!(share(n[0], n[1]) >= ACT_AGREEMENT_MIN, "{}: {n:?}", act.name());
    }
    assert_eq!(acts.len(), ActKind::ALL.len());
    assert!(all > 10_000 && whole > CASES / 3, "{all} intents, {whole} cases");
    assert!(share(agree, all) >= AGREEMENT_MIN, "{agree} of {all}");
    assert!(share(exact, whole) >= EXACT_MIN, "{exact} of {whole}");
}
