//! GEMM: every variant gives the contract's bits, and launches that cannot be honoured are refused.

use std::sync::Arc;

use super::*;
use crate::device::{RowTile, Splits};

const VARIANTS: [(RowTile, Splits); 4] = [
    (RowTile::Skinny, Splits::Walk),
    (RowTile::Skinny, Splits::Parallel),
    (RowTile::Tiled, Splits::Walk),
    (RowTile::Tiled, Splits::Parallel),
];

fn launch(variant: (RowTile, Splits), cuts: &[u32]) -> GemmLaunch {
    GemmLaunch { rows: variant.0, splits: variant.1, cuts: Arc::from(cuts) }
}

/// Runs every path and variant on one problem and compares `y` bit for bit.
fn check(dtype: Dtype, m: usize, n: usize, k: usize, cuts: &[u32], x: &[u16], w: &[u16]) {
    let y = bits(&reference::gemm(MatrixUnit::SM90, dtype, cuts, k, x, w));
    for mut host in hosts(dtype, Constants::TINY) {
        let matrix = host.upload_matrix(n, k, w).unwrap();
        for variant in VARIANTS {
            let mut out = host.alloc_f32(m * n).unwrap();
            let launch = launch(variant, cuts);
            host.gemm(&launch, m, &x.to_vec(), &matrix, GemmOutput::Store(&mut out)).unwrap();
            let path = host.path();
            assert!(bits(&out) == y, "{dtype:?} {m} x {n} x {k} {cuts:?} {path:?} {variant:?}");
        }
    }
}

/// The presets' shapes, with their own cuts, from one row to past every blocking in the code.
#[test]
fn every_variant_is_the_contracts_sum_on_the_presets_shapes() {
    let mut rng = Rng::new(1);
    for dtype in DTYPES {
        for (n, k) in [(128, 64), (64, 176), (264, 64)] {
            let cuts = Constants::TINY.cuts(k, Constants::TINY.splits(n, k));
            for m in [1, 2, 5, 9] {
                let (x, w) = (rng.ordinary(dtype, m * k, 2.0), rng.ordinary(dtype, n * k, 0.3));
                check(dtype, m, n, k, &cuts, &x, &w);
            }
        }
    }
}

/// Goal: matrices too large to stay decoded take another way in the skinny variants. Method: one such shape
/// with a last block that is not full, and splits that end inside a decoded stretch of K.
#[test]
fn every_variant_is_the_contracts_sum_on_a_matrix_that_is_not_resident() {
    let mut rng = Rng::new(5);
    let (m, n, k) = (3, 68, 600);
    for dtype in DTYPES {
        let (x, w) = (rng.ordinary(dtype, m * k, 2.0), rng.ordinary(dtype, n * k, 0.3));
        let host = Host::new(contract(dtype, Constants::TINY));
        assert!(host.upload_matrix(n, k, &w).unwrap().resident().is_none());
        assert!(host.upload_matrix(8, k, &w[..8 * k]).unwrap().resident().is_some());
        check(dtype, m, n, k, &[0, 112, 368, 608], &x, &w);
    }
}

/// Odd shapes (K and N that fill no group or panel), random cuts, empty splits included, and wide
/// magnitudes, zeros, subnormals, sometimes infinities and NaN.
#[test]
fn every_variant_is_the_contracts_sum_on_odd_shapes_and_hard_data() {
    let mut rng = Rng::new(2);
    for case in 0..60 {
        let dtype = DTYPES[case % 2];
        let (m, n, k) = (1 + rng.below(40), 1 + rng.below(45), 1 + rng.below(150));
        let units = k.div_ceil(16);
        let mut cuts: Vec<u32> =
            (0..rng.below(6)).map(|_| 16 * rng.below(units + 1) as u32).collect();
        cuts.extend([0, 16 * units as u32]);
        cuts.sort_unstable();
        let (mut x, mut w) = (rng.wide(dtype, m * k), rng.wide(dtype, n * k));
        if case % 3 == 0 {
            for _ in 0..3 {
                let special = [0x7fff, dtype.round(f32::INFINITY), dtype.round(-f32::INFINITY)];
                let (i, j) = (rng.below(m * k), rng.below(n * k));
                x[i] = special[rng.below(3)];
                w[j] = special[rng.below(3)];
            }
        }
        check(dtype, m, n, k, &cuts, &x, &w);
    }
}

/// The other unit of the literature, {8,24}, has fast paths of its own.
#[test]
fn another_matrix_unit_is_another_contract() {
    let mut rng = Rng::new(4);
    let (m, n, k, cuts) = (6, 24, 64, [0, 32, 64]);
    for dtype in DTYPES {
        let (x, w) = (rng.wide(dtype, m * k), rng.wide(dtype, n * k));
        let [sm80, sm90] = [MatrixUnit::SM80, MatrixUnit::SM90]
            .map(|unit| bits(&reference::gemm(unit, dtype, &cuts, k, &x, &w)));
        assert_ne!(sm80, sm90);
        for simd in Simd::all() {
            let contract =
                Contract { matrix_unit: MatrixUnit::SM80, ..contract(dtype, Constants::TINY) };
            let mut host = Host::with_path(contract, simd.path());
            let matrix = host.upload_matrix(n, k, &w).unwrap();
            for variant in VARIANTS {
                let mut y = host.alloc_f32(m * n).unwrap();
                let launch = launch(variant, &cuts);
                host.gemm(&launch, m, &x, &matrix, GemmOutput::Store(&mut y)).unwrap();
                assert_eq!(bits(&y), sm80, "{dtype:?} {simd:?} {variant:?}");
            }
        }
    }
}

/// r16 and the single residual add, against the stored f32.
#[test]
fn outputs_are_rounded_or_added_once_after_the_fold() {
    let mut rng = Rng::new(3);
    let (m, n, k) = (7, 20, 64);
    for dtype in DTYPES {
        let (x, w) = (rng.ordinary(dtype, m * k, 1.0), rng.ordinary(dtype, n * k, 1.0));
        let h = rng.units(m * n);
        for mut host in hosts(dtype, Constants::TINY) {
            let matrix = host.upload_matrix(n, k, &w).unwrap();
            for variant in VARIANTS {
                let launch = launch(variant, &[0, 16, 48, 64]);
                let mut y = host.alloc_f32(m * n).unwrap();
                host.gemm(&launch, m, &x, &matrix, GemmOutput::Store(&mut y)).unwrap();
                let mut rounded = host.alloc_t16(m * n).unwrap();
                host.gemm(&launch, m, &x, &matrix, GemmOutput::Round(&mut rounded)).unwrap();
                let mut sum = h.clone();
                host.gemm(&launch, m, &x, &matrix, GemmOutput::Residual(&mut sum)).unwrap();
                for i in 0..m * n {
                    assert_eq!(rounded[i], dtype.round(y[i]));
                    assert_eq!(sum[i].to_bits(), (h[i] + y[i]).to_bits());
                }
            }
            let counts = host.counts().unwrap();
            let variants = [
                counts.gemm_skinny_walk,
                counts.gemm_skinny_parallel,
                counts.gemm_tiled_walk,
                counts.gemm_tiled_parallel,
                counts.gemm_folds,
            ];
            assert_eq!(variants, [3, 3, 3, 3, 12]);
            assert_eq!(host.fresh().counts().unwrap(), VariantCounts::default());
        }
    }
}

#[test]
fn a_launch_that_cannot_be_honoured_is_refused() {
    let mut host = Host::new(contract(Dtype::Bf16, Constants::TINY));
    let (m, n, k) = (2, 8, 40);
    let matrix = host.upload_matrix(n, k, &vec![0; n * k]).unwrap();
    let x = vec![0; m * k];
    let mut run = |cuts: &[u32], x: &Vec<u16>, len: usize| {
        let launch = launch(VARIANTS[0], cuts);
        host.gemm(&launch, m, x, &matrix, GemmOutput::Store(&mut vec![0.0; len]))
    };
    assert!(run(&[0, 16, 48], &x, m * n).is_ok());
    for cuts in
        [&[][..], &[0], &[0, 16], &[0, 40], &[0, 64], &[16, 48], &[0, 32, 16, 48], &[0, 8, 48]]
    {
        assert!(matches!(run(cuts, &x, m * n), Err(DeviceError::Launch(_))), "{cuts:?}");
    }
    assert!(run(&[0, 48], &vec![0; m * k - 1], m * n).is_err());
    assert!(run(&[0, 48], &x, m * n - 1).is_err());
    assert!(host.upload_matrix(2, 2, &[0; 3]).is_err());
}
