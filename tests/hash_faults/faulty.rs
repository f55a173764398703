//! The hash device with one fault of state in it, of the kinds that engines had.

use std::collections::BTreeSet;
use std::ops::Range;

use lockstep::contract::Contract;
use lockstep::contract::rope::RopeTable;
use lockstep::device::hash::{Hash, HashBuffer, HashKv, HashMatrix};
use lockstep::device::{
    AttentionLaunch, Device, DeviceError, GemmLaunch, GemmOutput, Heads, KvDigest, KvShape, Layout,
    LoggedRows, NormLaunch, QkNorm, SampleRow, Sequence, VariantCounts,
};
use lockstep::weights::Recipe;

/// What goes wrong, and when: never in a canonical execution and in a scheduled one alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Attention reads the first two blocks of a continued chunk in the wrong order.
    BlocksSwapped,
    /// Attention reads the first block of another sequence of the step.
    BlockOfANeighbour,
    /// The last sequence of a step writes no K and V.
    WriteLost,
    /// K and V of a step are written one block table entry too early where a chunk starts inside a block.
    WriteIntoTheBlockBefore,
    /// Attention of a shared step sees K and V as they were before the step.
    StaleReads,
    /// A continued chunk is written and rotated as one position later.
    PositionTooLate,
    /// A continued chunk's rows see one position too few.
    SeesTooLittle,
    /// Layer 1 of a shared step attends to layer 0's K and V.
    LayerOfAnother,
    /// A chunk of several rows goes to the pool of the other layer.
    WriteToOtherLayer,
    /// Rows of a shared step read the queries of another sequence.
    RowsRotated,
    /// Row 1 of a step is embedded as the token of row 0.
    TokenOfTheRowBefore,
    /// The second draw of a step reads the logits of the first.
    DrawsFromAnotherRow,
    /// The random number of a draw past row 0 is that of the next position.
    DrawsOtherPosition,
    /// A log-probability in a step with several is read from the row before.
    ScoreOfAnotherRow,
    /// The residual of a step of 5 to 8 rows is not added.
    ResidualLost,
    /// The activation of a step of 9 rows or more is left as it was.
    ActivationSkipped,
    /// A norm that is fused is left out.
    NormSkipped,
    /// A chunk of several rows behind exactly one block, which it shares with a sequence that decodes in the same step, is
    /// written and rotated as one position later.
    OneBlockShared,
}

impl Fault {
    #[allow(dead_code, reason = "tests/planted lists its own")]
    pub(crate) const ALL: [Fault; 18] = [
        Fault::BlocksSwapped,
        Fault::BlockOfANeighbour,
        Fault::WriteLost,
        Fault::WriteIntoTheBlockBefore,
        Fault::StaleReads,
        Fault::PositionTooLate,
        Fault::SeesTooLittle,
        Fault::LayerOfAnother,
        Fault::WriteToOtherLayer,
        Fault::RowsRotated,
        Fault::TokenOfTheRowBefore,
        Fault::DrawsFromAnotherRow,
        Fault::DrawsOtherPosition,
        Fault::ScoreOfAnotherRow,
        Fault::ResidualLost,
        Fault::ActivationSkipped,
        Fault::NormSkipped,
        Fault::OneBlockShared,
    ];
}

/// The device with the fault; `None` leaves it as it is.
pub(crate) struct Faulty {
    inner: Hash,
    fault: Option<Fault>,
    /// K and V before the step's last write.
    before: Option<HashKv>,
}

impl Faulty {
    pub(crate) fn new(contract: Contract, fault: Option<Fault>) -> Faulty {
        Faulty { inner: Hash::new(contract), fault, before: None }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// The layout with each continued chunk changed by `change`.
fn continued(layout: &Layout, change: impl Fn(&mut Sequence)) -> Layout {
    let mut layout = layout.clone();
    layout.sequences.iter_mut().filter(|s| s.start > 0).for_each(change);
    layout
}

fn norm_of<'a>(norm: QkNorm<'a, Faulty>) -> QkNorm<'a, Hash> {
    QkNorm { q: norm.q, k: norm.k, eps: norm.eps }
}

impl Device for Faulty {
    type F32 = HashBuffer;
    type T16 = HashBuffer;
    type Matrix = HashMatrix;
    type Rope = <Hash as Device>::Rope;
    type Kv = HashKv;
    type Swap = HashKv;

    fn name(&self) -> &'static str {
        "faulty"
    }
    fn contract(&self) -> &Contract {
        self.inner.contract()
    }
    fn fresh(&self) -> Faulty {
        Faulty { inner: self.inner.fresh(), fault: self.fault, before: None }
    }
    fn watch(&mut self, on: bool) {
        self.inner.watch(on);
    }
    fn keep(&mut self, entries: &BTreeSet<usize>) {
        self.inner.keep(entries);
    }
    fn take_log(&mut self) -> Result<Vec<LoggedRows>, DeviceError> {
        self.inner.take_log()
    }
    fn counts(&mut self) -> Result<VariantCounts, DeviceError> {
        self.inner.counts()
    }
    fn upload(&self, values: &[u16]) -> Result<HashBuffer, DeviceError> {
        self.inner.upload(values)
    }
    fn upload_f32(&self, values: &[f32]) -> Result<HashBuffer, DeviceError> {
        self.inner.upload_f32(values)
    }
    fn upload_matrix(&self, n: usize, k: usize, values: &[u16]) -> Result<HashMatrix, DeviceError> {
        self.inner.upload_matrix(n, k, values)
    }
    fn make(&self, recipe: &Recipe) -> Result<HashBuffer, DeviceError> {
        self.inner.make(recipe)
    }
    fn make_matrix(&self, recipe: &Recipe) -> Result<HashMatrix, DeviceError> {
        self.inner.make_matrix(recipe)
    }
    fn upload_rope(&self, table: &RopeTable) -> Result<Self::Rope, DeviceError> {
        self.inner.upload_rope(table)
    }
    fn alloc_f32(&self, len: usize) -> Result<HashBuffer, DeviceError> {
        self.inner.alloc_f32(len)
    }
    fn alloc_t16(&self, len: usize) -> Result<HashBuffer, DeviceError> {
        self.inner.alloc_t16(len)
    }
    fn alloc_kv(&self, shape: KvShape) -> Result<HashKv, DeviceError> {
        self.inner.alloc_kv(shape)
    }

    fn alloc_swap(&self, shape: KvShape) -> Result<HashKv, DeviceError> {
        self.inner.alloc_swap(shape)
    }

    fn copy_block(&mut self, kv: &mut HashKv, from: u32, to: u32) -> Result<(), DeviceError> {
        self.inner.copy_block(kv, from, to)
    }

    fn swap_out(
        &mut self,
        kv: &HashKv,
        blocks: &[u32],
        swap: &mut HashKv,
        slots: &[u32],
    ) -> Result<(), DeviceError> {
        self.inner.swap_out(kv, blocks, swap, slots)
    }

    fn swap_in(
        &mut self,
        swap: &HashKv,
        slots: &[u32],
        kv: &mut HashKv,
        blocks: &[u32],
    ) -> Result<(), DeviceError> {
        self.inner.swap_in(swap, slots, kv, blocks)
    }

    fn poison_f32(
        &mut self,
        x: &mut HashBuffer,
        elements: Range<usize>,
    ) -> Result<(), DeviceError> {
        self.inner.poison_f32(x, elements)
    }

    fn poison_t16(
        &mut self,
        x: &mut HashBuffer,
        elements: Range<usize>,
    ) -> Result<(), DeviceError> {
        self.inner.poison_t16(x, elements)
    }

    fn poison_block(&mut self, kv: &mut HashKv, block: u32) -> Result<(), DeviceError> {
        self.inner.poison_block(kv, block)
    }

    fn embed(
        &mut self,
        embedding: &HashMatrix,
        tokens: &[u32],
        h: &mut HashBuffer,
    ) -> Result<(), DeviceError> {
        let mut tokens = tokens.to_vec();
        if self.has(Fault::TokenOfTheRowBefore) && tokens.len() > 1 {
            tokens[1] = tokens[0];
        }
        self.inner.embed(embedding, &tokens, h)
    }

    fn rmsnorm(
        &mut self,
        launch: NormLaunch,
        m: usize,
        n: usize,
        h: &HashBuffer,
        weight: &HashBuffer,
        eps: f32,
        x: &mut HashBuffer,
    ) -> Result<(), DeviceError> {
        self.inner.rmsnorm(launch, m, n, h, weight, eps, x)?;
        if self.has(Fault::NormSkipped) && launch.fused {
            x.clone_from(h);
        }
        Ok(())
    }

    fn gemm(
        &mut self,
        launch: &GemmLaunch,
        m: usize,
        x: &HashBuffer,
        w: &HashMatrix,
        out: GemmOutput<'_, Faulty>,
    ) -> Result<(), DeviceError> {
        let out = match out {
            GemmOutput::Residual(h) if self.has(Fault::ResidualLost) && (5..9).contains(&m) => {
                return self.inner.gemm(launch, m, x, w, GemmOutput::Residual(&mut h.clone()));
            }
            GemmOutput::Round(y) => GemmOutput::Round(y),
            GemmOutput::Residual(h) => GemmOutput::Residual(h),
            GemmOutput::Store(y) => GemmOutput::Store(y),
        };
        self.inner.gemm(launch, m, x, w, out)
    }

    fn rope_and_store(
        &mut self,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        qkv: &HashBuffer,
        norm: Option<QkNorm<'_, Faulty>>,
        rope: &Self::Rope,
        q: &mut HashBuffer,
        kv: &mut HashKv,
    ) -> Result<(), DeviceError> {
        let norm = norm.map(norm_of);
        let size = layout.block_size;
        let mut layout = layout.clone();
        let mut layer = layer;
        match self.fault {
            Some(Fault::StaleReads) => self.before = Some(kv.clone()),
            Some(Fault::WriteLost) if layout.sequences.len() > 1 => {
                // Another instance writes what the others write; q is everyone's.
                let mut others = kv.clone();
                let mut first = layout.clone();
                first.sequences.pop();
                let again = norm.as_ref().map(|n| QkNorm { q: n.q, k: n.k, eps: n.eps });
                let mut spare = self.inner.fresh();
                let unused = &mut q.clone();
                spare.rope_and_store(
                    layer,
                    heads,
                    &first,
                    qkv,
                    again,
                    rope,
                    unused,
                    &mut others,
                )?;
                let mut lost = kv.clone();
                self.inner.rope_and_store(layer, heads, &layout, qkv, norm, rope, q, &mut lost)?;
                *kv = others;
                return Ok(());
            }
            Some(Fault::WriteIntoTheBlockBefore) => {
                layout = continued(&layout, |s| {
                    let block = (s.start / size) as usize;
                    if !s.start.is_multiple_of(size) && block > 0 {
                        s.blocks[block] = s.blocks[block - 1];
                    }
                });
            }
            Some(Fault::PositionTooLate) => {
                layout = continued(&layout, |s| {
                    if s.start + s.len < size * s.blocks.len() as u32 {
                        s.start += 1;
                    }
                });
            }
            Some(Fault::OneBlockShared) => {
                let decodes = |s: &&Sequence| s.len == 1 && s.start > 0;
                let shared: Vec<u32> =
                    layout.sequences.iter().filter(decodes).map(|s| s.blocks[0]).collect();
                for s in layout.sequences.iter_mut().filter(|s| s.len > 1 && s.start == size) {
                    let fits = s.start + s.len < size * s.blocks.len() as u32;
                    s.start += u32::from(fits && shared.contains(&s.blocks[0]));
                }
            }
            Some(Fault::WriteToOtherLayer) if layout.rows() > layout.sequences.len() => {
                layer = kv.shape().layers - 1 - layer;
            }
            _ => {}
        }
        self.inner.rope_and_store(layer, heads, &layout, qkv, norm, rope, q, kv)
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
        let shared = layout.sequences.len() > 1;
        let mut layout = layout.clone();
        let (mut layer, mut read) = (layer, kv);
        match self.fault {
            Some(Fault::BlocksSwapped) => {
                layout = continued(&layout, |s| {
                    if s.blocks.len() > 1 {
                        s.blocks.swap(0, 1);
                    }
                });
            }
            Some(Fault::BlockOfANeighbour) if shared => {
                let other = layout.sequences[0].blocks[0];
                layout.sequences[1].blocks[0] = other;
            }
            Some(Fault::StaleReads) if shared => {
                read = self.before.as_ref().expect("written before");
            }
            Some(Fault::SeesTooLittle) => layout = continued(&layout, |s| s.start -= 1),
            Some(Fault::LayerOfAnother) if shared => layer = 0,
            Some(Fault::RowsRotated) if shared => layout.sequences.rotate_left(1),
            _ => {}
        }
        self.inner.attention(launch, layer, heads, &layout, q, read, out)
    }

    fn swiglu(
        &mut self,
        m: usize,
        f: usize,
        gate_up: &HashBuffer,
        z: &mut HashBuffer,
    ) -> Result<(), DeviceError> {
        if self.has(Fault::ActivationSkipped) && m >= 9 {
            return self.inner.swiglu(m, f, gate_up, &mut z.clone());
        }
        self.inner.swiglu(m, f, gate_up, z)
    }

    fn logprobs(
        &mut self,
        vocab: usize,
        logits: &HashBuffer,
        rows: &[u32],
        ids: &[u32],
    ) -> Result<Vec<f32>, DeviceError> {
        let mut rows = rows.to_vec();
        if self.has(Fault::ScoreOfAnotherRow) && rows.windows(2).any(|w| w[0] != w[1]) {
            let last = rows.len() - 1;
            rows[last] = rows[0];
        }
        self.inner.logprobs(vocab, logits, &rows, ids)
    }

    fn sample(
        &mut self,
        vocab: usize,
        logits: &HashBuffer,
        rows: &[SampleRow],
    ) -> Result<Vec<Option<u32>>, DeviceError> {
        let mut rows = rows.to_vec();
        match self.fault {
            Some(Fault::DrawsFromAnotherRow) if rows.len() > 1 => rows[1].row = rows[0].row,
            Some(Fault::DrawsOtherPosition) => {
                rows.iter_mut().filter(|r| r.row > 0).for_each(|r| r.position += 1);
            }
            _ => {}
        }
        self.inner.sample(vocab, logits, &rows)
    }

    fn digest_rows(&mut self, m: usize, n: usize, x: &HashBuffer) -> Result<Vec<u64>, DeviceError> {
        self.inner.digest_rows(m, n, x)
    }
    fn digest_kv(
        &mut self,
        layer: usize,
        kv: &HashKv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<KvDigest>, DeviceError> {
        self.inner.digest_kv(layer, kv, blocks, from, to)
    }
    fn read_row(&mut self, n: usize, x: &HashBuffer, row: usize) -> Result<Vec<f32>, DeviceError> {
        self.inner.read_row(n, x, row)
    }
    fn read_f32(&mut self, x: &HashBuffer, len: usize) -> Result<Vec<f32>, DeviceError> {
        self.inner.read_f32(x, len)
    }
    fn read_t16(&mut self, x: &HashBuffer, len: usize) -> Result<Vec<u16>, DeviceError> {
        self.inner.read_t16(x, len)
    }
    fn read_matrix(&mut self, w: &HashMatrix) -> Result<Vec<u16>, DeviceError> {
        self.inner.read_matrix(w)
    }
    fn read_kv(
        &mut self,
        layer: usize,
        kv: &HashKv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<[Vec<u16>; 2], DeviceError> {
        self.inner.read_kv(layer, kv, blocks, from, to)
    }
}
