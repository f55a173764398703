//! Partial results of split reductions, for reports: right after an operator, while its inputs are still in place, each of
//! its splits is computed once more, alone.
//!
//! They are computed by a fresh instance of the step's device, so neither its log nor its counters see them.

use std::collections::{BTreeMap, BTreeSet};

use crate::device::{AttentionLaunch, Device, DeviceError, GemmLaunch, Heads, Layout, Sequence};
use crate::record::CapturedSite;
use crate::record::sites::{Site, Stage};

/// What a step keeps in full, besides its digests.
pub(super) struct Keep<'c> {
    /// Sites.
    pub(super) sites: &'c BTreeSet<usize>,
    /// Whether launches and partial results are kept too.
    pub(super) parts: bool,
    /// Rows.
    pub(super) rows: Vec<usize>,
}

/// What was kept of a row, by site.
pub(super) type KeptSites = BTreeMap<usize, CapturedSite>;

/// Reads partial results during a step.
pub(super) struct Parts<'k> {
    keep: Option<&'k Keep<'k>>,
    /// By site and row.
    read: BTreeMap<(usize, usize), Vec<Vec<f32>>>,
}

impl<'k> Parts<'k> {
    pub(super) fn new(keep: Option<&'k Keep<'k>>) -> Parts<'k> {
        Parts { keep: keep.filter(|keep| keep.parts), read: BTreeMap::new() }
    }

    /// The partial results at a site, of a row.
    pub(super) fn take(&mut self, site: usize, row: usize) -> Vec<Vec<f32>> {
        self.read.remove(&(site, row)).unwrap_or_default()
    }

    /// Rows whose parts are wanted at a layer's site, and its number.
    fn wanted(&self, layer: usize, stage: Stage) -> Option<(usize, &'k [usize])> {
        let keep = self.keep?;
        let site = Site::in_layer(layer, stage)?;
        keep.sites.contains(&site).then_some((site, &keep.rows[..]))
    }

    /// The chains of a GEMM `[m][n]` that was just launched.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn gemm<D: Device>(
        &mut self,
        device: &D,
        (layer, stage): (usize, Stage),
        launch: &GemmLaunch,
        m: usize,
        n: usize,
        x: &D::T16,
        w: &D::Matrix,
    ) -> Result<(), DeviceError> {
        let Some((site, rows)) = self.wanted(layer, stage) else { return Ok(()) };
        let mut device = device.fresh();
        let mut y = device.alloc_f32(m * n)?;
        for split in 0..launch.cuts.len() - 1 {
            match device.gemm_split(launch, split, m, x, w, &mut y) {
                // A device that holds no numbers, or reads no partial results.
                Err(DeviceError::Launch(_)) => return Ok(()),
                done => done?,
            }
            for row in rows {
                let part = device.read_row(n, &y, *row)?;
                self.read.entry((site, *row)).or_default().push(part);
            }
        }
        Ok(())
    }

    /// The splits of an attention that was just launched.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn attention<D: Device>(
        &mut self,
        device: &D,
        layer: usize,
        launch: AttentionLaunch,
        heads: Heads,
        layout: &Layout,
        q: &D::T16,
        kv: &D::Kv,
    ) -> Result<(), DeviceError> {
        let Some((site, rows)) = self.wanted(layer, Stage::Attention) else { return Ok(()) };
        // A split that begins inside a block has no block table of its own.
        if !launch.split.is_multiple_of(layout.block_size) {
            return Ok(());
        }
        let width = heads.q * heads.dim;
        for row in rows {
            for split in 0.. {
                let Some(alone) = split_alone(layout, *row, launch.split, split) else { break };
                let mut device = device.fresh();
                device.watch(true);
                device.keep(&BTreeSet::from([0]));
                let mut out = device.alloc_t16(layout.rows() * width)?;
                device.attention(launch, layer, heads, &alone, q, kv, &mut out)?;
                let log = device.take_log()?;
                let values = log.into_iter().next().and_then(|entry| entry.values);
                let Some(values) = values else { return Ok(()) };
                let part = values[row * width..(row + 1) * width].to_vec();
                self.read.entry((site, *row)).or_default().push(part);
            }
        }
        Ok(())
    }
}

/// The layout with a row that sees one split of its positions alone; `None` if it has no such split. The other rows stay where
/// they are.
fn split_alone(layout: &Layout, row: usize, length: u32, split: u32) -> Option<Layout> {
    let mut sequences = Vec::with_capacity(layout.sequences.len() + 2);
    let mut first = 0;
    let mut found = false;
    for s in &layout.sequences {
        let end = first + s.len as usize;
        if !(first..end).contains(&row) {
            sequences.push(s.clone());
        } else {
            let before = (row - first) as u32;
            let position = s.start + before;
            let from = split * length;
            found = from <= position;
            if !found {
                return None;
            }
            let blocks = s.blocks[(from / layout.block_size) as usize..].to_vec();
            let last = position.min(from + length - 1);
            let piece = |start, len| Sequence { blocks: s.blocks.clone(), start, len };
            sequences.push(piece(s.start, before));
            sequences.push(Sequence { blocks, start: last - from, len: 1 });
            sequences.push(piece(position + 1, s.len - before - 1));
        }
        first = end;
    }
    sequences.retain(|s| s.len > 0);
    found.then_some(Layout { sequences, ..*layout })
}
