//! Log-softmax of docs/contract.md section 10, written a second time.

use crate::contract::scalar::{exp2, log2};

/// log2(e) in f32.
const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
/// ln(2) in f32.
const LN_2: f32 = f32::from_bits(0x3f31_7218);

/// The largest logit of a row, and the logarithm of the row's sum.
pub(super) struct LogSoftmax {
    most: f32,
    ln_z: f32,
}

impl LogSoftmax {
    /// Of a row of logits, reduced in blocks of `block` ids.
    pub(super) fn new(logits: &[f32], block: usize) -> LogSoftmax {
        let largest = |x: &[f32]| {
            let has_nan = x.iter().any(|x| x.is_nan());
            if has_nan { f32::NAN } else { x.iter().copied().fold(f32::NEG_INFINITY, f32::max) }
        };
        let most = largest(logits);
        let mut z = 0.0_f32;
        for ids in logits.chunks(block) {
            let block_most = largest(ids);
            let mut lanes = vec![0.0_f32; block.min(1024)];
            for (i, x) in ids.iter().enumerate() {
                let lane = i % lanes.len();
                lanes[lane] += exp2((x - block_most) * LOG2_E);
            }
            while lanes.len() > 1 {
                lanes = lanes.chunks(2).map(|pair| pair[0] + pair[1]).collect();
            }
            z = lanes[0].mul_add(exp2((block_most - most) * LOG2_E), z);
        }
        LogSoftmax { most, ln_z: log2(z) * LN_2 }
    }

    /// Log-probability of a logit of the row.
    pub(super) fn of(&self, logit: f32) -> f32 {
        (logit - self.most) - self.ln_z
    }
}
