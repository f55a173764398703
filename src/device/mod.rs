//! Devices: execute the named operators of a decoder under a [`Contract`].
//!
//! The seam is the single reduction (a GEMM, a norm, an attention), so that the engine, its
//! scheduler, its caches and every relation run unchanged on any device. A device decides nothing:
//! each operator that has launch variants takes a *launch* made by the engine's `plan()`, the only
//! place where the batch may reach a launch.
//!
//! Shapes are row-major. `m` is the number of rows (tokens) of a step. 16-bit buffers hold raw bits of
//! the contract's dtype.

mod checks;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod hash;
pub mod host;
mod launches;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::contract::Contract;
use crate::contract::rope::RopeTable;
use crate::contract::sampler::SamplerParams;
use crate::weights::Recipe;

pub use crate::record::KvDigest;

/// Consecutive rows of one sequence within a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Physical block ids, logical order. Covers at least `start + len` positions.
    pub blocks: Vec<u32>,
    /// Position of the first row.
    pub start: u32,
    /// Number of rows (> 0); row `i` has position `start + i`.
    pub len: u32,
}

/// The rows of a step: the sequences' rows one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Positions per KV block.
    pub block_size: u32,
    /// The sequences in row order.
    pub sequences: Vec<Sequence>,
}

impl Layout {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.sequences.iter().map(|s| s.len as usize).sum()
    }
}

/// Heads of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub q: usize,
    /// Key/value heads; divides `q`.
    pub kv: usize,
    /// Elements per head; a multiple of 16.
    pub dim: usize,
}

impl Heads {
    /// Columns of the fused `[q;k;v]` matrix.
    pub fn qkv_columns(&self) -> usize {
        (self.q + 2 * self.kv) * self.dim
    }
}

/// How the partial sums of split reductions are executed. Never changes bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Splits {
    /// One worker walks the splits in order and folds as it goes.
    Walk,
    /// Partials go to a workspace; a second pass folds them in ascending order.
    Parallel,
}

/// How many rows share one pass over the weights. Never changes bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowTile {
    /// A few rows: weights are decoded in registers.
    Skinny,
    /// Many rows: weights are decoded once to scratch and reused by each row.
    Tiled,
}

/// Launch of a GEMM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GemmLaunch {
    /// Row tile.
    pub rows: RowTile,
    /// Execution of the splits.
    pub splits: Splits,
    /// Cuts of K in elements, `cuts[0] = 0 .. cuts[S] = K` (docs/contract.md section 2). Numerics.
    pub cuts: Arc<[u32]>,
}

/// Launch of a split attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionLaunch {
    /// Execution of the splits.
    pub splits: Splits,
    /// Positions per split, a multiple of the tile. Numerics.
    pub split: u32,
}

/// Launch of an RMS norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormLaunch {
    /// Accumulator lanes, a power of two (docs/contract.md section 4). Numerics.
    pub lanes: u32,
    /// Fused with the residual add that produced its input, where the device offers that.
    pub fused: bool,
}

/// Where the f32 result of a GEMM goes.
pub enum GemmOutput<'a, D: Device> {
    /// `out = r16(y)`.
    Round(&'a mut D::T16),
    /// `h = h + y`, one f32 add after the whole fold.
    Residual(&'a mut D::F32),
    /// `out = y` in f32 (logits).
    Store(&'a mut D::F32),
}

/// Per-head q/k norm weights, shape `[head_dim]` each.
pub struct QkNorm<'a, D: Device> {
    /// Weight of the q norm.
    pub q: &'a D::T16,
    /// Weight of the k norm.
    pub k: &'a D::T16,
    /// Epsilon.
    pub eps: f32,
}

/// Shape of a KV pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Layers.
    pub layers: usize,
    /// Physical blocks.
    pub blocks: usize,
    /// Positions per block.
    pub block_size: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
}

/// How often each launch variant did its work; counted inside the operator's working branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VariantCounts {
    /// GEMM, skinny rows, walked splits.
    pub gemm_skinny_walk: u64,
    /// GEMM, skinny rows, parallel splits.
    pub gemm_skinny_parallel: u64,
    /// GEMM, tiled rows, walked splits.
    pub gemm_tiled_walk: u64,
    /// GEMM, tiled rows, parallel splits.
    pub gemm_tiled_parallel: u64,
    /// Attention, walked splits.
    pub attention_walk: u64,
    /// Attention, parallel splits.
    pub attention_parallel: u64,
    /// Norms fused with the preceding residual.
    pub norm_fused: u64,
    /// Norms on their own.
    pub norm_plain: u64,
    /// GEMM folds executed with two or more partials.
    pub gemm_folds: u64,
    /// Attention rows whose fold merged two or more kept splits.
    pub attention_folds: u64,
    /// Attention sequences whose first row lay inside a tile, not at its start.
    pub attention_tile_before_chunk: u64,
}

/// What there is to know of a GPU, for the environment of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuFacts {
    /// Name that the driver gives.
    pub name: String,
    /// Architecture, as `sm_90`.
    pub sm: String,
    /// Version of the driver's interface.
    pub driver: String,
    /// Version of NVRTC.
    pub nvrtc: String,
    /// Whether the values of the matrix unit were measured on this architecture.
    pub matrix_unit_verified: bool,
    /// sha256 (hex) of each CUBIN in use, by program.
    pub cubins: BTreeMap<String, String>,
}

/// What an operator left in the log of a device that watches: a digest of each row.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedRows {
    /// f32 values that each digest stands for.
    pub width: usize,
    /// One digest a row (docs/contract.md section 13), logical column order.
    pub digests: Vec<u64>,
    /// The values, `[row][width]`, if they were [asked for](Device::keep) and the device has any.
    pub values: Option<Vec<f32>>,
}

/// A device and the counters of one execution. Buffers are shared between instances of one device.
pub trait Device: Sized {
    /// f32 buffer.
    type F32: Send + Sync;
    /// 16-bit buffer.
    type T16: Send + Sync;
    /// Weight matrix `[n][k]`, in the device's own storage order.
    type Matrix: Send + Sync;
    /// RoPE table on the device.
    type Rope: Send + Sync;
    /// Paged KV pool, all layers.
    type Kv: Send;
    /// Blocks of K and V in host memory, all layers.
    type Swap: Send;

    /// Name as on the command line: `host`, `cuda`, `hash`.
    fn name(&self) -> &'static str;
    /// The contract in force.
    fn contract(&self) -> &Contract;
    /// The GPU, if this is one.
    fn gpu(&self) -> Option<GpuFacts> {
        None
    }
    /// The same device with counters at zero.
    fn fresh(&self) -> Self;
    /// Switches the log of digests; it is off at creation. While it is on, every operator appends digests of its f32 results
    /// before they are rounded, in the order of launches: one entry each, two for [`Device::rope_and_store`] (q', then
    /// K). `embed` and a residual GEMM append those of h; a GEMM that stores f32 appends none, since
    /// [`Device::digest_rows`] gives them.
    fn watch(&mut self, on: bool);
    /// From now on the log also holds the values of these entries, counted from its last emptying.
    fn keep(&mut self, entries: &BTreeSet<usize>);
    /// Empties the log.
    fn take_log(&mut self) -> Result<Vec<LoggedRows>, DeviceError>;
    /// Counters since creation.
    fn counts(&mut self) -> Result<VariantCounts, DeviceError>;

    /// Uploads 16-bit values.
    fn upload(&self, values: &[u16]) -> Result<Self::T16, DeviceError>;
    /// Uploads f32 values.
    fn upload_f32(&self, values: &[f32]) -> Result<Self::F32, DeviceError>;
    /// Uploads a weight matrix `[n][k]`, row-major; `k` need not be a multiple of 16.
    fn upload_matrix(
        &self,
        n: usize,
        k: usize,
        values: &[u16],
    ) -> Result<Self::Matrix, DeviceError>;
    /// Makes 16-bit values in place.
    fn make(&self, recipe: &Recipe) -> Result<Self::T16, DeviceError>;
    /// Makes a weight matrix in place.
    fn make_matrix(&self, recipe: &Recipe) -> Result<Self::Matrix, DeviceError>;
    /// Uploads a RoPE table.
    fn upload_rope(&self, table: &RopeTable) -> Result<Self::Rope, DeviceError>;
    /// Allocates `len` f32, contents unspecified.
    fn alloc_f32(&self, len: usize) -> Result<Self::F32, DeviceError>;
    /// Allocates `len` 16-bit values, contents unspecified.
    fn alloc_t16(&self, len: usize) -> Result<Self::T16, DeviceError>;
    /// Allocates a KV pool.
    fn alloc_kv(&self, shape: KvShape) -> Result<Self::Kv, DeviceError>;
    /// Allocates host memory for `shape.blocks` blocks of a KV pool that is of this shape otherwise.
    fn alloc_swap(&self, shape: KvShape) -> Result<Self::Swap, DeviceError>;

    /// Copies block `from` of the pool to block `to`, all layers.
    fn copy_block(&mut self, kv: &mut Self::Kv, from: u32, to: u32) -> Result<(), DeviceError>;
    /// Copies `blocks` of the pool to `slots` of host memory, one for one, all layers.
    fn swap_out(
        &mut self,
        kv: &Self::Kv,
        blocks: &[u32],
        swap: &mut Self::Swap,
        slots: &[u32],
    ) -> Result<(), DeviceError>;
    /// Copies `slots` of host memory to `blocks` of the pool, one for one, all layers.
    fn swap_in(
        &mut self,
        swap: &Self::Swap,
        slots: &[u32],
        kv: &mut Self::Kv,
        blocks: &[u32],
    ) -> Result<(), DeviceError>;
    /// Fills elements of `x` with NaN: what nobody may read.
    fn poison_f32(&mut self, x: &mut Self::F32, elements: Range<usize>) -> Result<(), DeviceError>;
    /// Fills elements of `x` with a NaN of the contract's dtype.
    fn poison_t16(&mut self, x: &mut Self::T16, elements: Range<usize>) -> Result<(), DeviceError>;
    /// Fills K and V of a block with NaN, in all layers.
    fn poison_block(&mut self, kv: &mut Self::Kv, block: u32) -> Result<(), DeviceError>;

    /// `h[m][hidden] = w(embedding[token])`. Token ids are below the vocabulary size.
    fn embed(
        &mut self,
        embedding: &Self::Matrix,
        tokens: &[u32],
        h: &mut Self::F32,
    ) -> Result<(), DeviceError>;
    /// `x[m][n] = r16(rmsnorm(h))`.
    #[allow(clippy::too_many_arguments)]
    fn rmsnorm(
        &mut self,
        launch: NormLaunch,
        m: usize,
        n: usize,
        h: &Self::F32,
        weight: &Self::T16,
        eps: f32,
        x: &mut Self::T16,
    ) -> Result<(), DeviceError>;
    /// `y[m][n] = x[m][k] . w[n][k]`, stored as `out` says.
    fn gemm(
        &mut self,
        launch: &GemmLaunch,
        m: usize,
        x: &Self::T16,
        w: &Self::Matrix,
        out: GemmOutput<'_, Self>,
    ) -> Result<(), DeviceError>;
    /// The chain of one split of `launch` alone, computed as the launch would compute it: `y[m][n]` in f32, before the
    /// fold. For reports: it gives the values that a difference comes from. A device that can't refuses.
    fn gemm_split(
        &mut self,
        launch: &GemmLaunch,
        split: usize,
        m: usize,
        x: &Self::T16,
        w: &Self::Matrix,
        y: &mut Self::F32,
    ) -> Result<(), DeviceError> {
        let _ = (launch, split, m, x, w, y);
        let why = format!("gemm_split: device {} gives no partial results", self.name());
        Err(DeviceError::Launch(why))
    }
    /// Splits `qkv[m][(q+2kv)*dim]`, applies q/k norm (if any) and RoPE, writes the scaled q' to
    /// `q[m][q*dim]` and K, V to the sequences' slots of `layer`.
    #[allow(clippy::too_many_arguments)]
    fn rope_and_store(
        &mut self,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        qkv: &Self::T16,
        norm: Option<QkNorm<'_, Self>>,
        rope: &Self::Rope,
        q: &mut Self::T16,
        kv: &mut Self::Kv,
    ) -> Result<(), DeviceError>;
    /// `out[m][q*dim]` = attention of each row over positions `0..=p` of its sequence.
    #[allow(clippy::too_many_arguments)]
    fn attention(
        &mut self,
        launch: AttentionLaunch,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        q: &Self::T16,
        kv: &Self::Kv,
        out: &mut Self::T16,
    ) -> Result<(), DeviceError>;
    /// `z[m][f] = r16(silu(gate) * up)` from `gate_up[m][2f]` = `[gate;up]`.
    fn swiglu(
        &mut self,
        m: usize,
        f: usize,
        gate_up: &Self::T16,
        z: &mut Self::T16,
    ) -> Result<(), DeviceError>;
    /// Log-probabilities of `ids[i]` in logits row `rows[i]` of `[m][vocab]`.
    fn logprobs(
        &mut self,
        vocab: usize,
        logits: &Self::F32,
        rows: &[u32],
        ids: &[u32],
    ) -> Result<Vec<f32>, DeviceError>;
    /// For each listed row of `logits[m][vocab]`, the token its sampler draws. `None` where a logit is
    /// not finite: the request is undecided, never sampled.
    fn sample(
        &mut self,
        vocab: usize,
        logits: &Self::F32,
        rows: &[SampleRow],
    ) -> Result<Vec<Option<u32>>, DeviceError>;

    /// Digest of each row of `x[m][n]`, logical column order.
    fn digest_rows(&mut self, m: usize, n: usize, x: &Self::F32) -> Result<Vec<u64>, DeviceError>;
    /// Digests of positions `from..to` of a sequence with these blocks, in `layer`.
    fn digest_kv(
        &mut self,
        layer: usize,
        kv: &Self::Kv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<KvDigest>, DeviceError>;
    /// [`Device::digest_kv`] of the first `layers` layers, which a device may read back at once.
    fn digest_kv_layers(
        &mut self,
        layers: usize,
        kv: &Self::Kv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<Vec<Vec<KvDigest>>, DeviceError> {
        (0..layers).map(|layer| self.digest_kv(layer, kv, blocks, from, to)).collect()
    }
    /// Row `row` of `x[m][n]`, for reports.
    fn read_row(&mut self, n: usize, x: &Self::F32, row: usize) -> Result<Vec<f32>, DeviceError>;
    /// The first `len` values of `x`, for comparisons.
    fn read_f32(&mut self, x: &Self::F32, len: usize) -> Result<Vec<f32>, DeviceError>;
    /// The first `len` values of `x`, for comparisons.
    fn read_t16(&mut self, x: &Self::T16, len: usize) -> Result<Vec<u16>, DeviceError>;
    /// A weight matrix `[n][k]`, row-major without padding, for comparisons.
    fn read_matrix(&mut self, w: &Self::Matrix) -> Result<Vec<u16>, DeviceError>;
    /// K and V of positions `from..to` of a sequence with these blocks, in `layer`, for comparisons: each
    /// `[position][kv head][dim]`.
    fn read_kv(
        &mut self,
        layer: usize,
        kv: &Self::Kv,
        blocks: &[u32],
        from: u32,
        to: u32,
    ) -> Result<[Vec<u16>; 2], DeviceError>;
}

/// One row to sample from.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRow {
    /// Row of the logits.
    pub row: u32,
    /// Sampling parameters.
    pub params: SamplerParams,
    /// Distinct token ids of prompt and output, ascending; read only with a repetition penalty.
    pub seen: Vec<u32>,
    /// Philox key.
    pub key: [u32; 2],
    /// Absolute index of the token being drawn (the prompt length for the first one).
    pub position: u32,
}

/// A device could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// A shape or launch that the operator cannot honour; the text names operator and numbers.
    Launch(String),
    /// Memory for a buffer could not be had.
    OutOfMemory {
        /// What was asked for, in bytes.
        bytes: usize,
    },
    /// A kernel does not compile; the text holds the compiler's log.
    Compile(String),
    /// A call of the driver failed. The device can go on.
    Failed {
        /// The call, and the launches that it may have waited for.
        what: String,
        /// The driver's code.
        error: String,
    },
    /// The device was lost by an error before: nothing that ran since can be judged.
    Lost {
        /// The error.
        cause: String,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Launch(what) => write!(f, "launch refused: {what}"),
            DeviceError::OutOfMemory { bytes } => write!(f, "out of memory for {bytes} bytes"),
            DeviceError::Compile(why) => write!(f, "{why}"),
            DeviceError::Failed { what, error } => write!(f, "{what}: {error}"),
            DeviceError::Lost { cause } => write!(f, "the device was lost: {cause}"),
        }
    }
}

impl std::error::Error for DeviceError {}
