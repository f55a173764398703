//! The draws of the whole engine: the keys are the scheduler's, the rows are those of a batch.

use std::collections::BTreeMap;

use lockstep::contract::Mode;
use lockstep::contract::sampler::SamplerParams;
use lockstep::device::host::Host;
use lockstep::device::{Device, DeviceError, SampleRow};
use lockstep::fixture::Fixture;
use lockstep::record::{Capture, Run};
use lockstep::schedule::Schedule;
use lockstep::subject::Subject;
use lockstep::weights;
use lockstep::workload::{Request, SampleId, Workload};
use lockstep::world::World;

use super::altered::{self, Alteration};
use super::check::chi_square;
use super::exact::probabilities;

const PROMPT: [u32; 5] = [17, 200, 3, 3, 91];

/// A request that draws twice, so that the second draw has an output token among those seen.
fn request(uid: u64, samples: u32, seed: Option<u64>, sampling: SamplerParams) -> Request {
    let prompt = PROMPT.to_vec();
    Request { sampling, seed, samples, ignore_eos: true, ..Request::new(uid, prompt, 2) }
}

fn run(subject: &dyn Subject, requests: Vec<Request>, seed: u64, capture: Option<&Capture>) -> Run {
    let world = World { pool_blocks: 4096, ..subject.default_world() };
    let workload = Workload { requests };
    subject.execute(&world, &workload, &Schedule::default(), seed, capture).unwrap()
}

/// Goal: the engine's draws have the probabilities of its logits, the first and the second. Method: many samples of one
/// prompt, seeded and not; the second draw is judged by what was seen before it, where the first was the likeliest token.
#[test]
fn draws_of_the_engine_have_the_probabilities_of_its_logits() {
    let source = weights::source("tiny", None).unwrap();
    let fixture = Fixture::host("tiny", source, Mode::Invariant).unwrap();
    let sampling = SamplerParams {
        temperature: 1.1,
        top_k: 40,
        repetition_penalty: 1.6,
        ..SamplerParams::default()
    };
    // Sixteen requests of 32 samples in two runs: half of them seeded.
    let requests = || {
        let seed = |uid| (uid % 2 == 0).then_some(uid / 2);
        (0..16).map(|uid| request(uid, 32, seed(uid), sampling)).collect::<Vec<_>>()
    };
    let mut first: BTreeMap<u32, u64> = BTreeMap::new();
    let mut second: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
    for run_seed in [11, 12, 13, 14] {
        // A seeded request draws the same in every run: it counts once.
        let keep = |id: &SampleId| run_seed == 11 || id.uid % 2 == 1;
        for (id, output) in run(&fixture, requests(), run_seed, None).outputs {
            if !keep(&id) {
                continue;
            }
            let [a, b] = output.tokens[..] else { panic!("{id} drew {:?}", output.tokens) };
            *first.entry(a).or_default() += 1;
            *second.entry(a).or_default().entry(b).or_default() += 1;
        }
    }
    let judge = |tokens: &[u32], drawn: &BTreeMap<u32, u64>| {
        let logits = logits_after(&fixture, tokens);
        let exact = probabilities(&logits, &sampling, tokens);
        let counts: Vec<u64> =
            (0..logits.len()).map(|id| drawn.get(&(id as u32)).copied().unwrap_or(0)).collect();
        let n: u64 = counts.iter().sum();
        chi_square(&counts, &exact).unwrap_or_else(|why| panic!("after {tokens:?}: {why}"));
        n
    };
    let n = judge(&PROMPT, &first);
    assert_eq!(n, 8 * 32 + 4 * 8 * 32);
    let (likeliest, drawn) =
        second.iter().max_by_key(|(_, drawn)| drawn.values().sum::<u64>()).expect("draws");
    let after: Vec<u32> = PROMPT.into_iter().chain([*likeliest]).collect();
    let n = judge(&after, drawn);
    assert!(n > 50, "{n} draws after the likeliest first token show little");
    // The penalty of the first draw's token is in the expectation, and it matters.
    let logits = logits_after(&fixture, &after);
    let prompt_alone = probabilities(&logits, &sampling, &PROMPT)[*likeliest as usize];
    println!(
        "{n} second draws after token {likeliest}; its probability unpenalised {prompt_alone:.3}"
    );
}

/// The logits after some tokens, from an execution.
fn logits_after(subject: &dyn Subject, tokens: &[u32]) -> Vec<f32> {
    let last = tokens.len() as u32 - 1;
    let capture = Capture::logits_at(SampleId::first(0), last);
    let request = Request::new(0, tokens.to_vec(), 1);
    let mut run = run(subject, vec![request], 0, Some(&capture));
    let output = run.outputs.pop_first().expect("one output").1;
    output.captured.into_iter().next().expect("a captured row").logits
}

/// Whether the outputs of 32 samples of a seeded request, of an unseeded one, of 32 requests and of 32 seeds are all
/// different.
fn no_copies(subject: &dyn Subject) -> Result<(), String> {
    let sampling = SamplerParams { temperature: 1.0, ..SamplerParams::default() };
    let long = |request| Request { max_tokens: 12, ..request };
    let lists = [
        ("a seeded request", vec![long(request(0, 32, Some(5), sampling))]),
        ("an unseeded request", vec![long(request(0, 32, None, sampling))]),
        ("requests", (0..32).map(|uid| long(request(uid, 1, None, sampling))).collect()),
        ("seeds", (0..32).map(|uid| long(request(uid, 1, Some(uid), sampling))).collect()),
    ];
    for (name, requests) in lists {
        let run = run(subject, requests, 1, None);
        let mut outputs: Vec<Vec<u32>> = run.outputs.into_values().map(|o| o.tokens).collect();
        outputs.sort();
        outputs.dedup();
        if outputs.len() != 32 {
            return Err(format!("{name}: {} different outputs of 32", outputs.len()));
        }
    }
    Ok(())
}

/// Goal: one seed for a list of samples gives no copies, and neither does the lack of a seed.
#[test]
fn samples_of_one_seed_and_requests_of_one_run_are_no_copies() {
    let source = weights::source("tiny", None).unwrap();
    let fixture = Fixture::host("tiny", source, Mode::Invariant).unwrap();
    no_copies(&fixture).unwrap();
    // The same seed for each of a list is the same request, and draws the same: that is what a seed is for.
    let sampling = SamplerParams { temperature: 1.0, ..SamplerParams::default() };
    let same = (0..4).map(|uid| request(uid, 1, Some(5), sampling)).collect();
    let run = run(&fixture, same, 1, None);
    let first = &run.outputs[&SampleId::first(0)].tokens;
    assert!(run.outputs.values().all(|o| o.tokens == *first));
}

/// A device that draws with one key, whatever the request's.
#[derive(Clone, Copy)]
struct OneKey;

impl<D: Device> Alteration<D> for OneKey {
    fn sample(
        &mut self,
        device: &mut D,
        vocab: usize,
        logits: &D::F32,
        rows: &[SampleRow],
    ) -> Result<Vec<Option<u32>>, DeviceError> {
        let rows: Vec<SampleRow> =
            rows.iter().map(|row| SampleRow { key: [1, 2], ..row.clone() }).collect();
        device.sample(vocab, logits, &rows)
    }
}

/// Goal: copies are seen. Method: an engine that is invariant in every bit, and ignores seeds.
#[test]
fn an_engine_that_ignores_seeds_makes_copies() {
    let fixture = altered::fixture("tiny", Host::new, OneKey).unwrap();
    let why = no_copies(&fixture).expect_err("copies");
    assert!(why.starts_with("a seeded request: 1 different"), "{why}");
}
