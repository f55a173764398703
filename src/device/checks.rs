//! Refusals that the devices share: a launch that can't be honoured is an error, never a fallback.

use std::sync::Arc;

use super::{DeviceError, GemmLaunch, Heads, KvShape, Layout};

/// Refuses a launch unless `condition` holds.
pub(super) fn require(condition: bool, what: impl FnOnce() -> String) -> Result<(), DeviceError> {
    if condition { Ok(()) } else { Err(DeviceError::Launch(what())) }
}

/// Refuses a launch whose buffer is shorter than `len`.
pub(super) fn require_len(
    operator: &str,
    buffer: &str,
    have: usize,
    len: usize,
) -> Result<(), DeviceError> {
    require(have >= len, || format!("{operator}: {buffer} holds {have} elements, {len} needed"))
}

/// Refuses cuts of K that are not whole groups, ascending, from 0 to the padded K of a matrix `[n][k]`, or that make more
/// chains than the device takes.
pub(super) fn check_cuts(
    cuts: &[u32],
    n: usize,
    k: usize,
    k_padded: usize,
    splits_max: usize,
) -> Result<(), DeviceError> {
    let honoured = cuts.len() >= 2
        && cuts.len() - 1 <= splits_max
        && cuts[0] == 0
        && cuts[cuts.len() - 1] as usize == k_padded
        && cuts.iter().all(|c| c % 16 == 0)
        && cuts.is_sorted();
    require(honoured, || format!("gemm: cuts {cuts:?} of {n} x {k} (K padded to {k_padded})"))
}

impl GemmLaunch {
    /// The launch with one split left of it, for a device that has checked the whole.
    pub(super) fn only(&self, split: usize) -> Result<GemmLaunch, DeviceError> {
        require(split + 1 < self.cuts.len(), || {
            format!("gemm: split {split} of cuts {:?}", self.cuts)
        })?;
        Ok(GemmLaunch { cuts: Arc::from(&self.cuts[split..split + 2]), ..self.clone() })
    }
}

impl KvShape {
    /// Refuses heads or a layout that do not fit the pool, or a head size that the device does not take.
    pub(super) fn check_layout(
        self,
        operator: &str,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        takes_dim: bool,
    ) -> Result<(), DeviceError> {
        let fits = takes_dim
            && heads.kv > 0
            && heads.q.is_multiple_of(heads.kv)
            && heads.kv == self.kv_heads
            && heads.dim == self.head_dim
            && layout.block_size as usize == self.block_size;
        require(fits, || {
            let size = layout.block_size;
            format!("{operator}: {heads:?}, blocks of {size}, in a pool of {self:?}")
        })?;
        for s in &layout.sequences {
            self.check(operator, layer, &s.blocks, s.start as usize + s.len as usize)?;
        }
        Ok(())
    }

    /// Refuses a layer, or a table that does not cover positions below `end` with blocks of the pool.
    pub(super) fn check(
        self,
        operator: &str,
        layer: usize,
        blocks: &[u32],
        end: usize,
    ) -> Result<(), DeviceError> {
        let shape = self;
        require(layer < shape.layers, || {
            format!("{operator}: layer {layer} of a pool of {} layers", shape.layers)
        })?;
        let needed = end.div_ceil(shape.block_size);
        require(blocks.len() >= needed, || {
            format!("{operator}: {} blocks for {end} positions, {needed} needed", blocks.len())
        })?;
        let stray = blocks[..needed].iter().find(|b| **b as usize >= shape.blocks);
        require(stray.is_none(), || {
            format!("{operator}: block {stray:?} of a pool of {} blocks", shape.blocks)
        })
    }

    /// Refuses blocks outside of the pool.
    pub(super) fn check_blocks(self, operator: &str, blocks: &[u32]) -> Result<(), DeviceError> {
        let stray = blocks.iter().find(|b| **b as usize >= self.blocks);
        require(stray.is_none(), || {
            format!("{operator}: block {stray:?} of a pool of {} blocks", self.blocks)
        })
    }

    /// Refuses a copy of `blocks` here to or from as many `slots` there, unless the shapes differ in the number of
    /// blocks only.
    pub(super) fn check_swap(
        self,
        operator: &str,
        blocks: &[u32],
        there: KvShape,
        slots: &[u32],
    ) -> Result<(), DeviceError> {
        require(KvShape { blocks: there.blocks, ..self } == there, || {
            format!("{operator}: blocks of {self:?} for {there:?}")
        })?;
        require(blocks.len() == slots.len(), || {
            format!("{operator}: {} blocks for {} slots", blocks.len(), slots.len())
        })?;
        self.check_blocks(operator, blocks)?;
        there.check_blocks(operator, slots)
    }
}
