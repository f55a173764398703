//! Time of each host operator at the shapes of the `tiny` preset, one layer's worth: where a fuzzing
//! campaign's time goes.
//!
//! `cargo bench --bench host_operators`. `m` rows are `m` sequences that each decode one token at position
//! 40, or (`prefill`) one sequence of `m` rows.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use lockstep::contract::rope::{RopeScaling, RopeTable};
use lockstep::contract::sampler::SamplerParams;
use lockstep::contract::{Constants, Contract, Dtype, MatrixUnit, VERSION};
use lockstep::device::host::{Host, HostKv};
use lockstep::device::{
    AttentionLaunch, Device, Heads, KvShape, Layout, NormLaunch, SampleRow, Sequence, Splits,
};

const HEADS: Heads = Heads { q: 4, kv: 2, dim: 16 };
const HIDDEN: usize = 64;
const FFN: usize = 176;
const VOCAB: usize = 264;
const POSITION: usize = 40;

/// Reproducible values in [-1, 1).
fn floats(len: usize) -> Vec<f32> {
    let mut state = 12345_u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            state as i32 as f32 / 2147483648.0
        })
        .collect()
}

fn values(len: usize) -> Vec<u16> {
    floats(len).into_iter().map(|x| Dtype::Bf16.round(x)).collect()
}

fn pool(host: &Host, blocks: usize) -> HostKv {
    let shape = KvShape { layers: 2, blocks, block_size: 4, kv_heads: 2, head_dim: 16 };
    host.alloc_kv(shape).expect("a pool")
}

/// `m` decoding sequences, or one prompt of `m` rows.
fn layout(m: usize, prefill: bool) -> Layout {
    let sequences = if prefill {
        vec![Sequence { blocks: (0..m.div_ceil(4) as u32).collect(), start: 0, len: m as u32 }]
    } else {
        let table = |i: usize| (0..11).map(|b| (i * 11 + b) as u32).collect();
        (0..m).map(|i| Sequence { blocks: table(i), start: POSITION as u32, len: 1 }).collect()
    };
    Layout { block_size: 4, sequences }
}

fn operators(c: &mut Criterion) {
    let contract = Contract {
        version: VERSION,
        dtype: Dtype::Bf16,
        matrix_unit: MatrixUnit::SM90,
        constants: Constants::TINY,
        rope_sha256: String::new(),
    };
    let mut host = Host::new(contract);
    let rope = RopeTable::new(16, 10000.0, RopeScaling::None, 256);
    c.bench_function("fresh", |b| b.iter(|| host.fresh()));
    for (m, prefill) in [(1, false), (8, false), (40, false), (40, true)] {
        let kind = if prefill { "prefill" } else { "decode" };
        let name = |operator: &str| format!("tiny {kind} m={m} {operator}");
        let layout = layout(m, prefill);
        let mut kv = pool(&host, m * 11);
        let h = floats(m * HIDDEN);
        let mut x = values(m * HIDDEN);
        let weight = values(HIDDEN);
        let norm = NormLaunch { lanes: 64, fused: false };
        c.bench_function(&name("rmsnorm"), |b| {
            b.iter(|| host.rmsnorm(norm, m, HIDDEN, &h, &weight, 1e-5, &mut x).expect("a launch"));
        });
        let qkv = values(m * HEADS.qkv_columns());
        let mut q = values(m * HIDDEN);
        c.bench_function(&name("rope_and_store"), |b| {
            b.iter(|| {
                host.rope_and_store(0, HEADS, &layout, &qkv, None, &rope, &mut q, &mut kv)
                    .expect("a launch");
            });
        });
        for sequence in &layout.sequences {
            // Every earlier position, so that attention meets numbers.
            let rows = sequence.start + sequence.len;
            let whole = Sequence { blocks: sequence.blocks.clone(), start: 0, len: rows };
            let layout = Layout { block_size: 4, sequences: vec![whole] };
            let qkv = values(rows as usize * HEADS.qkv_columns());
            let mut q = values(rows as usize * HIDDEN);
            host.rope_and_store(0, HEADS, &layout, &qkv, None, &rope, &mut q, &mut kv)
                .expect("a launch");
        }
        let mut out = values(m * HIDDEN);
        for splits in [Splits::Walk, Splits::Parallel] {
            let launch = AttentionLaunch { splits, split: 32 };
            c.bench_function(&name(&format!("attention {splits:?}")), |b| {
                b.iter(|| {
                    host.attention(launch, 0, HEADS, &layout, &q, &kv, &mut out).expect("a launch");
                });
            });
        }
        let gate_up = values(m * 2 * FFN);
        let mut z = values(m * FFN);
        c.bench_function(&name("swiglu"), |b| {
            b.iter(|| host.swiglu(m, FFN, &gate_up, &mut z).expect("a launch"));
        });
        let logits = floats(m * VOCAB);
        c.bench_function(&name("digest_rows logits"), |b| {
            b.iter(|| host.digest_rows(m, VOCAB, &logits).expect("a launch"));
        });
        c.bench_function(&name("digest_kv"), |b| {
            b.iter(|| {
                for s in &layout.sequences {
                    let end = s.start + s.len;
                    host.digest_kv(0, &kv, &s.blocks, s.start, end).expect("a launch");
                }
            });
        });
        let rows: Vec<u32> = (0..m as u32).collect();
        c.bench_function(&name("logprobs"), |b| {
            b.iter(|| host.logprobs(VOCAB, &logits, &rows, &rows).expect("a launch"));
        });
        for temperature in [0.0, 1.0] {
            let params = SamplerParams { temperature, top_p: 0.9, ..SamplerParams::default() };
            let row = |row| SampleRow { row, params, seen: vec![], key: [1, 2], position: 7 };
            let rows: Vec<SampleRow> = rows.iter().map(|r| row(*r)).collect();
            c.bench_function(&name(&format!("sample T={temperature}")), |b| {
                b.iter_batched(
                    || (),
                    |()| host.sample(VOCAB, &logits, &rows).expect("a launch"),
                    BatchSize::SmallInput,
                );
            });
        }
    }
}

criterion_group! {
    name = host_operators;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_secs(1))
        .sample_size(20);
    targets = operators
}
criterion_main!(host_operators);
