//! X1 of the GEMM: every variant, every row count against the prefix of one host run, every output.

use std::sync::Arc;

use super::{Key, Ledger, Pair, Rng};
use crate::contract::Constants;
use crate::device::{Device, DeviceError, GemmLaunch, GemmOutput, RowTile, Splits};

/// Largest number of rows.
pub(super) const ROWS_MAX: usize = 130;

/// Row counts of a short run: around every tile of the kernels and of the planner.
const ROWS_SHORT: [usize; 24] =
    [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 47, 63, 64, 65, 96, 127, 128, 129, 130];

/// The variants, with their names in reports.
pub(super) const VARIANTS: [(RowTile, Splits, &str); 4] = [
    (RowTile::Skinny, Splits::Walk, "skinny_walk"),
    (RowTile::Skinny, Splits::Parallel, "skinny_parallel"),
    (RowTile::Tiled, Splits::Walk, "tiled_walk"),
    (RowTile::Tiled, Splits::Parallel, "tiled_parallel"),
];

/// (constants, N, K): the presets, the shapes of Qwen3-0.6B, and chains of 224 steps a split (896 in all).
const SHAPES: [(Constants, usize, usize); 17] = [
    (Constants::TINY, 128, 64),
    (Constants::SMALL, 512, 256),
    (Constants::REAL, 1024, 2048),
    (Constants::TINY, 64, 176),
    (Constants::SMALL, 256, 704),
    (Constants::REAL, 4096, 1024),
    (Constants::TINY, 264, 64),
    (Constants::REAL, 64, 14336),
    (Constants::SMALL, 264, 256),
    (Constants::REAL, 1024, 3072),
    (Constants::TINY, 352, 64),
    (Constants::SMALL, 1408, 256),
    (Constants::REAL, 6144, 1024),
    (Constants::TINY, 64, 64),
    (Constants::SMALL, 256, 256),
    (Constants::REAL, 72, 14400),
    (Constants::SMALL, 960, 576),
];

/// One weight matrix and 130 rows.
pub(super) fn round<A: Device, B: Device>(
    pair: &mut Pair<A, B>,
    rng: &mut Rng,
    index: usize,
    every_row_count: bool,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let dtype = pair.host.contract().dtype;
    // Every third round has odd shapes and random cuts; every fourth of the others one chain.
    let odd = index % 3 == 2;
    let (n, k, cuts) = if odd {
        let (n, k) = (1 + rng.below(90), 1 + rng.below(300));
        let units = k.div_ceil(16);
        let mut cuts: Vec<u32> =
            (0..rng.below(6)).map(|_| 16 * rng.below(units + 1) as u32).collect();
        cuts.extend([0, 16 * units as u32]);
        cuts.sort_unstable();
        (n, k, cuts)
    } else {
        let (constants, n, k) = SHAPES[(index / 3 * 2 + index % 3) % SHAPES.len()];
        let splits = if index % 4 == 3 { 1 } else { constants.splits(n, k) };
        (n, k, constants.cuts(k, splits))
    };
    let mut x = rng.tensor(dtype, ROWS_MAX * k);
    let mut w = rng.tensor(dtype, n * k);
    if odd && rng.below(2) == 0 {
        for _ in 0..3 {
            let special = [0x7fff, dtype.round(f32::INFINITY), dtype.round(f32::NEG_INFINITY)];
            let (i, j) = (rng.below(x.len()), rng.below(w.len()));
            x[i] = rng.pick(&special);
            w[j] = rng.pick(&special);
        }
    }
    // Large residuals next to small sums: an addition before the fold, or after r16, shows.
    let h = rng.floats(ROWS_MAX * n, 4096.0, 0);
    let cuts: Arc<[u32]> = cuts.into();
    let launch = |(rows, splits, _): (RowTile, Splits, &str)| GemmLaunch {
        rows,
        splits,
        cuts: Arc::clone(&cuts),
    };

    let host = &mut pair.host;
    let (host_x, host_w) = (host.upload(&x)?, host.upload_matrix(n, k, &w)?);
    let mut y = host.alloc_f32(ROWS_MAX * n)?;
    host.gemm(&launch(VARIANTS[2]), ROWS_MAX, &host_x, &host_w, GemmOutput::Store(&mut y))?;
    let y = host.read_f32(&y, ROWS_MAX * n)?;
    let mut digests_of = |m: usize, rows: &[f32]| -> Result<Vec<u64>, DeviceError> {
        let rows = host.upload_f32(rows)?;
        host.digest_rows(m, n, &rows)
    };

    let device = &mut pair.device;
    let (x, w) = (device.upload(&x)?, device.upload_matrix(n, k, &w)?);
    let mut out = device.alloc_f32(ROWS_MAX * n)?;
    let mut rounded = device.alloc_t16(ROWS_MAX * n)?;
    for variant in VARIANTS {
        let launch = launch(variant);
        let key = Key::new("gemm", variant.2, dtype);
        let counts: Vec<usize> =
            if every_row_count { (1..=ROWS_MAX).collect() } else { ROWS_SHORT.to_vec() };
        for m in counts {
            device.gemm(&launch, m, &x, &w, GemmOutput::Store(&mut out))?;
            let there = device.read_f32(&out, m * n)?;
            ledger.f32(&key, &y[..m * n], &there, || format!("{m} x {n} x {k}, cuts {cuts:?}"));
        }
        let m = 1 + rng.below(ROWS_MAX);
        let what = || format!("{m} x {n} x {k}, cuts {cuts:?}");
        device.gemm(&launch, m, &x, &w, GemmOutput::Round(&mut rounded))?;
        let there = device.read_t16(&rounded, m * n)?;
        let here: Vec<u16> = y[..m * n].iter().map(|y| dtype.round(*y)).collect();
        ledger.t16(&Key::new("gemm_round", variant.2, dtype), &here, &there, what);
        let unrounded = Key::new("gemm_unrounded", variant.2, dtype);
        ledger.log(&unrounded, &digests_of(m, &y[..m * n])?, &device.take_log()?, n, what);
        let mut residual = device.upload_f32(&h)?;
        device.gemm(&launch, m, &x, &w, GemmOutput::Residual(&mut residual))?;
        let there = device.read_f32(&residual, m * n)?;
        let here: Vec<f32> = h.iter().zip(&y[..m * n]).map(|(h, y)| h + y).collect();
        ledger.f32(&Key::new("gemm_residual", variant.2, dtype), &here, &there, what);
        ledger.log(&unrounded, &digests_of(m, &here)?, &device.take_log()?, n, what);
    }
    Ok(())
}
