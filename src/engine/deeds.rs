//! What happens to K and V between two launches: copies of blocks, swaps, poison, and looks at what blocks hold.
//!
//! The scheduler decides and queues; the engine carries out in order before it launches anything. So a block is
//! looked at, or copied, before whoever it is given to next writes to it.

use std::collections::BTreeMap;

use crate::device::{Device, Layout};
use crate::record::{KvBits, KvMoment, Sentinel};
use crate::workload::SampleId;

use super::blocks::BlockId;
use super::fork::BlockCopy;
use super::swap::SlotId;
use super::{Engine, EngineError, Slice, audited};

/// One thing to do, in the order of the decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Read K and V back.
    Read(KvRead),
    /// A block was given to a new owner, who has written nothing to it.
    HandOut {
        block: BlockId,
        /// Whether it holds what an earlier owner wrote.
        used: bool,
    },
    /// Fill a block that has become free with NaN: nobody may read what it holds.
    Poison(BlockId),
    /// Copy a block within the pool.
    Copy(BlockCopy),
    /// Copy blocks to host memory.
    SwapOut { blocks: Vec<BlockId>, slots: Vec<SlotId> },
    /// Copy them back.
    SwapIn { slots: Vec<SlotId>, blocks: Vec<BlockId> },
}

/// K and V to be read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KvRead {
    pub(super) id: SampleId,
    pub(super) residency: u32,
    pub(super) moment: KvMoment,
    pub(super) blocks: Vec<BlockId>,
    /// Positions 0 .. this.
    pub(super) positions: usize,
}

/// Namespace of the request that wrote a block's contents, kept beside the scheduler's own books and never asked by
/// them.
#[derive(Clone, Debug, Default)]
pub(super) struct Writers {
    blocks: BTreeMap<BlockId, u32>,
    slots: BTreeMap<SlotId, u32>,
}

impl Writers {
    fn follow(&mut self, deed: &Deed) {
        match deed {
            Deed::Read(_) => {}
            Deed::HandOut { block, .. } | Deed::Poison(block) => {
                self.blocks.remove(block);
            }
            Deed::Copy(BlockCopy { from, to }) => {
                if let Some(namespace) = self.blocks.get(from) {
                    self.blocks.insert(*to, *namespace);
                }
            }
            Deed::SwapOut { blocks, slots } => {
                for (block, slot) in blocks.iter().zip(slots) {
                    self.slots.extend(self.blocks.get(block).map(|namespace| (*slot, *namespace)));
                }
            }
            Deed::SwapIn { slots, blocks } => {
                for (slot, block) in slots.iter().zip(blocks) {
                    self.blocks.extend(self.slots.get(slot).map(|namespace| (*block, *namespace)));
                }
            }
        }
    }
}

impl<D: Device> Engine<'_, D> {
    /// Carries out everything that is queued.
    pub(super) fn do_deeds(&mut self) -> Result<(), EngineError> {
        for deed in std::mem::take(&mut self.scheduler.deeds) {
            self.writers.follow(&deed);
            if let Some(auditor) = &mut self.auditor {
                auditor.follow(&deed).map_err(audited)?;
            }
            match deed {
                Deed::Read(read) => self.read_kv(read)?,
                Deed::HandOut { block, used } if self.forward.poison => self.poison(block, used)?,
                Deed::HandOut { .. } => {}
                Deed::Poison(block) => self.poison(block, true)?,
                Deed::Copy(BlockCopy { from, to }) => self.forward.copy_block(from, to)?,
                Deed::SwapOut { blocks, slots } => self.forward.swap_out(&blocks, &slots)?,
                Deed::SwapIn { slots, blocks } => self.forward.swap_in(&slots, &blocks)?,
            }
        }
        Ok(())
    }

    fn poison(&mut self, block: BlockId, used: bool) -> Result<(), EngineError> {
        self.forward.poison_block(block)?;
        if used {
            self.run.sentinels.hit(Sentinel::Poisoned);
        }
        Ok(())
    }

    fn read_kv(&mut self, read: KvRead) -> Result<(), EngineError> {
        let Some(hasher) = &mut self.hasher else { return Ok(()) };
        let KvRead { id, residency, moment, blocks, positions } = read;
        let rows = self.forward.digest_kv(&blocks, 0, positions as u32)?;
        hasher.tag("kv");
        let digests = rows.iter().flatten().flat_map(|d| [d.k, d.v]);
        hasher.digests(2 * rows.iter().map(Vec::len).sum::<usize>(), digests);
        let output = self.run.outputs.get_mut(&id).expect("one output a sample");
        if moment != KvMoment::Released {
            let held = &blocks[..positions.div_ceil(self.block_size as usize)];
            output.writers.extend(held.iter().filter_map(|b| self.writers.blocks.get(b)));
        }
        output.kv_due += positions as u64;
        output.kv.extend(rows.into_iter().enumerate().map(|(position, layers)| KvBits {
            residency,
            position: position as u32,
            moment,
            layers,
        }));
        Ok(())
    }

    /// Notes who writes the blocks of a step.
    pub(super) fn note_writers(&mut self, step: &[Slice], layout: &Layout) {
        let size = self.block_size as usize;
        for (slice, rows) in step.iter().zip(&layout.sequences) {
            let namespace = self.scheduler.sequences[slice.index].namespace;
            let written = slice.start / size..(slice.start + slice.len).div_ceil(size);
            let blocks = &rows.blocks[written];
            self.writers.blocks.extend(blocks.iter().map(|block| (*block, namespace)));
        }
    }
}
