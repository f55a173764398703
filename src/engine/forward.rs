//! The forward pass: named operators in order, over the rows of a step.

use std::collections::{BTreeMap, BTreeSet};

use crate::device::{
    Device, DeviceError, GemmOutput, Heads, KvShape, Layout, LoggedRows, QkNorm, SampleRow,
};
use crate::record::sites::{Site, Stage};
use crate::record::{CapturedSite, KvDigest, LaunchNote};

use super::model::DeviceModel;
use super::parts::{Keep, KeptSites, Parts};
use super::plan::StepPlan;

/// Activations and KV of one engine instance.
pub(super) struct Forward<'m, D: Device> {
    model: &'m DeviceModel<D>,
    pub(super) device: D,
    pub(super) kv: D::Kv,
    /// Shape of the pool's host memory.
    swap_shape: KvShape,
    /// Made once something is swapped.
    swap: Option<D::Swap>,
    workspace: Option<Workspace<D>>,
    /// Whether the workspace is filled with NaN before each step.
    pub(super) poison: bool,
    /// Whether a step's results are digested.
    watches: bool,
}

/// Digests of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowDigests {
    /// Of the logits.
    pub logits: u64,
    /// Of each operator's f32 results before they are rounded, in the order of [sites](Site).
    pub sites: Vec<u64>,
}

/// What a step came to.
pub(super) struct Computed {
    /// Digests of each row.
    pub(super) rows: Vec<RowDigests>,
    /// What was kept in full, by row.
    pub(super) kept: BTreeMap<usize, KeptSites>,
}

/// Activation buffers for up to `rows` rows.
struct Workspace<D: Device> {
    rows: usize,
    h: D::F32,
    x: D::T16,
    qkv: D::T16,
    q: D::T16,
    attention: D::T16,
    gate_up: D::T16,
    z: D::T16,
    logits: D::F32,
    /// Elements of `h` and `logits`.
    f32_lens: [usize; 2],
    /// Elements of the others, in order.
    t16_lens: [usize; 6],
}

impl<'m, D: Device> Forward<'m, D> {
    /// An engine instance with an empty pool of `blocks` blocks, and `swap_blocks` of host memory.
    pub(super) fn new(
        model: &'m DeviceModel<D>,
        blocks: usize,
        swap_blocks: usize,
        block_size: usize,
    ) -> Result<Forward<'m, D>, DeviceError> {
        let device = model.device.fresh();
        let shape = KvShape {
            layers: model.config.layers,
            blocks,
            block_size,
            kv_heads: model.config.kv_heads,
            head_dim: model.config.head_dim,
        };
        Ok(Forward {
            model,
            kv: device.alloc_kv(shape)?,
            device,
            swap_shape: KvShape { blocks: swap_blocks, ..shape },
            swap: None,
            workspace: None,
            poison: false,
            watches: false,
        })
    }

    /// Digests what steps compute from now on, or not.
    pub(super) fn watch(&mut self, on: bool) {
        self.watches = on;
        self.device.watch(on);
    }

    /// The same, with memory that nobody may read full of NaN, or not.
    pub(super) fn with_poison(self, poison: bool) -> Forward<'m, D> {
        Forward { poison, ..self }
    }

    /// Fills a block with NaN.
    pub(super) fn poison_block(&mut self, block: u32) -> Result<(), DeviceError> {
        self.device.poison_block(&mut self.kv, block)
    }

    /// Computes the rows of `layout`, leaves their logits in the workspace and returns the digests of each row: none unless it [watches](Self::watch). `padding`
    /// rows of NaN come after them in every GEMM and norm, and are nobody's. `keep` says what is kept in full.
    pub(super) fn step(
        &mut self,
        plan: &StepPlan,
        layout: &Layout,
        tokens: &[u32],
        padding: usize,
        keep: Option<&Keep<'_>>,
    ) -> Result<Computed, DeviceError> {
        let rows = layout.rows();
        let m = rows + padding;
        assert_eq!(tokens.len(), rows, "one token a row");
        let model = self.model;
        let config = &model.config;
        let (hidden, ffn, eps) = (config.hidden, config.ffn, config.norm_eps);
        let heads = Heads { q: config.heads, kv: config.kv_heads, dim: config.head_dim };
        if self.workspace.as_ref().is_none_or(|w| w.rows < m) {
            self.workspace = Some(Workspace::new(model, &self.device, m.next_power_of_two())?);
        }
        let w = self.workspace.as_mut().expect("just made");
        let d = &mut self.device;

        if self.poison {
            w.poison(d)?;
        }
        if let Some(keep) = keep {
            d.keep(keep.sites);
        }
        let mut parts = Parts::new(keep);
        d.embed(&model.embedding, tokens, &mut w.h)?;
        if padding > 0 {
            // The operators below fill the padding rows of their outputs; these two are not theirs.
            let width = heads.q * heads.dim;
            d.poison_f32(&mut w.h, rows * hidden..m * hidden)?;
            d.poison_t16(&mut w.attention, rows * width..m * width)?;
        }
        // The first norm has no residual before it to be fused with.
        let mut norm = plan.norm;
        norm.fused = false;
        for (index, layer) in model.layers.iter().enumerate() {
            d.rmsnorm(norm, m, hidden, &w.h, &layer.attention_norm, eps, &mut w.x)?;
            norm = plan.norm;
            d.gemm(&plan.qkv, m, &w.x, &layer.qkv, GemmOutput::Round(&mut w.qkv))?;
            let (at, n) = ((index, Stage::Qkv), heads.qkv_columns());
            parts.gemm(d, at, &plan.qkv, m, n, &w.x, &layer.qkv)?;
            let qk_norm = match (&layer.q_norm, &layer.k_norm) {
                (Some(q), Some(k)) => Some(QkNorm { q, k, eps }),
                _ => None,
            };
            let rope = &model.rope;
            d.rope_and_store(index, heads, layout, &w.qkv, qk_norm, rope, &mut w.q, &mut self.kv)?;
            d.attention(plan.attention, index, heads, layout, &w.q, &self.kv, &mut w.attention)?;
            parts.attention(d, index, plan.attention, heads, layout, &w.q, &self.kv)?;
            d.gemm(&plan.o, m, &w.attention, &layer.o, GemmOutput::Residual(&mut w.h))?;
            let at = (index, Stage::Output);
            parts.gemm(d, at, &plan.o, m, hidden, &w.attention, &layer.o)?;
            d.rmsnorm(norm, m, hidden, &w.h, &layer.ffn_norm, eps, &mut w.x)?;
            d.gemm(&plan.gate_up, m, &w.x, &layer.gate_up, GemmOutput::Round(&mut w.gate_up))?;
            let at = (index, Stage::GateUp);
            parts.gemm(d, at, &plan.gate_up, m, 2 * ffn, &w.x, &layer.gate_up)?;
            d.swiglu(m, ffn, &w.gate_up, &mut w.z)?;
            d.gemm(&plan.down, m, &w.z, &layer.down, GemmOutput::Residual(&mut w.h))?;
            let at = (index, Stage::Down);
            parts.gemm(d, at, &plan.down, m, hidden, &w.z, &layer.down)?;
        }
        d.rmsnorm(norm, m, hidden, &w.h, &model.final_norm, eps, &mut w.x)?;
        let head = model.head.as_ref().unwrap_or(&model.embedding);
        d.gemm(&plan.head, m, &w.x, head, GemmOutput::Store(&mut w.logits))?;
        if !self.watches {
            return Ok(Computed { rows: Vec::new(), kept: BTreeMap::new() });
        }
        let logits = d.digest_rows(rows, config.vocab, &w.logits)?;
        let log = d.take_log()?;
        let sites = Site::count(config.layers);
        assert_eq!(log.len(), sites, "one entry of the log a site");
        let mut kept = BTreeMap::new();
        if let Some(keep) = keep {
            d.keep(&BTreeSet::new());
            for row in &keep.rows {
                let note = LaunchNote {
                    row: *row as u32,
                    rows: m as u32,
                    padding: padding as u32,
                    sequences: layout.sequences.len() as u32,
                    ..LaunchNote::default()
                };
                kept.insert(*row, kept_of(keep, plan, &log, &mut parts, &note));
            }
        }
        let row = |(r, logits)| {
            let sites = log.iter().map(|entry| entry.digests[r]).collect();
            RowDigests { logits, sites }
        };
        Ok(Computed { rows: logits.into_iter().enumerate().map(row).collect(), kept })
    }

    /// Draws from rows of the last step's logits.
    pub(super) fn sample(&mut self, rows: &[SampleRow]) -> Result<Vec<Option<u32>>, DeviceError> {
        match &self.workspace {
            Some(w) if !rows.is_empty() => {
                self.device.sample(self.model.config.vocab, &w.logits, rows)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Log-probabilities of `ids[i]` in row `rows[i]` of the last step's logits.
    pub(super) fn logprobs(&mut self, rows: &[u32], ids: &[u32]) -> Result<Vec<f32>, DeviceError> {
        match &self.workspace {
            Some(w) => self.device.logprobs(self.model.config.vocab, &w.logits, rows, ids),
            None => Err(DeviceError::Launch("no step was computed yet".into())),
        }
    }

    /// A row of the last step's logits.
    pub(super) fn logits(&mut self, row: usize) -> Result<Vec<f32>, DeviceError> {
        match &self.workspace {
            Some(w) => self.device.read_row(self.model.config.vocab, &w.logits, row),
            None => Err(DeviceError::Launch("no step was computed yet".into())),
        }
    }

    /// Copies a block of the pool to another one.
    pub(super) fn copy_block(&mut self, from: u32, to: u32) -> Result<(), DeviceError> {
        self.device.copy_block(&mut self.kv, from, to)
    }

    /// Copies blocks of the pool to host memory.
    pub(super) fn swap_out(&mut self, blocks: &[u32], slots: &[u32]) -> Result<(), DeviceError> {
        if self.swap.is_none() {
            self.swap = Some(self.device.alloc_swap(self.swap_shape)?);
        }
        let swap = self.swap.as_mut().expect("just made");
        self.device.swap_out(&self.kv, blocks, swap, slots)
    }

    /// Copies them back, to blocks of the pool.
    pub(super) fn swap_in(&mut self, slots: &[u32], blocks: &[u32]) -> Result<(), DeviceError> {
        match &self.swap {
            Some(swap) => self.device.swap_in(swap, slots, &mut self.kv, blocks),
            None => Err(DeviceError::Launch("swap_in: nothing was swapped out".into())),
        }
    }

    /// K and V digests of positions `from..to`: one list of layers a position.
    pub(super) fn digest_kv(
        &mut self,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<Vec<KvDigest>>, DeviceError> {
        let layers = self.model.config.layers;
        let mut rows = vec![Vec::with_capacity(layers); to.saturating_sub(from) as usize];
        for layer in self.device.digest_kv_layers(layers, &self.kv, blocks, from, to)? {
            for (row, digest) in rows.iter_mut().zip(layer) {
                row.push(digest);
            }
        }
        Ok(rows)
    }
}

/// What was kept of the row that `note` is about.
fn kept_of(
    keep: &Keep<'_>,
    plan: &StepPlan,
    log: &[LoggedRows],
    parts: &mut Parts<'_>,
    note: &LaunchNote,
) -> KeptSites {
    let row = note.row as usize;
    let mut kept = KeptSites::new();
    for (site, entry) in log.iter().enumerate().filter(|(site, _)| keep.sites.contains(site)) {
        let Some(values) = &entry.values else { continue };
        let launch = keep.parts.then(|| {
            let (variant, order) = plan.launch_at(Site::nth(site, log.len()));
            LaunchNote { variant, order, ..note.clone() }
        });
        let values = values[row * entry.width..(row + 1) * entry.width].to_vec();
        kept.insert(site, CapturedSite { values, launch, parts: parts.take(site, row) });
    }
    kept
}

impl<D: Device> Workspace<D> {
    fn new(model: &DeviceModel<D>, device: &D, rows: usize) -> Result<Workspace<D>, DeviceError> {
        let config = &model.config;
        let attention = config.heads * config.head_dim;
        let qkv = (config.heads + 2 * config.kv_heads) * config.head_dim;
        Ok(Workspace {
            rows,
            h: device.alloc_f32(rows * config.hidden)?,
            x: device.alloc_t16(rows * config.hidden)?,
            qkv: device.alloc_t16(rows * qkv)?,
            q: device.alloc_t16(rows * attention)?,
            attention: device.alloc_t16(rows * attention)?,
            gate_up: device.alloc_t16(rows * 2 * config.ffn)?,
            z: device.alloc_t16(rows * config.ffn)?,
            logits: device.alloc_f32(rows * config.vocab)?,
            f32_lens: [rows * config.hidden, rows * config.vocab],
            t16_lens: [config.hidden, qkv, attention, attention, 2 * config.ffn, config.ffn]
                .map(|width| rows * width),
        })
    }

    /// Fills every buffer with NaN.
    fn poison(&mut self, device: &mut D) -> Result<(), DeviceError> {
        for (x, len) in [&mut self.h, &mut self.logits].into_iter().zip(self.f32_lens) {
            device.poison_f32(x, 0..len)?;
        }
        let Workspace { x, qkv, q, attention, gate_up, z, .. } = self;
        for (x, len) in [x, qkv, q, attention, gate_up, z].into_iter().zip(self.t16_lens) {
            device.poison_t16(x, 0..len)?;
        }
        Ok(())
    }
}
