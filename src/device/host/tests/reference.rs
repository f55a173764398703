//! docs/contract.md once more, as plainly as it can be written: scalar loops, the exact-integer matrix unit.

use crate::contract::matrix_unit::oracle;
use crate::contract::philox::philox4x32_10;
use crate::contract::rope::RopeTable;
use crate::contract::sampler::SamplerParams;
use crate::contract::{Constants, Dtype, MatrixUnit};

/// Section 1: a chain from `c`; K is padded with +0.
pub(super) fn chain(unit: MatrixUnit, dtype: Dtype, c: f32, a: &[u16], b: &[u16]) -> f32 {
    let pad = |x: &[u16]| {
        let mut x = x.to_vec();
        x.resize(x.len().next_multiple_of(16), 0);
        x
    };
    f32::from_bits(oracle::chain(unit, dtype, c.to_bits(), &pad(a), &pad(b)))
}

/// Section 2: `y[m][n]`.
pub(super) fn gemm(
    unit: MatrixUnit,
    dtype: Dtype,
    cuts: &[u32],
    k: usize,
    x: &[u16],
    w: &[u16],
) -> Vec<f32> {
    let mut y = Vec::new();
    for x in x.chunks_exact(k) {
        for w in w.chunks_exact(k) {
            let mut s = 0.0;
            for cut in cuts.windows(2) {
                let (from, to) = ((cut[0] as usize).min(k), (cut[1] as usize).min(k));
                s += chain(unit, dtype, 0.0, &x[from..to], &w[from..to]);
            }
            y.push(s);
        }
    }
    y
}

/// Section 0.
pub(super) fn tree(mut x: Vec<f32>) -> f32 {
    while x.len() > 1 {
        x = x.chunks(2).map(|p| p[0] + p[1]).collect();
    }
    x[0]
}

/// Section 4: the f32 row before r16.
pub(super) fn norm(lanes: usize, x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    let mut l = vec![0.0_f32; lanes];
    for (i, x) in x.iter().enumerate() {
        l[i % lanes] = x.mul_add(*x, l[i % lanes]);
    }
    let r = 1.0 / (tree(l) / x.len() as f32 + eps).sqrt();
    x.iter().zip(w).map(|(x, w)| (x * r) * w).collect()
}

/// Section 5: one head, rotated.
pub(super) fn rope(table: &RopeTable, position: usize, x: &[f32]) -> Vec<f32> {
    let half = x.len() / 2;
    let mut y = x.to_vec();
    for i in 0..half {
        let (cos, sin) = (table.cos[position * half + i], table.sin[position * half + i]);
        let (a, b) = (x[i], x[i + half]);
        y[i] = a.mul_add(cos, -(b * sin));
        y[i + half] = b.mul_add(cos, a * sin);
    }
    y
}

/// Section 7.
pub(super) fn exp2(x: f32) -> f32 {
    let x = x.max(-127.0);
    let t = x + 12582912.0;
    let f = x - (t - 12582912.0);
    let mut p = f32::from_bits(0x3aade2fc).mul_add(f, f32::from_bits(0x3c1e7652));
    for c in [0x3d635be7, 0x3e75fcdd, 0x3f317214, 0x3f800000] {
        p = p.mul_add(f, f32::from_bits(c));
    }
    f32::from_bits(p.to_bits().wrapping_add(t.to_bits() << 23))
}

/// Section 6: one query row at `position` over contiguous `k`, `v` `[positions][dim]`, of which those from
/// `written` on do not exist. Walks whole tiles, masked ones included.
pub(super) struct Attention<'a> {
    pub(super) unit: MatrixUnit,
    pub(super) dtype: Dtype,
    pub(super) constants: Constants,
    pub(super) dim: usize,
    pub(super) k: &'a [u16],
    pub(super) v: &'a [u16],
}

impl Attention<'_> {
    pub(super) fn row(&self, q: &[u16], position: usize) -> Vec<u16> {
        let (d, split) = (self.dim, self.constants.split as usize);
        let mut folded: Option<(f32, f32, Vec<f32>)> = None;
        for j in 0..=position / split {
            let (m, l, acc) = self.split(q, position, j * split);
            if m.is_nan() || m == f32::INFINITY {
                return vec![0x7fff; d];
            }
            if l == 0.0 {
                continue;
            }
            folded = Some(match folded {
                None => (m, l, acc),
                Some((old_m, old_l, o)) => {
                    let u = old_m.max(m);
                    let (a, b) = (exp2(old_m - u), exp2(m - u));
                    let o = o.iter().zip(&acc).map(|(o, acc)| acc.mul_add(b, o * a)).collect();
                    (u, l.mul_add(b, old_l * a), o)
                }
            });
        }
        match folded {
            None => vec![0x7fff; d],
            Some((_, l, o)) => o.iter().map(|o| self.dtype.round(o * (1.0 / l))).collect(),
        }
    }

    fn split(&self, q: &[u16], position: usize, start: usize) -> (f32, f32, Vec<f32>) {
        let (d, tile) = (self.dim, self.constants.tile as usize);
        let (mut m, mut l, mut acc) = (-f32::MAX, [0.0_f32; 8], vec![0.0_f32; d]);
        for t in (start..start + self.constants.split as usize).step_by(tile) {
            let at = |x: &[u16], i: usize| {
                x.get((t + i) * d..(t + i + 1) * d).map_or(vec![0; d], <[u16]>::to_vec)
            };
            let s: Vec<f32> = (0..tile)
                .map(|i| {
                    let s = chain(self.unit, self.dtype, 0.0, q, &at(self.k, i));
                    if t + i > position { f32::NEG_INFINITY } else { s }
                })
                .collect();
            let nan = m.is_nan() || s.iter().any(|s| s.is_nan());
            let n = if nan { f32::NAN } else { s.iter().fold(m, |n, s| n.max(*s)) };
            let alpha = exp2(m - n);
            if alpha != 1.0 {
                acc.iter_mut().for_each(|x| *x = (*x * alpha) + 0.0);
                l.iter_mut().for_each(|l| *l *= alpha);
            }
            m = n;
            let mut p = Vec::new();
            for (i, s) in s.iter().enumerate() {
                let e = exp2(s - m);
                l[i % 8] += e;
                p.push(self.dtype.round(e));
            }
            let v: Vec<Vec<u16>> = (0..tile).map(|i| at(self.v, i)).collect();
            for (c, acc) in acc.iter_mut().enumerate() {
                let column: Vec<u16> = v.iter().map(|v| v[c]).collect();
                *acc = chain(self.unit, self.dtype, *acc, &p, &column);
            }
        }
        (m, tree(l.to_vec()), acc)
    }
}

/// Section 10.
pub(super) fn logprob(block: usize, x: &[f32], id: usize) -> f32 {
    let log2_e = f32::from_bits(0x3fb8aa3b);
    let max = |x: &[f32]| {
        let nan = x.iter().any(|x| x.is_nan());
        if nan { f32::NAN } else { x.iter().fold(f32::NEG_INFINITY, |m, x| m.max(*x)) }
    };
    let lanes = block.min(1024);
    let blocks: Vec<(f32, f32)> = x
        .chunks(block)
        .map(|x| {
            let m = max(x);
            let mut l = vec![0.0; lanes];
            for (i, x) in x.iter().enumerate() {
                l[i % lanes] += exp2((x - m) * log2_e);
            }
            (m, tree(l))
        })
        .collect();
    let m = max(x);
    let mut z = 0.0;
    for (m_b, s) in blocks {
        z = s.mul_add(exp2((m_b - m) * log2_e), z);
    }
    (x[id] - m) - crate::contract::scalar::log2(z) * f32::from_bits(0x3f317218)
}

/// Section 11 for finite logits, everything sorted and summed in 128 bits.
pub(super) fn draw(
    logits: &[f32],
    params: &SamplerParams,
    seen: &[u32],
    key: [u32; 2],
    position: u32,
) -> Option<u32> {
    let p = params.repetition_penalty;
    let mut x = logits.to_vec();
    for &id in seen {
        let x = &mut x[id as usize];
        *x = if *x > 0.0 { *x / p } else { *x * p };
    }
    if x.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let ord = |x: f32| {
        let bits = x.to_bits();
        if bits >> 31 == 1 { !bits } else { bits ^ 0x8000_0000 }
    };
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by_key(|&id| (std::cmp::Reverse(ord(x[id])), id));
    if params.temperature < 1.0 / 65536.0 {
        return Some(order[0] as u32);
    }
    let max = x[order[0]];
    let c = (1.0 / params.temperature) * f32::from_bits(0x3fb8aa3b);
    let w: Vec<u128> =
        x.iter().map(|x| (f64::from(exp2((x - max) * c)) * 4294967296.0) as u128).collect();
    let floor = (f64::from(params.min_p) * 4294967296.0).ceil() as u128;
    order.retain(|&id| w[id] >= floor);
    if params.top_k > 0 {
        order.truncate(params.top_k as usize);
    }
    let mass: u128 = order.iter().map(|&id| w[id]).sum();
    let share = (f64::from(params.top_p) * 16777216.0).ceil() as u128;
    let low = mass % (1 << 24);
    let tau = ((mass >> 24) * share + ((low * share) >> 24)).max(1);
    let mut sum = 0;
    let mut kept = Vec::new();
    for id in order {
        if sum >= tau {
            break;
        }
        sum += w[id];
        kept.push(id);
    }
    kept.sort_unstable();
    let r = philox4x32_10([position, 0, 0, 0], key);
    let target = ((u128::from(r[0]) | u128::from(r[1]) << 32) * sum) >> 64;
    let mut running = 0;
    for id in kept {
        running += w[id];
        if running > target {
            return Some(id as u32);
        }
    }
    None
}
