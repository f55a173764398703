//! The draws of the device's sampling operator.

use lockstep::contract::Mode;
use lockstep::contract::sampler::{SamplerParams, seeded_key, unseeded_key};
use lockstep::device::host::Host;
use lockstep::device::{Device, SampleRow};
use lockstep::fixture::Fixture;
use lockstep::weights;

use super::check::{SIGNIFICANCE, chi_square, independent};
use super::exact::probabilities;

/// Tokens.
const VOCAB: usize = 16;
/// Draws a test.
const DRAWS: u32 = 50_000;

/// Distinct logits in no order, both signs, standard deviation about 1.8.
fn logits() -> Vec<f32> {
    (0..VOCAB).map(|i| ((i * 11 + 3) % VOCAB) as f32 * 0.39 - 2.6 + 0.01 * i as f32).collect()
}

/// Tokens of a prompt, and of an output after it.
const PROMPT: [u32; 3] = [2, 5, 9];
const OUTPUT: [u32; 2] = [1, 6];

fn seen() -> Vec<u32> {
    let mut seen: Vec<u32> = PROMPT.into_iter().chain(OUTPUT).collect();
    seen.sort_unstable();
    seen
}

/// Parameters with what is special about each.
fn settings() -> Vec<(&'static str, SamplerParams)> {
    let all = SamplerParams { temperature: 1.0, ..SamplerParams::default() };
    vec![
        ("temperature 1", all),
        ("temperature 0.6", SamplerParams { temperature: 0.6, ..all }),
        ("temperature 2.5", SamplerParams { temperature: 2.5, ..all }),
        ("top-k 5", SamplerParams { top_k: 5, ..all }),
        ("top-p 0.8", SamplerParams { top_p: 0.8, ..all }),
        ("min-p 0.1", SamplerParams { min_p: 0.1, ..all }),
        ("penalty 1.7", SamplerParams { repetition_penalty: 1.7, ..all }),
        (
            "all at once",
            SamplerParams {
                temperature: 1.4,
                top_k: 9,
                top_p: 0.9,
                min_p: 0.02,
                repetition_penalty: 1.3,
            },
        ),
    ]
}

/// Where the numbers of a series of draws come from.
#[derive(Clone, Copy, Debug)]
enum Series {
    /// The positions of one sequence.
    Positions,
    /// Seeds of requests, at one position.
    Seeds,
    /// Samples of one seeded request.
    Samples,
    /// Requests without a seed, in one run.
    Uids,
    /// Runs, with one request without a seed.
    Runs,
}

const SERIES: [Series; 5] =
    [Series::Positions, Series::Seeds, Series::Samples, Series::Uids, Series::Runs];

impl Series {
    /// The key and the position of draw `i`.
    fn nth(self, i: u32) -> ([u32; 2], u32) {
        let n = u64::from(i);
        match self {
            Series::Positions => (seeded_key(42, 0), i),
            Series::Seeds => (seeded_key(n, 0), 17),
            Series::Samples => (seeded_key(42, i), 17),
            Series::Uids => (unseeded_key(3, 0, n), 17),
            Series::Runs => (unseeded_key(n, 0, 5), 17),
        }
    }
}

/// What is done to a row before it is drawn from: nothing, or a fault.
type Alter<'a> = &'a dyn Fn(SampleRow) -> SampleRow;

/// Draws `0..DRAWS` of a series.
fn draws(params: SamplerParams, series: Series, alter: Alter<'_>) -> Vec<u32> {
    let source = weights::source("tiny", None).unwrap();
    let fixture = Fixture::host("tiny", source, Mode::Invariant).unwrap();
    let mut device: Host = fixture.model().fresh_device();
    let buffer = device.upload_f32(&logits()).unwrap();
    let row = |i| {
        let (key, position) = series.nth(i);
        alter(SampleRow { row: 0, params, seen: seen(), key, position })
    };
    let rows: Vec<SampleRow> = (0..DRAWS).map(row).collect();
    let drawn = device.sample(VOCAB, &buffer, &rows).unwrap();
    drawn.into_iter().map(|token| token.expect("logits are finite")).collect()
}

fn counts(draws: &[u32]) -> Vec<u64> {
    let mut counts = vec![0; VOCAB];
    draws.iter().for_each(|token| counts[*token as usize] += 1);
    counts
}

/// The distribution of a series, and the independence of neighbours in it.
fn judge(params: SamplerParams, series: Series, alter: Alter<'_>) -> Result<(), String> {
    let exact = probabilities(&logits(), &params, &seen());
    let drawn = draws(params, series, alter);
    chi_square(&counts(&drawn), &exact)?;
    let (pairs, _) = drawn.as_chunks::<2>();
    let pairs: Vec<(u32, u32)> = pairs.iter().map(|[a, b]| (*a, *b)).collect();
    independent(&pairs, &exact).map_err(|why| format!("neighbours: {why}"))
}

#[test]
fn draws_have_the_exact_probabilities_and_neighbours_are_independent() {
    for (name, params) in settings() {
        for series in SERIES {
            // Significance as it is claimed: 8 settings, 5 series, 2 tests each.
            let tests = (settings().len() * SERIES.len() * 2) as f64;
            assert!(tests * SIGNIFICANCE <= 1e-4);
            judge(params, series, &|row| row)
                .unwrap_or_else(|why| panic!("{name}, {series:?}: {why}"));
        }
    }
}

/// Draws that must not follow each other: the same position of two seeds, of two samples, of a seeded and an unseeded
/// request with the same numbers.
#[test]
fn draws_of_different_keys_are_independent_at_each_position() {
    let params = SamplerParams { temperature: 1.0, ..SamplerParams::default() };
    let exact = probabilities(&logits(), &params, &[]);
    let one = draws(params, Series::Positions, &|row| row);
    let keys = [
        ("seed 43", seeded_key(43, 0)),
        ("seed 42 + 2^32", seeded_key(42 + (1 << 32), 0)),
        ("sample 1", seeded_key(42, 1)),
        ("no seed", unseeded_key(42, 0, 0)),
        ("no seed, uid 1", unseeded_key(42, 0, 1)),
    ];
    for (name, key) in keys {
        let other = draws(params, Series::Positions, &|row| SampleRow { key, ..row });
        let pairs: Vec<(u32, u32)> = one.iter().copied().zip(other).collect();
        independent(&pairs, &exact).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

/// Goal: each test can fail. Method: faults that pass every relation, put into the row before it is drawn from.
#[test]
fn faults_that_no_schedule_shows_are_rejected() {
    let all = SamplerParams { temperature: 1.0, ..SamplerParams::default() };
    let red = |what: &str, params, series, alter: Alter<'_>| match judge(params, series, alter) {
        Ok(()) => panic!("{what} is not seen in {series:?}"),
        Err(why) => println!("{what}, {series:?}: {why}"),
    };
    for series in SERIES {
        let constant = |row| SampleRow { key: [1, 2], position: 3, ..row };
        red("a constant draw", all, series, &constant);
    }
    for series in [Series::Seeds, Series::Samples, Series::Uids, Series::Runs] {
        red("an ignored key", all, series, &|row| SampleRow { key: [1, 2], ..row });
    }
    let stuck = |row: SampleRow| SampleRow { position: row.position / 2, ..row };
    red("a position counted every other time", all, Series::Positions, &stuck);

    let top_p = SamplerParams { top_p: 0.8, ..all };
    let more = SamplerParams { top_p: one_more(top_p), ..all };
    red("top-p with a token too many", top_p, Series::Positions, &|row| SampleRow {
        params: more,
        ..row
    });
    let warm = SamplerParams { temperature: 0.6, ..all };
    red("temperature squared", warm, Series::Positions, &|mut row| {
        row.params.temperature *= row.params.temperature;
        row
    });
    let penalty = SamplerParams { repetition_penalty: 1.7, ..all };
    red("a penalty of the prompt alone", penalty, Series::Positions, &|row| SampleRow {
        seen: PROMPT.to_vec(),
        ..row
    });
    red("no penalty", penalty, Series::Positions, &|row| SampleRow { params: all, ..row });
    let top_k = SamplerParams { top_k: 5, ..all };
    red("top-k with a token too many", top_k, Series::Positions, &|mut row| {
        row.params.top_k += 1;
        row
    });
    let min_p = SamplerParams { min_p: 0.1, ..all };
    red("min-p halved", min_p, Series::Positions, &|mut row| {
        row.params.min_p /= 2.0;
        row
    });
}

/// The top-p that keeps one token more than `params` do.
fn one_more(params: SamplerParams) -> f32 {
    let kept = |top_p: f32| {
        let params = SamplerParams { top_p, ..params };
        probabilities(&logits(), &params, &[]).iter().filter(|p| **p > 0.0).count()
    };
    let wanted = kept(params.top_p) + 1;
    let mut steps = (1..1000).map(|i| params.top_p + i as f32 * 1e-3);
    steps.find(|top_p| kept(*top_p) == wanted).expect("a larger share keeps more")
}
