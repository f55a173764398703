//! A device with a fault in it: any device, some of its operators altered by a test.
//!
//! [`Altered`] is the device that it wraps, with the same name, buffers, log and counters. An [`Alteration`] has one method
//! for each operator that a test may want to break; each hands on to the wrapped device, so a test writes those that it
//! changes. `#[path]` brings this file into a test target: production code has no hook for it.

#![allow(clippy::too_many_arguments)]

use std::collections::BTreeSet;
use std::ops::Range;

use lockstep::contract::rope::RopeTable;
use lockstep::contract::{Contract, MatrixUnit, Mode};
use lockstep::device::{
    AttentionLaunch, Device, DeviceError, GemmLaunch, GemmOutput, GpuFacts, Heads, KvDigest,
    KvShape, Layout, LoggedRows, NormLaunch, QkNorm, SampleRow, VariantCounts,
};
use lockstep::fixture::Fixture;
use lockstep::subject::SubjectError;
use lockstep::weights::{self, Recipe};

type Done = Result<(), DeviceError>;

/// What becomes of a device's operators. A clone goes with each fresh instance of the device.
pub(crate) trait Alteration<D: Device>: Clone {
    fn watch(&mut self, device: &mut D, on: bool) {
        device.watch(on);
    }

    fn take_log(&mut self, device: &mut D) -> Result<Vec<LoggedRows>, DeviceError> {
        device.take_log()
    }

    fn upload_rope(&self, device: &D, table: &RopeTable) -> Result<D::Rope, DeviceError> {
        device.upload_rope(table)
    }

    fn embed(
        &mut self,
        device: &mut D,
        embedding: &D::Matrix,
        tokens: &[u32],
        h: &mut D::F32,
    ) -> Done {
        device.embed(embedding, tokens, h)
    }

    fn rmsnorm(
        &mut self,
        device: &mut D,
        launch: NormLaunch,
        m: usize,
        n: usize,
        h: &D::F32,
        weight: &D::T16,
        eps: f32,
        x: &mut D::T16,
    ) -> Done {
        device.rmsnorm(launch, m, n, h, weight, eps, x)
    }

    fn gemm(
        &mut self,
        device: &mut D,
        launch: &GemmLaunch,
        m: usize,
        x: &D::T16,
        w: &D::Matrix,
        out: GemmOutput<'_, D>,
    ) -> Done {
        device.gemm(launch, m, x, w, out)
    }

    fn gemm_split(
        &mut self,
        device: &mut D,
        launch: &GemmLaunch,
        split: usize,
        m: usize,
        x: &D::T16,
        w: &D::Matrix,
        y: &mut D::F32,
    ) -> Done {
        device.gemm_split(launch, split, m, x, w, y)
    }

    fn rope_and_store(
        &mut self,
        device: &mut D,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        qkv: &D::T16,
        norm: Option<QkNorm<'_, D>>,
        rope: &D::Rope,
        q: &mut D::T16,
        kv: &mut D::Kv,
    ) -> Done {
        device.rope_and_store(layer, heads, layout, qkv, norm, rope, q, kv)
    }

    fn attention(
        &mut self,
        device: &mut D,
        launch: AttentionLaunch,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        q: &D::T16,
        kv: &D::Kv,
        out: &mut D::T16,
    ) -> Done {
        device.attention(launch, layer, heads, layout, q, kv, out)
    }

    fn swiglu(
        &mut self,
        device: &mut D,
        m: usize,
        f: usize,
        gate_up: &D::T16,
        z: &mut D::T16,
    ) -> Done {
        device.swiglu(m, f, gate_up, z)
    }

    fn logprobs(
        &mut self,
        device: &mut D,
        vocab: usize,
        logits: &D::F32,
        rows: &[u32],
        ids: &[u32],
    ) -> Result<Vec<f32>, DeviceError> {
        device.logprobs(vocab, logits, rows, ids)
    }

    fn sample(
        &mut self,
        device: &mut D,
        vocab: usize,
        logits: &D::F32,
        rows: &[SampleRow],
    ) -> Result<Vec<Option<u32>>, DeviceError> {
        device.sample(vocab, logits, rows)
    }

    fn copy_block(&mut self, device: &mut D, kv: &mut D::Kv, from: u32, to: u32) -> Done {
        device.copy_block(kv, from, to)
    }

    fn swap_out(
        &mut self,
        device: &mut D,
        kv: &D::Kv,
        blocks: &[u32],
        swap: &mut D::Swap,
        slots: &[u32],
    ) -> Done {
        device.swap_out(kv, blocks, swap, slots)
    }

    fn swap_in(
        &mut self,
        device: &mut D,
        swap: &D::Swap,
        slots: &[u32],
        kv: &mut D::Kv,
        blocks: &[u32],
    ) -> Done {
        device.swap_in(swap, slots, kv, blocks)
    }

    fn digest_rows(
        &mut self,
        device: &mut D,
        m: usize,
        n: usize,
        x: &D::F32,
    ) -> Result<Vec<u64>, DeviceError> {
        device.digest_rows(m, n, x)
    }

    fn digest_kv(
        &mut self,
        device: &mut D,
        layer: usize,
        kv: &D::Kv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<KvDigest>, DeviceError> {
        device.digest_kv(layer, kv, blocks, from, to)
    }
}

/// A device, altered.
pub(crate) struct Altered<D, A> {
    inner: D,
    alteration: A,
}

impl<D: Device, A: Alteration<D>> Altered<D, A> {
    pub(crate) fn new(inner: D, alteration: A) -> Altered<D, A> {
        Altered { inner, alteration }
    }
}

/// The fixture of a preset on `device`, altered.
pub(crate) fn fixture<D: Device, A: Alteration<D>>(
    preset: &str,
    device: impl FnOnce(Contract) -> D,
    alteration: A,
) -> Result<Fixture<Altered<D, A>>, SubjectError> {
    let source = weights::source(preset, None).expect("presets are always there");
    let altered = |contract| Altered::new(device(contract), alteration);
    Fixture::on(preset, source, Mode::Invariant, MatrixUnit::SM90, altered)
}

impl<D: Device, A: Alteration<D>> Device for Altered<D, A> {
    type F32 = D::F32;
    type T16 = D::T16;
    type Matrix = D::Matrix;
    type Rope = D::Rope;
    type Kv = D::Kv;
    type Swap = D::Swap;

    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn contract(&self) -> &Contract {
        self.inner.contract()
    }
    fn gpu(&self) -> Option<GpuFacts> {
        self.inner.gpu()
    }
    fn fresh(&self) -> Self {
        Altered { inner: self.inner.fresh(), alteration: self.alteration.clone() }
    }
    fn watch(&mut self, on: bool) {
        self.alteration.watch(&mut self.inner, on);
    }
    fn keep(&mut self, entries: &BTreeSet<usize>) {
        self.inner.keep(entries);
    }
    fn take_log(&mut self) -> Result<Vec<LoggedRows>, DeviceError> {
        self.alteration.take_log(&mut self.inner)
    }
    fn counts(&mut self) -> Result<VariantCounts, DeviceError> {
        self.inner.counts()
    }
    fn upload(&self, values: &[u16]) -> Result<D::T16, DeviceError> {
        self.inner.upload(values)
    }
    fn upload_f32(&self, values: &[f32]) -> Result<D::F32, DeviceError> {
        self.inner.upload_f32(values)
    }
    fn upload_matrix(&self, n: usize, k: usize, values: &[u16]) -> Result<D::Matrix, DeviceError> {
        self.inner.upload_matrix(n, k, values)
    }
    fn make(&self, recipe: &Recipe) -> Result<D::T16, DeviceError> {
        self.inner.make(recipe)
    }
    fn make_matrix(&self, recipe: &Recipe) -> Result<D::Matrix, DeviceError> {
        self.inner.make_matrix(recipe)
    }
    fn upload_rope(&self, table: &RopeTable) -> Result<D::Rope, DeviceError> {
        self.alteration.upload_rope(&self.inner, table)
    }
    fn alloc_f32(&self, len: usize) -> Result<D::F32, DeviceError> {
        self.inner.alloc_f32(len)
    }
    fn alloc_t16(&self, len: usize) -> Result<D::T16, DeviceError> {
        self.inner.alloc_t16(len)
    }
    fn alloc_kv(&self, shape: KvShape) -> Result<D::Kv, DeviceError> {
        self.inner.alloc_kv(shape)
    }
    fn alloc_swap(&self, shape: KvShape) -> Result<D::Swap, DeviceError> {
        self.inner.alloc_swap(shape)
    }

    fn copy_block(&mut self, kv: &mut D::Kv, from: u32, to: u32) -> Done {
        self.alteration.copy_block(&mut self.inner, kv, from, to)
    }
    fn swap_out(&mut self, kv: &D::Kv, blocks: &[u32], swap: &mut D::Swap, slots: &[u32]) -> Done {
        self.alteration.swap_out(&mut self.inner, kv, blocks, swap, slots)
    }
    fn swap_in(&mut self, swap: &D::Swap, slots: &[u32], kv: &mut D::Kv, blocks: &[u32]) -> Done {
        self.alteration.swap_in(&mut self.inner, swap, slots, kv, blocks)
    }
    fn poison_f32(&mut self, x: &mut D::F32, elements: Range<usize>) -> Done {
        self.inner.poison_f32(x, elements)
    }
    fn poison_t16(&mut self, x: &mut D::T16, elements: Range<usize>) -> Done {
        self.inner.poison_t16(x, elements)
    }
    fn poison_block(&mut self, kv: &mut D::Kv, block: u32) -> Done {
        self.inner.poison_block(kv, block)
    }

    fn embed(&mut self, embedding: &D::Matrix, tokens: &[u32], h: &mut D::F32) -> Done {
        self.alteration.embed(&mut self.inner, embedding, tokens, h)
    }
    fn rmsnorm(
        &mut self,
        launch: NormLaunch,
        m: usize,
        n: usize,
        h: &D::F32,
        weight: &D::T16,
        eps: f32,
        x: &mut D::T16,
    ) -> Done {
        self.alteration.rmsnorm(&mut self.inner, launch, m, n, h, weight, eps, x)
    }
    fn gemm(
        &mut self,
        launch: &GemmLaunch,
        m: usize,
        x: &D::T16,
        w: &D::Matrix,
        out: GemmOutput<'_, Self>,
    ) -> Done {
        let out = match out {
            GemmOutput::Round(y) => GemmOutput::Round(y),
            GemmOutput::Residual(h) => GemmOutput::Residual(h),
            GemmOutput::Store(y) => GemmOutput::Store(y),
        };
        self.alteration.gemm(&mut self.inner, launch, m, x, w, out)
    }
    fn gemm_split(
        &mut self,
        launch: &GemmLaunch,
        split: usize,
        m: usize,
        x: &D::T16,
        w: &D::Matrix,
        y: &mut D::F32,
    ) -> Done {
        self.alteration.gemm_split(&mut self.inner, launch, split, m, x, w, y)
    }
    fn rope_and_store(
        &mut self,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        qkv: &D::T16,
        norm: Option<QkNorm<'_, Self>>,
        rope: &D::Rope,
        q: &mut D::T16,
        kv: &mut D::Kv,
    ) -> Done {
        let norm = norm.map(|n| QkNorm { q: n.q, k: n.k, eps: n.eps });
        let inner = &mut self.inner;
        self.alteration.rope_and_store(inner, layer, heads, layout, qkv, norm, rope, q, kv)
    }
    fn attention(
        &mut self,
        launch: AttentionLaunch,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        q: &D::T16,
        kv: &D::Kv,
        out: &mut D::T16,
    ) -> Done {
        self.alteration.attention(&mut self.inner, launch, layer, heads, layout, q, kv, out)
    }
    fn swiglu(&mut self, m: usize, f: usize, gate_up: &D::T16, z: &mut D::T16) -> Done {
        self.alteration.swiglu(&mut self.inner, m, f, gate_up, z)
    }
    fn logprobs(
        &mut self,
        vocab: usize,
        logits: &D::F32,
        rows: &[u32],
        ids: &[u32],
    ) -> Result<Vec<f32>, DeviceError> {
        self.alteration.logprobs(&mut self.inner, vocab, logits, rows, ids)
    }
    fn sample(
        &mut self,
        vocab: usize,
        logits: &D::F32,
        rows: &[SampleRow],
    ) -> Result<Vec<Option<u32>>, DeviceError> {
        self.alteration.sample(&mut self.inner, vocab, logits, rows)
    }

    fn digest_rows(&mut self, m: usize, n: usize, x: &D::F32) -> Result<Vec<u64>, DeviceError> {
        self.alteration.digest_rows(&mut self.inner, m, n, x)
    }
    fn digest_kv(
        &mut self,
        layer: usize,
        kv: &D::Kv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<KvDigest>, DeviceError> {
        self.alteration.digest_kv(&mut self.inner, layer, kv, blocks, from, to)
    }
    fn read_row(&mut self, n: usize, x: &D::F32, row: usize) -> Result<Vec<f32>, DeviceError> {
        self.inner.read_row(n, x, row)
    }
    fn read_f32(&mut self, x: &D::F32, len: usize) -> Result<Vec<f32>, DeviceError> {
        self.inner.read_f32(x, len)
    }
    fn read_t16(&mut self, x: &D::T16, len: usize) -> Result<Vec<u16>, DeviceError> {
        self.inner.read_t16(x, len)
    }
    fn read_matrix(&mut self, w: &D::Matrix) -> Result<Vec<u16>, DeviceError> {
        self.inner.read_matrix(w)
    }
    fn read_kv(
        &mut self,
        layer: usize,
        kv: &D::Kv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<[Vec<u16>; 2], DeviceError> {
        self.inner.read_kv(layer, kv, blocks, from, to)
    }
}
