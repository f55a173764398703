//! Multiply-adds per second of the host's GEMM, as the engine runs it, on one core.
//!
//! `cargo bench --bench matrix_unit`. K = N = 1024 is the shape of a small real layer; the `tiny` shapes are
//! those that a fuzzing campaign spends its time on.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lockstep::contract::{Constants, Contract, Dtype, MatrixUnit, SimdPath, VERSION};
use lockstep::device::host::Host;
use lockstep::device::{Device, GemmLaunch, GemmOutput, RowTile, Splits};

/// Reproducible values in [-1, 1).
fn values(dtype: Dtype, len: usize) -> Vec<u16> {
    let mut state = 12345_u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            dtype.round(state as i32 as f32 / 2147483648.0)
        })
        .collect()
}

struct Shape {
    name: &'static str,
    m: usize,
    n: usize,
    k: usize,
    constants: Constants,
}

const SHAPES: [Shape; 9] = [
    Shape { name: "1024", m: 1, n: 1024, k: 1024, constants: Constants::SMALL },
    Shape { name: "1024", m: 8, n: 1024, k: 1024, constants: Constants::SMALL },
    Shape { name: "1024", m: 64, n: 1024, k: 1024, constants: Constants::SMALL },
    Shape { name: "tiny qkv", m: 1, n: 128, k: 64, constants: Constants::TINY },
    Shape { name: "tiny qkv", m: 4, n: 128, k: 64, constants: Constants::TINY },
    Shape { name: "tiny gate_up", m: 4, n: 352, k: 64, constants: Constants::TINY },
    Shape { name: "tiny gate_up", m: 40, n: 352, k: 64, constants: Constants::TINY },
    Shape { name: "tiny down", m: 1, n: 64, k: 176, constants: Constants::TINY },
    Shape { name: "tiny down", m: 40, n: 64, k: 176, constants: Constants::TINY },
];

fn gemm(c: &mut Criterion, path: SimdPath, dtype: Dtype, rows: RowTile, splits: Splits) {
    let mut group =
        c.benchmark_group(format!("gemm {} {path:?} {rows:?} {splits:?}", dtype.name()));
    for Shape { name, m, n, k, constants } in SHAPES {
        let contract = Contract {
            version: VERSION,
            dtype,
            matrix_unit: MatrixUnit::SM90,
            constants,
            rope_sha256: String::new(),
        };
        let mut host = Host::with_path(contract, path);
        let x = values(dtype, m * k);
        let w = host.upload_matrix(n, k, &values(dtype, n * k)).expect("a matrix");
        let cuts = constants.cuts(k, constants.splits(n, k)).into();
        let launch = GemmLaunch { rows, splits, cuts };
        let mut y = vec![0.0; m * n];
        group.throughput(Throughput::Elements((m * n * k) as u64));
        group.bench_function(BenchmarkId::new(name, format!("m={m}")), |b| {
            b.iter(|| host.gemm(&launch, m, &x, &w, GemmOutput::Store(&mut y)).expect("a launch"));
        });
    }
    group.finish();
}

fn benches(c: &mut Criterion) {
    for dtype in [Dtype::F16, Dtype::Bf16] {
        for rows in [RowTile::Skinny, RowTile::Tiled] {
            gemm(c, SimdPath::Auto, dtype, rows, Splits::Walk);
        }
    }
    gemm(c, SimdPath::Auto, Dtype::Bf16, RowTile::Skinny, Splits::Parallel);
    gemm(c, SimdPath::Portable, Dtype::Bf16, RowTile::Skinny, Splits::Walk);
}

criterion_group! {
    name = matrix_unit;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_secs(1))
        .sample_size(20);
    targets = benches
}
criterion_main!(matrix_unit);
