//! GEMM and attention against plain f64 evaluation of the same 16-bit operands.
//!
//! One matrix-unit step cuts 17 terms to multiples of `2^(e-25)` and the sum to 24 bits, all toward zero.
//! `2^e` is at most the largest term (normal factors), so a step errs by less than `17 * 2^-25 + 2^-23 =
//! 5.25 * 2^-23` of A, A being the sum of the magnitudes of all terms, which also bounds every running sum.
//! A chain of `t` steps errs by less than `5.25 t 2^-23 A`, and only ever loses magnitude where all terms
//! have one sign: the bias is one-sided there.

use std::sync::Arc;

use super::*;
use crate::device::{RowTile, Sequence, Splits};

const STEP: f64 = 5.25 / 8388608.0;

/// Values in [0.5, 1) with random signs, or all positive.
fn normal(rng: &mut Rng, dtype: Dtype, len: usize, signed: bool) -> Vec<u16> {
    (0..len)
        .map(|_| {
            let x = rng.unit();
            let magnitude = 0.5 + x.abs() * 0.49;
            dtype.round(if signed { magnitude.copysign(x) } else { magnitude })
        })
        .collect()
}

#[test]
fn a_gemm_is_within_its_bound_of_f64_and_loses_magnitude_only() {
    let mut rng = Rng::new(30);
    let (m, n, k) = (5, 24, 1536);
    for dtype in DTYPES {
        for signed in [true, false] {
            let x = normal(&mut rng, dtype, m * k, signed);
            let w = normal(&mut rng, dtype, n * k, signed);
            let wide = |x: u16| f64::from(dtype.widen(x));
            let mut host = Host::new(contract(dtype, Constants::TINY));
            let matrix = host.upload_matrix(n, k, &w).unwrap();
            for cuts in [vec![0, 1536], vec![0, 512, 1024, 1536]] {
                let splits = cuts.len() - 1;
                let launch = GemmLaunch {
                    rows: RowTile::Tiled,
                    splits: Splits::Walk,
                    cuts: Arc::from(cuts),
                };
                let mut y = host.alloc_f32(m * n).unwrap();
                host.gemm(&launch, m, &x, &matrix, GemmOutput::Store(&mut y)).unwrap();
                for (i, y) in y.iter().enumerate() {
                    let x = &x[i / n * k..][..k];
                    let w = &w[i % n * k..][..k];
                    let products = x.iter().zip(w).map(|(x, w)| wide(*x) * wide(*w));
                    let exact: f64 = products.clone().sum();
                    let magnitude: f64 = products.map(f64::abs).sum();
                    // Each split's chain is 1/splits as long; the fold rounds to nearest.
                    let steps = (k / 16 / splits) as f64;
                    let bound = (STEP * steps + splits as f64 / 16777216.0) * magnitude;
                    let error = f64::from(*y) - exact;
                    assert!(error.abs() <= bound, "{dtype:?} {i}: {error} of {bound}");
                    if !signed && splits == 1 {
                        assert!(error < 0.0, "{dtype:?} {i}: {error} in a sum of positive terms");
                    }
                }
            }
        }
    }
}

/// The weights e/l err by a factor within `1 + rho`, rho = `2 (ln 2 * ds + 2^-22)`: ds is the error of a score
/// (twice: e's own and the maximum's fold through l), 2^-22 that of exp2. P adds half a unit of 16 bits, f16's
/// underflow at most 2^-25 per position, PV its steps, and the output half a unit again. With |v| < 1 the
/// sum of weights is 1, so all of it is relative to 1.
#[test]
fn attention_is_within_its_bound_of_f64() {
    let mut rng = Rng::new(31);
    let heads = Heads { q: 4, kv: 2, dim: 64 };
    let positions = 200;
    for dtype in DTYPES {
        let half_unit: f64 = if dtype == Dtype::F16 { 1.0 / 2048.0 } else { 1.0 / 256.0 };
        let mut host = Host::new(contract(dtype, Constants::SMALL));
        let shape = KvShape { layers: 1, blocks: 13, block_size: 16, kv_heads: 2, head_dim: 64 };
        let mut kv = host.alloc_kv(shape).unwrap();
        let q = normal(&mut rng, dtype, positions * 256, true);
        let k = normal(&mut rng, dtype, positions * 128, true);
        let v = normal(&mut rng, dtype, positions * 128, true);
        let blocks: Vec<u32> = (0..13).rev().collect();
        for position in 0..positions {
            let row = kv.row(0, &blocks, position);
            let (k_pool, v_pool) = kv.k_v_mut();
            k_pool[row.clone()].copy_from_slice(&k[position * 128..][..128]);
            v_pool[row].copy_from_slice(&v[position * 128..][..128]);
        }
        let sequences = vec![Sequence { blocks, start: 0, len: positions as u32 }];
        let layout = Layout { block_size: 16, sequences };
        let launch = AttentionLaunch { splits: Splits::Walk, split: 128 };
        let mut out = host.alloc_t16(positions * 256).unwrap();
        host.attention(launch, 0, heads, &layout, &q, &kv, &mut out).unwrap();

        let wide = |x: u16| f64::from(dtype.widen(x));
        for row in 0..positions {
            for head in 0..4 {
                let q = &q[row * 256 + head * 64..][..64];
                let at = |x: &'_ [u16], position: usize, i: usize| {
                    wide(x[position * 128 + head / 2 * 64 + i])
                };
                let mut score_error = 0.0_f64;
                let scores: Vec<f64> = (0..=row)
                    .map(|p| {
                        let products = q.iter().enumerate().map(|(i, q)| wide(*q) * at(&k, p, i));
                        let magnitude: f64 = products.clone().map(f64::abs).sum();
                        score_error = score_error.max(4.0 * STEP * magnitude);
                        products.sum()
                    })
                    .collect();
                let max = scores.iter().copied().fold(f64::MIN, f64::max);
                let e: Vec<f64> = scores.iter().map(|s| (s - max).exp2()).collect();
                let l: f64 = e.iter().sum();
                let steps = (row / 16 + 3) as f64;
                let rho = 2.0 * (std::f64::consts::LN_2 * score_error + 2.0_f64.powi(-22));
                // The running sums of PV are at most l, and l is at least 1.
                let underflow = (row + 1) as f64 * 2.0_f64.powi(-25) / l;
                let bound = rho + half_unit + underflow + STEP * steps + half_unit;
                for i in 0..64 {
                    let exact: f64 = (0..=row).map(|p| e[p] / l * at(&v, p, i)).sum();
                    let y = wide(out[row * 256 + head * 64 + i]);
                    let error = (y - exact).abs();
                    assert!(error <= bound, "{dtype:?} row {row} head {head}: {error} of {bound}");
                }
            }
        }
    }
}
