//! Boundary predicates: a value that a decision or a launch uses, against the edge at which behaviour changes.
//!
//! Each is counted where the value is used, one below the edge, on it and one above it. They belong to a run, as
//! sentinels do. Nothing here is read from a configuration: a prompt of the right length that was never admitted counts
//! for nothing.

/// A predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Boundary {
    /// Rows of a step, against the first count whose launches walk the splits of several rows.
    RowsSingle,
    /// Rows of a step, against the first count that decodes weights to scratch.
    RowsSkinny,
    /// Rows of a step, against the first count whose splits do not run in parallel.
    RowsParallel,
    /// Rows of a step, against the first count whose norms are not fused.
    RowsFused,
    /// Sequences of a step, against one: none at all, one, two.
    StepSequences,
    /// End of a prefill chunk, against multiples of the KV block.
    ChunkBlock,
    /// End of a prefill chunk, against multiples of the attention tile.
    ChunkTile,
    /// End of a prefill chunk, against multiples of the attention split.
    ChunkSplit,
    /// Start of a chunk behind another one, against multiples of the attention tile.
    StartTile,
    /// Length of a prompt at its admission, against multiples of the KV block.
    PromptBlock,
    /// Length of a prompt at its admission, against multiples of the attention tile.
    PromptTile,
    /// Length of a prompt at its admission, against multiples of the attention split.
    PromptSplit,
    /// Positions that a decoded token attends to, against multiples of the KV block.
    DecodeBlock,
    /// Positions that a decoded token attends to, against multiples of the attention tile.
    DecodeTile,
    /// Positions that a decoded token attends to, against multiples of the attention split.
    DecodeSplit,
    /// Tokens of a sequence that a prefix hit served, against multiples of the KV block.
    HitTokens,
    /// Blocks that a lookup found, against one.
    HitBlocks,
    /// Blocks that an admission could have, against those it needs: one short, exact, one spare.
    AdmissionRoom,
    /// Blocks that a growing sequence could have, against those it needs.
    GrowthRoom,
    /// Free slots of host memory, against those that a swap needs.
    SwapRoom,
    /// Rows left of the shared budget, against those that a sequence wants.
    BudgetRoom,
    /// Rows of a step, against the padding buckets.
    Bucket,
    /// References to a block when one is dropped, against two.
    References,
    /// Positions of a request, against the model's longest sequence.
    Context,
    /// Tokens to generate, against one.
    MaxTokens,
    /// A sampler's top-k, against one; 0 is off.
    TopKOne,
    /// A sampler's top-k, against the vocabulary.
    TopKVocabulary,
}

/// What is above an edge, what below it, and on it: each an offset that a run can have.
const ALL: [bool; 3] = [true, true, true];
/// Above the edge the input is refused.
const NOT_ABOVE: [bool; 3] = [true, true, false];
/// Below the edge there is nothing.
const NOT_BELOW: [bool; 3] = [false, true, true];

/// All predicates with the names that reports show, and which of -1, 0, +1 can happen.
pub const BOUNDARIES: [(Boundary, &str, [bool; 3]); 27] = {
    use Boundary::*;
    [
        (RowsSingle, "rows_single", ALL),
        (RowsSkinny, "rows_skinny", ALL),
        (RowsParallel, "rows_parallel", ALL),
        (RowsFused, "rows_fused", ALL),
        (StepSequences, "step_sequences", ALL),
        (ChunkBlock, "chunk_block", ALL),
        (ChunkTile, "chunk_tile", ALL),
        (ChunkSplit, "chunk_split", ALL),
        (StartTile, "start_tile", ALL),
        (PromptBlock, "prompt_block", ALL),
        (PromptTile, "prompt_tile", ALL),
        (PromptSplit, "prompt_split", ALL),
        (DecodeBlock, "decode_block", ALL),
        (DecodeTile, "decode_tile", ALL),
        (DecodeSplit, "decode_split", ALL),
        (HitTokens, "hit_tokens", ALL),
        (HitBlocks, "hit_blocks", ALL),
        (AdmissionRoom, "admission_room", ALL),
        (GrowthRoom, "growth_room", ALL),
        (SwapRoom, "swap_room", ALL),
        (BudgetRoom, "budget_room", ALL),
        (Bucket, "bucket", ALL),
        (References, "references", ALL),
        (Context, "context", NOT_ABOVE),
        (MaxTokens, "max_tokens", NOT_BELOW),
        (TopKOne, "top_k_one", ALL),
        (TopKVocabulary, "top_k_vocabulary", ALL),
    ]
};

/// Offsets from an edge, in the order of counts.
pub const OFFSETS: [i64; 3] = [-1, 0, 1];

impl Boundary {
    /// Name in reports and JSON.
    pub fn name(self) -> &'static str {
        BOUNDARIES[self as usize].1
    }
}

/// Counts of one run, by predicate, at -1, 0 and +1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundaryCounts([[u64; 3]; BOUNDARIES.len()]);

impl BoundaryCounts {
    /// Counts a use of `value`, whose edge is `edge`.
    #[inline]
    pub fn near(&mut self, boundary: Boundary, value: usize, edge: usize) {
        let offset = (value + 1).wrapping_sub(edge);
        if offset < 3 {
            self.0[boundary as usize][offset] += 1;
        }
    }

    /// Counts a use of `value`, whose edges are the multiples of `granule` from `granule` on. Of one, everything is a
    /// multiple: nothing is counted.
    #[inline]
    pub fn near_multiple(&mut self, boundary: Boundary, value: usize, granule: usize) {
        if granule < 2 {
            return;
        }
        let nearest = (value + 1) / granule * granule;
        for edge in [nearest, nearest.saturating_sub(granule)] {
            if edge > 0 {
                self.near(boundary, value, edge);
            }
        }
    }

    /// How often the predicate was met at -1, 0 and +1.
    pub fn get(&self, boundary: Boundary) -> [u64; 3] {
        self.0[boundary as usize]
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &BoundaryCounts) {
        for (a, b) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *a += b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_boundary_stands_at_its_own_index() {
        for (i, (boundary, name, _)) in BOUNDARIES.iter().enumerate() {
            assert_eq!((*boundary as usize, boundary.name()), (i, *name));
        }
    }

    #[test]
    fn values_are_counted_one_below_on_and_one_above_their_edge() {
        let mut counts = BoundaryCounts::default();
        for value in 0..=8 {
            counts.near(Boundary::MaxTokens, value, 5);
        }
        assert_eq!(counts.get(Boundary::MaxTokens), [1, 1, 1]);
        // The edge 0: nothing is below it.
        counts.near(Boundary::References, 0, 0);
        counts.near(Boundary::References, 1, 0);
        assert_eq!(counts.get(Boundary::References), [0, 1, 1]);
        let at = |value: usize, granule: usize| {
            let mut counts = BoundaryCounts::default();
            counts.near_multiple(Boundary::ChunkBlock, value, granule);
            counts.get(Boundary::ChunkBlock)
        };
        let expected = [[0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0; 3]];
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|v| at(v, 4)), expected);
        assert_eq!(at(7, 4), [1, 0, 0]);
        assert_eq!(at(8, 4), [0, 1, 0]);
        // One past an edge and one before the next.
        assert_eq!(at(3, 2), [1, 0, 1]);
        assert_eq!(at(1, 2), [1, 0, 0]);
        assert_eq!(at(3, 1), [0; 3]);
    }
}
