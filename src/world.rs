//! The world: what is fixed for an execution, and so for its canonical twin.

use serde::{Deserialize, Serialize};

use crate::contract::{Dtype, Mode};

/// Everything about an engine instance that no schedule may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// Model as it was asked for: a preset's name, or a path.
    pub model: String,
    /// sha256 (hex) of configuration and weights.
    pub model_digest: String,
    /// Storage dtype.
    pub dtype: Dtype,
    /// Invariant, or the positive control.
    pub mode: Mode,
    /// Positions per KV block.
    pub block_size: u32,
    /// Physical KV blocks.
    pub pool_blocks: u32,
    /// Rows per step that all requests share. Off by default: a shared budget would make one request's chunks
    /// depend on the others.
    pub token_budget: Option<u32>,
    /// Whether whole blocks are shared between equal prefixes.
    pub prefix_cache: bool,
    /// Bits kept of the prefix index's hash, 0 ..= 64. Few bits plant collisions.
    pub hash_bits: u8,
    /// Row counts that steps are padded to, ascending; a step larger than the last is not padded. Empty: none is.
    #[serde(default)]
    pub buckets: Vec<u32>,
    /// Whether memory that nobody may read is filled with NaN. Never changes a result.
    #[serde(default)]
    pub poison: bool,
    /// Blocks of host memory that preempted requests may be swapped to.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub swap_blocks: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Most blocks a pool may have.
pub const POOL_BLOCKS_MAX: u32 = 1 << 16;
/// Most positions a block may have.
pub const BLOCK_SIZE_MAX: u32 = 1024;
/// Most padding buckets.
pub const BUCKETS_MAX: usize = 64;
/// Most rows of a padding bucket.
pub const BUCKET_ROWS_MAX: u32 = 4096;

impl World {
    /// Checks the limits; the error is one line.
    pub fn validate(&self) -> Result<(), String> {
        if self.block_size == 0 || self.block_size > BLOCK_SIZE_MAX {
            return Err(format!(
                "world.block_size is {}, must be 1..={BLOCK_SIZE_MAX}",
                self.block_size
            ));
        }
        if self.pool_blocks == 0 || self.pool_blocks > POOL_BLOCKS_MAX {
            return Err(format!(
                "world.pool_blocks is {}, must be 1..={POOL_BLOCKS_MAX}",
                self.pool_blocks
            ));
        }
        if self.swap_blocks > POOL_BLOCKS_MAX {
            return Err(format!(
                "world.swap_blocks is {}, must be 0..={POOL_BLOCKS_MAX}",
                self.swap_blocks
            ));
        }
        if self.token_budget == Some(0) {
            return Err("world.token_budget is 0, must be at least 1".into());
        }
        if self.hash_bits > 64 {
            return Err(format!("world.hash_bits is {}, must be 0..=64", self.hash_bits));
        }
        if self.buckets.len() > BUCKETS_MAX {
            let have = self.buckets.len();
            return Err(format!("world.buckets has {have} entries, at most {BUCKETS_MAX}"));
        }
        let ascending = self.buckets.windows(2).all(|pair| pair[0] < pair[1]);
        let within = self.buckets.iter().all(|rows| (1..=BUCKET_ROWS_MAX).contains(rows));
        if !ascending || !within {
            return Err(format!(
                "world.buckets is {:?}, must ascend within 1..={BUCKET_ROWS_MAX}",
                self.buckets
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
impl World {
    /// A world of no model. `sizes` are those of a block in positions, and of the pool and the swap pool in blocks.
    pub(crate) fn of_blocks(sizes: [u32; 3]) -> World {
        let [block_size, pool_blocks, swap_blocks] = sizes;
        World {
            model: String::new(),
            model_digest: String::new(),
            dtype: Dtype::Bf16,
            mode: Mode::Invariant,
            block_size,
            pool_blocks,
            token_budget: None,
            prefix_cache: true,
            hash_bits: 64,
            swap_blocks,
            buckets: Vec::new(),
            poison: false,
        }
    }
}
