//! What a run leaves behind: outputs, the bits it observed, its trajectory, its sentinels.

pub mod boundary;
pub mod capture;
pub mod life;
pub mod sentinel;
pub mod sites;
pub mod trajectory;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::schedule::Intent;
use crate::workload::SampleId;

pub use boundary::{BOUNDARIES, Boundary, BoundaryCounts};
pub use capture::{Capture, CapturedRow, CapturedSite, LaunchNote, Order};
pub use life::LifeEvent;
pub use sentinel::{SENTINELS, Sentinel, SentinelCounts};
pub use trajectory::{Trajectory, TrajectoryHasher};

/// Why a request stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// An end-of-sequence token was drawn.
    Eos,
    /// `max_tokens` tokens were generated.
    Length,
    /// A stop token was drawn, or a stop string came to its end.
    Stop,
    /// A logit was not finite, so nothing may be drawn from it.
    Undecided,
    /// The schedule ended it.
    Aborted,
}

/// Digests of one position's stored K and V in one layer (docs/contract.md section 13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvDigest {
    /// Digest of K over all kv heads.
    pub k: u64,
    /// Digest of V over all kv heads.
    pub v: u64,
}

/// The bits of one computed position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionBits {
    /// Residency in which it was computed, from 1.
    pub residency: u32,
    /// Position in the sequence.
    pub position: u32,
    /// Digest of the f32 logits (docs/contract.md section 13).
    pub logits: u64,
    /// Digest of each operator's f32 results before they are rounded, one a [site](sites::Site) in the order of
    /// computation (layer digests); empty if the engine does not report them.
    pub sites: Vec<u64>,
}

/// When K and V of a position were read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvMoment {
    /// When its block was attached from the prefix cache.
    Attached,
    /// When its block was attached from another sample of its request.
    Forked,
    /// When it had come back from host memory.
    SwappedIn,
    /// When the request finished or lost its residency.
    Released,
}

/// K and V of one position, all layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvBits {
    /// Residency, from 1.
    pub residency: u32,
    /// Position in the sequence.
    pub position: u32,
    /// When it was read.
    pub moment: KvMoment,
    /// One digest a layer.
    pub layers: Vec<KvDigest>,
}

/// The log-probability of a token, each time that the row before it was computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenScore {
    /// Residency in which the row was computed, from 1.
    pub residency: u32,
    /// Position of the token.
    pub position: u32,
    /// The token.
    pub token: u32,
    /// Bits of its f32 log-probability; every NaN as 0x7fffffff.
    pub logprob: u32,
    /// The best tokens, best first, with the bits of theirs.
    pub top: Vec<(u32, u32)>,
}

/// A token that was drawn, and what it was drawn by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Position of the token.
    pub position: u32,
    /// The token.
    pub token: u32,
    /// Philox key (docs/contract.md section 11); `None` for a greedy draw, which uses none.
    pub key: Option<[u32; 2]>,
    /// Place of the sequence in the step, from 0: nothing may depend on it.
    pub place: u32,
}

/// All that was observed of one sample of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// Generated tokens.
    pub tokens: Vec<u32>,
    /// Bytes of the generated text, up to a stop string; empty for a model whose tokens have no bytes of their own.
    pub text: Vec<u8>,
    /// Why it stopped; `None` if it never did.
    pub finish: Option<Finish>,
    /// Log-probabilities that were asked for, in the order of computation.
    pub scores: Vec<TokenScore>,
    /// What its tokens were drawn by, in order: one a token, if the engine reports them.
    pub draws: Vec<Draw>,
    /// Logits at every computed position, in the order of computation.
    pub positions: Vec<PositionBits>,
    /// K and V, cached positions included.
    pub kv: Vec<KvBits>,
    /// Rows that the engine's ledger says were computed for it.
    pub rows_computed: u64,
    /// Positions of K and V that the ledger says must have been read back.
    pub kv_due: u64,
    /// Steps that it shared with another request.
    pub shared_steps: u64,
    /// Rows that were asked for, in the order of computation.
    pub captured: Vec<CapturedRow>,
    /// Namespaces of the requests that wrote the K and V which it attached; see
    /// [`Sentinel::NamespaceKeptApart`].
    pub writers: BTreeSet<u32>,
}

/// What became of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentOutcome {
    /// The intent.
    pub intent: Intent,
    /// `None` if the decision differed from the default's, else why it did not.
    pub inert: Option<Inert>,
}

/// Why an intent changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inert {
    /// Its mark was never reached.
    MarkNotReached,
    /// The act cannot be taken at this kind of mark.
    WrongMark,
    /// The workload has no such request.
    NoSuchRequest,
    /// The default would have decided the same.
    SameAsDefault,
    /// Reached, but nothing ever asked for this decision.
    NeverAsked,
    /// Reached, but another act at the same decision made it void.
    Overtaken,
    /// A swap found no room in host memory.
    NoSwapRoom,
    /// A swap found nothing computed, or all of it on its way back from host memory.
    NothingToSwap,
    /// A fork found no resident sample of the request with something to share.
    NoSibling,
}

/// What the step launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepShape {
    /// Rows.
    pub rows: u32,
    /// Sequences.
    pub sequences: u32,
}

/// What an engine still holds when every request has left it: of a sound one nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Blocks of the pool that can't be handed out, or could be handed out twice; those that are merely cached can.
    pub blocks: u64,
    /// Blocks of host memory.
    pub swap_blocks: u64,
}

/// A finished execution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// By sample of a request.
    pub outputs: BTreeMap<SampleId, Output>,
    /// Shapes of the steps that launched work, in order.
    pub steps: Vec<StepShape>,
    /// One chained hash a step boundary.
    pub trajectory: Trajectory,
    /// Counters of the mechanisms.
    pub sentinels: SentinelCounts,
    /// Lifecycle events of all sequences, in the order in which they happened.
    pub life: Vec<LifeEvent>,
    /// Counts of the boundary predicates.
    pub boundaries: BoundaryCounts,
    /// One outcome an intent, in the schedule's order.
    pub intents: Vec<IntentOutcome>,
    /// What was still held at the end, if the engine reports it.
    pub held: Option<Held>,
}

impl Run {
    /// Rows computed over all requests.
    pub fn rows(&self) -> u64 {
        self.outputs.values().map(|o| o.rows_computed).sum()
    }

    /// The output of sample 0 of a request.
    pub fn first(&self, uid: u64) -> Option<&Output> {
        self.outputs.get(&SampleId::first(uid))
    }

    /// Tokens that belong to the samples, whose prompts have these lengths: each position counted once.
    pub fn distinct_tokens(&self, prompts: impl Iterator<Item = usize>) -> u64 {
        prompts.map(|p| p as u64).sum::<u64>()
            + self.outputs.values().map(|o| o.tokens.len() as u64).sum::<u64>()
    }
}
