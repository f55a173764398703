//! The CPU twin: every operator of the contract on the host, bit for bit what the kernels compute.
//!
//! One operator a file. Buffers are plain vectors; scratch belongs to the [`Host`] and is reused, so that no
//! inner loop allocates. Launch variants really run differently (see [`Splits`](super::Splits) and
//! [`RowTile`](super::RowTile)) and are counted where they do their work. There are no threads here: callers
//! run executions in parallel, one `Host` each.

mod attention;
mod digest;
mod embed;
mod gemm;
mod kv;
mod log;
pub(super) mod logprobs;
mod matrix;
mod norm;
mod rope;
mod round;
mod sample;
mod swiglu;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::checks::{check_cuts, require, require_len};
use super::{
    AttentionLaunch, Device, DeviceError, GemmLaunch, GemmOutput, Heads, KvDigest, KvShape, Layout,
    LoggedRows, NormLaunch, QkNorm, SampleRow, VariantCounts,
};
use crate::contract::matrix_unit::Unit;
use crate::contract::rope::RopeTable;
use crate::contract::simd::{Simd, SimdPath};
use crate::contract::{Contract, sampler};
use crate::weights::Recipe;

pub use kv::HostKv;
pub use matrix::HostMatrix;

/// The host as a device.
#[derive(Debug)]
pub struct Host {
    contract: Arc<Contract>,
    simd: Simd,
    unit: Unit,
    counts: VariantCounts,
    gemm: gemm::Scratch,
    attention: attention::Scratch,
    norm: norm::Scratch,
    rows: Vec<f32>,
    log: log::Log,
    logprobs: logprobs::Scratch,
    sampler: sampler::Scratch,
}

impl Host {
    /// A host under `contract`, with the fastest instructions that the machine has.
    pub fn new(contract: Contract) -> Host {
        Host::with_path(contract, SimdPath::Auto)
    }

    /// A host that executes on a given path.
    ///
    /// # Panics
    /// If the machine lacks the path's instructions, or the contract names an impossible matrix unit.
    pub fn with_path(contract: Contract, path: SimdPath) -> Host {
        let simd = Simd::new(path).unwrap_or_else(|| panic!("this machine has no {path:?} path"));
        Host::assemble(Arc::new(contract), simd)
    }

    /// The path in force.
    pub fn path(&self) -> SimdPath {
        self.simd.path()
    }

    fn assemble(contract: Arc<Contract>, simd: Simd) -> Host {
        Host {
            unit: Unit::new(contract.matrix_unit, contract.dtype, simd),
            contract,
            simd,
            counts: VariantCounts::default(),
            gemm: gemm::Scratch::default(),
            attention: attention::Scratch::default(),
            norm: norm::Scratch::default(),
            rows: Vec::new(),
            log: log::Log::default(),
            logprobs: logprobs::Scratch::default(),
            sampler: sampler::Scratch::default(),
        }
    }
}

/// A vector of `len` copies, or [`DeviceError::OutOfMemory`].
fn allocate<T: Copy>(len: usize, value: T) -> Result<Vec<T>, DeviceError> {
    let mut v = Vec::new();
    v.try_reserve_exact(len)
        .map_err(|_| DeviceError::OutOfMemory { bytes: len.saturating_mul(size_of::<T>()) })?;
    v.resize(len, value);
    Ok(v)
}

/// What a 16-bit buffer holds before it is written: a NaN of either dtype, so that a stray read shows.
const UNWRITTEN: u16 = 0x7fff;

impl Device for Host {
    type F32 = Vec<f32>;
    type T16 = Vec<u16>;
    type Matrix = HostMatrix;
    type Rope = RopeTable;
    type Kv = HostKv;
    type Swap = HostKv;

    fn name(&self) -> &'static str {
        "host"
    }

    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn fresh(&self) -> Host {
        Host::assemble(Arc::clone(&self.contract), self.simd)
    }

    fn watch(&mut self, on: bool) {
        self.log.switch(on);
    }

    fn keep(&mut self, entries: &BTreeSet<usize>) {
        self.log.keep(entries);
    }

    fn take_log(&mut self) -> Result<Vec<LoggedRows>, DeviceError> {
        Ok(self.log.take())
    }

    fn counts(&mut self) -> Result<VariantCounts, DeviceError> {
        Ok(self.counts.clone())
    }

    fn upload(&self, values: &[u16]) -> Result<Vec<u16>, DeviceError> {
        let mut v = allocate(values.len(), 0)?;
        v.copy_from_slice(values);
        Ok(v)
    }

    fn upload_f32(&self, values: &[f32]) -> Result<Vec<f32>, DeviceError> {
        let mut v = allocate(values.len(), 0.0)?;
        v.copy_from_slice(values);
        Ok(v)
    }

    fn upload_matrix(&self, n: usize, k: usize, values: &[u16]) -> Result<HostMatrix, DeviceError> {
        HostMatrix::new(&self.unit, n, k, values)
    }

    fn make(&self, recipe: &Recipe) -> Result<Vec<u16>, DeviceError> {
        Ok(recipe.values())
    }

    fn make_matrix(&self, recipe: &Recipe) -> Result<HostMatrix, DeviceError> {
        HostMatrix::new(&self.unit, recipe.n(), recipe.k(), &recipe.values())
    }

    fn upload_rope(&self, table: &RopeTable) -> Result<RopeTable, DeviceError> {
        Ok(table.clone())
    }

    fn alloc_f32(&self, len: usize) -> Result<Vec<f32>, DeviceError> {
        allocate(len, f32::NAN)
    }

    fn alloc_t16(&self, len: usize) -> Result<Vec<u16>, DeviceError> {
        allocate(len, UNWRITTEN)
    }

    fn alloc_kv(&self, shape: KvShape) -> Result<HostKv, DeviceError> {
        HostKv::new(shape)
    }

    fn alloc_swap(&self, shape: KvShape) -> Result<HostKv, DeviceError> {
        HostKv::new(shape)
    }

    fn copy_block(&mut self, kv: &mut HostKv, from: u32, to: u32) -> Result<(), DeviceError> {
        kv.copy_block(from, to)
    }

    fn swap_out(
        &mut self,
        kv: &HostKv,
        blocks: &[u32],
        swap: &mut HostKv,
        slots: &[u32],
    ) -> Result<(), DeviceError> {
        swap.copy_from("swap_out", kv, blocks, slots)
    }

    fn swap_in(
        &mut self,
        swap: &HostKv,
        slots: &[u32],
        kv: &mut HostKv,
        blocks: &[u32],
    ) -> Result<(), DeviceError> {
        kv.copy_from("swap_in", swap, slots, blocks)
    }

    fn poison_f32(&mut self, x: &mut Vec<f32>, elements: Range<usize>) -> Result<(), DeviceError> {
        require_len("poison_f32", "x", x.len(), elements.end)?;
        x[elements].fill(f32::NAN);
        Ok(())
    }

    fn poison_t16(&mut self, x: &mut Vec<u16>, elements: Range<usize>) -> Result<(), DeviceError> {
        require_len("poison_t16", "x", x.len(), elements.end)?;
        x[elements].fill(UNWRITTEN);
        Ok(())
    }

    fn poison_block(&mut self, kv: &mut HostKv, block: u32) -> Result<(), DeviceError> {
        kv.poison(block)
    }

    fn embed(
        &mut self,
        embedding: &HostMatrix,
        tokens: &[u32],
        h: &mut Vec<f32>,
    ) -> Result<(), DeviceError> {
        embed::embed(self.contract.dtype, embedding, tokens, h)?;
        self.log.rows(self.simd, embedding.k(), &h[..tokens.len() * embedding.k()]);
        Ok(())
    }

    fn rmsnorm(
        &mut self,
        launch: NormLaunch,
        m: usize,
        n: usize,
        h: &Vec<f32>,
        weight: &Vec<u16>,
        eps: f32,
        x: &mut Vec<u16>,
    ) -> Result<(), DeviceError> {
        self.rmsnorm_rows(launch, norm::Norm { m, n, h, weight, eps }, x)
    }

    fn gemm(
        &mut self,
        launch: &GemmLaunch,
        m: usize,
        x: &Vec<u16>,
        w: &HostMatrix,
        out: GemmOutput<'_, Host>,
    ) -> Result<(), DeviceError> {
        self.gemm_rows(launch, m, x, w, out)
    }

    fn gemm_split(
        &mut self,
        launch: &GemmLaunch,
        split: usize,
        m: usize,
        x: &Vec<u16>,
        w: &HostMatrix,
        y: &mut Vec<f32>,
    ) -> Result<(), DeviceError> {
        self.gemm_split_rows(launch, split, m, x, w, y)
    }

    fn rope_and_store(
        &mut self,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        qkv: &Vec<u16>,
        norm: Option<QkNorm<'_, Host>>,
        rope: &RopeTable,
        q: &mut Vec<u16>,
        kv: &mut HostKv,
    ) -> Result<(), DeviceError> {
        self.rope_rows(rope::Task { layer, heads, layout, qkv, norm, rope }, q, kv)
    }

    fn attention(
        &mut self,
        launch: AttentionLaunch,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        q: &Vec<u16>,
        kv: &HostKv,
        out: &mut Vec<u16>,
    ) -> Result<(), DeviceError> {
        self.attend(launch, attention::Task { layer, heads, layout, q, kv }, out)
    }

    fn swiglu(
        &mut self,
        m: usize,
        f: usize,
        gate_up: &Vec<u16>,
        z: &mut Vec<u16>,
    ) -> Result<(), DeviceError> {
        self.swiglu_rows(m, f, gate_up, z)
    }

    fn logprobs(
        &mut self,
        vocab: usize,
        logits: &Vec<f32>,
        rows: &[u32],
        ids: &[u32],
    ) -> Result<Vec<f32>, DeviceError> {
        let block = self.contract.constants.vocab_block as usize;
        logprobs::logprobs(self.simd, block, vocab, logits, rows, ids, &mut self.logprobs)
    }

    fn sample(
        &mut self,
        vocab: usize,
        logits: &Vec<f32>,
        rows: &[SampleRow],
    ) -> Result<Vec<Option<u32>>, DeviceError> {
        sample::sample(self.simd, vocab, logits, rows, &mut self.sampler)
    }

    fn digest_rows(&mut self, m: usize, n: usize, x: &Vec<f32>) -> Result<Vec<u64>, DeviceError> {
        digest::digest_rows(self.simd, m, n, x)
    }

    fn digest_kv(
        &mut self,
        layer: usize,
        kv: &HostKv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<KvDigest>, DeviceError> {
        digest::digest_kv(self.simd, self.contract.dtype, layer, kv, blocks, from..to)
    }

    fn read_row(&mut self, n: usize, x: &Vec<f32>, row: usize) -> Result<Vec<f32>, DeviceError> {
        require_len("read_row", "x", x.len(), (row + 1) * n)?;
        Ok(x[row * n..(row + 1) * n].to_vec())
    }

    fn read_f32(&mut self, x: &Vec<f32>, len: usize) -> Result<Vec<f32>, DeviceError> {
        require_len("read_f32", "x", x.len(), len)?;
        Ok(x[..len].to_vec())
    }

    fn read_t16(&mut self, x: &Vec<u16>, len: usize) -> Result<Vec<u16>, DeviceError> {
        require_len("read_t16", "x", x.len(), len)?;
        Ok(x[..len].to_vec())
    }

    fn read_matrix(&mut self, w: &HostMatrix) -> Result<Vec<u16>, DeviceError> {
        Ok((0..w.n()).flat_map(|i| w.row(i)).collect())
    }

    fn read_kv(
        &mut self,
        layer: usize,
        kv: &HostKv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<[Vec<u16>; 2], DeviceError> {
        kv.shape().check("read_kv", layer, blocks, to as usize)?;
        let rows = || (from..to).map(|p| kv.row(layer, blocks, p as usize));
        Ok([kv.k(), kv.v()].map(|pool| rows().flat_map(|row| &pool[row]).copied().collect()))
    }
}
