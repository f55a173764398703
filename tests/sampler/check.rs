//! Pearson's chi-square test, with what must be true of its inputs.

use statrs::distribution::{ChiSquared, ContinuousCDF};

/// A test rejects where a right sampler's statistic would be as large in so small a share of runs. With some eighty tests
/// in this target (Bonferroni), all of them together would reject in less than one of ten thousand.
pub(crate) const SIGNIFICANCE: f64 = 1e-6;
/// Fewest expected draws of a cell; rarer cells are put together.
const EXPECTED_MIN: f64 = 5.0;

/// Whether counts are those of draws with these probabilities; in words if they are not. Cells of probability 0 must be
/// empty; of the others, the rarest are pooled until each holds [`EXPECTED_MIN`].
pub(crate) fn chi_square(counts: &[u64], probabilities: &[f64]) -> Result<(), String> {
    assert_eq!(counts.len(), probabilities.len());
    let total: f64 = probabilities.iter().sum();
    assert!((total - 1.0).abs() < 1e-9, "probabilities sum to {total}");
    let draws: u64 = counts.iter().sum();
    assert!(draws > 0, "nothing was drawn");
    if let Some(id) = (0..counts.len()).find(|id| probabilities[*id] == 0.0 && counts[*id] > 0) {
        return Err(format!("cell {id} was drawn {} times, its probability is 0", counts[id]));
    }
    let mut cells: Vec<(f64, u64)> =
        probabilities.iter().map(|p| p * draws as f64).zip(counts.iter().copied()).collect();
    cells.retain(|(expected, _)| *expected > 0.0);
    cells.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut pooled: Vec<(f64, u64)> = Vec::new();
    for (expected, count) in cells {
        match pooled.last_mut() {
            Some(last) if last.0 < EXPECTED_MIN => *last = (last.0 + expected, last.1 + count),
            _ => pooled.push((expected, count)),
        }
    }
    assert!(pooled.len() > 1, "one cell is left, which shows nothing");
    let statistic: f64 = pooled.iter().map(|(e, n)| (*n as f64 - e) * (*n as f64 - e) / e).sum();
    let freedom = (pooled.len() - 1) as f64;
    let distribution = ChiSquared::new(freedom).expect("at least one degree of freedom");
    let p = distribution.sf(statistic);
    // A fit far too good is no draw either: counts that follow the probabilities to the letter.
    if !(SIGNIFICANCE..=1.0 - SIGNIFICANCE).contains(&p) {
        return Err(format!(
            "chi-square {statistic:.1} at {freedom} degrees of freedom, p {p:.1e}, {draws} draws"
        ));
    }
    Ok(())
}

/// Whether two draws of each pair are independent, each with these probabilities.
pub(crate) fn independent(pairs: &[(u32, u32)], probabilities: &[f64]) -> Result<(), String> {
    let n = probabilities.len();
    let mut counts = vec![0; n * n];
    pairs.iter().for_each(|(a, b)| counts[*a as usize * n + *b as usize] += 1);
    let joint = probabilities.iter().flat_map(|a| probabilities.iter().map(move |b| a * b));
    chi_square(&counts, &joint.collect::<Vec<_>>())
}

/// Goal: the tail is right. Method: quantiles from printed tables.
#[test]
fn tails_are_those_of_tables() {
    let tail = |x: f64, freedom: f64| ChiSquared::new(freedom).unwrap().sf(x);
    for (x, freedom, p) in [(3.841, 1.0, 0.05), (18.307, 10.0, 0.05), (44.314, 25.0, 0.01)] {
        assert!((tail(x, freedom) / p - 1.0).abs() < 1e-3, "{x} at {freedom}");
    }
    // exp(-x/2) at two degrees of freedom, out to where the tests look.
    assert!((tail(40.0, 2.0) / (-20_f64).exp() - 1.0).abs() < 1e-6);
}

#[test]
fn right_counts_pass_and_wrong_or_too_right_ones_do_not() {
    assert!(chi_square(&[480, 520], &[0.5, 0.5]).is_ok());
    assert!(chi_square(&[400, 600], &[0.5, 0.5]).is_err());
    assert!(chi_square(&[500, 500, 1], &[0.5, 0.5, 0.0]).is_err());
    let even = vec![0.05; 20];
    assert!(chi_square(&[1000; 20], &even).is_err());
    assert!(independent(&[(0, 0), (1, 1)].repeat(500), &[0.5, 0.5]).is_err());
}
