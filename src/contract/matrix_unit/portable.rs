//! The fast path in plain Rust: eight-lane arrays that any compiler can turn into vectors.

use super::{COLUMNS, Chains, Format, GROUP, LARGEST, NO_PRODUCTS, ROW_BIAS, exponent, repair};

/// See [`super::Unit::decode_rows`].
pub(super) fn decode_rows<F: Format>(bits: &[u16], values: &mut [f32], exponents: &mut [i16]) {
    for ((&b, v), e) in bits.iter().zip(values).zip(exponents) {
        *v = F::widen(b);
        *e = exponent::<F>(b) + ROW_BIAS;
    }
}

/// See [`super::Unit::decode_panel`].
pub(super) fn decode_panel<F: Format>(bits: &[u16], values: &mut [f32], exponents: &mut [i16]) {
    for (&b, v) in bits.iter().zip(values) {
        *v = F::widen(b);
    }
    for (b, e) in bits.chunks_exact(16).zip(exponents.chunks_exact_mut(16)) {
        for column in 0..COLUMNS {
            e[2 * column] = exponent::<F>(b[column]);
            e[2 * column + 1] = exponent::<F>(b[COLUMNS + column]);
        }
    }
}

/// See [`super::Unit::chains`].
pub(super) fn chains<F: Format, const TERMS: usize, const FRACTION: i32>(
    task: Chains<'_>,
    c: &mut [[f32; COLUMNS]],
) {
    for (job, c) in task.jobs.iter().zip(c) {
        let (row, panel) = (job.row as usize, job.panel as usize);
        for k in (0..task.groups * GROUP).step_by(TERMS) {
            let a = &task.rows.values[row + k..][..TERMS];
            let ae = &task.rows.exponents[row + k..][..TERMS];
            let w = &task.panels.values[panel + k * COLUMNS..][..TERMS * COLUMNS];
            let we = &task.panels.exponents[panel + k * COLUMNS..][..TERMS * COLUMNS];
            let (result, bad) = step::<TERMS, FRACTION>(a, ae, w, we, *c);
            *c = if bad == 0 { result } else { repair::<F>(task.unit, bad, a, w, *c, result) };
        }
    }
}

/// One step, and the lanes in which it does not hold.
#[inline(always)]
fn step<const TERMS: usize, const FRACTION: i32>(
    a: &[f32],
    ae: &[i16],
    w: &[f32],
    we: &[i16],
    c: [f32; COLUMNS],
) -> ([f32; COLUMNS], u32) {
    // All exponents below carry f32's bias.
    let mut pairs = [i16::MIN; 16];
    for (we, ae) in we.chunks_exact(16).zip(ae.chunks_exact(2)) {
        for (i, (pair, we)) in pairs.iter_mut().zip(we).enumerate() {
            *pair = (*pair).max(we.wrapping_add(ae[i & 1]));
        }
    }
    let mut e = [0; COLUMNS];
    let mut empty = [false; COLUMNS];
    let mut scale = [0.0; COLUMNS];
    for lane in 0..COLUMNS {
        let field = (c[lane].to_bits() >> 23) as i32 & 0xff;
        let products = i32::from(pairs[2 * lane].max(pairs[2 * lane + 1]));
        empty[lane] = products < NO_PRODUCTS && c[lane] == 0.0;
        e[lane] = products.max(field);
        scale[lane] = f32::from_bits(((254 + FRACTION - e[lane]) as u32) << 23);
    }
    let mut low = [0_i32; COLUMNS];
    let mut high = [0_i32; COLUMNS];
    for lane in 0..COLUMNS {
        low[lane] = (c[lane] * scale[lane]) as i32;
    }
    let half = TERMS / 2 * COLUMNS;
    for (sum, a, w) in
        [(&mut low, &a[..TERMS / 2], &w[..half]), (&mut high, &a[TERMS / 2..], &w[half..])]
    {
        for (a, w) in a.iter().zip(w.chunks_exact(COLUMNS)) {
            for lane in 0..COLUMNS {
                sum[lane] = sum[lane].wrapping_add(((a * w[lane]) * scale[lane]) as i32);
            }
        }
    }
    let mut bad = 0;
    let mut result = [0.0; COLUMNS];
    for lane in 0..COLUMNS {
        let total = low[lane].wrapping_add(high[lane]);
        let overflow = (low[lane] ^ total) & (high[lane] ^ total);
        let range = (e[lane] - (FRACTION + 1)) | (LARGEST - e[lane]);
        bad |= (u32::from((overflow | range) < 0) & u32::from(!empty[lane])) << lane;
        // The conversion rounds to nearest; where that went away from zero, step back by one.
        let nearest = total as f32;
        let back = if nearest == 2147483648.0 { i32::MIN } else { nearest as i32 };
        let away = back.wrapping_sub(total).wrapping_mul(total.signum());
        let cut = f32::from_bits(nearest.to_bits() - u32::from(away > 0));
        let unit = f32::from_bits(((e[lane] - FRACTION) as u32) << 23);
        result[lane] = if empty[lane] { 0.0 } else { cut * unit };
    }
    (result, bad)
}
