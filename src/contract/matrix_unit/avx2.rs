//! The fast path with AVX2, FMA and F16C intrinsics: eight columns a vector, four chains in flight.

use std::arch::x86_64::*;

use super::{
    COLUMNS, Chains, Dtype, Format, GROUP, Job, LARGEST, NO_PRODUCTS, PANEL_GROUP, ROW_BIAS,
    SPECIAL, ZERO, repair,
};

/// Exponent codes of sixteen factors plus `bias`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn exponents<F: Format>(bits: __m256i, bias: i16) -> __m256i {
    let magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff));
    let field = match F::DTYPE {
        Dtype::F16 => _mm256_srli_epi16::<10>(magnitude),
        Dtype::Bf16 => _mm256_srli_epi16::<7>(magnitude),
    };
    let normal = _mm256_max_epi16(field, _mm256_set1_epi16(1));
    let real = _mm256_add_epi16(normal, _mm256_set1_epi16(bias - F::BIAS as i16));
    let zero = _mm256_cmpeq_epi16(magnitude, _mm256_setzero_si256());
    // A zero's code so far is that of a subnormal.
    let to_zero = _mm256_and_si256(zero, _mm256_set1_epi16(ZERO - (1 - F::BIAS as i16)));
    let special = _mm256_cmpeq_epi16(field, _mm256_set1_epi16(F::FIELD_MAX as i16));
    let largest = F::FIELD_MAX as i16 - F::BIAS as i16;
    let to_special = _mm256_and_si256(special, _mm256_set1_epi16(SPECIAL - largest));
    _mm256_add_epi16(real, _mm256_or_si256(to_zero, to_special))
}

/// Eight factors as f32.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen<F: Format>(bits: __m128i) -> __m256 {
    match F::DTYPE {
        Dtype::F16 => _mm256_cvtph_ps(bits),
        Dtype::Bf16 => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits))),
    }
}

/// See [`super::Unit::decode_rows`].
///
/// # Safety
/// AVX2, FMA and F16C exist; the slices have one length.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn decode_rows<F: Format>(
    bits: &[u16],
    values: &mut [f32],
    exponent_codes: &mut [i16],
) {
    let whole = bits.len() / 16 * 16;
    for i in (0..whole).step_by(16) {
        // SAFETY: `i + 16 <= len` of all three slices.
        unsafe {
            let low = _mm_loadu_si128(bits.as_ptr().add(i).cast());
            let high = _mm_loadu_si128(bits.as_ptr().add(i + 8).cast());
            _mm256_storeu_ps(values.as_mut_ptr().add(i), widen::<F>(low));
            _mm256_storeu_ps(values.as_mut_ptr().add(i + 8), widen::<F>(high));
            let codes = exponents::<F>(_mm256_set_m128i(high, low), ROW_BIAS);
            _mm256_storeu_si256(exponent_codes.as_mut_ptr().add(i).cast(), codes);
        }
    }
    super::portable::decode_rows::<F>(
        &bits[whole..],
        &mut values[whole..],
        &mut exponent_codes[whole..],
    );
}

/// See [`super::Unit::decode_panel`].
///
/// # Safety
/// AVX2, FMA and F16C exist; the slices have one length, a multiple of 16.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn decode_panel<F: Format>(
    bits: &[u16],
    values: &mut [f32],
    exponent_codes: &mut [i16],
) {
    for i in (0..bits.len()).step_by(16) {
        // SAFETY: `i + 16 <= len` of all three slices.
        unsafe {
            let even = _mm_loadu_si128(bits.as_ptr().add(i).cast());
            let odd = _mm_loadu_si128(bits.as_ptr().add(i + 8).cast());
            _mm256_storeu_ps(values.as_mut_ptr().add(i), widen::<F>(even));
            _mm256_storeu_ps(values.as_mut_ptr().add(i + 8), widen::<F>(odd));
            let low = _mm_unpacklo_epi16(even, odd);
            let high = _mm_unpackhi_epi16(even, odd);
            let codes = exponents::<F>(_mm256_set_m128i(high, low), 0);
            _mm256_storeu_si256(exponent_codes.as_mut_ptr().add(i).cast(), codes);
        }
    }
}

/// See [`super::Unit::transpose`].
///
/// # Safety
/// AVX2 exists; each row holds `len` values, `out` eight times as many; `len` is a multiple of 8.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn transpose(rows: &[&[u16]; COLUMNS], len: usize, out: &mut [u16]) {
    for i in (0..len).step_by(8) {
        // SAFETY: `i + 8 <= len`.
        let load = |r: usize| unsafe { _mm_loadu_si128(rows[r].as_ptr().add(i).cast()) };
        // Pairs of rows, then quadruples, then all eight.
        let pair = |r: usize| {
            let (x, y) = (load(r), load(r + 1));
            (_mm_unpacklo_epi16(x, y), _mm_unpackhi_epi16(x, y))
        };
        let four = |r: usize| {
            let ((a, b), (c, d)) = (pair(r), pair(r + 2));
            [
                _mm_unpacklo_epi32(a, c),
                _mm_unpackhi_epi32(a, c),
                _mm_unpacklo_epi32(b, d),
                _mm_unpackhi_epi32(b, d),
            ]
        };
        let (low, high) = (four(0), four(4));
        for j in 0..4 {
            // SAFETY: columns `i + 2j` and `i + 2j + 1`, eight values each.
            unsafe {
                let at = out.as_mut_ptr().add((i + 2 * j) * COLUMNS);
                _mm_storeu_si128(at.cast(), _mm_unpacklo_epi64(low[j], high[j]));
                _mm_storeu_si128(at.add(COLUMNS).cast(), _mm_unpackhi_epi64(low[j], high[j]));
            }
        }
    }
}

/// See [`super::Unit::chains`].
///
/// # Safety
/// AVX2, FMA and F16C exist; every job lies within the operands; one accumulator per job.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn chains<F: Format, const TERMS: usize, const FRACTION: i32>(
    task: Chains<'_>,
    c: &mut [[f32; COLUMNS]],
) {
    let mut jobs = task.jobs.chunks_exact(4);
    let mut c = c.chunks_exact_mut(4);
    for (jobs, c) in (&mut jobs).zip(&mut c) {
        // SAFETY: the caller's.
        unsafe { block::<F, TERMS, FRACTION, 4>(&task, jobs, c) };
    }
    for (job, c) in jobs.remainder().chunks(1).zip(c.into_remainder().chunks_mut(1)) {
        // SAFETY: the caller's.
        unsafe { block::<F, TERMS, FRACTION, 1>(&task, job, c) };
    }
}

/// `R` chains side by side, so that their latencies overlap.
///
/// # Safety
/// As [`chains`]; `jobs` and `c` hold `R` each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn block<F: Format, const TERMS: usize, const FRACTION: i32, const R: usize>(
    task: &Chains<'_>,
    jobs: &[Job],
    c: &mut [[f32; COLUMNS]],
) {
    let mut sums = [_mm256_setzero_ps(); R];
    for r in 0..R {
        // SAFETY: `c` holds R vectors of eight.
        sums[r] = unsafe { _mm256_loadu_ps(c[r].as_ptr()) };
    }
    for g in 0..task.groups {
        for r in 0..R {
            let row = jobs[r].row as usize + g * GROUP;
            let panel = jobs[r].panel as usize + g * PANEL_GROUP;
            for half in 0..GROUP / TERMS {
                let (row, panel) = (row + half * TERMS, panel + half * TERMS * COLUMNS);
                // SAFETY: the job's group lies within both operands.
                unsafe {
                    let factors = Factors {
                        a: task.rows.values.as_ptr().add(row),
                        ae: task.rows.exponents.as_ptr().add(row),
                        w: task.panels.values.as_ptr().add(panel),
                        we: task.panels.exponents.as_ptr().add(panel),
                    };
                    let (result, bad) = step::<TERMS, FRACTION>(&factors, sums[r]);
                    sums[r] = if bad == 0 {
                        result
                    } else {
                        mend::<F, TERMS>(task, &factors, bad, sums[r], result)
                    };
                }
            }
        }
    }
    for r in 0..R {
        // SAFETY: `c` holds R vectors of eight.
        unsafe { _mm256_storeu_ps(c[r].as_mut_ptr(), sums[r]) };
    }
}

/// Where the factors of one step start.
struct Factors {
    a: *const f32,
    ae: *const i16,
    w: *const f32,
    we: *const i16,
}

/// The lanes of `bad` by the oracle.
///
/// # Safety
/// `factors` point at `TERMS` and `8 * TERMS` values.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn mend<F: Format, const TERMS: usize>(
    task: &Chains<'_>,
    factors: &Factors,
    bad: u32,
    c: __m256,
    result: __m256,
) -> __m256 {
    let (mut before, mut after) = ([0.0; COLUMNS], [0.0; COLUMNS]);
    // SAFETY: eight floats each; the factors are the caller's.
    let (a, w) = unsafe {
        _mm256_storeu_ps(before.as_mut_ptr(), c);
        _mm256_storeu_ps(after.as_mut_ptr(), result);
        (
            std::slice::from_raw_parts(factors.a, TERMS),
            std::slice::from_raw_parts(factors.w, TERMS * COLUMNS),
        )
    };
    let mended = repair::<F>(task.unit, bad, a, w, before, after);
    // SAFETY: eight floats.
    unsafe { _mm256_loadu_ps(mended.as_ptr()) }
}

/// One step, and the lanes in which it does not hold.
///
/// # Safety
/// AVX2 exists; `factors` point at `TERMS` and `8 * TERMS` elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn step<const TERMS: usize, const FRACTION: i32>(
    factors: &Factors,
    c: __m256,
) -> (__m256, u32) {
    // SAFETY: pair j holds elements 2j and 2j + 1 of the row, and sixteen of the panel.
    let pair = |j: usize| unsafe {
        let a = _mm256_set1_epi32(factors.ae.add(2 * j).cast::<i32>().read_unaligned());
        _mm256_add_epi16(a, _mm256_loadu_si256(factors.we.add(16 * j).cast()))
    };
    let (mut even, mut odd) = (pair(0), pair(1));
    for j in (2..TERMS / 2).step_by(2) {
        even = _mm256_max_epi16(even, pair(j));
        odd = _mm256_max_epi16(odd, pair(j + 1));
    }
    let pairs = _mm256_max_epi16(even, odd);
    let products = _mm256_max_epi32(
        _mm256_srai_epi32::<16>(pairs),
        _mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(pairs)),
    );
    let field = _mm256_srli_epi32::<24>(_mm256_slli_epi32::<1>(_mm256_castps_si256(c)));
    // Exponents carry f32's bias from here on.
    let e = _mm256_max_epi32(products, field);
    let shifted = _mm256_slli_epi32::<23>(e);
    let scale =
        _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_set1_epi32((254 + FRACTION) << 23), shifted));
    let unit = _mm256_castsi256_ps(_mm256_sub_epi32(shifted, _mm256_set1_epi32(FRACTION << 23)));

    // SAFETY: element k of the row, and eight of the panel.
    let term = |k: usize| unsafe {
        let product = _mm256_mul_ps(
            _mm256_set1_ps(*factors.a.add(k)),
            _mm256_loadu_ps(factors.w.add(k * COLUMNS)),
        );
        _mm256_cvttps_epi32(_mm256_mul_ps(product, scale))
    };
    let mut low = _mm256_cvttps_epi32(_mm256_mul_ps(c, scale));
    let mut high = term(TERMS / 2);
    for k in 0..TERMS / 2 {
        low = _mm256_add_epi32(low, term(k));
        if k > 0 {
            high = _mm256_add_epi32(high, term(TERMS / 2 + k));
        }
    }
    let total = _mm256_add_epi32(low, high);

    let overflow = _mm256_and_si256(_mm256_xor_si256(low, total), _mm256_xor_si256(high, total));
    let range = _mm256_or_si256(
        _mm256_sub_epi32(e, _mm256_set1_epi32(FRACTION + 1)),
        _mm256_sub_epi32(_mm256_set1_epi32(LARGEST), e),
    );
    let mut bad = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_or_si256(overflow, range))) as u32;

    // The conversion rounds to nearest; where that went away from zero, step back by one.
    let nearest = _mm256_cvtepi32_ps(total);
    let back = _mm256_cvttps_epi32(nearest);
    let away = _mm256_sign_epi32(_mm256_sub_epi32(back, total), total);
    let over = _mm256_cmpgt_epi32(away, _mm256_setzero_si256());
    let cut = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(nearest), over));
    let mut result = _mm256_mul_ps(cut, unit);
    if bad != 0 {
        // Lanes without a nonzero term (unwritten keys, padding columns) are common, and +0.
        let no_products = _mm256_cmpgt_epi32(_mm256_set1_epi32(NO_PRODUCTS), products);
        let no_sum = _mm256_slli_epi32::<1>(_mm256_castps_si256(c));
        let no_sum = _mm256_cmpeq_epi32(no_sum, _mm256_setzero_si256());
        let empty = _mm256_castsi256_ps(_mm256_and_si256(no_products, no_sum));
        result = _mm256_andnot_ps(empty, result);
        bad &= !(_mm256_movemask_ps(empty) as u32);
    }
    (result, bad)
}
