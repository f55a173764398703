//! The hash device with one fault of state in it, of the kinds that engines had.

use lockstep::device::hash::{Hash, HashBuffer, HashKv, HashMatrix};
use lockstep::device::{
    AttentionLaunch, Device, DeviceError, GemmLaunch, GemmOutput, Heads, Layout, NormLaunch,
    QkNorm, SampleRow, Sequence,
};
use lockstep::fixture::Fixture;

use super::altered::{self, Alteration, Altered};

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

/// The fault of a device; `None` leaves it as it is.
#[derive(Clone)]
pub(crate) struct Faulty {
    fault: Option<Fault>,
    /// K and V before the step's last write.
    before: Option<HashKv>,
}

impl Faulty {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// The real engine on a device with a fault.
pub(crate) type FaultyFixture = Fixture<Altered<Hash, Faulty>>;

pub(crate) fn fixture(fault: Option<Fault>) -> FaultyFixture {
    altered::fixture("tiny", Hash::new, Faulty { fault, before: None }).unwrap()
}

/// The layout with each continued chunk changed by `change`.
fn continued(layout: &Layout, change: impl Fn(&mut Sequence)) -> Layout {
    let mut layout = layout.clone();
    layout.sequences.iter_mut().filter(|s| s.start > 0).for_each(change);
    layout
}

impl Alteration<Hash> for Faulty {
    fn embed(
        &mut self,
        device: &mut Hash,
        embedding: &HashMatrix,
        tokens: &[u32],
        h: &mut HashBuffer,
    ) -> Result<(), DeviceError> {
        let mut tokens = tokens.to_vec();
        if self.has(Fault::TokenOfTheRowBefore) && tokens.len() > 1 {
            tokens[1] = tokens[0];
        }
        device.embed(embedding, &tokens, h)
    }

    fn rmsnorm(
        &mut self,
        device: &mut Hash,
        launch: NormLaunch,
        m: usize,
        n: usize,
        h: &HashBuffer,
        weight: &HashBuffer,
        eps: f32,
        x: &mut HashBuffer,
    ) -> Result<(), DeviceError> {
        device.rmsnorm(launch, m, n, h, weight, eps, x)?;
        if self.has(Fault::NormSkipped) && launch.fused {
            x.clone_from(h);
        }
        Ok(())
    }

    fn gemm(
        &mut self,
        device: &mut Hash,
        launch: &GemmLaunch,
        m: usize,
        x: &HashBuffer,
        w: &HashMatrix,
        out: GemmOutput<'_, Hash>,
    ) -> Result<(), DeviceError> {
        match out {
            GemmOutput::Residual(h) if self.has(Fault::ResidualLost) && (5..9).contains(&m) => {
                device.gemm(launch, m, x, w, GemmOutput::Residual(&mut h.clone()))
            }
            out => device.gemm(launch, m, x, w, out),
        }
    }

    fn rope_and_store(
        &mut self,
        device: &mut Hash,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        qkv: &HashBuffer,
        norm: Option<QkNorm<'_, Hash>>,
        rope: &<Hash as Device>::Rope,
        q: &mut HashBuffer,
        kv: &mut HashKv,
    ) -> Result<(), DeviceError> {
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
                let mut spare = device.fresh();
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
                device.rope_and_store(layer, heads, &layout, qkv, norm, rope, q, &mut lost)?;
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
        device.rope_and_store(layer, heads, &layout, qkv, norm, rope, q, kv)
    }

    fn attention(
        &mut self,
        device: &mut Hash,
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
        device.attention(launch, layer, heads, &layout, q, read, out)
    }

    fn swiglu(
        &mut self,
        device: &mut Hash,
        m: usize,
        f: usize,
        gate_up: &HashBuffer,
        z: &mut HashBuffer,
    ) -> Result<(), DeviceError> {
        if self.has(Fault::ActivationSkipped) && m >= 9 {
            return device.swiglu(m, f, gate_up, &mut z.clone());
        }
        device.swiglu(m, f, gate_up, z)
    }

    fn logprobs(
        &mut self,
        device: &mut Hash,
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
        device.logprobs(vocab, logits, &rows, ids)
    }

    fn sample(
        &mut self,
        device: &mut Hash,
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
        device.sample(vocab, logits, &rows)
    }
}
