//! X1 of the operators on rows: embedding, norm, RoPE and the store, SwiGLU, digests.

use super::attention::scatter;
use super::{Key, Ledger, Pair, Rng};
use crate::contract::rope::{RopeScaling, RopeTable};
use crate::contract::tree::norm_lanes;
use crate::device::{Device, DeviceError, Heads, KvShape, NormLaunch, QkNorm};

pub(super) fn embed<A: Device, B: Device>(
    pair: &mut Pair<A, B>,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let dtype = pair.host.contract().dtype;
    let (vocab, hidden) = (1 + rng.below(300), 1 + rng.below(1200));
    let table = rng.patterns(vocab * hidden);
    let tokens: Vec<u32> = (0..1 + rng.below(130)).map(|_| rng.below(vocab) as u32).collect();
    let len = tokens.len() * hidden;
    let (a, b) = (
        pair.host.upload_matrix(vocab, hidden, &table)?,
        pair.device.upload_matrix(vocab, hidden, &table)?,
    );
    let (mut x, mut y) = (pair.host.alloc_f32(len)?, pair.device.alloc_f32(len)?);
    pair.host.embed(&a, &tokens, &mut x)?;
    pair.device.embed(&b, &tokens, &mut y)?;
    let (x, y) = (pair.host.read_f32(&x, len)?, pair.device.read_f32(&y, len)?);
    ledger.f32(&Key::new("embed", "", dtype), &x, &y, || format!("{vocab} x {hidden}"));
    Ok(())
}

pub(super) fn norm<A: Device, B: Device>(
    pair: &mut Pair<A, B>,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let dtype = pair.host.contract().dtype;
    let n = match rng.below(3) {
        0 => 1 + rng.below(2100),
        _ => rng.pick(&[64, 96, 256, 576, 1024, 1536, 2048, 4096, 1, 2, 33]),
    };
    let m = 1 + rng.below(60);
    let lanes = rng.pick(&[1, 1, 1, 2]);
    let lanes = (norm_lanes(n) / lanes).max(1);
    let eps = rng.pick(&[1e-6, 1e-5]);
    let scale = rng.pick(&[1.0, 100.0, 1e-20, 1e19]);
    let special = rng.pick(&[0, 0, 0, 5000]);
    let h = rng.floats(m * n, scale, special);
    let weight = rng.tensor(dtype, n);
    for (fused, name) in [(false, "plain"), (true, "fused")] {
        let launch = NormLaunch { lanes, fused };
        let (mut a, mut b) = (pair.host.alloc_t16(m * n)?, pair.device.alloc_t16(m * n)?);
        let (h_a, w_a) = (pair.host.upload_f32(&h)?, pair.host.upload(&weight)?);
        pair.host.rmsnorm(launch, m, n, &h_a, &w_a, eps, &mut a)?;
        let (h_b, w_b) = (pair.device.upload_f32(&h)?, pair.device.upload(&weight)?);
        pair.device.rmsnorm(launch, m, n, &h_b, &w_b, eps, &mut b)?;
        let (a, b) = (pair.host.read_t16(&a, m * n)?, pair.device.read_t16(&b, m * n)?);
        let what = || format!("{m} x {n}, {lanes} lanes, scale {scale}");
        ledger.t16(&Key::new("rmsnorm", name, dtype), &a, &b, what);
    }
    Ok(())
}

pub(super) fn swiglu<A: Device, B: Device>(
    pair: &mut Pair<A, B>,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let dtype = pair.host.contract().dtype;
    // Every gate there is, against random ups; or ordinary ones in odd shapes.
    let (m, f) =
        if rng.below(2) == 0 { (64, 1024) } else { (1 + rng.below(60), 1 + rng.below(3000)) };
    let mut gate_up = rng.tensor(dtype, m * 2 * f);
    if (m, f) == (64, 1024) {
        for (i, row) in gate_up.chunks_exact_mut(2 * f).enumerate() {
            for (j, gate) in row[..f].iter_mut().enumerate() {
                *gate = (i * f + j) as u16;
            }
        }
    } else {
        let scale = rng.pick(&[1.0, 20.0, 90.0]);
        gate_up = rng.ordinary(dtype, m * 2 * f, scale);
    }
    let (mut a, mut b) = (pair.host.alloc_t16(m * f)?, pair.device.alloc_t16(m * f)?);
    let there = pair.host.upload(&gate_up)?;
    pair.host.swiglu(m, f, &there, &mut a)?;
    let there = pair.device.upload(&gate_up)?;
    pair.device.swiglu(m, f, &there, &mut b)?;
    let (a, b) = (pair.host.read_t16(&a, m * f)?, pair.device.read_t16(&b, m * f)?);
    ledger.t16(&Key::new("swiglu", "", dtype), &a, &b, || format!("{m} x {f}"));
    Ok(())
}

pub(super) fn digests<A: Device, B: Device>(
    pair: &mut Pair<A, B>,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let dtype = pair.host.contract().dtype;
    let (m, n) = (1 + rng.below(40), 1 + rng.below(5000));
    let special = rng.pick(&[0, 3]);
    let x = rng.floats(m * n, 10.0, special);
    let there = pair.host.upload_f32(&x)?;
    let a = pair.host.digest_rows(m, n, &there)?;
    let there = pair.device.upload_f32(&x)?;
    let b = pair.device.digest_rows(m, n, &there)?;
    ledger.digests(&Key::new("digest_rows", "", dtype), &a, &b, n, || format!("{m} x {n}"));
    Ok(())
}

pub(super) fn rope<A: Device, B: Device>(
    pair: &mut Pair<A, B>,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let dtype = pair.host.contract().dtype;
    let heads = rng.pick(&[
        Heads { q: 4, kv: 2, dim: 16 },
        Heads { q: 9, kv: 3, dim: 64 },
        Heads { q: 16, kv: 8, dim: 128 },
        Heads { q: 3, kv: 1, dim: 48 },
    ]);
    let base = rng.pick(&[10000.0, 1e6]);
    let table = RopeTable::new(heads.dim, base, RopeScaling::None, 1500);
    let block_size = rng.pick(&[1, 3, 4, 16, 64]);
    let mut spans = Vec::new();
    for _ in 0..1 + rng.below(4) {
        spans.push((rng.below(1400) as u32, 1 + rng.below(40) as u32));
    }
    let (layout, blocks) = scatter(rng, block_size, &spans);
    let rows = layout.rows();
    let qkv = match rng.below(8) {
        0 => rng.patterns(rows * heads.qkv_columns()),
        _ => rng.tensor(dtype, rows * heads.qkv_columns()),
    };
    let weights = [rng.ordinary(dtype, heads.dim, 2.0), rng.ordinary(dtype, heads.dim, 2.0)];
    let shape = KvShape {
        layers: 2,
        blocks,
        block_size: block_size as usize,
        kv_heads: heads.kv,
        head_dim: heads.dim,
    };
    for (normed, name) in [(false, "plain"), (true, "qk_norm")] {
        let (q_a, kv_a) =
            store(&mut pair.host, heads, &layout, &qkv, normed, &weights, &table, shape)?;
        let (q_b, kv_b) =
            store(&mut pair.device, heads, &layout, &qkv, normed, &weights, &table, shape)?;
        let what = || format!("{heads:?}, blocks of {block_size}, {spans:?}");
        ledger.t16(&Key::new("rope_and_store", name, dtype), &q_a, &q_b, what);
        let width = 2 * heads.kv * heads.dim;
        ledger.digests(&Key::new("rope_and_store_kv", name, dtype), &kv_a, &kv_b, width / 2, what);
    }
    Ok(())
}

/// q', and the digests of what was stored.
#[allow(clippy::too_many_arguments)]
fn store<D: Device>(
    device: &mut D,
    heads: Heads,
    layout: &crate::device::Layout,
    qkv: &[u16],
    normed: bool,
    weights: &[Vec<u16>; 2],
    table: &RopeTable,
    shape: KvShape,
) -> Result<(Vec<u16>, Vec<u64>), DeviceError> {
    let len = layout.rows() * heads.q * heads.dim;
    let mut kv = device.alloc_kv(shape)?;
    let mut q = device.alloc_t16(len)?;
    let (qkv, rope) = (device.upload(qkv)?, device.upload_rope(table)?);
    let (q_weight, k_weight) = (device.upload(&weights[0])?, device.upload(&weights[1])?);
    let norm = normed.then_some(QkNorm { q: &q_weight, k: &k_weight, eps: 1e-6 });
    device.rope_and_store(1, heads, layout, &qkv, norm, &rope, &mut q, &mut kv)?;
    let mut digests = Vec::new();
    for s in &layout.sequences {
        let kv = device.digest_kv(1, &kv, &s.blocks, s.start, s.start + s.len)?;
        digests.extend(kv.iter().flat_map(|d| [d.k, d.v]));
    }
    Ok((device.read_t16(&q, len)?, digests))
}
