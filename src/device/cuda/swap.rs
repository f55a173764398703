//! Whole blocks of K and V: copies within the pool, and to and from host memory. The driver's copies; no kernel.

use super::CudaKv;
use super::context::Context;
use crate::device::{DeviceError, KvShape};

/// Blocks of K and V in host memory, all layers, each `[slot][layer][kv head][position in the block][dim]`. A slot has
/// no memory before something is put there.
#[derive(Debug)]
pub struct CudaSwap {
    shape: KvShape,
    k: Vec<Vec<u16>>,
    v: Vec<Vec<u16>>,
}

impl CudaSwap {
    pub(super) fn new(shape: KvShape) -> CudaSwap {
        let slots = || vec![Vec::new(); shape.blocks];
        CudaSwap { shape, k: slots(), v: slots() }
    }
}

impl CudaKv {
    /// Elements of a block in one layer.
    fn block_len(&self) -> usize {
        let KvShape { block_size, kv_heads, head_dim, .. } = self.shape;
        block_size * kv_heads * head_dim
    }

    /// First element of a block in a layer.
    fn block_at(&self, layer: usize, block: u32) -> usize {
        (layer * self.shape.blocks + block as usize) * self.block_len()
    }

    /// See [`crate::device::Device::copy_block`].
    pub(super) fn copy_block(
        &mut self,
        context: &Context,
        from: u32,
        to: u32,
    ) -> Result<(), DeviceError> {
        self.shape.check_blocks("copy_block", &[from, to])?;
        let len = self.block_len();
        for layer in 0..self.shape.layers {
            let (from, to) = (self.block_at(layer, from), self.block_at(layer, to));
            context.copy_within(&mut self.k, from, to, len)?;
            context.copy_within(&mut self.v, from, to, len)?;
        }
        Ok(())
    }

    /// See [`crate::device::Device::swap_out`].
    pub(super) fn swap_out(
        &self,
        context: &Context,
        blocks: &[u32],
        swap: &mut CudaSwap,
        slots: &[u32],
    ) -> Result<(), DeviceError> {
        self.shape.check_swap("swap_out", blocks, swap.shape, slots)?;
        for (&block, &slot) in blocks.iter().zip(slots) {
            for (pool, there) in [(&self.k, &mut swap.k), (&self.v, &mut swap.v)] {
                let there = &mut there[slot as usize];
                there.clear();
                for layer in 0..self.shape.layers {
                    let first = self.block_at(layer, block);
                    there.extend(context.download_from(pool, first, self.block_len())?);
                }
            }
        }
        Ok(())
    }

    /// See [`crate::device::Device::swap_in`].
    pub(super) fn swap_in(
        &mut self,
        context: &Context,
        swap: &CudaSwap,
        slots: &[u32],
        blocks: &[u32],
    ) -> Result<(), DeviceError> {
        self.shape.check_swap("swap_in", blocks, swap.shape, slots)?;
        let len = self.block_len();
        for (&block, &slot) in blocks.iter().zip(slots) {
            let (k, v) = (&swap.k[slot as usize], &swap.v[slot as usize]);
            if k.len() != self.shape.layers * len || v.len() != k.len() {
                return Err(DeviceError::Launch(format!("swap_in: slot {slot} holds nothing")));
            }
            for layer in 0..self.shape.layers {
                let (first, values) = (self.block_at(layer, block), layer * len..(layer + 1) * len);
                context.upload_to(&mut self.k, first, &k[values.clone()])?;
                context.upload_to(&mut self.v, first, &v[values])?;
            }
        }
        Ok(())
    }
}
