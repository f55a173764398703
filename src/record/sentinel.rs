//! Sentinels: execution counters that stand in the branch that does the work.
//!
//! They belong to one run; nothing here is global, so parallel trials never fire each other's.

use std::collections::BTreeMap;

/// A mechanism whose execution is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Sentinel {
    /// A step held rows of two or more requests.
    SharedStep,
    /// A request's rows did not start at row 0 of a step.
    RowNotFirst,
    /// A row's attention folded two or more splits.
    MultiSplitRow,
    /// A GEMM folded two or more partial sums.
    GemmFold,
    /// A prefill was cut by the schedule.
    Cut,
    /// A chunk ended inside a KV block.
    CutMidBlock,
    /// A chunk ended inside an attention tile.
    CutMidTile,
    /// A chunk ended inside an attention split.
    CutMidSplit,
    /// A request lost its residency and its blocks.
    PreemptRecompute,
    /// The same, in the middle of its prefill.
    PreemptMidPrefill,
    /// The same, for the second time or later.
    PreemptAgain,
    /// The pool was exhausted and a victim made room.
    PreemptForRoom,
    /// A preempted request was admitted again.
    Resume,
    /// A position whose token was generated before was computed again in a prefill chunk.
    ScoredInPrefill,
    /// Prefix blocks were attached instead of computed.
    HitTokensSaved,
    /// A hit served every block that could be served.
    HitFull,
    /// A hit was trimmed by the schedule, or covered only a part of the prompt's whole blocks.
    HitPartial,
    /// A hit was refused by the schedule.
    HitRefused,
    /// A block was attached to two requests at once.
    BlockShared,
    /// A cached block was evicted to be reused.
    Evict,
    /// A request's block table was not a run of consecutive blocks.
    FragmentedTable,
    /// Two different prefixes met under one hash and were told apart by their tokens.
    CollisionResolved,
    /// Admission was refused by the schedule.
    AdmitRefused,
    /// A sampled token was not the most likely one.
    DrawNotArgmax,
    /// A request's row changed between two steps.
    RowMoved,
    /// GEMM, skinny rows, walked splits.
    GemmSkinnyWalk,
    /// GEMM, skinny rows, parallel splits.
    GemmSkinnyParallel,
    /// GEMM, tiled rows, walked splits.
    GemmTiledWalk,
    /// GEMM, tiled rows, parallel splits.
    GemmTiledParallel,
    /// Attention, walked splits.
    AttentionWalk,
    /// Attention, parallel splits.
    AttentionParallel,
    /// Norm fused with the residual before it.
    NormFused,
    /// Norm on its own.
    NormPlain,
    /// Attention walked tiles that started before the chunk.
    TileBeforeChunk,
    /// A sample attached the blocks of another sample of its request.
    Fork,
    /// The same, with a block that was not full.
    ForkPartial,
    /// A block with several references was copied before a write.
    CowCopy,
    /// The same, because the sample that had been forked from wrote on.
    CowByParent,
    /// A request's K and V went to host memory and its blocks were released.
    SwapOut,
    /// The same, in the middle of a prefill.
    SwapMidPrefill,
    /// The same, for the second time or later.
    SwapAgain,
    /// A request's K and V came back from host memory.
    SwapIn,
    /// The same, to other blocks than it had left.
    SwapMoved,
    /// A swap was refused for want of room in host memory.
    SwapNoRoom,
    /// A request was ended by the schedule.
    Abort,
    /// The same, while its K and V were in host memory.
    AbortSwapped,
    /// The same, while it was resident and in the middle of a prefill.
    AbortMidPrefill,
    /// The same, while it held a block that another one used too.
    AbortShared,
    /// A lookup would have found a block but for the namespace.
    NamespaceKeptApart,
    /// A block other than the first free one was handed out because the schedule said so.
    Placed,
    /// A cached block of a request was evicted by the schedule before the request's prefix lookup.
    EvictChosen,
    /// A block that had been evicted that way was computed again by its request.
    EvictReread,
    /// A step had padding rows.
    PaddedStep,
    /// A step was padded to another bucket than the smallest that holds it.
    BucketChanged,
    /// A chunk landed boundaries after its launch.
    LandedLate,
    /// The same, after its request had lost the residency that it was launched in.
    LandedAfterLeaving,
    /// The copy of a shared block landed boundaries after it was due.
    CopyLandedLate,
    /// K and V went to host memory boundaries after their request had lost its residency.
    SwapOutLandedLate,
    /// K and V came back from host memory boundaries after their request had become resident.
    SwapInLandedLate,
    /// A copy, or what came back from host memory, landed after its request had lost the residency.
    CopyLandedAfterLeaving,
    /// A block that had been in use was filled with NaN.
    Poisoned,
    /// An end-of-sequence token ended an output.
    FinishEos,
    /// An output came to its full length.
    FinishLength,
    /// A stop token ended an output.
    StopToken,
    /// A stop string ended an output.
    StopString,
    /// The same, and it had begun in an earlier token than the last.
    StopAcrossTokens,
    /// A generated token was scored.
    ScoredOutput,
    /// A prompt token was scored.
    ScoredPrompt,
    /// A sampled token was not the most likely one, and its step held two or more sequences.
    DrawNotArgmaxShared,
    /// A token was sampled for a sequence at another place of the step than the token before.
    DrawMoved,
    /// A step held two sequences with equal tokens.
    SiblingsMet,
    /// A position was computed alone, behind all that its sequence had computed before.
    Decoded,
}

/// All sentinels with the names that reports show.
pub const SENTINELS: [(Sentinel, &str); 72] = {
    use Sentinel::*;
    [
        (SharedStep, "shared_step"),
        (RowNotFirst, "row_not_first"),
        (MultiSplitRow, "multi_split_row"),
        (GemmFold, "gemm_fold"),
        (Cut, "cut"),
        (CutMidBlock, "cut_mid_block"),
        (CutMidTile, "cut_mid_tile"),
        (CutMidSplit, "cut_mid_split"),
        (PreemptRecompute, "preempt_recompute"),
        (PreemptMidPrefill, "preempt_mid_prefill"),
        (PreemptAgain, "preempt_again"),
        (PreemptForRoom, "preempt_for_room"),
        (Resume, "resume"),
        (ScoredInPrefill, "scored_in_prefill"),
        (HitTokensSaved, "hit_tokens_saved"),
        (HitFull, "hit_full"),
        (HitPartial, "hit_partial"),
        (HitRefused, "hit_refused"),
        (BlockShared, "block_shared"),
        (Evict, "evict"),
        (FragmentedTable, "fragmented_table"),
        (CollisionResolved, "collision_resolved"),
        (AdmitRefused, "admit_refused"),
        (DrawNotArgmax, "draw_not_argmax"),
        (RowMoved, "row_moved"),
        (GemmSkinnyWalk, "gemm_skinny_walk"),
        (GemmSkinnyParallel, "gemm_skinny_parallel"),
        (GemmTiledWalk, "gemm_tiled_walk"),
        (GemmTiledParallel, "gemm_tiled_parallel"),
        (AttentionWalk, "attention_walk"),
        (AttentionParallel, "attention_parallel"),
        (NormFused, "norm_fused"),
        (NormPlain, "norm_plain"),
        (TileBeforeChunk, "tile_before_chunk"),
        (Fork, "fork"),
        (ForkPartial, "fork_partial"),
        (CowCopy, "cow_copy"),
        (CowByParent, "cow_by_parent"),
        (SwapOut, "swap_out"),
        (SwapMidPrefill, "swap_mid_prefill"),
        (SwapAgain, "swap_again"),
        (SwapIn, "swap_in"),
        (SwapMoved, "swap_moved"),
        (SwapNoRoom, "swap_no_room"),
        (Abort, "abort"),
        (AbortSwapped, "abort_swapped"),
        (AbortMidPrefill, "abort_mid_prefill"),
        (AbortShared, "abort_shared"),
        (NamespaceKeptApart, "namespace_kept_apart"),
        (Placed, "placed"),
        (EvictChosen, "evict_chosen"),
        (EvictReread, "evict_reread"),
        (PaddedStep, "padded_step"),
        (BucketChanged, "bucket_changed"),
        (LandedLate, "landed_late"),
        (LandedAfterLeaving, "landed_after_leaving"),
        (CopyLandedLate, "copy_landed_late"),
        (SwapOutLandedLate, "swap_out_landed_late"),
        (SwapInLandedLate, "swap_in_landed_late"),
        (CopyLandedAfterLeaving, "copy_landed_after_leaving"),
        (Poisoned, "poisoned"),
        (FinishEos, "finish_eos"),
        (FinishLength, "finish_length"),
        (StopToken, "stop_token"),
        (StopString, "stop_string"),
        (StopAcrossTokens, "stop_across_tokens"),
        (ScoredOutput, "scored_output"),
        (ScoredPrompt, "scored_prompt"),
        (DrawNotArgmaxShared, "draw_not_argmax_shared"),
        (DrawMoved, "draw_moved"),
        (SiblingsMet, "siblings_met"),
        (Decoded, "decoded"),
    ]
};

impl Sentinel {
    /// Name in reports and JSON.
    pub fn name(self) -> &'static str {
        SENTINELS[self as usize].1
    }
}

/// Counts of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelCounts([u64; SENTINELS.len()]);

impl Default for SentinelCounts {
    fn default() -> SentinelCounts {
        SentinelCounts([0; SENTINELS.len()])
    }
}

impl SentinelCounts {
    /// Counts one execution.
    #[inline]
    pub fn hit(&mut self, sentinel: Sentinel) {
        self.add(sentinel, 1);
    }

    /// Counts `n` executions.
    #[inline]
    pub fn add(&mut self, sentinel: Sentinel, n: u64) {
        self.0[sentinel as usize] += n;
    }

    /// How often it executed.
    pub fn get(&self, sentinel: Sentinel) -> u64 {
        self.0[sentinel as usize]
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &SentinelCounts) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a += b;
        }
    }

    /// The nonzero counts by name.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        SENTINELS
            .iter()
            .filter(|(s, _)| self.get(*s) > 0)
            .map(|(s, name)| ((*name).to_owned(), self.get(*s)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sentinel_stands_at_its_own_index() {
        for (i, (sentinel, name)) in SENTINELS.iter().enumerate() {
            assert_eq!(*sentinel as usize, i, "{name}");
            assert_eq!(sentinel.name(), *name);
        }
    }
}
