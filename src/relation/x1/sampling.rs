//! X1 of the log-softmax and the sampler.

use super::{Key, Ledger, Pair, Rng};
use crate::contract::sampler::SamplerParams;
use crate::device::{Device, DeviceError, SampleRow};

/// A vocabulary: the presets', one of several blocks, and odd ones.
fn vocab_of(rng: &mut Rng) -> usize {
    match rng.below(4) {
        0 => 1 + rng.below(9000),
        _ => rng.pick(&[264, 264, 5000, 9001]),
    }
}

pub(super) fn logprobs<A: Device, B: Device>(
    pair: &mut Pair<A, B>,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let dtype = pair.host.contract().dtype;
    let (vocab, m) = (vocab_of(rng), 1 + rng.below(6));
    let scale = rng.pick(&[1.0, 12.0, 200.0]);
    let special = rng.pick(&[0, 0, 0, 20_000]);
    let logits = rng.floats(m * vocab, scale, special);
    let (mut rows, mut ids) = (Vec::new(), Vec::new());
    for row in 0..m as u32 {
        rows.extend(vec![row; vocab]);
        ids.extend(0..vocab as u32);
    }
    let there = pair.host.upload_f32(&logits)?;
    let a = pair.host.logprobs(vocab, &there, &rows, &ids)?;
    let there = pair.device.upload_f32(&logits)?;
    let b = pair.device.logprobs(vocab, &there, &rows, &ids)?;
    let block = pair.host.contract().constants.vocab_block;
    let what = || format!("{m} x {vocab}, blocks of {block}, scale {scale}");
    ledger.f32(&Key::new("logprobs", "", dtype), &a, &b, what);
    Ok(())
}

pub(super) fn sample<A: Device, B: Device>(
    pair: &mut Pair<A, B>,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let dtype = pair.host.contract().dtype;
    let (vocab, m) = (vocab_of(rng), 1 + rng.below(8));
    let scale = rng.pick(&[1.0, 5.0, 30.0]);
    // Multiples of 1/64, so that ties occur.
    let mut logits = rng.floats(m * vocab, scale, 0);
    logits.iter_mut().for_each(|x| *x = (*x * 64.0).round() / 64.0);
    if rng.below(8) == 0 {
        let at = rng.below(logits.len());
        logits[at] = rng.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0]);
    }
    let rows: Vec<SampleRow> = (0..m as u32)
        .map(|row| SampleRow {
            row,
            params: SamplerParams {
                temperature: rng.pick(&[0.0, 1.0, 0.3, 3.0, 0.7]),
                top_k: rng.pick(&[0, 0, 1, 7, 40, 264, 10_000]),
                top_p: rng.pick(&[1.0, 1.0, 0.9, 0.3, 0.01]),
                min_p: rng.pick(&[0.0, 0.0, 0.02, 0.5, 1.0]),
                repetition_penalty: rng.pick(&[1.0, 1.0, 1.3, 0.8]),
            },
            seen: (0..vocab as u32).filter(|_| rng.below(9) == 0).collect(),
            key: [rng.draw(), rng.draw()],
            position: rng.draw() % 5000,
        })
        .collect();
    let there = pair.host.upload_f32(&logits)?;
    let a = pair.host.sample(vocab, &there, &rows)?;
    let there = pair.device.upload_f32(&logits)?;
    let b = pair.device.sample(vocab, &there, &rows)?;
    for (row, (a, b)) in rows.iter().zip(a.iter().zip(&b)) {
        let name = if row.params.is_greedy() { "greedy" } else { "drawn" };
        ledger.tokens(&Key::new("sample", name, dtype), *a, *b, vocab, || {
            format!("{vocab} ids, {:?}, position {}", row.params, row.position)
        });
    }
    Ok(())
}
