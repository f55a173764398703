//! The CUDA device: every operator of the contract on an NVIDIA GPU, bit for bit what the host computes.
//!
//! Kernels are in `kernels/`, one file an operator, compiled by NVRTC at run time. This is the only room that names
//! cudarc. Instances share a device (buffers, modules) and have counters and scratch of their own; a fresh one also has a
//! stream of its own, a [`Context`], so that executions run side by side.
//! There is no fallback: a launch that a kernel cannot honour is [`DeviceError::Launch`].

mod arch;
mod args;
mod attention;
mod compile;
mod context;
mod counters;
mod gemm;
mod layout;
mod log;
mod probe;
mod probes;
mod rows;
mod sampling;
mod swap;
mod weights;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::checks::{check_cuts, require, require_len};
use super::{
    AttentionLaunch, Device, DeviceError, GemmLaunch, GemmOutput, GpuFacts, Heads, KvDigest,
    KvShape, Layout, LoggedRows, NormLaunch, QkNorm, SampleRow, VariantCounts,
};
use crate::contract::Contract;
use crate::contract::rope::RopeTable;
use crate::weights::Recipe;
use context::Arg;
use layout::DeviceLayout;

pub use arch::{Arch, UnitOfArch};
pub use compile::{CompileError, Compiler, Cubin, Program, Source, options};
pub use context::{Buffer, Context};
pub use probe::{Absent, Gpu, probe};
pub use probes::Scalars;
pub use swap::CudaSwap;

/// A GPU as a device.
#[derive(Debug)]
pub struct Cuda {
    contract: Arc<Contract>,
    context: Arc<Context>,
    counters: counters::Counters,
    layout: Option<DeviceLayout>,
    log: log::Log,
}

/// A weight matrix `[n][k]`, row-major; n padded to whole tiles, k to 16, with +0.
#[derive(Debug)]
pub struct CudaMatrix {
    n: usize,
    k: usize,
    k_padded: usize,
    data: Buffer<u16>,
}

/// A RoPE table.
#[derive(Debug)]
pub struct CudaRope {
    head_dim: usize,
    positions: usize,
    cos: Buffer<f32>,
    sin: Buffer<f32>,
}

/// K and V of all layers, each `[layer][block][kv head][slot][dim]`.
#[derive(Debug)]
pub struct CudaKv {
    shape: KvShape,
    k: Buffer<u16>,
    v: Buffer<u16>,
}

impl CudaKv {
    /// K and V of a layer as kernel arguments.
    fn layer(&self, layer: usize) -> (Arg, Arg) {
        let KvShape { blocks, block_size, kv_heads, head_dim, .. } = self.shape;
        let first = layer * blocks * block_size * kv_heads * head_dim;
        (self.k.at(first), self.v.at(first))
    }

    /// K and V of positions, each `[position][kv head][dim]`.
    fn read(
        &self,
        context: &Context,
        layer: usize,
        table: &[u32],
        positions: std::ops::Range<u32>,
    ) -> Result<[Vec<u16>; 2], DeviceError> {
        let KvShape { blocks, block_size, kv_heads, head_dim, .. } = self.shape;
        let len = blocks * block_size * kv_heads * head_dim;
        let mut read = [Vec::new(), Vec::new()];
        for (pool, rows) in [&self.k, &self.v].into_iter().zip(&mut read) {
            let values = context.download_from(pool, layer * len, len)?;
            for position in positions.clone().map(|p| p as usize) {
                let block = table[position / block_size] as usize;
                for head in 0..kv_heads {
                    let slot = (block * kv_heads + head) * block_size + position % block_size;
                    rows.extend_from_slice(&values[slot * head_dim..(slot + 1) * head_dim]);
                }
            }
        }
        Ok(read)
    }
}

impl Cuda {
    /// A device under `contract` on a shared context.
    ///
    /// # Panics
    /// If the contract's matrix unit is not that of the device.
    pub fn new(contract: Contract, context: Arc<Context>) -> Cuda {
        let unit = context.gpu().arch.matrix_unit().unit;
        assert_eq!(contract.matrix_unit, unit, "a contract for another matrix unit");
        Cuda::assemble(Arc::new(contract), context)
    }

    fn assemble(contract: Arc<Contract>, context: Arc<Context>) -> Cuda {
        let (counters, log) = (counters::Counters::default(), log::Log::default());
        Cuda { contract, context, counters, layout: None, log }
    }

    /// The context: its device, and its stream.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Has `layout` on the device.
    fn use_layout(&mut self, layout: &Layout) -> Result<(), DeviceError> {
        if self.layout.as_ref().is_none_or(|l| !l.is(layout)) {
            self.layout = Some(DeviceLayout::new(&self.context, layout)?);
        }
        Ok(())
    }
}

impl Device for Cuda {
    type F32 = Buffer<f32>;
    type T16 = Buffer<u16>;
    type Matrix = CudaMatrix;
    type Rope = CudaRope;
    type Kv = CudaKv;
    type Swap = CudaSwap;

    fn name(&self) -> &'static str {
        "cuda"
    }

    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn gpu(&self) -> Option<GpuFacts> {
        Some(self.context.facts())
    }

    fn fresh(&self) -> Cuda {
        Cuda::assemble(Arc::clone(&self.contract), self.context.fork())
    }

    fn watch(&mut self, on: bool) {
        self.switch_log(on);
    }

    fn keep(&mut self, entries: &BTreeSet<usize>) {
        self.keep_entries(entries);
    }

    fn take_log(&mut self) -> Result<Vec<LoggedRows>, DeviceError> {
        self.read_log()
    }

    fn counts(&mut self) -> Result<VariantCounts, DeviceError> {
        self.counters.read(&self.context)
    }

    fn upload(&self, values: &[u16]) -> Result<Buffer<u16>, DeviceError> {
        self.context.upload(values)
    }

    fn upload_f32(&self, values: &[f32]) -> Result<Buffer<f32>, DeviceError> {
        self.context.upload(values)
    }

    fn upload_matrix(&self, n: usize, k: usize, values: &[u16]) -> Result<CudaMatrix, DeviceError> {
        require(n > 0 && k > 0 && values.len() == n * k, || {
            format!("upload_matrix: {} values for {n} x {k}", values.len())
        })?;
        let (n_padded, k_padded) = (n.next_multiple_of(gemm::TILE), k.next_multiple_of(16));
        if (n_padded, k_padded) == (n, k) {
            return Ok(CudaMatrix { n, k, k_padded, data: self.context.upload(values)? });
        }
        let mut padded = vec![0; n_padded * k_padded];
        for (from, to) in values.chunks_exact(k).zip(padded.chunks_exact_mut(k_padded)) {
            to[..k].copy_from_slice(from);
        }
        Ok(CudaMatrix { n, k, k_padded, data: self.context.upload(&padded)? })
    }

    fn make(&self, recipe: &Recipe) -> Result<Buffer<u16>, DeviceError> {
        self.make_rows(recipe, recipe.n(), recipe.k())
    }

    fn make_matrix(&self, recipe: &Recipe) -> Result<CudaMatrix, DeviceError> {
        let (n, k) = (recipe.n(), recipe.k());
        let k_padded = k.next_multiple_of(16);
        let data = self.make_rows(recipe, n.next_multiple_of(gemm::TILE), k_padded)?;
        Ok(CudaMatrix { n, k, k_padded, data })
    }

    fn upload_rope(&self, table: &RopeTable) -> Result<CudaRope, DeviceError> {
        Ok(CudaRope {
            head_dim: table.head_dim,
            positions: table.positions,
            cos: self.context.upload(&table.cos)?,
            sin: self.context.upload(&table.sin)?,
        })
    }

    fn alloc_f32(&self, len: usize) -> Result<Buffer<f32>, DeviceError> {
        self.context.alloc(len)
    }

    fn alloc_t16(&self, len: usize) -> Result<Buffer<u16>, DeviceError> {
        self.context.alloc(len)
    }

    fn alloc_kv(&self, shape: KvShape) -> Result<CudaKv, DeviceError> {
        let positions = shape.layers * shape.blocks * shape.block_size;
        let len = positions * shape.kv_heads * shape.head_dim;
        Ok(CudaKv { shape, k: self.context.alloc(len)?, v: self.context.alloc(len)? })
    }

    fn alloc_swap(&self, shape: KvShape) -> Result<CudaSwap, DeviceError> {
        Ok(CudaSwap::new(shape))
    }

    fn copy_block(&mut self, kv: &mut CudaKv, from: u32, to: u32) -> Result<(), DeviceError> {
        kv.copy_block(&self.context, from, to)
    }

    fn swap_out(
        &mut self,
        kv: &CudaKv,
        blocks: &[u32],
        swap: &mut CudaSwap,
        slots: &[u32],
    ) -> Result<(), DeviceError> {
        kv.swap_out(&self.context, blocks, swap, slots)
    }

    fn swap_in(
        &mut self,
        swap: &CudaSwap,
        slots: &[u32],
        kv: &mut CudaKv,
        blocks: &[u32],
    ) -> Result<(), DeviceError> {
        kv.swap_in(&self.context, swap, slots, blocks)
    }

    fn poison_f32(
        &mut self,
        x: &mut Buffer<f32>,
        elements: Range<usize>,
    ) -> Result<(), DeviceError> {
        require_len("poison_f32", "x", x.len(), elements.end)?;
        self.context.poison(x, elements)
    }

    fn poison_t16(
        &mut self,
        x: &mut Buffer<u16>,
        elements: Range<usize>,
    ) -> Result<(), DeviceError> {
        require_len("poison_t16", "x", x.len(), elements.end)?;
        self.context.poison(x, elements)
    }

    fn poison_block(&mut self, kv: &mut CudaKv, block: u32) -> Result<(), DeviceError> {
        let KvShape { layers, blocks, block_size, kv_heads, head_dim } = kv.shape;
        let block = block as usize;
        require(block < blocks, || format!("poison_block: block {block} of {blocks}"))?;
        let len = block_size * kv_heads * head_dim;
        for layer in 0..layers {
            let first = (layer * blocks + block) * len;
            self.context.poison(&mut kv.k, first..first + len)?;
            self.context.poison(&mut kv.v, first..first + len)?;
        }
        Ok(())
    }

    fn embed(
        &mut self,
        embedding: &CudaMatrix,
        tokens: &[u32],
        h: &mut Buffer<f32>,
    ) -> Result<(), DeviceError> {
        self.embed_rows(embedding, tokens, h)
    }

    fn rmsnorm(
        &mut self,
        launch: NormLaunch,
        m: usize,
        n: usize,
        h: &Buffer<f32>,
        weight: &Buffer<u16>,
        eps: f32,
        x: &mut Buffer<u16>,
    ) -> Result<(), DeviceError> {
        self.norm_rows(launch, m, n, h, weight, eps, x)
    }

    fn gemm(
        &mut self,
        launch: &GemmLaunch,
        m: usize,
        x: &Buffer<u16>,
        w: &CudaMatrix,
        out: GemmOutput<'_, Cuda>,
    ) -> Result<(), DeviceError> {
        self.gemm_rows(launch, m, x, w, &out)
    }

    fn gemm_split(
        &mut self,
        launch: &GemmLaunch,
        split: usize,
        m: usize,
        x: &Buffer<u16>,
        w: &CudaMatrix,
        y: &mut Buffer<f32>,
    ) -> Result<(), DeviceError> {
        self.gemm_split_rows(launch, split, m, x, w, y)
    }

    fn rope_and_store(
        &mut self,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        qkv: &Buffer<u16>,
        norm: Option<QkNorm<'_, Cuda>>,
        rope: &CudaRope,
        q: &mut Buffer<u16>,
        kv: &mut CudaKv,
    ) -> Result<(), DeviceError> {
        self.rope_rows(layer, heads, layout, qkv, norm, rope, q, kv)
    }

    fn attention(
        &mut self,
        launch: AttentionLaunch,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        q: &Buffer<u16>,
        kv: &CudaKv,
        out: &mut Buffer<u16>,
    ) -> Result<(), DeviceError> {
        self.attend(launch, layer, heads, layout, q, kv, out)
    }

    fn swiglu(
        &mut self,
        m: usize,
        f: usize,
        gate_up: &Buffer<u16>,
        z: &mut Buffer<u16>,
    ) -> Result<(), DeviceError> {
        self.swiglu_rows(m, f, gate_up, z)
    }

    fn logprobs(
        &mut self,
        vocab: usize,
        logits: &Buffer<f32>,
        rows: &[u32],
        ids: &[u32],
    ) -> Result<Vec<f32>, DeviceError> {
        self.logprobs_of(vocab, logits, rows, ids)
    }

    fn sample(
        &mut self,
        vocab: usize,
        logits: &Buffer<f32>,
        rows: &[SampleRow],
    ) -> Result<Vec<Option<u32>>, DeviceError> {
        self.sample_rows(vocab, logits, rows)
    }

    fn digest_rows(
        &mut self,
        m: usize,
        n: usize,
        x: &Buffer<f32>,
    ) -> Result<Vec<u64>, DeviceError> {
        self.digests_of_rows(m, n, x)
    }

    fn digest_kv(
        &mut self,
        layer: usize,
        kv: &CudaKv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<KvDigest>, DeviceError> {
        self.digests_of_kv(layer, kv, blocks, from, to)
    }

    fn digest_kv_layers(
        &mut self,
        layers: usize,
        kv: &CudaKv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<Vec<KvDigest>>, DeviceError> {
        self.digests_of_layers(0..layers, kv, blocks, from, to)
    }

    fn read_row(&mut self, n: usize, x: &Buffer<f32>, row: usize) -> Result<Vec<f32>, DeviceError> {
        require_len("read_row", "x", x.len(), (row + 1) * n)?;
        self.context.download_from(x, row * n, n)
    }

    fn read_f32(&mut self, x: &Buffer<f32>, len: usize) -> Result<Vec<f32>, DeviceError> {
        require_len("read_f32", "x", x.len(), len)?;
        self.context.download(x, len)
    }

    fn read_t16(&mut self, x: &Buffer<u16>, len: usize) -> Result<Vec<u16>, DeviceError> {
        require_len("read_t16", "x", x.len(), len)?;
        self.context.download(x, len)
    }

    fn read_matrix(&mut self, w: &CudaMatrix) -> Result<Vec<u16>, DeviceError> {
        let padded = self.context.download(&w.data, w.n * w.k_padded)?;
        Ok(padded.chunks_exact(w.k_padded).flat_map(|row| &row[..w.k]).copied().collect())
    }

    fn read_kv(
        &mut self,
        layer: usize,
        kv: &CudaKv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<[Vec<u16>; 2], DeviceError> {
        kv.shape.check("read_kv", layer, blocks, to as usize)?;
        kv.read(&self.context, layer, blocks, from..to)
    }
}
