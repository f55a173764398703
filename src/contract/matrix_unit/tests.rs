//! Goal: the portable and the AVX2 path equal the oracle, on both sides of every limit of the fast path.
//! Method: each operand class gets at least 10^6 steps per dtype, all lanes compared bit for bit; the
//! oracle itself is compared with the hardware in `tests/contract_vectors.rs`.

use super::*;

/// One panel against this many rows is a batch of 128 steps.
const ROWS: usize = 16;
const BATCHES: usize = 8192;
const _: () = assert!(BATCHES * ROWS * COLUMNS >= 1_000_000);

/// xorshift64*: fast enough not to matter next to the oracle.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.next()) * u64::from(n)) >> 32) as u32
    }
}

/// How the operands of a batch are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Class {
    Ordinary,
    WideExponents,
    SignedZeros,
    Subnormals,
    InfinitiesAndNan,
    Cancellation,
    LowLimit,
    HighLimit,
    SumOverflow,
    AnyBits,
}

/// A 16-bit value with a uniform exponent field of `from..=to`.
fn with_field<F: Format>(rng: &mut Rng, from: i32, to: i32) -> u16 {
    let largest = i32::from(F::FIELD_MAX) - 1;
    let field = (from + rng.below((to - from + 1) as u32) as i32).clamp(0, largest) as u16;
    let r = rng.next();
    (r as u16 & 0x8000) | field << F::MANTISSA | (r >> 16) as u16 & ((1 << F::MANTISSA) - 1)
}

/// An f32 with a uniform true exponent of `from..=to`.
fn f32_with(rng: &mut Rng, from: i32, to: i32) -> u32 {
    let field = (from + rng.below((to - from + 1) as u32) as i32 + 127).clamp(0, 254) as u32;
    rng.next() & 0x807f_ffff | field << 23
}

impl Class {
    /// `shift` of 0..4 is fixed for an operand of a batch, so that the largest exponent varies.
    fn factor<F: Format>(self, rng: &mut Rng, shift: i32) -> u16 {
        let largest = i32::from(F::FIELD_MAX) - 1;
        match self {
            Class::Ordinary | Class::Cancellation => with_field::<F>(rng, F::BIAS - 4, F::BIAS),
            Class::WideExponents => with_field::<F>(rng, 0, largest),
            Class::SignedZeros => match rng.below(4) {
                0 => with_field::<F>(rng, F::BIAS - 2, F::BIAS + 2),
                _ => rng.next() as u16 & 0x8000,
            },
            Class::Subnormals => match rng.below(3) {
                0 => with_field::<F>(rng, 0, 3),
                1 => with_field::<F>(rng, 0, 0),
                _ => with_field::<F>(rng, F::BIAS - 3, F::BIAS + 3),
            },
            Class::InfinitiesAndNan => match rng.below(40) {
                0 => rng.next() as u16 & 0x8000 | F::FIELD_MAX << F::MANTISSA,
                1 => rng.next() as u16 | F::FIELD_MAX << F::MANTISSA,
                2 => rng.next() as u16 & 0x8000,
                _ => with_field::<F>(rng, 0, largest),
            },
            // The largest sums of two exponents are -104..=-98 and 122..=128. f16 does not reach them: there
            // the accumulator decides, at the low limit against zero products.
            Class::LowLimit if F::DTYPE == Dtype::F16 && rng.below(64) > 0 => {
                rng.next() as u16 & 0x8000
            }
            Class::LowLimit => with_field::<F>(rng, F::BIAS - 54 + shift, F::BIAS - 52 + shift),
            Class::HighLimit => with_field::<F>(rng, F::BIAS + 59 + shift, F::BIAS + 61 + shift),
            // Mantissas of almost two and, mostly, one sign: the i32 sum ends near 2^31.
            Class::SumOverflow => {
                let full = (1 << F::MANTISSA)
                    - 1
                    - (rng.below(16) as u16 * u16::from(rng.below(2) == 0)).min(3);
                let sign = if rng.below(64) == 0 { 0x8000 } else { 0 };
                sign | (F::BIAS as u16) << F::MANTISSA | full
            }
            Class::AnyBits => rng.next() as u16,
        }
    }

    fn accumulator(self, rng: &mut Rng) -> u32 {
        if rng.below(8) == 0 {
            // Both zeros: the operators never pass -0, but the paths must agree on it.
            return rng.next() & 0x8000_0000;
        }
        match self {
            Class::Ordinary | Class::SignedZeros => f32_with(rng, -6, 4),
            Class::Cancellation => f32_with(rng, -30, 0),
            Class::WideExponents => f32_with(rng, -126, 127),
            Class::Subnormals => match rng.below(2) {
                0 => rng.next() & 0x807f_ffff,
                _ => f32_with(rng, -127, -100),
            },
            Class::InfinitiesAndNan => match rng.below(16) {
                0 => rng.next() | 0x7f80_0000,
                1 => rng.next() & 0x8000_0000 | 0x7f80_0000,
                _ => f32_with(rng, -20, 20),
            },
            Class::LowLimit => f32_with(rng, -106, -98),
            Class::HighLimit => f32_with(rng, 122, 127),
            Class::SumOverflow => 0x3f80_0000 | rng.next() & 0x807f_ffff,
            Class::AnyBits => rng.next(),
        }
    }
}

/// Operands of a batch of chains of `groups` steps.
struct Batch {
    groups: usize,
    /// `[row][k]`.
    a: Vec<u16>,
    /// `[k][column]`.
    w: Vec<u16>,
    /// `[row][column]`.
    c: Vec<u32>,
}

impl Batch {
    fn new<F: Format>(class: Class, rng: &mut Rng, groups: usize) -> Batch {
        let k = GROUP * groups;
        let shifts = [rng.below(4) as i32, rng.below(4) as i32];
        let mut a: Vec<u16> = (0..ROWS * k).map(|_| class.factor::<F>(rng, shifts[0])).collect();
        let mut w: Vec<u16> = (0..COLUMNS * k).map(|_| class.factor::<F>(rng, shifts[1])).collect();
        let mut c: Vec<u32> = (0..ROWS * COLUMNS).map(|_| class.accumulator(rng)).collect();
        if class == Class::Cancellation {
            // Neighbouring products cancel, some but for a last bit; some accumulators cancel the rest.
            for k in (0..k).step_by(2) {
                for r in 0..ROWS {
                    a[r * GROUP * groups + k + 1] = a[r * GROUP * groups + k] ^ 0x8000;
                }
                for column in 0..COLUMNS {
                    let flip = u16::from(rng.below(4) == 0);
                    w[(k + 1) * COLUMNS + column] = w[k * COLUMNS + column] ^ flip;
                }
            }
            for c in &mut c {
                *c &= if rng.below(2) == 0 { 0x8000_0000 } else { 0xffff_ff00 };
            }
        }
        Batch { groups, a, w, c }
    }

    fn run(&self, unit: &Unit) -> Vec<u32> {
        let mut rows = Decoded::default();
        rows.reserve(self.a.len());
        let (values, exponents) = rows.slots(0..self.a.len());
        unit.decode_rows(&self.a, values, exponents);
        let mut panel = Decoded::default();
        panel.reserve(self.w.len());
        let (values, exponents) = panel.slots(0..self.w.len());
        unit.decode_panel(&self.w, values, exponents);
        let jobs: Vec<Job> =
            (0..ROWS).map(|r| Job { row: (r * GROUP * self.groups) as u32, panel: 0 }).collect();
        let mut c: Vec<[f32; COLUMNS]> =
            self.c.as_chunks::<COLUMNS>().0.iter().map(|c| c.map(f32::from_bits)).collect();
        unit.chains(self.groups, rows.operand(), panel.operand(), &jobs, &mut c);
        c.as_flattened().iter().map(|x| x.to_bits()).collect()
    }

    fn oracle<F: Format>(&self, unit: MatrixUnit) -> Vec<u32> {
        let k = GROUP * self.groups;
        let columns: Vec<Vec<u16>> = (0..COLUMNS)
            .map(|column| self.w.iter().skip(column).step_by(COLUMNS).copied().collect())
            .collect();
        (0..ROWS * COLUMNS)
            .map(|i| {
                let a = &self.a[i / COLUMNS * k..][..k];
                oracle::chain(unit, F::DTYPE, self.c[i], a, &columns[i % COLUMNS])
            })
            .collect()
    }
}

/// The vector paths of this machine.
fn fast_paths() -> Vec<Simd> {
    Simd::all().into_iter().filter(|s| s.level() != Level::Scalar).collect()
}

fn agree_in<F: Format>(unit: MatrixUnit, class: Class, batches: usize, groups: usize) {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15 ^ F::BIAS as u64 ^ (class as u64) << 32);
    for batch in 0..batches {
        let operands = Batch::new::<F>(class, &mut rng, groups);
        let expected = operands.oracle::<F>(unit);
        for simd in fast_paths() {
            let result = operands.run(&Unit::new(unit, F::DTYPE, simd));
            if let Some(i) = (0..expected.len()).find(|i| result[*i] != expected[*i]) {
                let (row, column) = (i / COLUMNS, i % COLUMNS);
                panic!(
                    "{class:?} {:?} {simd:?} batch {batch} row {row} column {column}: {:08x}, \
                     the oracle gives {:08x} from {:08x}",
                    F::DTYPE,
                    result[i],
                    expected[i],
                    operands.c[i],
                );
            }
        }
    }
}

fn agree(class: Class) {
    for dtype in [Dtype::F16, Dtype::Bf16] {
        with_format!(dtype, F => {
            agree_in::<F>(MatrixUnit::SM90, class, BATCHES, 1);
            agree_in::<F>(MatrixUnit::SM90, class, BATCHES / 32, 5);
            agree_in::<F>(MatrixUnit::SM80, class, BATCHES / 16, 1);
        });
    }
}

#[test]
fn the_paths_agree_on_ordinary_values() {
    agree(Class::Ordinary);
}

#[test]
fn the_paths_agree_on_wide_exponents() {
    agree(Class::WideExponents);
}

#[test]
fn the_paths_agree_on_signed_zeros() {
    agree(Class::SignedZeros);
}

#[test]
fn the_paths_agree_on_subnormals() {
    agree(Class::Subnormals);
}

#[test]
fn the_paths_agree_on_infinities_and_nan() {
    agree(Class::InfinitiesAndNan);
}

#[test]
fn the_paths_agree_on_cancellation() {
    agree(Class::Cancellation);
}

#[test]
fn the_paths_agree_around_the_low_limit() {
    agree(Class::LowLimit);
}

#[test]
fn the_paths_agree_around_the_high_limit() {
    agree(Class::HighLimit);
}

#[test]
fn the_paths_agree_where_the_integer_sum_overflows() {
    agree(Class::SumOverflow);
}

#[test]
fn the_paths_agree_on_any_bits() {
    agree(Class::AnyBits);
}

/// Goal: the classes reach both sides of each limit. Method: count, over the oracle's inputs, on which side
/// of the low, high and overflow limits the exponents and sums lie.
#[test]
fn the_limit_classes_lie_on_both_sides_of_their_limits() {
    fn exponents<F: Format>(class: Class) -> Vec<i32> {
        let mut rng = Rng(7);
        let code = |x: u16| i32::from(exponent::<F>(x));
        (0..200)
            .flat_map(|_| {
                let batch = Batch::new::<F>(class, &mut rng, 1);
                let columns = batch.w.iter().step_by(COLUMNS);
                let products =
                    batch.a[..GROUP].iter().zip(columns).map(|(a, w)| code(*a) + code(*w));
                let c = (batch.c[0] >> 23 & 0xff) as i32 - 127;
                products.max().into_iter().map(move |p| p.max(c)).collect::<Vec<_>>()
            })
            .collect()
    }
    for (class, limit) in [(Class::LowLimit, -101), (Class::HighLimit, 126)] {
        for e in [
            exponents::<super::super::dtype::Bf16>(class),
            exponents::<super::super::dtype::F16>(class),
        ] {
            let (below, at, above) = (
                e.iter().filter(|e| **e < limit).count(),
                e.iter().filter(|e| **e == limit).count(),
                e.iter().filter(|e| **e > limit).count(),
            );
            assert!(below > 5 && at > 5 && above > 5, "{class:?}: {below}, {at}, {above}");
        }
    }
    let mut rng = Rng(8);
    let (mut over, mut under) = (0, 0);
    for _ in 0..200 {
        let batch = Batch::new::<super::super::dtype::F16>(Class::SumOverflow, &mut rng, 1);
        for x in batch.oracle::<super::super::dtype::F16>(MatrixUnit::SM90) {
            // 64 is 2^31 in units of 2^-25.
            *(if f32::from_bits(x).abs() >= 64.0 { &mut over } else { &mut under }) += 1;
        }
    }
    assert!(over > 1000 && under > 1000, "{over} sums overflow, {under} do not");
}

/// Worked by hand: what 25 and 24 fraction bits keep, truncation on both sides of zero, and the cut of a
/// sum between FLT_MAX and 2^128.
#[test]
fn the_oracle_truncates_where_the_contract_says() {
    let f16 = |x: f32| Dtype::F16.round(x);
    let step = |unit: MatrixUnit, c: f32, products: &[(f32, f32)]| {
        let (mut a, mut b) = ([0; 16], [0; 16]);
        for (i, (x, y)) in products.iter().enumerate() {
            (a[i], b[i]) = (f16(*x), f16(*y));
        }
        f32::from_bits(oracle::chain(unit, Dtype::F16, c.to_bits(), &a, &b))
    };
    let tiny = |e: i32| ((e as f32 / 2.0).floor().exp2(), (e as f32 / 2.0).ceil().exp2());
    let ulp = f32::EPSILON;
    // Four products of 2^-25 add up to a unit in the last place, if 25 bits are kept.
    assert_eq!(step(MatrixUnit::SM90, 1.0, &[tiny(-25); 4]), 1.0 + ulp);
    assert_eq!(step(MatrixUnit::SM80, 1.0, &[tiny(-25); 4]), 1.0);
    // The second group of eight is added to a sum that is cut already.
    assert_eq!(step(MatrixUnit::SM90, 1.0, &[tiny(-24); 16]), 1.0 + 8.0 * ulp);
    let (low, high) = tiny(-24);
    let negative = (-low, high);
    assert_eq!(step(MatrixUnit::SM90, 1.0, &[negative]), 1.0 - ulp / 2.0);
    // -2^-25 leaves 1 - 2^-25, cut toward zero to 1 - 2^-24; -2^-26 is cut away itself.
    let (low, high) = tiny(-25);
    assert_eq!(step(MatrixUnit::SM90, 1.0, &[(-low, high)]), 1.0 - ulp / 2.0);
    let (low, high) = tiny(-26);
    assert_eq!(step(MatrixUnit::SM90, 1.0, &[(-low, high)]), 1.0);
    assert_eq!(step(MatrixUnit::SM90, -1.0, &[(low, high)]), -1.0);
    assert_eq!(step(MatrixUnit::SM90, 0.0, &[(-0.0, 1.0); 16]).to_bits(), 0);

    let bf16 = |x: f32| Dtype::Bf16.round(x);
    let (mut a, mut b) = ([0; 16], [0; 16]);
    (a[0], b[0]) = (bf16((60.0_f32).exp2()), bf16((43.0_f32).exp2()));
    let sum = oracle::chain(MatrixUnit::SM90, Dtype::Bf16, f32::MAX.to_bits(), &a, &b);
    assert_eq!(f32::from_bits(sum), f32::MAX, "FLT_MAX + 2^103 is below 2^128");
    (a[0], b[0]) = (bf16((60.0_f32).exp2()), bf16((44.0_f32).exp2()));
    let sum = oracle::chain(MatrixUnit::SM90, Dtype::Bf16, f32::MAX.to_bits(), &a, &b);
    assert_eq!(f32::from_bits(sum), f32::INFINITY, "FLT_MAX + 2^104 is 2^128");
}

/// Decoding and transposing are the same on every path, for every 16-bit pattern.
#[test]
fn decoding_is_the_same_on_every_path() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    for dtype in [Dtype::F16, Dtype::Bf16] {
        let decode = |simd: Simd, rows: bool| {
            let unit = Unit::new(MatrixUnit::SM90, dtype, simd);
            let (mut values, mut exponents) = (vec![0.0; all.len()], vec![0; all.len()]);
            if rows {
                unit.decode_rows(&all, &mut values, &mut exponents);
            } else {
                unit.decode_panel(&all, &mut values, &mut exponents);
            }
            let bits = |x: f32| if x.is_nan() { 0x7fff_ffff } else { x.to_bits() };
            (values.into_iter().map(bits).collect::<Vec<u32>>(), exponents)
        };
        for rows in [false, true] {
            let expected = decode(Simd::all()[0], rows);
            for simd in fast_paths() {
                assert!(decode(simd, rows) == expected, "{dtype:?} {simd:?} {rows}");
            }
        }
    }
    let rows: [&[u16]; COLUMNS] = std::array::from_fn(|i| &all[i * 1000..i * 1000 + 24]);
    for simd in Simd::all() {
        let mut panel = vec![0; 24 * COLUMNS];
        Unit::new(MatrixUnit::SM90, Dtype::F16, simd).transpose(&rows, &mut panel);
        for (i, x) in panel.iter().enumerate() {
            assert_eq!(*x, rows[i % COLUMNS][i / COLUMNS], "{simd:?}");
        }
    }
}
