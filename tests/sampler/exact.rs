//! Probabilities of the next token in f64, from the definitions of the parameters, not from the contract's integers.

use lockstep::contract::sampler::SamplerParams;

/// The probability of each token, given the logits and what stands in prompt and output. Of equal logits the lower id is
/// the better. No threshold of the parameters may be met within a millionth: there rounding decides.
pub(crate) fn probabilities(logits: &[f32], params: &SamplerParams, seen: &[u32]) -> Vec<f64> {
    let penalty = f64::from(params.repetition_penalty);
    let penalised = |(id, x): (usize, &f32)| {
        let x = f64::from(*x);
        match (seen.contains(&(id as u32)), x > 0.0) {
            (false, _) => x,
            (true, true) => x / penalty,
            (true, false) => x * penalty,
        }
    };
    let logits: Vec<f64> = logits.iter().enumerate().map(penalised).collect();
    let best = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weight = |x: &f64| ((x - best) / f64::from(params.temperature)).exp();
    let weights: Vec<f64> = logits.iter().map(weight).collect();

    let mut kept: Vec<usize> = (0..weights.len()).collect();
    kept.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    kept.retain(|id| weights[*id] >= f64::from(params.min_p));
    if params.top_k > 0 {
        kept.truncate(params.top_k as usize);
    }
    if params.top_p < 1.0 {
        let mass: f64 = kept.iter().map(|id| weights[*id]).sum();
        let mut sum = 0.0;
        let last = kept.iter().position(|id| {
            sum += weights[*id];
            sum >= f64::from(params.top_p) * mass
        });
        kept.truncate(last.map_or(kept.len(), |last| last + 1));
    }
    let mass: f64 = kept.iter().map(|id| weights[*id]).sum();
    let mut probabilities = vec![0.0; weights.len()];
    kept.iter().for_each(|id| probabilities[*id] = weights[*id] / mass);
    probabilities
}

/// Goal: the judge is right. Method: by hand.
#[test]
fn probabilities_are_those_of_the_definitions() {
    let logits = [0.0, 2_f32.ln(), 4_f32.ln(), -1.0];
    let of = |params: SamplerParams, seen: &[u32]| probabilities(&logits[..3], &params, seen);
    let all = SamplerParams { temperature: 1.0, ..SamplerParams::default() };
    let near =
        |got: Vec<f64>, want: [f64; 3]| got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(near(of(all, &[]), [1.0 / 7.0, 2.0 / 7.0, 4.0 / 7.0]));
    let hot = SamplerParams { temperature: 0.5, ..all };
    assert!(near(of(hot, &[]), [1.0 / 21.0, 4.0 / 21.0, 16.0 / 21.0]));
    let best_two = SamplerParams { top_k: 2, ..all };
    assert!(near(of(best_two, &[]), [0.0, 2.0 / 6.0, 4.0 / 6.0]));
    let half = SamplerParams { top_p: 0.5, ..all };
    assert!(near(of(half, &[]), [0.0, 0.0, 1.0]));
    let most = SamplerParams { top_p: 0.6, ..all };
    assert!(near(of(most, &[]), [0.0, 2.0 / 6.0, 4.0 / 6.0]));
    let likely = SamplerParams { min_p: 0.4, ..all };
    assert!(near(of(likely, &[]), [0.0, 2.0 / 6.0, 4.0 / 6.0]));
    // The square root of 4 is 2; a negative logit is multiplied.
    let penalty = SamplerParams { repetition_penalty: 2.0, ..all };
    assert!(near(of(penalty, &[2]), [1.0 / 5.0, 2.0 / 5.0, 2.0 / 5.0]));
    let two = probabilities(&[0.0, -1.0], &penalty, &[1]);
    assert!((two[1] / two[0] - (-2_f64).exp()).abs() < 1e-9);
}
