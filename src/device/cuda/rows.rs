//! Launches of the operators on rows: embedding, norm, SwiGLU, RoPE and the store of K and V, digests.

use std::ops::Range;

use super::compile::{Program, Source};
use super::context::{Arg, Buffer, NULL, Shape};
use super::{Cuda, CudaKv, CudaMatrix, CudaRope, require, require_len};
use crate::contract::scalar::score_scale;
use crate::contract::tree::{LANES_MAX, norm_lanes};
use crate::device::{DeviceError, Heads, KvDigest, Layout, NormLaunch, QkNorm};

/// Largest head that the kernels take.
pub(super) const DIM_MAX: usize = 128;

impl Cuda {
    /// See [`crate::device::Device::embed`].
    pub(super) fn embed_rows(
        &mut self,
        embedding: &CudaMatrix,
        tokens: &[u32],
        h: &Buffer<f32>,
    ) -> Result<(), DeviceError> {
        require_len("embed", "h", h.len(), tokens.len() * embedding.k)?;
        let stray = tokens.iter().find(|t| **t as usize >= embedding.n);
        require(stray.is_none(), || {
            format!("embed: token {stray:?} in a vocabulary of {}", embedding.n)
        })?;
        if tokens.is_empty() {
            return Ok(());
        }
        let ids = self.context.upload(tokens)?;
        let args = [
            embedding.data.arg(),
            Arg::U32(embedding.k_padded as u32),
            Arg::U32(embedding.k as u32),
            ids.arg(),
            h.arg(),
        ];
        let shape = Shape::new((tokens.len(), 1, 1), 128);
        // SAFETY: embed's parameters; tokens are rows of the matrix, h has a row for each.
        unsafe { self.launch(Source::EMBED, "embed", shape, &args) }?;
        self.log_rows(tokens.len(), embedding.k, h)
    }

    /// See [`crate::device::Device::rmsnorm`].
    #[allow(clippy::too_many_arguments)]
    pub(super) fn norm_rows(
        &mut self,
        launch: NormLaunch,
        m: usize,
        n: usize,
        h: &Buffer<f32>,
        weight: &Buffer<u16>,
        eps: f32,
        x: &Buffer<u16>,
    ) -> Result<(), DeviceError> {
        let lanes = launch.lanes as usize;
        require(n > 0 && lanes.is_power_of_two() && lanes <= LANES_MAX, || {
            format!("rmsnorm: {lanes} lanes over {n} columns")
        })?;
        require_len("rmsnorm", "h", h.len(), m * n)?;
        require_len("rmsnorm", "weight", weight.len(), n)?;
        require_len("rmsnorm", "x", x.len(), m * n)?;
        if m == 0 {
            return Ok(());
        }
        let counts = self.counters.arg(&self.context)?;
        let tap = self.tap(m, n)?;
        let (n, lanes, eps) = (Arg::U32(n as u32), Arg::U32(launch.lanes), Arg::F32(eps));
        let shape = Shape::new((m, 1, 1), 256);
        if launch.fused {
            let args = [h.arg(), weight.arg(), n, lanes, eps, x.arg(), tap.arg(), counts];
            // SAFETY: norm_fused's parameters; h, x and the tap have m rows of n, the weight n elements.
            unsafe { self.launch(Source::NORM, "norm_fused", shape, &args) }?;
            return self.log_tap(tap);
        }
        let scales = self.context.alloc::<f32>(m)?;
        let args = [h.arg(), n, lanes, eps, scales.arg()];
        // SAFETY: norm_scales' parameters; one scale a row.
        unsafe { self.launch(Source::NORM, "norm_scales", shape, &args) }?;
        let args = [h.arg(), scales.arg(), weight.arg(), n, x.arg(), tap.arg(), counts];
        // SAFETY: norm_apply's parameters, as above.
        unsafe { self.launch(Source::NORM, "norm_apply", shape, &args) }?;
        self.log_tap(tap)
    }

    /// See [`crate::device::Device::swiglu`].
    pub(super) fn swiglu_rows(
        &mut self,
        m: usize,
        f: usize,
        gate_up: &Buffer<u16>,
        z: &Buffer<u16>,
    ) -> Result<(), DeviceError> {
        require_len("swiglu", "gate_up", gate_up.len(), m * 2 * f)?;
        require_len("swiglu", "z", z.len(), m * f)?;
        if m * f == 0 {
            return Ok(());
        }
        let tap = self.tap(m, f)?;
        let args = [Arg::U32(m as u32), Arg::U32(f as u32), gate_up.arg(), z.arg(), tap.arg()];
        // SAFETY: swiglu's parameters; gate_up has m rows of 2f, z and the tap of f.
        unsafe { self.launch(Source::SWIGLU, "swiglu", Shape::elements(m * f), &args) }?;
        self.log_tap(tap)
    }

    /// See [`crate::device::Device::rope_and_store`].
    #[allow(clippy::too_many_arguments)]
    pub(super) fn rope_rows(
        &mut self,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        qkv: &Buffer<u16>,
        norm: Option<QkNorm<'_, Cuda>>,
        rope: &CudaRope,
        q: &Buffer<u16>,
        kv: &CudaKv,
    ) -> Result<(), DeviceError> {
        check_layout("rope_and_store", layer, heads, layout, kv)?;
        let rows = layout.rows();
        require_len("rope_and_store", "qkv", qkv.len(), rows * heads.qkv_columns())?;
        require_len("rope_and_store", "q", q.len(), rows * heads.q * heads.dim)?;
        let end = layout.sequences.iter().map(|s| s.start as usize + s.len as usize).max();
        require(rope.head_dim == heads.dim && end.unwrap_or(0) <= rope.positions, || {
            let CudaRope { head_dim, positions, .. } = rope;
            format!(
                "rope_and_store: a table of {positions} x {head_dim} for {end:?} x {}",
                heads.dim
            )
        })?;
        if let Some(norm) = &norm {
            require_len("rope_and_store", "q norm weight", norm.q.len(), heads.dim)?;
            require_len("rope_and_store", "k norm weight", norm.k.len(), heads.dim)?;
        }
        if rows == 0 {
            return Ok(());
        }
        self.use_layout(layout)?;
        let [q_tap, k_tap] = self.taps(rows, [heads.q * heads.dim, heads.kv * heads.dim])?;
        let on_device = self.layout.as_ref().expect("just made");
        let (k, v) = kv.layer(layer);
        let (q_norm, k_norm, eps) =
            norm.map_or((NULL, NULL, 0.0), |n| (n.q.arg(), n.k.arg(), n.eps));
        let n = |n: usize| Arg::U32(n as u32);
        let args = [
            qkv.arg(),
            on_device.rows.arg(),
            n(heads.q),
            n(heads.kv),
            n(heads.dim),
            n(kv.shape.block_size),
            rope.cos.arg(),
            rope.sin.arg(),
            q_norm,
            k_norm,
            Arg::F32(eps),
            Arg::U32(norm_lanes(heads.dim)),
            Arg::F32(score_scale(heads.dim)),
            q.arg(),
            k,
            v,
            q_tap.arg(),
            k_tap.arg(),
        ];
        let shape = Shape::new((rows, heads.q + 2 * heads.kv, 1), 128);
        // SAFETY: rope_and_store's parameters; the layout was checked against the pool and the table, and the taps
        // have a row for each of its rows.
        unsafe { self.launch(Source::ROPE, "rope_and_store", shape, &args) }?;
        self.log_tap(q_tap)?;
        self.log_tap(k_tap)
    }

    /// See [`crate::device::Device::digest_rows`].
    pub(super) fn digests_of_rows(
        &mut self,
        m: usize,
        n: usize,
        x: &Buffer<f32>,
    ) -> Result<Vec<u64>, DeviceError> {
        require_len("digest_rows", "x", x.len(), m * n)?;
        self.digests(m, n, "digest_rows", x.arg())
    }

    /// Digests of rows of 16-bit values, widened.
    pub fn digest_rows16(
        &mut self,
        m: usize,
        n: usize,
        x: &Buffer<u16>,
    ) -> Result<Vec<u64>, DeviceError> {
        require_len("digest_rows16", "x", x.len(), m * n)?;
        self.digests(m, n, "digest_rows16", x.arg())
    }

    fn digests(
        &mut self,
        m: usize,
        n: usize,
        name: &'static str,
        x: Arg,
    ) -> Result<Vec<u64>, DeviceError> {
        if m == 0 {
            return Ok(Vec::new());
        }
        let out = self.context.alloc::<u64>(m)?;
        let args = [x, Arg::U32(n as u32), out.arg()];
        let shape = Shape::new((m, 1, 1), 256);
        // SAFETY: the digest kernels' parameters; x has m rows of n, one digest a row.
        unsafe { self.launch(Source::DIGEST, name, shape, &args) }?;
        self.context.download(&out, m)
    }

    /// See [`crate::device::Device::digest_kv`].
    pub(super) fn digests_of_kv(
        &mut self,
        layer: usize,
        kv: &CudaKv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<KvDigest>, DeviceError> {
        let layers = self.digests_of_layers(layer..layer + 1, kv, blocks, from, to)?;
        Ok(layers.into_iter().next().unwrap_or_default())
    }

    /// See [`crate::device::Device::digest_kv_layers`]: one read-back for all layers.
    pub(super) fn digests_of_layers(
        &mut self,
        layers: Range<usize>,
        kv: &CudaKv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<Vec<KvDigest>>, DeviceError> {
        for layer in layers.clone() {
            kv.shape.check("digest_kv", layer, blocks, to as usize)?;
        }
        let positions = to.saturating_sub(from) as usize;
        if positions == 0 || layers.is_empty() {
            return Ok(vec![Vec::new(); layers.len()]);
        }
        let table = self.context.upload(blocks)?;
        let out = self.context.alloc::<u64>(2 * positions * layers.len())?;
        let n = |n: usize| Arg::U32(n as u32);
        for (index, layer) in layers.clone().enumerate() {
            let (k, v) = kv.layer(layer);
            let args = [
                k,
                v,
                table.arg(),
                Arg::U32(from),
                n(kv.shape.block_size),
                n(kv.shape.kv_heads),
                n(kv.shape.head_dim),
                out.at(2 * positions * index),
            ];
            let shape = Shape::new((positions, 2, 1), 256);
            // SAFETY: digest_kv's parameters; the table covers the positions with blocks of the pool, and each
            // layer has its part of the digests.
            unsafe { self.launch(Source::DIGEST, "digest_kv", shape, &args) }?;
        }
        let digests = self.context.download(&out, 2 * positions * layers.len())?;
        let digest = |d: &[u64]| KvDigest { k: d[0], v: d[1] };
        let layer = |d: &[u64]| d.chunks_exact(2).map(digest).collect();
        Ok(digests.chunks_exact(2 * positions).map(layer).collect())
    }

    /// Launches a kernel of a file that has no tile.
    ///
    /// # Safety
    /// As [`super::context::Context::launch`].
    pub(super) unsafe fn launch(
        &self,
        source: Source,
        name: &'static str,
        shape: Shape,
        args: &[Arg],
    ) -> Result<(), DeviceError> {
        let program = Program::new(source, self.contract.dtype);
        // SAFETY: as this function requires.
        unsafe { self.context.launch(program, name, shape, args) }
    }
}

/// Refuses heads or a layout that do not fit the pool.
pub(super) fn check_layout(
    operator: &str,
    layer: usize,
    heads: Heads,
    layout: &Layout,
    kv: &CudaKv,
) -> Result<(), DeviceError> {
    let takes_dim = (1..=DIM_MAX).contains(&heads.dim) && heads.dim.is_multiple_of(16);
    kv.shape.check_layout(operator, layer, heads, layout, takes_dim)?;
    let has_rows = layout.sequences.iter().all(|s| s.len > 0);
    require(has_rows, || format!("{operator}: a sequence without rows"))
}
