//! Logits of a row: deterministic pseudo-random f32, made only where they are asked for.
//!
//! One id, or now and then two that tie exactly, has a logit of 8 or more, so that a greedy draw needs no logits at
//! all. The others lie in [-8, 8) on a grid of 4096 steps, so that ties are frequent there too.

use super::mix::{POISON, mix, operator};
use crate::contract::simd::{Kernel, Simd};

/// The largest logits of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Peak {
    /// Ids of the largest logit, equal if there is one.
    pub(super) ids: [u32; 2],
    value: f32,
}

impl Peak {
    /// `None` where the row is poisoned: its logits are NaN. `vocab` is not zero.
    pub(super) fn of(row: u64, vocab: usize) -> Option<Peak> {
        if row == POISON {
            return None;
        }
        let bits = mix(row, operator::DIGEST);
        let id = |word: u64| (((word & 0xffff_ffff) * vocab as u64) >> 32) as u32;
        let first = id(bits);
        // One row in eight has a tie at its top.
        let second = if bits >> 61 == 0 { id(mix(bits, row)) } else { first };
        Some(Peak { ids: [first, second], value: 8.0 + (bits >> 32 & 0xff) as f32 / 256.0 })
    }

    /// What a greedy draw takes: the lowest of the best ids.
    pub(super) fn greedy(self) -> u32 {
        self.ids[0].min(self.ids[1])
    }
}

/// Writes a row's logits: NaN where it is poisoned.
pub(super) fn fill(simd: Simd, row: u64, out: &mut [f32]) {
    if out.is_empty() {
        return;
    }
    let Some(peak) = Peak::of(row, out.len()) else { return out.fill(f32::NAN) };
    simd.run(Grid { row, out });
    for id in peak.ids {
        out[id as usize] = peak.value;
    }
}

struct Grid<'a> {
    row: u64,
    out: &'a mut [f32],
}

impl Kernel for Grid<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let (low, high) = (self.row as u32, (self.row >> 32) as u32);
        for (id, x) in self.out.iter_mut().enumerate() {
            let v = low ^ (id as u32).wrapping_add(1).wrapping_mul(0x9e37_79b1);
            let v = (v ^ (v >> 16)).wrapping_mul(0x85eb_ca6b) ^ high;
            let v = (v ^ (v >> 13)).wrapping_mul(0xc2b2_ae35);
            // Twelve bits, as a signed integer: exact as f32.
            *x = ((v >> 20) as i32 - 2048) as f32 / 256.0;
        }
    }
}
