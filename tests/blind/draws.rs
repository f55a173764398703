//! Draws and ends that are wrong in every execution alike: D1 and checks of the output see them.

use lockstep::contract::Mode;
use lockstep::device::host::Host;
use lockstep::fixture::Fixture;
use lockstep::harness::Verdict;
use lockstep::relation::{Observable, named};
use lockstep::schedule::Schedule;
use lockstep::subject::Subject;
use lockstep::weights;
use lockstep::workload::{Request, Workload};
use lockstep::world::World;

use super::altered;
use super::asked::{self, Asked, Change};
use super::faults::Draw;
use super::{broken, campaign, no_schedule_but_shows, no_schedule_shows};

fn drawing(draw: Draw) -> Box<dyn Subject> {
    Box::new(altered::fixture("tiny", Host::new, draw).unwrap())
}

#[test]
fn a_wrong_tie_rule_is_seen_on_planted_ties() {
    let subject = drawing(Draw::LastOfTies);
    no_schedule_shows(&*subject, 12);
    // The head of `tiny` has equal rows, so ties of the largest logits are drawn from.
    assert_eq!(broken(&*subject, "D1", 200), Observable::Tokens);
}

#[test]
fn a_wrong_temperature_is_seen_by_the_plain_engines_draws() {
    let subject = drawing(Draw::TemperatureSquared);
    no_schedule_shows(&*subject, 12);
    assert_eq!(broken(&*subject, "D1", 40), Observable::Tokens);
}

#[test]
fn a_sampler_that_ignores_its_seed_is_seen_by_the_plain_engines_draws() {
    let subject = drawing(Draw::SeedIgnored);
    no_schedule_shows(&*subject, 12);
    assert_eq!(broken(&*subject, "D1", 40), Observable::Tokens);
}

/// Longest run of one token in an output.
fn longest_run(tokens: &[u32]) -> usize {
    tokens.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap_or(0)
}

/// Longest run over sampled outputs of 24 tokens.
fn longest_run_of(subject: &dyn Subject) -> usize {
    let mut requests: Vec<Request> =
        (1..=8).map(|uid| Request::new(uid, vec![uid as u32, 40, 41], 24)).collect();
    for request in &mut requests {
        request.sampling.temperature = 1.0;
        request.ignore_eos = true;
    }
    let world = World { pool_blocks: 100, ..subject.default_world() };
    let workload = Workload { requests };
    let run = subject.execute(&world, &workload, &Schedule::default(), 9, None).unwrap();
    assert!(run.outputs.values().all(|o| o.tokens.len() == 24));
    run.outputs.values().map(|o| longest_run(&o.tokens)).max().unwrap_or(0)
}

#[test]
fn a_frozen_output_is_seen_by_its_runs_and_by_the_plain_engine() {
    let subject = drawing(Draw::Frozen);
    // I4 has no draw to judge: the greedy one is frozen too.
    no_schedule_but_shows(&*subject, 12, "I4");
    assert_eq!(campaign(&*subject, named("I4"), 12).verdict(), Verdict::Undecided);
    assert_eq!(broken(&*subject, "D1", 40), Observable::Tokens);
    let sound = Fixture::host("tiny", weights::source("tiny", None).unwrap(), Mode::Invariant);
    let (sound, frozen) = (longest_run_of(&sound.unwrap()), longest_run_of(&*subject));
    println!("longest run of one token: {frozen} of 24 frozen, {sound} sound");
    assert_eq!(frozen, 24);
    assert!(sound <= 12);
}

/// Goal: an engine that does not do what it was asked for is seen by the one that does. Method: each request comes to the
/// engine changed, and to the plain engine as it is.
#[test]
fn ends_and_first_tokens_that_were_not_asked_for_are_seen_by_the_plain_engine() {
    let changes: [(&str, Change, u64); 4] = [
        ("a token short", asked::one_token_short, 20),
        ("end of sequence ignored", asked::eos_ignored, 400),
        ("stop tokens ignored", asked::stops_ignored, 100),
        ("another first token", asked::other_first_token, 20),
    ];
    for (name, change, cases) in changes {
        let source = weights::source("tiny", None).unwrap();
        let engine = Box::new(Fixture::host("tiny", source, Mode::Invariant).unwrap());
        let subject = Asked { engine, change };
        no_schedule_shows(&subject, 12);
        println!("{name}: D1 breaks by {}", broken(&subject, "D1", cases).name());
    }
}
