//! The paged KV pool on the host.

use super::{DeviceError, UNWRITTEN, allocate, require};
use crate::device::KvShape;

/// K and V of all layers, each `[layer][block][slot][kv_head][dim]` 16-bit values. A block's slots are
/// contiguous within a layer, so a position's heads are one row.
#[derive(Clone, Debug)]
pub struct HostKv {
    shape: KvShape,
    k: Vec<u16>,
    v: Vec<u16>,
}

impl HostKv {
    /// A pool full of NaN.
    pub(super) fn new(shape: KvShape) -> Result<HostKv, DeviceError> {
        let positions = shape.layers * shape.blocks * shape.block_size;
        let len = positions * shape.kv_heads * shape.head_dim;
        Ok(HostKv { shape, k: allocate(len, UNWRITTEN)?, v: allocate(len, UNWRITTEN)? })
    }

    /// Shape of the pool.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Elements of all heads at one position.
    pub(super) fn row_len(&self) -> usize {
        self.shape.kv_heads * self.shape.head_dim
    }

    /// Element range of the row of `position` under a block table.
    ///
    /// # Panics
    /// If [`HostKv::check`] would refuse the position.
    pub(super) fn row(
        &self,
        layer: usize,
        blocks: &[u32],
        position: usize,
    ) -> std::ops::Range<usize> {
        let size = self.shape.block_size;
        let block = blocks[position / size] as usize;
        let slot = (layer * self.shape.blocks + block) * size + position % size;
        slot * self.row_len()..(slot + 1) * self.row_len()
    }

    /// Calls `f` with the first element of each position below `end`, ascending: [`HostKv::row`] without a
    /// division per position.
    pub(super) fn each_row(
        &self,
        layer: usize,
        blocks: &[u32],
        end: usize,
        mut f: impl FnMut(usize),
    ) {
        let KvShape { block_size, blocks: count, .. } = self.shape;
        let mut position = 0;
        for block in &blocks[..end.div_ceil(block_size)] {
            let first = (layer * count + *block as usize) * block_size;
            for slot in first..first + block_size.min(end - position) {
                f(slot * self.row_len());
            }
            position += block_size;
        }
    }

    /// Element range of a block in `layer`.
    fn block(&self, layer: usize, block: u32) -> std::ops::Range<usize> {
        let len = self.shape.block_size * self.row_len();
        let first = (layer * self.shape.blocks + block as usize) * len;
        first..first + len
    }

    /// Copies a block to another one, all layers.
    pub(super) fn copy_block(&mut self, from: u32, to: u32) -> Result<(), DeviceError> {
        self.shape.check_blocks("copy_block", &[from, to])?;
        for layer in 0..self.shape.layers {
            let (from, to) = (self.block(layer, from), self.block(layer, to));
            self.k.copy_within(from.clone(), to.start);
            self.v.copy_within(from, to.start);
        }
        Ok(())
    }

    /// Copies blocks of another pool here, one for one, all layers.
    pub(super) fn copy_from(
        &mut self,
        operator: &str,
        other: &HostKv,
        from: &[u32],
        to: &[u32],
    ) -> Result<(), DeviceError> {
        other.shape.check_swap(operator, from, self.shape, to)?;
        for layer in 0..self.shape.layers {
            for (&from, &to) in from.iter().zip(to) {
                let (from, to) = (other.block(layer, from), self.block(layer, to));
                self.k[to.clone()].copy_from_slice(&other.k[from.clone()]);
                self.v[to].copy_from_slice(&other.v[from]);
            }
        }
        Ok(())
    }

    /// K values, all of them.
    pub(super) fn k(&self) -> &[u16] {
        &self.k
    }

    /// V values, all of them.
    pub(super) fn v(&self) -> &[u16] {
        &self.v
    }

    /// K and V values, to write.
    pub(super) fn k_v_mut(&mut self) -> (&mut [u16], &mut [u16]) {
        (&mut self.k, &mut self.v)
    }

    /// Fills a block with NaN, in all layers.
    pub(super) fn poison(&mut self, block: u32) -> Result<(), DeviceError> {
        let KvShape { layers, blocks, block_size, .. } = self.shape;
        let block = block as usize;
        require(block < blocks, || format!("poison_block: block {block} of {blocks}"))?;
        let len = block_size * self.row_len();
        for layer in 0..layers {
            let first = (layer * blocks + block) * len;
            self.k[first..first + len].fill(UNWRITTEN);
            self.v[first..first + len].fill(UNWRITTEN);
        }
        Ok(())
    }

    /// Puts K and V of other origin at positions `from..` of a sequence with these blocks: what
    /// [`read_kv`](crate::device::Device::read_kv) of a device gave.
    pub fn write(
        &mut self,
        layer: usize,
        blocks: &[u32],
        from: u32,
        values: &[Vec<u16>; 2],
    ) -> Result<(), DeviceError> {
        let len = self.row_len();
        let count = values[0].len() / len;
        require(values.iter().all(|v| v.len() == count * len), || {
            let sizes = values.each_ref().map(Vec::len);
            format!("write_kv: {sizes:?} values for rows of {len}")
        })?;
        self.shape.check("write_kv", layer, blocks, from as usize + count)?;
        for i in 0..count {
            let to = self.row(layer, blocks, from as usize + i);
            let row = i * len..(i + 1) * len;
            self.k[to.clone()].copy_from_slice(&values[0][row.clone()]);
            self.v[to].copy_from_slice(&values[1][row]);
        }
        Ok(())
    }
}
