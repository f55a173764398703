//! Counts as statements: an exact interval of a share, and what a number of trials is able to see.

use statrs::distribution::{Beta, ContinuousCDF};

use super::certificate::Power;

/// Share of answers that a fault is taken to change, where one has to be named.
pub(crate) const RATE: f64 = 0.05;

/// 95 % interval of the share of `n` among `of`, after Clopper and Pearson. Nothing seen of nothing is all of [0, 1].
pub(crate) fn interval(n: u64, of: u64) -> [f64; 2] {
    const TAIL: f64 = 0.025;
    let quantile = |a: u64, b: u64, p: f64| {
        Beta::new(a as f64, b as f64).expect("counts above 0").inverse_cdf(p)
    };
    let low = if n == 0 { 0.0 } else { quantile(n, of - n + 1, TAIL) };
    let high = if n == of { 1.0 } else { quantile(n + 1, of - n, 1.0 - TAIL) };
    // Where one end is certain the other has a closed form.
    match (n, of) {
        (_, 0) => [0.0, 1.0],
        (0, _) => [0.0, 1.0 - TAIL.powf(1.0 / of as f64)],
        (n, _) if n == of => [TAIL.powf(1.0 / of as f64), 1.0],
        _ => [low, high],
    }
}

/// Probability that `trials` independent answers show a fault that changes a share `rate` of them.
pub(crate) fn detection(rate: f64, trials: u64) -> f64 {
    // By logarithms, so that small rates do not vanish.
    -(trials as f64 * (-rate).ln_1p()).exp_m1()
}

/// Fewest answers that show such a fault with probability `p`.
pub(crate) fn trials_for(rate: f64, p: f64) -> u64 {
    ((-p).ln_1p() / (-rate).ln_1p()).ceil() as u64
}

/// What a number of trials is able to see.
pub(crate) fn power(trials: u64) -> Power {
    let rate_seen_at_95 = (trials > 0).then(|| -((0.05f64).ln() / trials as f64).exp_m1());
    Power {
        trials,
        rate: RATE,
        detection: detection(RATE, trials),
        trials_for_99: trials_for(RATE, 0.99),
        rate_seen_at_95,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Clopper and Pearson's interval from R 4's `binom.test`.
    #[test]
    fn intervals_are_those_of_clopper_and_pearson() {
        let cases = [
            (0, 10, [0.0, 0.308_497_1]),
            (10, 10, [0.691_502_9, 1.0]),
            (1, 10, [0.002_528_579, 0.445_016_1]),
            (5, 20, [0.086_571_47, 0.491_045_9]),
        ];
        for (n, of, expected) in cases {
            let got = interval(n, of);
            for (got, expected) in got.into_iter().zip(expected) {
                assert!((got - expected).abs() < 1e-6, "{n} of {of}: {got} against {expected}");
            }
        }
        assert_eq!(interval(0, 0), [0.0, 1.0]);
    }

    #[test]
    fn power_is_that_of_independent_trials() {
        assert!((detection(0.1, 20) - (1.0 - 0.9f64.powi(20))).abs() < 1e-12);
        assert_eq!(detection(0.1, 0), 0.0);
        assert_eq!(trials_for(0.05, 0.99), 90);
        let rate = power(59).rate_seen_at_95.unwrap();
        assert!((detection(rate, 59) - 0.95).abs() < 1e-9 && (rate - 0.0495).abs() < 1e-3);
    }
}
