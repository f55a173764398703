//! The paged KV pool: one hash an entry.

use super::mix::POISON;
use crate::device::{DeviceError, KvShape};

/// K and V of all layers, `[layer][block][slot]`: one hash stands for both, over all kv heads.
#[derive(Clone, Debug)]
pub struct HashKv {
    shape: KvShape,
    entries: Vec<u64>,
}

impl HashKv {
    /// A pool with nothing written.
    pub(super) fn new(shape: KvShape) -> HashKv {
        let entries = shape.layers * shape.blocks * shape.block_size;
        HashKv { shape, entries: vec![POISON; entries] }
    }

    /// Shape of the pool.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Slots of a block.
    pub(super) fn block(&self, layer: usize, block: u32) -> &[u64] {
        let first = self.first(layer, block);
        &self.entries[first..first + self.shape.block_size]
    }

    /// The same, to write.
    pub(super) fn block_mut(&mut self, layer: usize, block: u32) -> &mut [u64] {
        let first = self.first(layer, block);
        &mut self.entries[first..first + self.shape.block_size]
    }

    /// Copies a block to another one, all layers.
    pub(super) fn copy_block(&mut self, from: u32, to: u32) -> Result<(), DeviceError> {
        self.shape.check_blocks("copy_block", &[from, to])?;
        for layer in 0..self.shape.layers {
            let (from, to) = (self.first(layer, from), self.first(layer, to));
            self.entries.copy_within(from..from + self.shape.block_size, to);
        }
        Ok(())
    }

    /// Copies blocks of another pool here, one for one, all layers.
    pub(super) fn copy_from(
        &mut self,
        operator: &str,
        other: &HashKv,
        from: &[u32],
        to: &[u32],
    ) -> Result<(), DeviceError> {
        other.shape.check_swap(operator, from, self.shape, to)?;
        for layer in 0..self.shape.layers {
            for (&from, &to) in from.iter().zip(to) {
                self.block_mut(layer, to).copy_from_slice(other.block(layer, from));
            }
        }
        Ok(())
    }

    /// Poisons a block in all layers.
    pub(super) fn poison(&mut self, block: u32) -> Result<(), DeviceError> {
        self.shape.check_blocks("poison_block", &[block])?;
        (0..self.shape.layers).for_each(|layer| self.block_mut(layer, block).fill(POISON));
        Ok(())
    }

    fn first(&self, layer: usize, block: u32) -> usize {
        (layer * self.shape.blocks + block as usize) * self.shape.block_size
    }

    /// Entries of positions `from..to` under a block table that was checked to cover them.
    pub(super) fn entries(
        &self,
        layer: usize,
        blocks: &[u32],
        from: usize,
        to: usize,
    ) -> impl Iterator<Item = u64> {
        let size = self.shape.block_size;
        let first = from / size;
        let last = to.div_ceil(size).max(first);
        blocks[first..last]
            .iter()
            .flat_map(move |block| self.block(layer, *block).iter().copied())
            .skip(from - first * size)
            .take(to.saturating_sub(from))
    }
}
