//! Attention over the paged KV pool (docs/contract.md section 6).
//!
//! One (sequence, kv head) at a time: its query rows are decoded once; each K and V tile is gathered through
//! the block table and decoded once, then used by every row (GQA heads included) that can see it. A row's
//! running state lives in [`State`] for the length of a split. Walk folds a split into the row's output as
//! soon as it ends; Parallel parks it in a workspace and folds in a second pass.

use super::round::round;
use super::{DeviceError, Heads, Host, HostKv, Layout, require, require_len};
use crate::contract::Dtype;
use crate::contract::digest::Sums;
use crate::contract::dtype::{Format, with_format};
use crate::contract::matrix_unit::{COLUMNS, Decoded, GROUP, Job, Unit};
use crate::contract::simd::Simd;
use crate::device::{AttentionLaunch, Sequence, Splits};

mod fold;
mod gather;
mod softmax;

use fold::{Fold, Partial};
use softmax::Softmax;

/// Operands of [`super::Device::attention`].
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) layer: usize,
    pub(super) heads: Heads,
    pub(super) layout: &'a Layout,
    pub(super) q: &'a [u16],
    pub(super) kv: &'a HostKv,
}

/// Buffers of an attention, reused from launch to launch.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Query rows of one kv head.
    q_bits: Vec<u16>,
    q: Decoded,
    /// First pool element of each written position of the sequence.
    offsets: Vec<usize>,
    zeros: Vec<u16>,
    /// A tile, as panels.
    tile_bits: Vec<u16>,
    k: Decoded,
    v: Decoded,
    /// Probabilities of the rows of a tile, `[row][tile]`.
    e: Vec<f32>,
    p_bits: Vec<u16>,
    p: Decoded,
    jobs: Vec<Job>,
    /// Scores of the rows of a tile, `[row][tile]`.
    scores: Vec<[f32; COLUMNS]>,
    state: State,
    /// Parked splits, `[split][row]`, and their accumulators.
    parked: Vec<Partial>,
    parked_acc: Vec<f32>,
    folds: Vec<Fold>,
    /// Folded outputs, `[row][dim]`.
    output: Vec<f32>,
}

/// What the log gets of a sequence's rows: digests in the making, none while it is off, and their values if they are kept.
struct Seen<'a> {
    sums: &'a mut [Sums],
    kept: Option<&'a mut [f32]>,
}

/// Running state of a split: one entry per query row.
#[derive(Debug, Default)]
struct State {
    partial: Vec<Partial>,
    /// `[row][dim]`.
    acc: Vec<[f32; COLUMNS]>,
}

impl State {
    fn reset(&mut self, rows: usize, dim: usize) {
        self.partial.clear();
        self.partial.resize(rows, Partial::START);
        self.acc.clear();
        self.acc.resize(rows * dim / COLUMNS, [0.0; COLUMNS]);
    }
}

/// What stays the same for all tiles of a (sequence, kv head).
struct Head<'a> {
    task: Task<'a>,
    sequence: &'a Sequence,
    kv_head: usize,
    /// Query heads per kv head.
    group: usize,
    tile: usize,
    unit: Unit,
    simd: Simd,
    dtype: Dtype,
}

impl Head<'_> {
    /// Position of a query row: `group` rows share one.
    fn position(&self, row: usize) -> usize {
        self.sequence.start as usize + row / self.group
    }

    /// Positions written so far.
    fn written(&self) -> usize {
        self.sequence.start as usize + self.sequence.len as usize
    }

    fn rows(&self) -> usize {
        self.sequence.len as usize * self.group
    }

    /// First query row that sees `position`.
    fn first_row(&self, position: usize) -> usize {
        position.saturating_sub(self.sequence.start as usize) * self.group
    }
}

impl Host {
    /// See [`super::Device::attention`].
    pub(super) fn attend(
        &mut self,
        launch: AttentionLaunch,
        task: Task<'_>,
        out: &mut [u16],
    ) -> Result<(), DeviceError> {
        let Task { layer, heads, layout, q, kv } = task;
        let tile = self.contract.constants.tile as usize;
        let split = launch.split as usize;
        super::rope::check_layout("attention", layer, heads, layout, kv)?;
        require(
            tile > 0 && tile.is_multiple_of(GROUP) && split > 0 && split.is_multiple_of(tile),
            || format!("attention: splits of {split} positions over tiles of {tile}"),
        )?;
        let width = heads.q * heads.dim;
        require_len("attention", "q", q.len(), layout.rows() * width)?;
        require_len("attention", "out", out.len(), layout.rows() * width)?;
        match launch.splits {
            Splits::Walk => self.counts.attention_walk += 1,
            Splits::Parallel => self.counts.attention_parallel += 1,
        }
        let logged = if self.log.is_on() { layout.rows() } else { 0 };
        let mut sums = vec![Sums::default(); logged];
        let mut kept = self.log.keeps_next().then(|| vec![f32::NAN; logged * width]);
        let mut first = 0;
        for sequence in &layout.sequences {
            let rows = sequence.len as usize;
            if !(sequence.start as usize).is_multiple_of(tile) {
                self.counts.attention_tile_before_chunk += 1;
            }
            let offsets = &mut self.attention.offsets;
            offsets.clear();
            let written = sequence.start as usize + rows;
            kv.each_row(layer, &sequence.blocks, written, |at| offsets.push(at));
            for kv_head in 0..heads.kv {
                let head = Head {
                    task: Task { q: &q[first * width..(first + rows) * width], ..task },
                    sequence,
                    kv_head,
                    group: heads.q / heads.kv,
                    tile,
                    unit: self.unit,
                    simd: self.simd,
                    dtype: self.contract.dtype,
                };
                let scratch = &mut self.attention;
                let folds = scratch.run(&head, split, launch.splits);
                self.counts.attention_folds += folds;
                let range = first * width..(first + rows) * width;
                let seen = Seen {
                    sums: sums.get_mut(first..first + rows).unwrap_or_default(),
                    kept: kept.as_mut().map(|kept| &mut kept[range.clone()]),
                };
                scratch.store(&head, &mut out[range], seen);
            }
            first += rows;
        }
        self.log.sums(width, &sums, kept);
        Ok(())
    }
}

impl Scratch {
    /// Leaves every row's folded output; returns how many rows merged two or more kept splits.
    fn run(&mut self, head: &Head<'_>, split: usize, splits: Splits) -> u64 {
        let rows = head.rows();
        let dim = head.task.heads.dim;
        self.load_q(head);
        self.folds.clear();
        self.folds.resize(rows, Fold::START);
        self.output.clear();
        self.output.resize(rows * dim, 0.0);
        self.parked.clear();
        self.parked_acc.clear();
        let count = head.written().div_ceil(split);
        for j in 0..count {
            let first = head.first_row(j * split);
            self.state.reset(rows, dim);
            let end = ((j + 1) * split).min(head.written());
            for start in (j * split..end).step_by(head.tile) {
                self.walk_tile(head, start);
            }
            match splits {
                Splits::Walk => {
                    let acc = self.state.acc.as_flattened();
                    for row in first..rows {
                        let acc = &acc[row * dim..(row + 1) * dim];
                        let out = &mut self.output[row * dim..(row + 1) * dim];
                        self.folds[row].add(head.simd, &self.state.partial[row], acc, out);
                    }
                }
                Splits::Parallel => {
                    self.parked.extend_from_slice(&self.state.partial);
                    self.parked_acc.extend_from_slice(self.state.acc.as_flattened());
                }
            }
        }
        if splits == Splits::Parallel {
            for row in 0..rows {
                for j in 0..=head.position(row) / split {
                    let at = j * rows + row;
                    let acc = &self.parked_acc[at * dim..(at + 1) * dim];
                    let out = &mut self.output[row * dim..(row + 1) * dim];
                    self.folds[row].add(head.simd, &self.parked[at], acc, out);
                }
            }
        }
        self.folds.iter().filter(|f| f.kept > 1).count() as u64
    }

    /// Decodes the query rows, `[position][head of the group][dim]`.
    fn load_q(&mut self, head: &Head<'_>) {
        let Heads { q, dim, .. } = head.task.heads;
        let len = head.rows() * dim;
        self.q_bits.clear();
        for row in head.task.q.chunks_exact(q * dim) {
            self.q_bits
                .extend_from_slice(&row[head.kv_head * head.group * dim..][..head.group * dim]);
        }
        self.q.reserve(len);
        let (values, exponents) = self.q.slots(0..len);
        head.unit.decode_rows(&self.q_bits, values, exponents);
    }

    /// Advances every row that sees the tile at `start`.
    fn walk_tile(&mut self, head: &Head<'_>, start: usize) {
        let dim = head.task.heads.dim;
        let (tile, rows) = (head.tile, head.rows());
        let first = head.first_row(start);
        let v_finite = self.load_tile(head, start);

        // Scores: a panel past the row's position is masked as a whole and need not be computed.
        let panels = tile / COLUMNS;
        let seen = rows - first;
        self.scores.clear();
        self.scores.resize(seen * panels, [0.0; COLUMNS]);
        let visible = panels.min((head.written() - start).div_ceil(COLUMNS));
        grid(&mut self.jobs, first..rows, dim, visible, dim * COLUMNS);
        let scores = &mut self.scores[..seen * visible];
        head.unit.chains(dim / GROUP, self.q.operand(), self.k.operand(), &self.jobs, scores);

        if self.p_bits.len() < seen * tile {
            self.p_bits.resize(seen * tile, 0);
            self.e.resize(seen * tile, 0.0);
        }
        let (e, p_bits) = (&mut self.e[..seen * tile], &mut self.p_bits[..seen * tile]);
        head.simd.run(Softmax::new(
            softmax::Rows {
                scores: &self.scores,
                width: visible * COLUMNS,
                tile,
                start,
                position: head.position(first),
                group: head.group,
            },
            &mut self.state.partial[first..],
            &mut self.state.acc[first * dim / COLUMNS..],
            e,
        ));
        round(head.simd, head.dtype, e, p_bits);
        self.p.reserve(seen * tile);
        let (values, exponents) = self.p.slots(0..seen * tile);
        head.unit.decode_rows(p_bits, values, exponents);

        // acc = chain over the position groups. A group that is masked as a whole changes nothing, provided
        // that V is finite there.
        let columns = dim / COLUMNS;
        let groups = |row: usize| {
            let visible = (head.position(row) - start) / GROUP + 1;
            if v_finite { visible.min(tile / GROUP) } else { tile / GROUP }
        };
        let mut row = first;
        while row < rows {
            let count = groups(row);
            let mut end = row + 1;
            while end < rows && groups(end) == count {
                end += 1;
            }
            grid(&mut self.jobs, row - first..end - first, tile, columns, tile * COLUMNS);
            let acc = &mut self.state.acc[row * columns..end * columns];
            head.unit.chains(count, self.p.operand(), self.v.operand(), &self.jobs, acc);
            row = end;
        }
    }

    /// Gathers and decodes the K and V tile at `start`; returns whether V is finite.
    fn load_tile(&mut self, head: &Head<'_>, start: usize) -> bool {
        let dim = head.task.heads.dim;
        let len = dim * head.tile;
        if self.tile_bits.len() < len {
            self.tile_bits.resize(len, 0);
        }
        if self.zeros.len() < dim {
            self.zeros.resize(dim, 0);
        }
        let offsets = &self.offsets;
        let source = |pool| gather::Source {
            pool,
            offsets,
            before: head.kv_head * dim,
            dim,
            positions: start..start + head.tile,
        };
        let bits = &mut self.tile_bits[..len];
        gather::keys(&head.unit, &source(head.task.kv.k()), &self.zeros, bits);
        self.k.reserve(len);
        let (values, exponents) = self.k.slots(0..len);
        head.unit.decode_panel(bits, values, exponents);

        gather::values(&source(head.task.kv.v()), bits);
        self.v.reserve(len);
        let (values, exponents) = self.v.slots(0..len);
        head.unit.decode_panel(bits, values, exponents);
        // One group per tile is never masked as a whole.
        head.tile > GROUP && with_format!(head.dtype, F => finite::<F>(bits))
    }

    /// Ends the rows, and writes them to `out[m][q*dim]` and to the log.
    fn store(&mut self, head: &Head<'_>, out: &mut [u16], mut seen: Seen<'_>) {
        let Heads { q, dim, .. } = head.task.heads;
        for (row, fold) in self.folds.iter().enumerate() {
            let place = row / head.group;
            let column = (head.kv_head * head.group + row % head.group) * dim;
            let y = &mut self.output[row * dim..(row + 1) * dim];
            head.simd.run(fold::Finish { fold, out: y });
            let at = place * q * dim + column;
            if let Some(sums) = seen.sums.get_mut(place) {
                sums.add_columns(head.simd, y, column as u32);
            }
            if let Some(kept) = &mut seen.kept {
                kept[at..at + dim].copy_from_slice(y);
            }
            round(head.simd, head.dtype, y, &mut out[at..at + dim]);
        }
    }
}

/// A job per row and panel, rows outermost.
fn grid(
    jobs: &mut Vec<Job>,
    rows: std::ops::Range<usize>,
    row_len: usize,
    panels: usize,
    panel_len: usize,
) {
    jobs.clear();
    for row in rows {
        for panel in 0..panels {
            jobs.push(Job { row: (row * row_len) as u32, panel: (panel * panel_len) as u32 });
        }
    }
}

fn finite<F: Format>(bits: &[u16]) -> bool {
    bits.iter().fold(0, |max, b| (b & 0x7fff).max(max)) < F::FIELD_MAX << F::MANTISSA
}
