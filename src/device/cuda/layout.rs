//! The rows of a step on the device: positions, slots, block tables, and the work list of an attention.
//!
//! A layout comes with every attention and every store of a step; it is uploaded once and kept while it stays the
//! same.

use std::collections::BTreeMap;

use super::context::{Buffer, Context};
use crate::device::{DeviceError, Layout};

/// Packed rows (position, query head of a kv head) of an attention block: `ROWS` of attention.cu.
const BLOCK_ROWS: u32 = 64;

/// A layout on the device.
#[derive(Debug)]
pub(super) struct DeviceLayout {
    layout: Layout,
    /// `struct Row` of the prelude: position, block, slot, sequence.
    pub(super) rows: Buffer<u32>,
    /// `struct Sequence` of attention.cu: start, len, first row, first entry in `tables`.
    pub(super) sequences: Buffer<u32>,
    /// Block tables, one after the other.
    pub(super) tables: Buffer<u32>,
    /// `struct Work` of attention.cu, by query heads per kv head: (list, entries).
    works: BTreeMap<u32, (Buffer<u32>, usize)>,
}

impl DeviceLayout {
    pub(super) fn new(context: &Context, layout: &Layout) -> Result<DeviceLayout, DeviceError> {
        let (mut rows, mut sequences, mut tables) = (Vec::new(), Vec::new(), Vec::new());
        let size = layout.block_size;
        for (index, s) in layout.sequences.iter().enumerate() {
            sequences.extend([s.start, s.len, rows.len() as u32 / 4, tables.len() as u32]);
            for position in s.start..s.start + s.len {
                let block = s.blocks[(position / size) as usize];
                rows.extend([position, block, position % size, index as u32]);
            }
            tables.extend_from_slice(&s.blocks);
        }
        Ok(DeviceLayout {
            layout: layout.clone(),
            rows: context.upload(&rows)?,
            sequences: context.upload(&sequences)?,
            tables: context.upload(&tables)?,
            works: BTreeMap::new(),
        })
    }

    /// Whether this is `layout`.
    pub(super) fn is(&self, layout: &Layout) -> bool {
        self.layout == *layout
    }

    /// The attention blocks of a group size: (list, entries).
    pub(super) fn works(
        &mut self,
        context: &Context,
        group: u32,
    ) -> Result<(&Buffer<u32>, usize), DeviceError> {
        if !self.works.contains_key(&group) {
            let mut list = Vec::new();
            for (index, s) in self.layout.sequences.iter().enumerate() {
                for first in (0..s.len * group).step_by(BLOCK_ROWS as usize) {
                    list.extend([index as u32, first]);
                }
            }
            let entry = (context.upload(&list)?, list.len() / 2);
            self.works.insert(group, entry);
        }
        let (list, entries) = &self.works[&group];
        Ok((list, *entries))
    }

    /// Most splits of `split` positions that a sequence has.
    pub(super) fn splits_max(&self, split: u32) -> usize {
        let ends = self.layout.sequences.iter().map(|s| s.start + s.len);
        ends.max().unwrap_or(0).div_ceil(split) as usize
    }
}
