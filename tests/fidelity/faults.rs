//! The faults: in the model that the engine runs, or in an operator of the host.

use std::sync::Arc;

use lockstep::device::host::Host;
use lockstep::device::{AttentionLaunch, Device, DeviceError, Heads, Layout, QkNorm, Sequence};
use lockstep::record::{Capture, Run};
use lockstep::schedule::Schedule;
use lockstep::subject::{Capabilities, Exact, Subject, SubjectError};
use lockstep::weights::Model;
use lockstep::workload::Workload;
use lockstep::world::World;

use super::altered::Alteration;

/// An engine whose reference has the weights of the model without a fault.
pub(crate) struct Faulty {
    pub(crate) engine: Box<dyn Subject + Send>,
    pub(crate) honest: Arc<Model>,
    /// Whether it leaves out one row of the values that it is asked to keep.
    pub(crate) forgets: bool,
}

impl lockstep::subject::Wrapper for Faulty {
    fn inner(&self) -> &dyn Subject {
        &*self.engine
    }
    fn capabilities(&self) -> Capabilities {
        let capabilities = self.engine.capabilities();
        let exact = capabilities.exact.clone();
        let exact = exact.map(|e| Exact { digest: self.honest.digest.clone(), ..e });
        Capabilities { exact, ..capabilities }
    }
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        let mut run = self.engine.execute(world, workload, schedule, seed, capture)?;
        if self.forgets {
            run.outputs.values_mut().for_each(|output| drop(output.captured.pop()));
        }
        Ok(run)
    }
    fn weights(&self) -> Result<Arc<Model>, SubjectError> {
        Ok(Arc::clone(&self.honest))
    }
}

/// A model that is not the one it is said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The epsilon of every norm is ten times as large: 1e-5 where 1e-6 is meant, or 1e-4 for 1e-5.
    Epsilon,
    /// The RoPE base is a tenth larger.
    RopeBase,
    /// The output projections of two layers are swapped.
    TensorSwapped,
    /// One weight of layer 0's down-projection has another sign.
    WeightFlipped,
    /// Gate and up are swapped.
    GateAndUp,
}

impl Wrong {
    pub(crate) const ALL: [Wrong; 5] = [
        Wrong::Epsilon,
        Wrong::RopeBase,
        Wrong::TensorSwapped,
        Wrong::WeightFlipped,
        Wrong::GateAndUp,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Wrong::Epsilon => "norm epsilon ten times as large",
            Wrong::RopeBase => "RoPE base a tenth larger",
            Wrong::TensorSwapped => "output projections of two layers swapped",
            Wrong::WeightFlipped => "one weight with another sign",
            Wrong::GateAndUp => "gate and up swapped",
        }
    }

    pub(crate) fn model(self, honest: &Model) -> Model {
        let mut model = honest.clone();
        match self {
            Wrong::Epsilon => model.config.norm_eps *= 10.0,
            Wrong::RopeBase => model.config.rope_base *= 1.1,
            Wrong::TensorSwapped => {
                let [a, b] = model.layers.get_disjoint_mut([0, 1]).expect("two layers");
                std::mem::swap(&mut a.o, &mut b.o);
            }
            Wrong::WeightFlipped => {
                let weights = &mut model.layers[0].down.data;
                // The largest of the first row; a small one changes little.
                let k = model.config.ffn;
                let largest = weights[..k].iter_mut().max_by_key(|w| **w & 0x7fff);
                *largest.expect("a row") ^= 0x8000;
            }
            Wrong::GateAndUp => {
                for layer in &mut model.layers {
                    let half = layer.gate_up.data.len() / 2;
                    layer.gate_up.data.rotate_left(half);
                }
            }
        }
        model
    }
}

/// An operator of the host that errs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostFault {
    /// A row sees one position too few.
    SeesTooLittle,
    /// A row sees the next row of its chunk.
    SeesTooMuch,
    /// Scores are scaled by 1 / sqrt(2 dim).
    Scale,
    /// K and V lose four bits of their fractions when they are stored, as in 8-bit storage.
    StoredShort,
    /// Query heads read the kv heads in reverse.
    HeadMap,
}

impl HostFault {
    pub(crate) const ALL: [HostFault; 5] = [
        HostFault::SeesTooLittle,
        HostFault::SeesTooMuch,
        HostFault::Scale,
        HostFault::StoredShort,
        HostFault::HeadMap,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            HostFault::SeesTooLittle => "mask off by one: a position too few",
            HostFault::SeesTooMuch => "mask off by one: a position too many",
            HostFault::Scale => "wrong attention scale",
            HostFault::StoredShort => "K and V stored with four bits less",
            HostFault::HeadMap => "wrong head map",
        }
    }
}

type Done = Result<(), DeviceError>;

impl Alteration<Host> for HostFault {
    fn rope_and_store(
        &mut self,
        device: &mut Host,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        qkv: &<Host as Device>::T16,
        norm: Option<QkNorm<'_, Host>>,
        rope: &<Host as Device>::Rope,
        q: &mut <Host as Device>::T16,
        kv: &mut <Host as Device>::Kv,
    ) -> Done {
        device.rope_and_store(layer, heads, layout, qkv, norm, rope, q, kv)?;
        let dtype = device.contract().dtype;
        if *self == HostFault::Scale {
            let used = layout.rows() * heads.q * heads.dim;
            for x in &mut q[..used] {
                *x = dtype.round(dtype.widen(*x) * std::f32::consts::FRAC_1_SQRT_2);
            }
        }
        if *self == HostFault::StoredShort {
            for Sequence { blocks, start, len } in &layout.sequences {
                let mut values = device.read_kv(layer, kv, blocks, *start, start + len)?;
                values.iter_mut().flatten().for_each(|x| *x &= !0xf);
                kv.write(layer, blocks, *start, &values)?;
            }
        }
        Ok(())
    }

    fn attention(
        &mut self,
        device: &mut Host,
        launch: AttentionLaunch,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        q: &<Host as Device>::T16,
        kv: &<Host as Device>::Kv,
        out: &mut <Host as Device>::T16,
    ) -> Done {
        let moved = |position: u32, end: u32| match self {
            HostFault::SeesTooLittle => position.saturating_sub(1),
            HostFault::SeesTooMuch => (position + 1).min(end - 1),
            _ => position,
        };
        // A sequence a row, at the position up to which it sees.
        let rows = layout.sequences.iter().flat_map(|s| {
            let end = s.start + s.len;
            (s.start..end).map(move |p| (s, p, end))
        });
        let sequences = rows.map(|(s, position, end)| Sequence {
            blocks: s.blocks.clone(),
            start: moved(position, end),
            len: 1,
        });
        let layout = Layout { block_size: layout.block_size, sequences: sequences.collect() };
        if *self != HostFault::HeadMap {
            return device.attention(launch, layer, heads, &layout, q, kv, out);
        }
        let reversed = reverse_groups(q, heads);
        device.attention(launch, layer, heads, &layout, &reversed, kv, out)?;
        *out = reverse_groups(out, heads);
        Ok(())
    }
}

/// Rows of q heads with the groups of each row in reverse, a group being the heads of one kv head.
fn reverse_groups(rows: &[u16], heads: Heads) -> Vec<u16> {
    let group = heads.q / heads.kv * heads.dim;
    let rows = rows.chunks_exact(heads.q * heads.dim);
    rows.flat_map(|row| row.chunks_exact(group).rev().flatten().copied()).collect()
}
