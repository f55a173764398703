//! Measures again what `src/relation/f1/bounds.json` holds, and prints it in the file's form; what is no part of the file goes
//! to stderr. It writes nothing: a person compares, and a bound that changes is a change of the file with a reason.
//!
//! ```text
//! cargo test --test fidelity -- --ignored --nocapture tiny_bf16
//! ```
//!
//! The shape of Qwen3-0.6B is too slow for the host. Where there is a GPU its device is measured, whose bits are those of a
//! host with the same matrix unit.

use std::collections::BTreeMap;

use lockstep::contract::tree::norm_lanes;
use lockstep::contract::{Dtype, MatrixUnit, Mode};
use lockstep::fixture::Fixture;
#[cfg(feature = "cuda")]
use lockstep::harness::policy::Choice;
use lockstep::record::sites::Stage;
use lockstep::reference::exact::{self, Position, Storage};
use lockstep::relation::f1::bounds::{BOUNDS, measures};
use lockstep::relation::f1::{Measure, SampleErrors, sample_errors};
use lockstep::strategy::{Space, cases};
use lockstep::subject::Subject;
use lockstep::weights::{self, Family, Model, ModelConfig};
use proptest::strategy::ValueTree;

use super::each_case;

/// Seed of the calibration: campaigns count theirs from 0.
const SEED: u64 = 0xf1de_1171;

#[test]
#[ignore = "minutes; prints, compares nothing"]
fn tiny_bf16() {
    print("tiny", Dtype::Bf16, 2000);
}

#[test]
#[ignore = "minutes; prints, compares nothing"]
fn tiny_f16() {
    print("tiny", Dtype::F16, 2000);
}

#[test]
#[ignore = "minutes; prints, compares nothing"]
fn small_bf16() {
    print("small", Dtype::Bf16, 40);
}

#[test]
#[ignore = "tens of minutes; prints, compares nothing"]
fn qwen3_bf16() {
    print("qwen3-0.6b", Dtype::Bf16, 4);
}

/// Largest error by measure, and how many positions it is of.
#[derive(Default)]
struct Measured {
    errors: BTreeMap<Measure, Vec<f64>>,
    positions: u64,
    operator_positions: u64,
    other_tokens: u64,
    lost: f64,
}

impl Measured {
    fn add(&mut self, sample: &SampleErrors) {
        self.positions += sample.rows.len() as u64;
        for row in &sample.rows {
            self.operator_positions += u64::from(row.has_operators());
            self.other_tokens += u64::from(row.greedy.engine != row.greedy.exact);
            self.lost = self.lost.max(row.greedy.lost);
            for d in &row.distances {
                self.errors.entry(d.measure).or_default().push(d.error);
            }
        }
    }
}

/// What is measured: hosts with either matrix unit, which err differently, so that a bound is for both; or the GPU, for a
/// model that is too slow for a host.
fn subjects(preset: &str, model: &Model) -> Vec<Box<dyn Subject>> {
    #[cfg(feature = "cuda")]
    if let Ok(gpu) = Choice::from_env().and_then(Choice::gpu) {
        return vec![Box::new(Fixture::cuda(preset, model, Mode::Invariant, &gpu).unwrap())];
    }
    let host = |unit| Fixture::host_with(preset, model, Mode::Invariant, unit).unwrap();
    let unit = |unit| Box::new(host(unit)) as Box<dyn Subject>;
    [MatrixUnit::SM90, MatrixUnit::SM80].map(unit).into()
}

fn print(preset: &str, dtype: Dtype, count: u64) {
    let model = weights::open(preset, Some(dtype)).unwrap();
    let mut measured = Measured::default();
    for subject in subjects(preset, &model) {
        eprintln!("{preset} {} on {}", dtype.name(), subject.device());
        each_case(&*subject, SEED, count.div_ceil(2), |executions| {
            for sample in sample_errors(executions).unwrap() {
                measured.add(&sample);
            }
        });
    }
    let estimates = estimates(preset, &model, count.div_ceil(2));
    println!("{{");
    println!("  \"model\": \"{preset}\", \"dtype\": \"{}\",", dtype.name());
    println!("  \"digest\": \"{}\",", model.digest);
    println!("  \"positions\": {},", measured.positions);
    println!("  \"operator_positions\": {},", measured.operator_positions);
    println!("  \"bounds\": {{");
    for measure in measures(&model.config) {
        let errors = measured.errors.entry(measure).or_default();
        errors.sort_by(f64::total_cmp);
        let largest = up(errors.last().copied().unwrap_or(f64::NAN), 2);
        let common = errors.get(errors.len() * 999 / 1000).copied().unwrap_or(f64::NAN);
        let comma = if measure == Measure::Head { "" } else { "," };
        println!(
            "    \"{measure}\": {{ \"estimate\": {:.1e}, \"measured\": {largest:.2e}, \"bound\": {:.1e} }}{comma}",
            up(estimates[&measure], 1),
            up(largest * BOUNDS.safety.of(measure), 1),
        );
        eprintln!("{measure}: 99.9 % of the errors are below {common:.1e}");
    }
    println!("  }}\n}}");
    let Measured { other_tokens, lost, .. } = measured;
    eprintln!("other greedy tokens: {other_tokens}, most lost by one: {lost:.1e}");
}

/// Rounded up to so many digits after the first.
fn up(x: f64, digits: i32) -> f64 {
    if x <= 0.0 || !x.is_finite() {
        return x;
    }
    let unit = 10_f64.powi(x.log10().floor() as i32 - digits);
    // What is a multiple already stays one.
    (x / unit - 1e-9).ceil() * unit
}

/// What the model of rounding errors says of each measure.
fn estimates(preset: &str, model: &Model, count: u64) -> BTreeMap<Measure, f64> {
    let mut estimates = whole_pass(preset, model, count);
    for measure in measures(&model.config) {
        if measure.is_of_an_operator() {
            estimates.insert(measure, operator(&model.config, model.dtype, measure));
        }
    }
    estimates
}

/// Whole pass: the largest distance between the pass in f64 and the same with the roundings of 16-bit storage and no other
/// error, over prompts of the cases. No engine has a part in it.
fn whole_pass(preset: &str, model: &Model, count: u64) -> BTreeMap<Measure, f64> {
    let fixture = Fixture::host(preset, model, Mode::Invariant).unwrap();
    let cases = cases(Space::new(fixture.edges(), fixture.default_world()));
    let mut largest: BTreeMap<Measure, f64> = BTreeMap::new();
    let most = fixture.capabilities().exact.expect("a host has weights").positions as usize;
    for i in 0..count {
        let case = cases.nth(SEED, i).current();
        let prompts = case.workload.requests.iter().filter_map(|r| r.prompt.tokens());
        let Some(tokens) = prompts.max_by_key(|tokens| tokens.len()) else { continue };
        let tokens = &tokens[..tokens.len().min(most)];
        let [exact, rounded] =
            [Storage::Exact, Storage::Rounded].map(|storage| exact::pass(model, tokens, storage));
        for (exact, rounded) in exact.iter().zip(&rounded) {
            for (measure, error) in distances(exact, rounded) {
                let entry = largest.entry(measure).or_default();
                *entry = entry.max(error);
            }
        }
    }
    largest
}

fn distances(exact: &Position, rounded: &Position) -> Vec<(Measure, f64)> {
    let relative = |a: &[f64], b: &[f64]| {
        let square = |x: f64| x * x;
        let error: f64 = a.iter().zip(b).map(|(a, b)| square(a - b)).sum();
        (error / a.iter().map(|a| square(*a)).sum::<f64>()).sqrt()
    };
    let pairs = exact.residual.iter().zip(&rounded.residual).enumerate();
    let mut all: Vec<(Measure, f64)> =
        pairs.map(|(n, (a, b))| (Measure::Residual(n), relative(a, b))).collect();
    let (a, b) = (&exact.logits, &rounded.logits);
    all.push((Measure::Logits, relative(a, b)));
    let mut ids: Vec<usize> = (0..a.len()).collect();
    ids.sort_by(|i, j| a[*j].total_cmp(&a[*i]));
    let [first, second] = [ids[0], ids[1]];
    all.push((Measure::Margin, ((a[first] - a[second]) - (b[first] - b[second])).abs()));
    all
}

/// Half a unit in the last place of f32, relative to the value.
const U: f64 = 1.0 / 16_777_216.0;

/// An operator: worst cases from the orders of docs/contract.md.
fn operator(config: &ModelConfig, dtype: Dtype, measure: Measure) -> f64 {
    let ModelConfig { hidden, heads, kv_heads, head_dim, ffn, vocab, .. } = *config;
    let width = heads * head_dim;
    let gemm = |n: usize, k: usize| {
        let splits = config.constants.splits(n, k) as f64;
        let steps = (k as f64 / 16.0 / splits).ceil();
        // A step of 8 terms and 24 bits, twice for 16, cuts 9 terms by up to 2^-24 and its sum by 2^-23, all of the sum of
        // magnitudes; a fold rounds to nearest. That sum is about 0.7 sqrt(K) times the result, for signs at random.
        (steps * 2.0 * (9.0 * U + 2.0 * U) + splits * U) * 0.7 * (k as f64).sqrt()
    };
    let norm = |n: usize| {
        let lanes = f64::from(norm_lanes(n));
        // The root halves the error of the sum, whose terms have one sign; then root, quotient and two products.
        (0.5 * (n as f64 / lanes + lanes.log2() + 2.0) + 4.0) * U
    };
    let head_norm = if config.family == Family::Qwen3 { norm(head_dim) } else { 0.0 };
    match measure {
        Measure::Operator(stage) => match stage {
            Stage::Embed => 0.0,
            Stage::AttentionNorm | Stage::FfnNorm | Stage::FinalNorm => norm(hidden),
            Stage::Qkv => gemm(width + 2 * kv_heads * head_dim, hidden),
            // Table, product, fused multiply-add; q' has one product more.
            Stage::K => head_norm + 3.0 * U,
            Stage::Q => head_norm + 5.0 * U,
            // Each weight is rounded to 16 bits: the f32 errors are nothing beside that.
            Stage::Attention => match dtype {
                Dtype::Bf16 => 1.0 / 256.0,
                Dtype::F16 => 1.0 / 2048.0,
            },
            Stage::Output => gemm(hidden, width) + U,
            Stage::Down => gemm(hidden, ffn) + U,
            Stage::GateUp => gemm(2 * ffn, hidden),
            // exp2 errs by 1.91 units, and its argument's rounding counts |g| times; sum, quotient, two products.
            Stage::Swiglu => 16.0 * U,
        },
        Measure::Head => gemm(vocab, hidden),
        Measure::Residual(_) | Measure::Logits | Measure::Margin => unreachable!("whole pass"),
    }
}
