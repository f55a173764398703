//! Reversed folds: the partial sums of a split reduction are added from the last split to the first.
//!
//! The number of splits and their contents stay what they are, and depend on the request alone, so no schedule shows it.
//! Where there are two partial sums of a GEMM nothing changes: two summands commute.

use std::collections::BTreeSet;
use std::sync::Arc;

use lockstep::contract::matrix_unit::oracle;
use lockstep::contract::scalar::exp2;
use lockstep::contract::tree::tree8;
use lockstep::device::host::{Host, HostKv, HostMatrix};
use lockstep::device::{
    AttentionLaunch, Device, DeviceError, GemmLaunch, GemmOutput, Heads, Layout, RowTile, Splits,
};

use super::altered::Alteration;

type Done = Result<(), DeviceError>;

/// Leaves `y[m][w.n()]` where a GEMM of this launch leaves its result, and an entry of it in the log.
///
/// A GEMM of zeros adds +0 to each element: the device's log and counters see one launch, and the values are `y`.
pub(crate) fn put(
    device: &mut Host,
    launch: &GemmLaunch,
    m: usize,
    w: &HostMatrix,
    mut y: Vec<f32>,
    out: GemmOutput<'_, Host>,
) -> Done {
    let zeros = vec![0; m * w.k()];
    match out {
        GemmOutput::Round(rounded) => {
            let dtype = device.contract().dtype;
            rounded.iter_mut().zip(&y).for_each(|(t, y)| *t = dtype.round(*y));
            device.gemm(launch, m, &zeros, w, GemmOutput::Residual(&mut y))
        }
        GemmOutput::Residual(h) => {
            h.iter_mut().zip(&y).for_each(|(h, y)| *h += y);
            device.gemm(launch, m, &zeros, w, GemmOutput::Residual(h))
        }
        GemmOutput::Store(out) => {
            device.gemm(launch, m, &zeros, w, GemmOutput::Store(out))?;
            out[..y.len()].copy_from_slice(&y);
            Ok(())
        }
    }
}

/// Elements `from..to` of each of the m rows of x, zero elsewhere: of the partial sums only that of these elements is not
/// +0, so a GEMM gives that one alone.
pub(crate) fn only(x: &[u16], m: usize, k: usize, from: usize, to: usize) -> Vec<u16> {
    let mut part = vec![0; m * k];
    for (part, x) in part.chunks_exact_mut(k).zip(x.chunks_exact(k)) {
        let to = to.min(k);
        part[from.min(to)..to].copy_from_slice(&x[from.min(to)..to]);
    }
    part
}

/// GEMMs fold in descending order.
#[derive(Clone)]
pub(crate) struct ReversedGemm;

impl Alteration<Host> for ReversedGemm {
    fn gemm(
        &mut self,
        device: &mut Host,
        launch: &GemmLaunch,
        m: usize,
        x: &Vec<u16>,
        w: &HostMatrix,
        out: GemmOutput<'_, Host>,
    ) -> Done {
        let mut y = vec![0.0_f32; m * w.n()];
        let mut partial = y.clone();
        for cut in launch.cuts.windows(2).rev() {
            let part = only(x, m, w.k(), cut[0] as usize, cut[1] as usize);
            // An instance of its own: nothing of it is logged or counted.
            device.fresh().gemm(launch, m, &part, w, GemmOutput::Store(&mut partial))?;
            y.iter_mut().zip(&partial).for_each(|(y, p)| *y += p);
        }
        put(device, launch, m, w, y, out)
    }
}

/// Attention folds its splits from the last to the first.
#[derive(Clone)]
pub(crate) struct ReversedAttention {
    /// Otherwise as it should be: then this second implementation must give the device's bits.
    pub(crate) reversed: bool,
    watching: bool,
}

impl ReversedAttention {
    pub(crate) fn new(reversed: bool) -> ReversedAttention {
        ReversedAttention { reversed, watching: false }
    }
}

/// A row's state at the end of a split (docs/contract.md section 6).
struct Partial {
    m: f32,
    l: f32,
    acc: Vec<f32>,
}

/// K and V of a sequence up to a row's position, and the row's q of one head.
struct Row<'a> {
    q: &'a [u16],
    k: &'a [u16],
    v: &'a [u16],
    position: usize,
    heads: Heads,
    kv_head: usize,
}

impl Row<'_> {
    /// Elements of `pool` at a position; past the row's own, +0.
    fn of<'a>(&self, pool: &'a [u16], position: usize, zeros: &'a [u16]) -> &'a [u16] {
        if position > self.position {
            return zeros;
        }
        let at = (position * self.heads.kv + self.kv_head) * self.heads.dim;
        &pool[at..at + self.heads.dim]
    }

    fn partial(&self, device: &Host, positions: std::ops::Range<usize>) -> Partial {
        let contract = device.contract();
        let (unit, dtype) = (contract.matrix_unit, contract.dtype);
        let (dim, tile) = (self.heads.dim, contract.constants.tile as usize);
        let zeros = vec![0; dim];
        let (mut m, mut l, mut acc) = (-f32::MAX, [0.0_f32; 8], vec![0.0_f32; dim]);
        for start in positions.step_by(tile).take_while(|start| *start <= self.position) {
            let score = |i: usize| {
                if start + i > self.position {
                    return f32::NEG_INFINITY;
                }
                let k = self.of(self.k, start + i, &zeros);
                f32::from_bits(oracle::chain(unit, dtype, 0, self.q, k))
            };
            let scores: Vec<f32> = (0..tile).map(score).collect();
            let largest = scores.iter().fold(m, |a, s| a.max(*s));
            let alpha = exp2(m - largest);
            if alpha != 1.0 {
                acc.iter_mut().for_each(|a| *a = *a * alpha + 0.0);
                l.iter_mut().for_each(|l| *l *= alpha);
            }
            m = largest;
            let e: Vec<f32> = scores.iter().map(|s| exp2(s - m)).collect();
            e.iter().enumerate().for_each(|(i, e)| l[i % 8] += e);
            let p: Vec<u16> = e.iter().map(|e| dtype.round(*e)).collect();
            for (column, acc) in acc.iter_mut().enumerate() {
                let v: Vec<u16> =
                    (0..tile).map(|i| self.of(self.v, start + i, &zeros)[column]).collect();
                *acc = f32::from_bits(oracle::chain(unit, dtype, acc.to_bits(), &p, &v));
            }
        }
        Partial { m, l: tree8(&l), acc }
    }
}

/// O / L of the partials, folded in their order.
fn fold(partials: impl Iterator<Item = Partial>) -> Vec<f32> {
    let mut all = partials.filter(|p| p.l != 0.0);
    let Partial { mut m, mut l, acc: mut o } = all.next().expect("a row sees itself");
    for next in all {
        let largest = m.max(next.m);
        let (a, b) = (exp2(m - largest), exp2(next.m - largest));
        o.iter_mut().zip(&next.acc).for_each(|(o, acc)| *o = acc.mul_add(b, *o * a));
        l = next.l.mul_add(b, l * a);
        m = largest;
    }
    let inverse = 1.0 / l;
    o.iter().map(|o| o * inverse).collect()
}

impl Alteration<Host> for ReversedAttention {
    fn watch(&mut self, device: &mut Host, on: bool) {
        self.watching = on;
        device.watch(on);
    }

    fn attention(
        &mut self,
        device: &mut Host,
        launch: AttentionLaunch,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        q: &Vec<u16>,
        kv: &HostKv,
        out: &mut Vec<u16>,
    ) -> Done {
        let width = heads.q * heads.dim;
        let split = launch.split as usize;
        // Counted, but not logged.
        device.watch(false);
        device.attention(launch, layer, heads, layout, q, kv, out)?;
        device.watch(self.watching);
        // The values before they are rounded.
        let mut spare = device.fresh();
        spare.watch(true);
        spare.keep(&BTreeSet::from([0]));
        spare.attention(launch, layer, heads, layout, q, kv, out)?;
        let mut values = spare.take_log()?.remove(0).values.expect("they were asked for");
        let mut first = 0;
        for sequence in &layout.sequences {
            let end = sequence.start + sequence.len;
            let [k, v] = device.read_kv(layer, kv, &sequence.blocks, 0, end)?;
            for row in 0..sequence.len as usize {
                let position = sequence.start as usize + row;
                // Rows of a single split are as they are.
                if position < split {
                    continue;
                }
                let at = (first + row) * width;
                for head in 0..heads.q {
                    let columns = at + head * heads.dim..at + (head + 1) * heads.dim;
                    let kv_head = head / (heads.q / heads.kv);
                    let q = &q[columns.clone()];
                    let row = Row { q, k: &k, v: &v, position, heads, kv_head };
                    let partial = |j: usize| row.partial(device, j * split..(j + 1) * split);
                    let splits = 0..=position / split;
                    let folded = match self.reversed {
                        true => fold(splits.rev().map(partial)),
                        false => fold(splits.map(partial)),
                    };
                    values[columns].copy_from_slice(&folded);
                }
            }
            first += sequence.len as usize;
        }
        // An entry of these values, with a GEMM of their width.
        let zeros = device.upload_matrix(width, 16, &vec![0; width * 16])?;
        let cuts = Arc::from([0, 16]);
        let launch = GemmLaunch { rows: RowTile::Tiled, splits: Splits::Walk, cuts };
        put(device, &launch, layout.rows(), &zeros, values, GemmOutput::Round(out))
    }
}
