//! What only a real GPU can be asked: its matrix unit against the exact model, the scalar instructions that the
//! kernels rely on, controls that must differ, and the device's variants against each other in large numbers.

use std::sync::Arc;

use serde::Serialize;

use super::gemm::VARIANTS;
use super::{Key, Ledger, Rng};
use crate::contract::dtype::Dtype;
use crate::contract::matrix_unit::oracle;
use crate::contract::scalar::{exp2, log2};
use crate::contract::tree::norm_lanes;
use crate::contract::{Constants, MatrixUnit};
use crate::device::cuda::Cuda;
use crate::device::host::Host;
use crate::device::{
    AttentionLaunch, Device, DeviceError, GemmLaunch, GemmOutput, Heads, KvShape, Layout,
    NormLaunch, Sequence, Splits,
};

/// Elements of a probe's tile.
const TILE: usize = 128;

/// A control: something that must differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Control {
    /// What was done instead.
    pub name: String,
    /// Storage dtype.
    pub dtype: Dtype,
    /// Length of the chains.
    pub k: usize,
    /// Outputs compared.
    pub elements: u64,
    /// Outputs that differ.
    pub different: u64,
    /// Share that must differ at least.
    pub share_min: f64,
}

impl Control {
    /// Whether enough differs.
    pub fn is_caught(&self) -> bool {
        self.different as f64 >= self.share_min * self.elements as f64
    }
}

/// Single steps and chains of the matrix unit against the exact model, the points that were not measured before
/// among them.
pub fn matrix_unit(cuda: &mut Cuda, effort: u64) -> Result<Ledger, DeviceError> {
    let contract = cuda.contract().clone();
    let (unit, dtype) = (contract.matrix_unit, contract.dtype);
    let mut ledger = Ledger::default();
    let mut rng = Rng::new(90, u32::from(dtype == Dtype::F16));
    for (name, steps) in
        [("step", 1), ("chain16", 16), ("chain64", 64), ("chain256", 256), ("chain900", 900)]
    {
        let tiles = (effort as usize / (TILE * steps)).clamp(4, 4096);
        for (kind, wide) in [("", false), ("_wide", true)] {
            let tensor = |rng: &mut Rng, len: usize| {
                if wide { rng.wide(dtype, len) } else { rng.ordinary(dtype, len, 2.0) }
            };
            let (a, b) =
                (tensor(&mut rng, tiles * steps * 256), tensor(&mut rng, tiles * steps * 128));
            let c =
                if steps == 1 { rng.floats(tiles * TILE, 8.0, 0) } else { vec![0.0; tiles * TILE] };
            let key = Key::new("matrix_unit", &format!("{name}{kind}"), dtype);
            compare(cuda, unit, &key, steps, &a, &b, &c, &mut ledger)?;
        }
    }
    // Any bit patterns at all: infinities and NaN.
    let tiles = 256;
    let (a, b) = (rng.patterns(tiles * 256), rng.patterns(tiles * 128));
    let c = rng.floats(tiles * TILE, 1.0, 2);
    let key = Key::new("matrix_unit", "patterns", dtype);
    compare(cuda, unit, &key, 1, &a, &b, &c, &mut ledger)?;
    // Sums about FLT_MAX and 2^128.
    let (a, b, c) = overflow(&mut rng, dtype, tiles);
    let key = Key::new("matrix_unit", "about_2_to_128", dtype);
    compare(cuda, unit, &key, 1, &a, &b, &c, &mut ledger)?;
    // Zeros of both signs in every place.
    let one = dtype.round(1.0);
    for (name, c) in [("sixteen_minus_zeros", 0.0), ("seventeen_minus_zeros", -0.0)] {
        let (a, b) = (vec![0x8000; 256], vec![one; 128]);
        let key = Key::new("matrix_unit", name, dtype);
        compare(cuda, unit, &key, 1, &a, &b, &[c; TILE], &mut ledger)?;
    }
    let zeros = |rng: &mut Rng, len| (0..len).map(|_| rng.pick(&[0, 0x8000])).collect::<Vec<u16>>();
    let (a, b) = (zeros(&mut rng, tiles * 256), vec![one; tiles * 128]);
    let c: Vec<f32> = (0..tiles * TILE).map(|_| rng.pick(&[0.0, 1e-45, -1e-45, 3.0])).collect();
    let key = Key::new("matrix_unit", "zero_products", dtype);
    compare(cuda, unit, &key, 1, &a, &b, &c, &mut ledger)?;
    Ok(ledger)
}

/// Accumulators in the top binade, and products that reach it where the dtype has any.
fn overflow(rng: &mut Rng, dtype: Dtype, tiles: usize) -> (Vec<u16>, Vec<u16>, Vec<f32>) {
    let large = |rng: &mut Rng, len: usize, base: i32| -> Vec<u16> {
        (0..len)
            .map(|_| match rng.below(4) {
                0 => 0,
                _ => {
                    let x = (1.0 + rng.unit().abs()) * 2_f32.powi(base - rng.below(9) as i32);
                    dtype.round(if rng.below(3) == 0 { -x } else { x })
                }
            })
            .collect()
    };
    let base = if dtype == Dtype::F16 { 14 } else { 61 };
    let (a, b) = (large(rng, tiles * 256, base), large(rng, tiles * 128, base));
    let c =
        (0..tiles * TILE).map(|_| f32::from_bits(0x7f00_0000 | rng.draw() & 0x807f_ffff)).collect();
    (a, b, c)
}

#[allow(clippy::too_many_arguments)]
fn compare(
    cuda: &mut Cuda,
    unit: MatrixUnit,
    key: &Key,
    steps: usize,
    a: &[u16],
    b: &[u16],
    c: &[f32],
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let there = cuda.probe_chain(steps, a, b, c)?;
    let mut here = Vec::with_capacity(c.len());
    for (at, c) in c.iter().enumerate() {
        let (tile, row, column) = (at / TILE, at % TILE / 8, at % 8);
        let mut d = c.to_bits();
        for step in 0..steps {
            let first = tile * steps + step;
            let a = &a[first * 256 + row * 16..][..16];
            let b = &b[first * 128 + column * 16..][..16];
            d = oracle::chain(unit, key.dtype, d, a, b);
        }
        here.push(f32::from_bits(d));
    }
    ledger.f32(key, &here, &there, || format!("{steps} steps, 16 x 8 tiles"));
    Ok(())
}

/// The scalar instructions and functions: max.NaN, the conversions, x + 0, exp2, log2.
pub fn scalars(cuda: &mut Cuda, elements: u64) -> Result<Ledger, DeviceError> {
    let dtype = cuda.contract().dtype;
    let mut ledger = Ledger::default();
    let mut rng = Rng::new(91, 0);
    let specials = [
        0,
        0x8000_0000,
        1,
        0x8000_0001,
        0x007f_ffff,
        0x7f7f_ffff,
        0xff7f_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0xffc0_0000,
        0x7f80_0001,
        0xff80_0001,
        0x7fff_ffff,
        0xffff_ffff,
        0xc2fe_0000,
    ];
    let mut done = 0;
    while done < elements {
        let len = 1 << 20;
        // Any pattern; scores below zero; all about one.
        let mut x: Vec<f32> = (0..len)
            .map(|i| match i % 4 {
                0 | 1 => f32::from_bits(rng.draw()),
                2 => -rng.unit().abs() * 128.0,
                _ => f32::from_bits(0x3f00_0000 + rng.draw() % 0x0100_0000),
            })
            .collect();
        for (x, bits) in x.iter_mut().zip(specials) {
            *x = f32::from_bits(bits);
        }
        let there = cuda.probe_scalars(&x)?;
        let mut check = |name: &str, here: &dyn Fn(f32) -> f32, there: &[u32]| {
            let here: Vec<f32> = x.iter().map(|x| here(*x)).collect();
            let there: Vec<f32> = there.iter().map(|y| f32::from_bits(*y)).collect();
            ledger.f32(&Key::new("scalar", name, dtype), &here, &there, || "random f32".into());
        };
        let max = |x: f32| if x.is_nan() { f32::NAN } else { x.max(1.0) };
        check("max_nan_left", &max, &there.max[0]);
        check("max_nan_right", &max, &there.max[1]);
        check("plus_zero", &|x| x + 0.0, &there.plus_zero);
        check("exp2", &exp2, &there.exp2);
        check("log2", &log2, &there.log2);
        let here: Vec<u16> = x.iter().map(|x| dtype.round(*x)).collect();
        for (name, there) in ["r16", "r16_packed_low", "r16_packed_high"].iter().zip(&there.r16) {
            let there: Vec<u16> = there.iter().map(|y| *y as u16).collect();
            ledger.t16(&Key::new("scalar", name, dtype), &here, &there, || "random f32".into());
        }
        done += len as u64;
    }
    Ok(ledger)
}

/// Chains of f32 fma, and of k8 instructions, at K = 1024: both must differ from the contract.
pub fn controls(cuda: &mut Cuda) -> Result<Vec<Control>, DeviceError> {
    let contract = cuda.contract().clone();
    let dtype = contract.dtype;
    let (m, n, k) = (128, 512, 1024);
    let mut rng = Rng::new(92, 0);
    let (x, w) = (rng.ordinary(dtype, m * k, 2.0), rng.ordinary(dtype, n * k, 2.0));
    let mut host = Host::new(contract);
    let launch =
        GemmLaunch { rows: VARIANTS[2].0, splits: VARIANTS[2].1, cuts: Arc::from([0, k as u32]) };
    let (host_x, host_w) = (host.upload(&x)?, host.upload_matrix(n, k, &w)?);
    let mut y = host.alloc_f32(m * n)?;
    host.gemm(&launch, m, &host_x, &host_w, GemmOutput::Store(&mut y))?;
    let (x, w) = (cuda.upload(&x)?, cuda.upload_matrix(n, k, &w)?);
    let control = |name: &str, share_min: f64, there: Vec<f32>| Control {
        name: name.into(),
        dtype,
        k,
        elements: (m * n) as u64,
        different: y.iter().zip(&there).filter(|(a, b)| a.to_bits() != b.to_bits()).count() as u64,
        share_min,
    };
    Ok(vec![
        control("fma_chain", 0.90, cuda.control_fma(m, &x, &w)?),
        control("k8_chain", 0.75, cuda.control_k8(m, &x, &w)?),
    ])
}

/// The device's variants of GEMM and norm against each other, by digests of whole rows, until each comparison has
/// `elements`. The contract's constants change nothing here.
pub fn row_variants(cuda: &mut Cuda, elements: u64) -> Result<Ledger, DeviceError> {
    let mut rng = Rng::new(93, u32::from(cuda.contract().dtype == Dtype::F16));
    let (mut gemm, mut norm) = (Ledger::default(), Ledger::default());
    let mut round = 0;
    while gemm.fewest() < elements {
        gemm_variants(cuda, &mut rng, round, elements, &mut gemm)?;
        round += 1;
    }
    while norm.fewest() < elements {
        norm_variants(cuda, &mut rng, elements, &mut norm)?;
    }
    gemm.merge(norm);
    Ok(gemm)
}

/// The device's variants of the attention against each other, under the contract's constants.
pub fn attention_variants(cuda: &mut Cuda, elements: u64) -> Result<Ledger, DeviceError> {
    let mut rng = Rng::new(94, u32::from(cuda.contract().dtype == Dtype::F16));
    let mut ledger = Ledger::default();
    while ledger.fewest() < elements {
        attention_round(cuda, &mut rng, elements, &mut ledger)?;
    }
    Ok(ledger)
}

/// Rows of a run: fewer where little is asked for.
fn rows_for(elements: u64, width: usize, most: usize) -> usize {
    (elements as usize / width + 1).clamp(1, most)
}

fn gemm_variants(
    cuda: &mut Cuda,
    rng: &mut Rng,
    round: usize,
    elements: u64,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let dtype = cuda.contract().dtype;
    let (n, k) = [(6144, 1024), (1024, 2048), (4096, 1024), (1024, 3072)][round % 4];
    let m = rows_for(elements, n, 8192);
    let cuts: Arc<[u32]> = Constants::REAL.cuts(k, Constants::REAL.splits(n, k)).into();
    let (x, w) = (rng.tensor(dtype, m * k), rng.tensor(dtype, n * k));
    let (x, w) = (cuda.upload(&x)?, cuda.upload_matrix(n, k, &w)?);
    let mut y = cuda.alloc_f32(m * n)?;
    let mut first: Option<Vec<u64>> = None;
    for (rows, splits, name) in VARIANTS {
        let launch = GemmLaunch { rows, splits, cuts: Arc::clone(&cuts) };
        cuda.gemm(&launch, m, &x, &w, GemmOutput::Store(&mut y))?;
        let digests = cuda.digest_rows(m, n, &y)?;
        let Some(first) = &first else {
            first = Some(digests);
            continue;
        };
        let key = Key::new("device_gemm", &format!("skinny_walk_and_{name}"), dtype);
        ledger.digests(&key, first, &digests, n, || format!("{m} x {n} x {k}, cuts {cuts:?}"));
    }
    Ok(())
}

fn norm_variants(
    cuda: &mut Cuda,
    rng: &mut Rng,
    elements: u64,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let dtype = cuda.contract().dtype;
    let n = 1024;
    let m = rows_for(elements, n, 16384);
    let (h, weight) = (rng.floats(m * n, 4.0, 0), rng.tensor(dtype, n));
    let (h, weight) = (cuda.upload_f32(&h)?, cuda.upload(&weight)?);
    let mut x = cuda.alloc_t16(m * n)?;
    let mut digests = Vec::new();
    for fused in [false, true] {
        let launch = NormLaunch { lanes: norm_lanes(n), fused };
        cuda.rmsnorm(launch, m, n, &h, &weight, 1e-6, &mut x)?;
        digests.push(cuda.digest_rows16(m, n, &x)?);
    }
    let key = Key::new("device_rmsnorm", "plain_and_fused", dtype);
    ledger.digests(&key, &digests[0], &digests[1], n, || format!("{m} x {n}"));
    Ok(())
}

/// Whole sequences in one step.
fn attention_round(
    cuda: &mut Cuda,
    rng: &mut Rng,
    elements: u64,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let contract = cuda.contract();
    let (dtype, constants) = (contract.dtype, contract.constants);
    // As many sequences as leave the workspace of parallel splits below a gigabyte.
    let (heads, most) = match constants.tile {
        16 => (Heads { q: 4, kv: 2, dim: 16 }, 64),
        32 => (Heads { q: 9, kv: 3, dim: 64 }, 32),
        _ => (Heads { q: 16, kv: 8, dim: 128 }, 8),
    };
    let width = heads.q * heads.dim;
    let len = 1024;
    let sequences = rows_for(elements, len * width, most);
    let blocks = sequences * len / 16;
    let layout = Layout {
        block_size: 16,
        sequences: (0..sequences)
            .map(|s| Sequence {
                blocks: (0..len / 16).map(|b| (b * sequences + s) as u32).collect(),
                start: 0,
                len: len as u32,
            })
            .collect(),
    };
    let rows = layout.rows();
    let shape =
        KvShape { layers: 1, blocks, block_size: 16, kv_heads: heads.kv, head_dim: heads.dim };
    let table = super::attention::identity(heads.dim, len);
    let qkv = rng.ordinary(dtype, rows * heads.qkv_columns(), 2.0);
    let (rope, qkv) = (cuda.upload_rope(&table)?, cuda.upload(&qkv)?);
    let mut kv = cuda.alloc_kv(shape)?;
    let (mut q, mut out) = (cuda.alloc_t16(rows * width)?, cuda.alloc_t16(rows * width)?);
    cuda.rope_and_store(0, heads, &layout, &qkv, None, &rope, &mut q, &mut kv)?;
    let mut digests = Vec::new();
    for splits in [Splits::Walk, Splits::Parallel] {
        let launch = AttentionLaunch { splits, split: constants.split };
        cuda.attention(launch, 0, heads, &layout, &q, &kv, &mut out)?;
        digests.push(cuda.digest_rows16(rows, width, &out)?);
    }
    let key = Key::new("device_attention", "walk_and_parallel", dtype);
    ledger.digests(&key, &digests[0], &digests[1], width, || format!("{rows} rows, {heads:?}"));
    Ok(())
}
