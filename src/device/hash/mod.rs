//! The hash device: the data flow of a forward pass with no arithmetic.
//!
//! A row of any buffer is one 64-bit hash that each operator extends: a token's hash passes through norms and GEMMs, a KV
//! entry is the hash of its row, its position and its layer, and attention is a hash of the visible entries in their order.
//! So whatever goes wrong with *state* changes the result exactly and for good: a wrong or a stale block, a position or a
//! layer mistaken, a write that was lost, an operator left out. Rounding, reductions and near ties do not exist here; the
//! device shows nothing about numerics, and no result of it counts as a numeric one.
//!
//! Launches are checked and counted as the host does. Their variants change no hash; what would change bits on a real
//! device (cuts, split lengths and lanes other than the contract's) changes the hash, so the batch-dependent mode
//! goes red here too.

mod buffer;
mod kv;
mod logits;
mod mix;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::checks::{check_cuts, require, require_len};
use super::host::logprobs;
use super::{
    AttentionLaunch, Device, DeviceError, GemmLaunch, GemmOutput, Heads, KvDigest, KvShape, Layout,
    LoggedRows, NormLaunch, QkNorm, RowTile, SampleRow, Splits, VariantCounts,
};
use crate::contract::rope::RopeTable;
use crate::contract::simd::{Simd, SimdPath};
use crate::contract::tree::norm_lanes;
use crate::contract::{Contract, sampler};
use crate::weights::Recipe;

pub use buffer::{HashBuffer, HashMatrix};
pub use kv::HashKv;
use logits::Peak;
use mix::{fold, mix, operator};

/// The hash device.
#[derive(Debug)]
pub struct Hash {
    contract: Arc<Contract>,
    simd: Simd,
    counts: VariantCounts,
    /// While it is switched on.
    log: Option<Vec<LoggedRows>>,
    logits: Vec<f32>,
    logprobs: logprobs::Scratch,
    sampler: sampler::Scratch,
}

impl Hash {
    /// A hash device under `contract`, whose constants say where launches change numerics.
    pub fn new(contract: Contract) -> Hash {
        Hash::assemble(Arc::new(contract), Simd::new(SimdPath::Auto).expect("auto always resolves"))
    }

    fn assemble(contract: Arc<Contract>, simd: Simd) -> Hash {
        Hash {
            contract,
            simd,
            counts: VariantCounts::default(),
            log: None,
            logits: Vec::new(),
            logprobs: logprobs::Scratch::default(),
            sampler: sampler::Scratch::default(),
        }
    }

    /// Appends rows to the log if it is on: their hashes are their digests.
    fn note(&mut self, width: usize, rows: &[u64]) {
        if let Some(log) = &mut self.log {
            log.push(LoggedRows { width, digests: rows.to_vec(), values: None });
        }
    }

    /// The logits of a row, made.
    fn fill(&mut self, vocab: usize, row: u64) {
        self.logits.resize(vocab, 0.0);
        logits::fill(self.simd, row, &mut self.logits);
    }

    fn count_gemm(&mut self, launch: &GemmLaunch) {
        let counts = &mut self.counts;
        let counter = match (launch.rows, launch.splits) {
            (RowTile::Skinny, Splits::Walk) => &mut counts.gemm_skinny_walk,
            (RowTile::Skinny, Splits::Parallel) => &mut counts.gemm_skinny_parallel,
            (RowTile::Tiled, Splits::Walk) => &mut counts.gemm_tiled_walk,
            (RowTile::Tiled, Splits::Parallel) => &mut counts.gemm_tiled_parallel,
        };
        *counter += 1;
        if launch.cuts.len() > 2 {
            counts.gemm_folds += 1;
        }
    }
}

/// What the hash device can't do: there are no numbers to read.
fn no_numbers<T>(operator: &str) -> Result<T, DeviceError> {
    Err(DeviceError::Launch(format!("{operator}: device hash holds no numbers")))
}

impl Device for Hash {
    type F32 = HashBuffer;
    type T16 = HashBuffer;
    type Matrix = HashMatrix;
    type Rope = usize;
    type Kv = HashKv;
    type Swap = HashKv;

    fn name(&self) -> &'static str {
        "hash"
    }

    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn fresh(&self) -> Hash {
        Hash::assemble(Arc::clone(&self.contract), self.simd)
    }

    fn watch(&mut self, on: bool) {
        self.log = on.then(Vec::new);
    }

    /// There are no values to keep.
    fn keep(&mut self, _: &BTreeSet<usize>) {}

    fn take_log(&mut self) -> Result<Vec<LoggedRows>, DeviceError> {
        let Some(log) = &mut self.log else { return Ok(Vec::new()) };
        let next = Vec::with_capacity(log.len());
        Ok(std::mem::replace(log, next))
    }

    fn counts(&mut self) -> Result<VariantCounts, DeviceError> {
        Ok(self.counts.clone())
    }

    fn upload(&self, values: &[u16]) -> Result<HashBuffer, DeviceError> {
        Ok(HashBuffer::weights(values.len(), values.iter().map(|v| u64::from(*v))))
    }

    fn upload_f32(&self, values: &[f32]) -> Result<HashBuffer, DeviceError> {
        Ok(HashBuffer::weights(values.len(), values.iter().map(|v| u64::from(v.to_bits()))))
    }

    fn upload_matrix(&self, n: usize, k: usize, values: &[u16]) -> Result<HashMatrix, DeviceError> {
        require(values.len() == n * k, || {
            format!("upload_matrix: {} values for {n} x {k}", values.len())
        })?;
        let first = values.iter().map(|v| u64::from(*v));
        Ok(HashMatrix::new(&self.contract.constants, n, k, first))
    }

    fn make(&self, recipe: &Recipe) -> Result<HashBuffer, DeviceError> {
        let first = recipe.first(buffer::SAMPLE).into_iter().map(u64::from);
        Ok(HashBuffer::weights(recipe.n() * recipe.k(), first))
    }

    fn make_matrix(&self, recipe: &Recipe) -> Result<HashMatrix, DeviceError> {
        let first = recipe.first(buffer::SAMPLE).into_iter().map(u64::from);
        Ok(HashMatrix::new(&self.contract.constants, recipe.n(), recipe.k(), first))
    }

    fn upload_rope(&self, table: &RopeTable) -> Result<usize, DeviceError> {
        Ok(table.positions)
    }

    fn alloc_f32(&self, len: usize) -> Result<HashBuffer, DeviceError> {
        Ok(HashBuffer::unwritten(len))
    }

    fn alloc_t16(&self, len: usize) -> Result<HashBuffer, DeviceError> {
        Ok(HashBuffer::unwritten(len))
    }

    fn alloc_kv(&self, shape: KvShape) -> Result<HashKv, DeviceError> {
        Ok(HashKv::new(shape))
    }

    fn alloc_swap(&self, shape: KvShape) -> Result<HashKv, DeviceError> {
        Ok(HashKv::new(shape))
    }

    fn copy_block(&mut self, kv: &mut HashKv, from: u32, to: u32) -> Result<(), DeviceError> {
        kv.copy_block(from, to)
    }

    fn swap_out(
        &mut self,
        kv: &HashKv,
        blocks: &[u32],
        swap: &mut HashKv,
        slots: &[u32],
    ) -> Result<(), DeviceError> {
        swap.copy_from("swap_out", kv, blocks, slots)
    }

    fn swap_in(
        &mut self,
        swap: &HashKv,
        slots: &[u32],
        kv: &mut HashKv,
        blocks: &[u32],
    ) -> Result<(), DeviceError> {
        kv.copy_from("swap_in", swap, slots, blocks)
    }

    fn poison_f32(
        &mut self,
        x: &mut HashBuffer,
        elements: Range<usize>,
    ) -> Result<(), DeviceError> {
        require_len("poison_f32", "x", x.len(), elements.end)?;
        x.poison(elements);
        Ok(())
    }

    fn poison_t16(
        &mut self,
        x: &mut HashBuffer,
        elements: Range<usize>,
    ) -> Result<(), DeviceError> {
        require_len("poison_t16", "x", x.len(), elements.end)?;
        x.poison(elements);
        Ok(())
    }

    fn poison_block(&mut self, kv: &mut HashKv, block: u32) -> Result<(), DeviceError> {
        kv.poison(block)
    }

    fn embed(
        &mut self,
        embedding: &HashMatrix,
        tokens: &[u32],
        h: &mut HashBuffer,
    ) -> Result<(), DeviceError> {
        require_len("embed", "h", h.len(), tokens.len() * embedding.k)?;
        let tag = mix(embedding.tag, operator::EMBED);
        for (&token, h) in tokens.iter().zip(h.rows_mut(tokens.len(), embedding.k)) {
            require((token as usize) < embedding.n, || {
                format!("embed: token {token} in a vocabulary of {}", embedding.n)
            })?;
            *h = mix(token.into(), tag);
        }
        self.note(embedding.k, h.rows_mut(tokens.len(), embedding.k));
        Ok(())
    }

    fn rmsnorm(
        &mut self,
        launch: NormLaunch,
        m: usize,
        n: usize,
        h: &HashBuffer,
        weight: &HashBuffer,
        _: f32,
        x: &mut HashBuffer,
    ) -> Result<(), DeviceError> {
        require(n > 0 && launch.lanes.is_power_of_two(), || {
            format!("rmsnorm: {} lanes over {n} columns", launch.lanes)
        })?;
        require_len("rmsnorm", "h", h.len(), m * n)?;
        require_len("rmsnorm", "weight", weight.len(), n)?;
        require_len("rmsnorm", "x", x.len(), m * n)?;
        let mut tag = mix(weight.tag(), operator::NORM);
        if launch.lanes != norm_lanes(n) {
            tag = mix(tag, launch.lanes.into());
        }
        for (h, x) in h.rows(m).zip(x.rows_mut(m, n)) {
            *x = mix(h, tag);
        }
        self.note(n, x.rows_mut(m, n));
        let counts = &mut self.counts;
        *if launch.fused { &mut counts.norm_fused } else { &mut counts.norm_plain } += 1;
        Ok(())
    }

    fn gemm(
        &mut self,
        launch: &GemmLaunch,
        m: usize,
        x: &HashBuffer,
        w: &HashMatrix,
        out: GemmOutput<'_, Hash>,
    ) -> Result<(), DeviceError> {
        require_len("gemm", "x", x.len(), m * w.k)?;
        let mut tag = mix(w.tag, operator::GEMM);
        if launch.cuts[..] != w.cuts[..] {
            let k_padded = w.k.next_multiple_of(16);
            check_cuts(&launch.cuts, w.n, w.k, k_padded, usize::MAX)?;
            tag = fold(tag, launch.cuts.iter().map(|c| u64::from(*c)));
        }
        let (adds, logged, y) = match out {
            GemmOutput::Residual(h) => (true, true, h),
            GemmOutput::Round(y) => (false, true, y),
            GemmOutput::Store(y) => (false, false, y),
        };
        require_len("gemm", "output", y.len(), m * w.n)?;
        for (x, y) in x.rows(m).zip(y.rows_mut(m, w.n)) {
            let product = mix(x, tag);
            *y = if adds { mix(*y, mix(product, operator::RESIDUAL)) } else { product };
        }
        if logged {
            self.note(w.n, y.rows_mut(m, w.n));
        }
        self.count_gemm(launch);
        Ok(())
    }

    fn rope_and_store(
        &mut self,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        qkv: &HashBuffer,
        norm: Option<QkNorm<'_, Hash>>,
        rope: &usize,
        q: &mut HashBuffer,
        kv: &mut HashKv,
    ) -> Result<(), DeviceError> {
        kv.shape().check_layout("rope_and_store", layer, heads, layout, true)?;
        let m = layout.rows();
        require_len("rope_and_store", "qkv", qkv.len(), m * heads.qkv_columns())?;
        require_len("rope_and_store", "q", q.len(), m * heads.q * heads.dim)?;
        let end = layout.sequences.iter().map(|s| s.start as usize + s.len as usize).max();
        require(end.unwrap_or(0) <= *rope, || {
            format!("rope_and_store: a table of {rope} positions for {end:?}")
        })?;
        let norm = norm.map_or(operator::QUERY, |norm| mix(norm.q.tag(), norm.k.tag()));
        let size = layout.block_size as usize;
        let q = q.rows_mut(m, heads.q * heads.dim);
        let mut stored = Vec::with_capacity(m);
        let mut row = 0;
        for sequence in &layout.sequences {
            let (mut position, end) =
                (sequence.start as usize, (sequence.start + sequence.len) as usize);
            while position < end {
                let slots = kv.block_mut(layer, sequence.blocks[position / size]);
                let from = position % size;
                let to = size.min(from + end - position);
                for slot in &mut slots[from..to] {
                    let place = (layer as u64) << 32 | position as u64;
                    let value = mix(qkv.row(row), mix(place, norm));
                    *slot = value;
                    stored.push(value);
                    q[row] = mix(value, operator::QUERY);
                    (row, position) = (row + 1, position + 1);
                }
            }
        }
        self.note(heads.q * heads.dim, q);
        if let Some(log) = &mut self.log {
            log.push(LoggedRows { width: heads.kv * heads.dim, digests: stored, values: None });
        }
        Ok(())
    }

    fn attention(
        &mut self,
        launch: AttentionLaunch,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        q: &HashBuffer,
        kv: &HashKv,
        out: &mut HashBuffer,
    ) -> Result<(), DeviceError> {
        let constants = self.contract.constants;
        let (tile, split) = (constants.tile as usize, launch.split as usize);
        kv.shape().check_layout("attention", layer, heads, layout, true)?;
        require(
            tile > 0 && tile.is_multiple_of(16) && split > 0 && split.is_multiple_of(tile),
            || format!("attention: splits of {split} positions over tiles of {tile}"),
        )?;
        let m = layout.rows();
        require_len("attention", "q", q.len(), m * heads.q * heads.dim)?;
        require_len("attention", "out", out.len(), m * heads.q * heads.dim)?;
        match launch.splits {
            Splits::Walk => self.counts.attention_walk += 1,
            Splits::Parallel => self.counts.attention_parallel += 1,
        }
        // Other splits change bits where they cut a row in another place.
        let changed = match constants.split as usize {
            contract if contract == split => usize::MAX,
            contract => contract.min(split),
        };
        let out = out.rows_mut(m, heads.q * heads.dim);
        let mut row = 0;
        for sequence in &layout.sequences {
            let (start, end) = (sequence.start as usize, (sequence.start + sequence.len) as usize);
            if !start.is_multiple_of(tile) {
                self.counts.attention_tile_before_chunk += 1;
            }
            let folded = end.saturating_sub(start.max(split));
            self.counts.attention_folds += (folded * heads.q) as u64;
            let mut chain = operator::ATTENTION;
            for (position, entry) in kv.entries(layer, &sequence.blocks, 0, end).enumerate() {
                chain = mix(chain, entry);
                if position >= start {
                    out[row] = mix(q.row(row), chain);
                    if position >= changed {
                        out[row] = mix(out[row], mix(split as u64, operator::LAUNCH));
                    }
                    row += 1;
                }
            }
        }
        self.note(heads.q * heads.dim, out);
        Ok(())
    }

    fn swiglu(
        &mut self,
        m: usize,
        f: usize,
        gate_up: &HashBuffer,
        z: &mut HashBuffer,
    ) -> Result<(), DeviceError> {
        require_len("swiglu", "gate_up", gate_up.len(), m * 2 * f)?;
        require_len("swiglu", "z", z.len(), m * f)?;
        for (x, z) in gate_up.rows(m).zip(z.rows_mut(m, f)) {
            *z = mix(x, operator::SWIGLU);
        }
        self.note(f, z.rows_mut(m, f));
        Ok(())
    }

    fn logprobs(
        &mut self,
        vocab: usize,
        logits: &HashBuffer,
        rows: &[u32],
        ids: &[u32],
    ) -> Result<Vec<f32>, DeviceError> {
        require(rows.len() == ids.len(), || {
            format!("logprobs: {} rows for {} ids", rows.len(), ids.len())
        })?;
        let block = self.contract.constants.vocab_block as usize;
        let mut all = Vec::with_capacity(rows.len());
        for (rows, ids) in same_row(rows).map(|range| (&rows[range.clone()], &ids[range])) {
            let row = rows[0] as usize;
            require_len("logprobs", "logits", logits.len(), (row + 1) * vocab)?;
            self.fill(vocab, logits.row(row));
            let first = vec![0; ids.len()];
            let scratch = &mut self.logprobs;
            let found =
                logprobs::logprobs(self.simd, block, vocab, &self.logits, &first, ids, scratch)?;
            all.extend(found);
        }
        Ok(all)
    }

    fn sample(
        &mut self,
        vocab: usize,
        logits: &HashBuffer,
        rows: &[SampleRow],
    ) -> Result<Vec<Option<u32>>, DeviceError> {
        let mut drawn = Vec::with_capacity(rows.len());
        for SampleRow { row, params, seen, key, position } in rows {
            let row = *row as usize;
            require(vocab > 0, || "sample: an empty vocabulary".into())?;
            require_len("sample", "logits", logits.len(), (row + 1) * vocab)?;
            let stray = seen.iter().find(|id| **id as usize >= vocab);
            require(stray.is_none(), || format!("sample: id {stray:?} of {vocab}"))?;
            let row = logits.row(row);
            let Some(peak) = Peak::of(row, vocab) else {
                drawn.push(None);
                continue;
            };
            if params.is_greedy() && params.repetition_penalty == 1.0 {
                drawn.push(Some(peak.greedy()));
                continue;
            }
            self.fill(vocab, row);
            let scratch = &mut self.sampler;
            drawn.push(sampler::draw(
                self.simd,
                &self.logits,
                params,
                seen,
                *key,
                *position,
                scratch,
            ));
        }
        Ok(drawn)
    }

    fn digest_rows(&mut self, m: usize, n: usize, x: &HashBuffer) -> Result<Vec<u64>, DeviceError> {
        require_len("digest_rows", "x", x.len(), m * n)?;
        Ok(x.rows(m).map(|row| mix(row, operator::DIGEST)).collect())
    }

    fn digest_kv(
        &mut self,
        layer: usize,
        kv: &HashKv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<KvDigest>, DeviceError> {
        kv.shape().check("digest_kv", layer, blocks, to as usize)?;
        let digest =
            |entry| KvDigest { k: mix(entry, operator::KEY), v: mix(entry, operator::VALUE) };
        let mut digests = Vec::with_capacity(to.saturating_sub(from) as usize);
        digests.extend(kv.entries(layer, blocks, from as usize, to as usize).map(digest));
        Ok(digests)
    }

    /// `n` pseudo-random values that follow from the row's hash.
    fn read_row(&mut self, n: usize, x: &HashBuffer, row: usize) -> Result<Vec<f32>, DeviceError> {
        require_len("read_row", "x", x.len(), (row + 1) * n)?;
        self.fill(n, x.row(row));
        Ok(self.logits.clone())
    }

    fn read_f32(&mut self, _: &HashBuffer, _: usize) -> Result<Vec<f32>, DeviceError> {
        no_numbers("read_f32")
    }

    fn read_t16(&mut self, _: &HashBuffer, _: usize) -> Result<Vec<u16>, DeviceError> {
        no_numbers("read_t16")
    }

    fn read_matrix(&mut self, _: &HashMatrix) -> Result<Vec<u16>, DeviceError> {
        no_numbers("read_matrix")
    }

    fn read_kv(
        &mut self,
        _: usize,
        _: &HashKv,
        _: &[u32],
        _: u32,
        _: u32,
    ) -> Result<[Vec<u16>; 2], DeviceError> {
        no_numbers("read_kv")
    }
}

/// Ranges of equal neighbours.
fn same_row(rows: &[u32]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut at = 0;
    rows.chunk_by(|a, b| a == b).map(move |chunk| {
        let range = at..at + chunk.len();
        at = range.end;
        range
    })
}
