//! Log-softmax (docs/contract.md section 10).

use super::{DeviceError, require, require_len};
use crate::contract::scalar::{LN_2, LOG2_E, exp2, log2};
use crate::contract::simd::{Kernel, Simd};
use crate::contract::tree::{LANES_MAX, lane_sum};

/// Block maxima and sums of one row.
#[derive(Debug, Default)]
pub(in crate::device) struct Scratch {
    blocks: Vec<(f32, f32)>,
    terms: Vec<f32>,
}

/// See [`super::Device::logprobs`]. A row asked for several times in a row is reduced once.
#[allow(clippy::too_many_arguments)]
pub(in crate::device) fn logprobs(
    simd: Simd,
    block: usize,
    vocab: usize,
    logits: &[f32],
    rows: &[u32],
    ids: &[u32],
    scratch: &mut Scratch,
) -> Result<Vec<f32>, DeviceError> {
    require(rows.len() == ids.len(), || {
        format!("logprobs: {} rows for {} ids", rows.len(), ids.len())
    })?;
    require(block.min(LANES_MAX).is_power_of_two(), || format!("logprobs: blocks of {block}"))?;
    let mut reduced = None;
    rows.iter()
        .zip(ids)
        .map(|(&row, &id)| {
            let (row, id) = (row as usize, id as usize);
            require(id < vocab, || format!("logprobs: id {id} of {vocab}"))?;
            require_len("logprobs", "logits", logits.len(), (row + 1) * vocab)?;
            let x = &logits[row * vocab..(row + 1) * vocab];
            let (max, ln_z) = match reduced {
                Some((r, max, ln_z)) if r == row => (max, ln_z),
                _ => simd.run(Row { x, block, scratch }),
            };
            reduced = Some((row, max, ln_z));
            Ok((x[id] - max) - ln_z)
        })
        .collect()
}

/// M and lnZ of a row.
struct Row<'a> {
    x: &'a [f32],
    block: usize,
    scratch: &'a mut Scratch,
}

impl Kernel for Row<'_> {
    type Out = (f32, f32);
    #[inline(always)]
    fn run(self) -> (f32, f32) {
        let Scratch { blocks, terms } = self.scratch;
        blocks.clear();
        for x in self.x.chunks(self.block) {
            let max = maximum(x);
            terms.clear();
            terms.extend(x.iter().map(|x| exp2((x - max) * LOG2_E)));
            let sum = lane_sum(self.block.min(LANES_MAX), terms, |sum, e| sum + e);
            blocks.push((max, sum));
        }
        let max = blocks.iter().fold(f32::NEG_INFINITY, |max, (m, _)| larger(max, *m));
        let mut z = 0.0;
        for (m, s) in blocks.iter() {
            z = s.mul_add(exp2((m - max) * LOG2_E), z);
        }
        (max, log2(z) * LN_2)
    }
}

/// The larger value; NaN if either is.
#[inline(always)]
fn larger(x: f32, y: f32) -> f32 {
    if x.is_nan() || y.is_nan() {
        f32::NAN
    } else if x > y {
        x
    } else {
        y
    }
}

/// The largest value; NaN if there is one.
#[inline(always)]
pub(super) fn maximum(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 8];
    let mut nan = [false; 8];
    let chunks = x.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for i in 0..8 {
            lanes[i] = if chunk[i] > lanes[i] { chunk[i] } else { lanes[i] };
            nan[i] |= chunk[i].is_nan();
        }
    }
    let max = lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |max, x| larger(max, *x));
    if nan.contains(&true) { f32::NAN } else { max }
}
