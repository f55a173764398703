//! X1 of the attention: several sequences in a step, over a pool of shuffled blocks whose unwritten memory is NaN.
//!
//! K is stored through a table that rotates by nothing, so that it is what was drawn. V is finite: a step that
//! writes a V that is not makes its request undecided, and the contract says nothing of its rows.

use super::{Key, Ledger, Pair, Rng};
use crate::contract::rope::RopeTable;
use crate::contract::{Constants, Dtype};
use crate::device::{
    AttentionLaunch, Device, DeviceError, Heads, KvShape, Layout, Sequence, Splits,
};

/// Heads that go with a preset's constants.
fn heads_of(rng: &mut Rng, constants: Constants) -> Heads {
    match constants.tile {
        16 => rng.pick(&[Heads { q: 4, kv: 2, dim: 16 }, Heads { q: 3, kv: 3, dim: 16 }]),
        32 => rng.pick(&[Heads { q: 4, kv: 2, dim: 64 }, Heads { q: 9, kv: 3, dim: 64 }]),
        _ => rng.pick(&[
            Heads { q: 16, kv: 8, dim: 128 },
            Heads { q: 4, kv: 1, dim: 128 },
            Heads { q: 14, kv: 2, dim: 64 },
        ]),
    }
}

/// Sequences of (start, rows) with blocks in shuffled order, and the size of their pool.
pub(super) fn scatter(rng: &mut Rng, block_size: u32, spans: &[(u32, u32)]) -> (Layout, usize) {
    let needed = |(start, len): (u32, u32)| (start + len).div_ceil(block_size) as usize;
    let blocks = spans.iter().map(|s| needed(*s)).sum::<usize>() + 3;
    let mut free: Vec<u32> = (0..blocks as u32).collect();
    for i in (1..free.len()).rev() {
        free.swap(i, rng.below(i + 1));
    }
    let sequences = spans
        .iter()
        .map(|&(start, len)| Sequence {
            blocks: free.split_off(free.len() - needed((start, len))),
            start,
            len,
        })
        .collect();
    (Layout { block_size, sequences }, blocks)
}

/// Rotates by nothing.
pub(super) fn identity(dim: usize, positions: usize) -> RopeTable {
    let len = positions * dim / 2;
    RopeTable { head_dim: dim, positions, cos: vec![1.0; len], sin: vec![0.0; len] }
}

/// A start near a border of tiles or splits, or anywhere.
fn start_of(rng: &mut Rng, constants: Constants, most: u32) -> u32 {
    let border = match rng.below(4) {
        0 => 16,
        1 => constants.tile,
        2 => constants.split,
        _ => return rng.below(most as usize) as u32,
    };
    let at = border * rng.below((most / border) as usize + 1) as u32;
    (at + rng.below(3) as u32).saturating_sub(1).min(most - 1)
}

/// K, V and q rows of one sequence, as `[q;k;v]` rows from position 0 on.
fn rows_of(rng: &mut Rng, dtype: Dtype, heads: Heads, tile: u32, end: u32) -> Vec<u16> {
    let kind = rng.below(6);
    let scale = match kind {
        0 | 1 => 2.0,
        2 => 40.0,
        3 => 300.0,
        // Scores grow by 2^3 a tile: every tile rescales, and old sums underflow.
        4 => 0.01,
        _ => 1.0,
    };
    let special = (kind == 5 && rng.below(2) == 0).then(|| rng.below(end as usize));
    let mut rows = Vec::with_capacity(end as usize * heads.qkv_columns());
    for position in 0..end {
        let growth = if kind == 4 { 8_f32.powi((position / tile) as i32 % 9) } else { 1.0 };
        rows.extend(rng.ordinary(dtype, heads.q * heads.dim, if kind == 4 { 2.0 } else { scale }));
        rows.extend(rng.ordinary(dtype, heads.kv * heads.dim, scale * growth));
        let v = if kind == 4 {
            rng.wide(dtype, heads.kv * heads.dim)
        } else {
            rng.ordinary(dtype, heads.kv * heads.dim, 1.0)
        };
        let k = rows.len() - heads.kv * heads.dim;
        if special == Some(position as usize) {
            let value = rng.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
            rows[k + rng.below(heads.kv * heads.dim)] = dtype.round(value);
        }
        rows.extend(v);
    }
    rows
}

/// One step of several sequences.
pub(super) fn round<A: Device, B: Device>(
    pair: &mut Pair<A, B>,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    let contract = pair.host.contract();
    let (dtype, constants) = (contract.dtype, contract.constants);
    let heads = heads_of(rng, constants);
    let most = constants.split * 3 + constants.split / 2;
    let spans: Vec<(u32, u32)> = (0..1 + rng.below(5))
        .map(|_| {
            let len = rng.pick(&[1, 1, 1, 2, 5, 17, 33, constants.tile + 1]);
            (start_of(rng, constants, most), len)
        })
        .collect();
    let block_size = rng.pick(&[1, 3, 4, 16, 64]);
    let (layout, blocks) = scatter(rng, block_size, &spans);
    let shape = KvShape {
        layers: 2,
        blocks,
        block_size: block_size as usize,
        kv_heads: heads.kv,
        head_dim: heads.dim,
    };
    let texts: Vec<Vec<u16>> = spans
        .iter()
        .map(|(start, len)| rows_of(rng, dtype, heads, constants.tile, start + len))
        .collect();
    let step = Step { heads, layout: &layout, texts: &texts, shape };
    for (splits, name) in [(Splits::Walk, "walk"), (Splits::Parallel, "parallel")] {
        let split = constants.split;
        let launch = AttentionLaunch { splits, split };
        let a = step.run(&mut pair.host, launch)?;
        let b = step.run(&mut pair.device, launch)?;
        ledger.t16(&Key::new("attention", name, dtype), &a, &b, || {
            format!("{heads:?}, tile {}, blocks of {block_size}, {spans:?}", constants.tile)
        });
    }
    Ok(())
}

struct Step<'a> {
    heads: Heads,
    layout: &'a Layout,
    texts: &'a [Vec<u16>],
    shape: KvShape,
}

impl Step<'_> {
    /// Stores every position, then attends from the step's rows.
    fn run<D: Device>(
        &self,
        device: &mut D,
        launch: AttentionLaunch,
    ) -> Result<Vec<u16>, DeviceError> {
        let Heads { q, dim, .. } = self.heads;
        let columns = self.heads.qkv_columns();
        let ends = self.layout.sequences.iter().map(|s| s.start + s.len);
        let end = ends.max().unwrap_or(0) as usize;
        let rope = device.upload_rope(&identity(dim, end))?;
        let mut kv = device.alloc_kv(self.shape)?;
        for (s, text) in self.layout.sequences.iter().zip(self.texts) {
            if s.start == 0 {
                continue;
            }
            let before = Sequence { blocks: s.blocks.clone(), start: 0, len: s.start };
            let before = Layout { block_size: self.layout.block_size, sequences: vec![before] };
            let qkv = device.upload(&text[..s.start as usize * columns])?;
            let mut scratch = device.alloc_t16(s.start as usize * q * dim)?;
            let heads = self.heads;
            device.rope_and_store(1, heads, &before, &qkv, None, &rope, &mut scratch, &mut kv)?;
        }
        let mut qkv = Vec::new();
        for (s, text) in self.layout.sequences.iter().zip(self.texts) {
            qkv.extend_from_slice(&text[s.start as usize * columns..]);
        }
        let qkv = device.upload(&qkv)?;
        let len = self.layout.rows() * q * dim;
        let (mut scaled, mut out) = (device.alloc_t16(len)?, device.alloc_t16(len)?);
        let (heads, layout) = (self.heads, self.layout);
        device.rope_and_store(1, heads, layout, &qkv, None, &rope, &mut scaled, &mut kv)?;
        device.attention(launch, 1, heads, layout, &scaled, &kv, &mut out)?;
        device.read_t16(&out, len)
    }
}
