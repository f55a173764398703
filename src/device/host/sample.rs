//! Sampling (docs/contract.md section 11); the rules are `contract::sampler`'s.

use super::{DeviceError, require, require_len};
use crate::contract::sampler::{self, Scratch};
use crate::contract::simd::Simd;
use crate::device::SampleRow;

/// See [`super::Device::sample`].
pub(super) fn sample(
    simd: Simd,
    vocab: usize,
    logits: &[f32],
    rows: &[SampleRow],
    scratch: &mut Scratch,
) -> Result<Vec<Option<u32>>, DeviceError> {
    rows.iter()
        .map(|SampleRow { row, params, seen, key, position }| {
            let row = *row as usize;
            require(vocab > 0, || "sample: an empty vocabulary".into())?;
            require_len("sample", "logits", logits.len(), (row + 1) * vocab)?;
            let stray = seen.iter().find(|id| **id as usize >= vocab);
            require(stray.is_none(), || format!("sample: id {stray:?} of {vocab}"))?;
            let logits = &logits[row * vocab..(row + 1) * vocab];
            Ok(sampler::draw(simd, logits, params, seen, *key, *position, scratch))
        })
        .collect()
}
