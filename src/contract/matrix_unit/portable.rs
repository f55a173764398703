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
    for (we, ae) in we.as_chunks::<16>().0.iter().zip(ae.as_chunks::<2>().0) {
        let ae: [i16; 16] = bytemuck::cast([*ae; 8]);
        for i in 0..16 {
            pairs[i] = pairs[i].max(we[i].wrapping_add(ae[i]));
        }
    }
    let mut e = [0; COLUMNS];
    let mut empty = [0; COLUMNS];
    for lane in 0..COLUMNS {
        let products = i32::from(pairs[2 * lane].max(pairs[2 * lane + 1]));
        let field = (c[lane].to_bits() >> 23) as i32 & 0xff;
        let zero = (c[lane].to_bits() << 1) == 0;
        empty[lane] = i32::from(products < NO_PRODUCTS) & i32::from(zero);
        e[lane] = products.max(field);
    }
    let scale = e.map(|e| f32::from_bits(((254 + FRACTION - e) as u32) << 23));
    let mut low = [0_i32; COLUMNS];
    let mut high = [0_i32; COLUMNS];
    add_term(&mut low, 1.0, &c, &scale);
    let (w_low, w_high) = w.as_chunks::<COLUMNS>().0.split_at(TERMS / 2);
    let (a_low, a_high) = a.split_at(TERMS / 2);
    for k in 0..TERMS / 2 {
        add_term(&mut low, a_low[k], &w_low[k], &scale);
        add_term(&mut high, a_high[k], &w_high[k], &scale);
    }
    let mut bad = [0; COLUMNS];
    let mut total = [0; COLUMNS];
    for lane in 0..COLUMNS {
        total[lane] = low[lane].wrapping_add(high[lane]);
        let overflow = (low[lane] ^ total[lane]) & (high[lane] ^ total[lane]);
        let range = (e[lane] - (FRACTION + 1)) | (LARGEST - e[lane]);
        bad[lane] = ((overflow | range) >> 31) & (empty[lane] - 1);
    }
    // The conversion rounds to nearest; where that went away from zero, step back by one.
    let nearest = total.map(|total| total as f32);
    let back = nearest.map(|x| {
        let wrapped = if x < 2147483648.0 { x } else { -2147483648.0 };
        // SAFETY: a number from -2^31 to below 2^31.
        unsafe { wrapped.to_int_unchecked::<i32>() }
    });
    let mut result = [0.0; COLUMNS];
    for lane in 0..COLUMNS {
        let sign = total[lane] >> 31;
        let away = (back[lane].wrapping_sub(total[lane]) ^ sign).wrapping_sub(sign);
        let cut = nearest[lane].to_bits().wrapping_sub(u32::from(away > 0));
        let unit = ((e[lane] - FRACTION) as u32) << 23;
        let value = f32::from_bits(cut) * f32::from_bits(unit);
        result[lane] = f32::from_bits(value.to_bits() & (empty[lane] - 1) as u32);
    }
    let bad = bad.iter().enumerate().fold(0, |mask, (lane, bad)| mask | (*bad as u32 & 1) << lane);
    (result, bad)
}

/// `sum += trunc((a * w) * scale)`, lane by lane. In a lane that holds, the scaled term is below 2^27; the
/// others are limited to that, which spares the saturating conversion.
#[inline(always)]
fn add_term(sum: &mut [i32; COLUMNS], a: f32, w: &[f32; COLUMNS], scale: &[f32; COLUMNS]) {
    const LIMIT: f32 = 134217728.0;
    let mut x = [0.0; COLUMNS];
    for lane in 0..COLUMNS {
        let scaled = (a * w[lane]) * scale[lane];
        let above = if scaled > -LIMIT { scaled } else { -LIMIT };
        x[lane] = if above < LIMIT { above } else { LIMIT };
    }
    for lane in 0..COLUMNS {
        // SAFETY: the comparisons leave a number between -2^27 and 2^27, also from NaN.
        sum[lane] = sum[lane].wrapping_add(unsafe { x[lane].to_int_unchecked::<i32>() });
    }
}
