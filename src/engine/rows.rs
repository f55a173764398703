//! One sequence, rows as asked for: forward passes outside of any schedule, for comparisons of devices.
//!
//! Rows need not be in order: a row at position `p` reads K and V of the positions before it from the pool, whoever
//! wrote them. So one device can compute sampled positions from K and V that another computed.

use crate::contract::Mode;
use crate::device::host::Host;
use crate::device::{Device, DeviceError, Layout, Sequence};
use crate::record::KvDigest;

use super::forward::{Forward, RowDigests};
use super::model::DeviceModel;
use super::plan::Planner;

/// Rows of one sequence on a device, launched as the invariant mode plans them.
pub struct Rows<'m, D: Device> {
    forward: Forward<'m, D>,
    planner: Planner,
    block_size: u32,
    blocks: Vec<u32>,
}

impl<'m, D: Device> Rows<'m, D> {
    /// An empty pool for one sequence of up to `positions`; its blocks lie in descending order.
    pub fn new(model: &'m DeviceModel<D>, positions: usize) -> Result<Rows<'m, D>, DeviceError> {
        let config = model.config();
        let count = positions.div_ceil(config.block_size);
        let mut forward = Forward::new(model, count, 0, config.block_size)?;
        forward.watch(true);
        Ok(Rows {
            forward,
            planner: Planner::new(config, &Mode::Invariant),
            block_size: config.block_size as u32,
            blocks: (0..count as u32).rev().collect(),
        })
    }

    /// Computes a row for each (position, token), all in one step, and returns their digests. Positions
    /// ascend; neighbours are rows of one chunk.
    pub fn compute(&mut self, rows: &[(u32, u32)]) -> Result<Vec<RowDigests>, DeviceError> {
        let end = self.blocks.len() as u32 * self.block_size;
        let fits = rows.windows(2).all(|w| w[0].0 < w[1].0) && rows.iter().all(|r| r.0 < end);
        if rows.is_empty() || !fits {
            let why = format!("rows: {} positions out of order, or past {end}", rows.len());
            return Err(DeviceError::Launch(why));
        }
        let mut sequences: Vec<Sequence> = Vec::new();
        for (position, _) in rows {
            match sequences.last_mut() {
                Some(last) if last.start + last.len == *position => last.len += 1,
                _ => sequences.push(Sequence {
                    blocks: self.blocks.clone(),
                    start: *position,
                    len: 1,
                }),
            }
        }
        let plan = self.planner.plan(rows.len(), sequences.len());
        let layout = Layout { block_size: self.block_size, sequences };
        let tokens: Vec<u32> = rows.iter().map(|r| r.1).collect();
        Ok(self.forward.step(&plan, &layout, &tokens, 0, None)?.rows)
    }

    /// The f32 logits of row `row` of the last step.
    pub fn logits(&mut self, row: usize) -> Result<Vec<f32>, DeviceError> {
        self.forward.logits(row)
    }

    /// K and V digests of positions `from..to`: one list of layers a position.
    pub fn digest_kv(&mut self, from: u32, to: u32) -> Result<Vec<Vec<KvDigest>>, DeviceError> {
        self.forward.digest_kv(&self.blocks, from, to)
    }

    /// K and V of a layer at positions `from..to`, each `[position][kv head][dim]`.
    pub fn read_kv(
        &mut self,
        layer: usize,
        from: u32,
        to: u32,
    ) -> Result<[Vec<u16>; 2], DeviceError> {
        self.forward.device.read_kv(layer, &self.forward.kv, &self.blocks, from, to)
    }
}

impl Rows<'_, Host> {
    /// Puts K and V of another device at positions `from..` of a layer.
    pub fn write_kv(
        &mut self,
        layer: usize,
        from: u32,
        values: &[Vec<u16>; 2],
    ) -> Result<(), DeviceError> {
        self.forward.kv.write(layer, &self.blocks, from, values)
    }
}
