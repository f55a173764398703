//! A cache of prompt prefixes, in whole blocks. It remembers of each block how many sequences were in
//! the step that computed it: what a crowd leaves may differ from what one request alone leaves.

use std::collections::BTreeMap;

use super::faults::Faults;
use super::kinds::Keeps;
use super::model;

#[derive(Default)]
pub(crate) struct PrefixCache {
    /// Width of the step that computed a block, by the hash of all tokens up to its end.
    widths: BTreeMap<u64, usize>,
    /// Tokens of prompts that were looked up, and those that were found.
    queries: u64,
    hits: u64,
}

/// What a prompt gets from the cache.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hit {
    pub(crate) tokens: usize,
    /// The widest step that computed a part of it.
    pub(crate) width: usize,
}

/// The keys of a prompt's whole blocks; another salt, other keys.
pub(crate) fn blocks(prompt: &[u32], salt: u64, faults: &Faults) -> Vec<u64> {
    let mut hash = model::mix(salt);
    let mut keys = Vec::new();
    for block in prompt.chunks_exact(faults.block_tokens) {
        for &token in block {
            hash = model::mix(hash ^ u64::from(token));
        }
        keys.push(hash);
    }
    keys
}

impl PrefixCache {
    /// Tokens that earlier prompts have left; the last token of a prompt is always computed.
    pub(crate) fn take(&mut self, blocks: &[u64], prompt_tokens: usize, faults: &Faults) -> Hit {
        let most = (prompt_tokens - 1) / faults.block_tokens;
        let known = blocks.iter().take(most).map_while(|block| self.widths.get(block));
        let hit = known.fold(Hit::default(), |hit, &width| Hit {
            tokens: hit.tokens + faults.block_tokens,
            width: hit.width.max(width),
        });
        self.queries += prompt_tokens as u64;
        self.hits += hit.tokens as u64;
        hit
    }

    /// Keeps a block that was computed in a step of so many sequences.
    pub(crate) fn leave(&mut self, block: u64, width: usize, faults: &Faults) {
        let kept = self.widths.entry(block).or_insert(width);
        if faults.cache_keeps == Keeps::Last {
            *kept = width;
        }
    }

    pub(crate) fn empty(&mut self) {
        self.widths.clear();
    }

    /// Tokens that were looked up, and those that were found.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.queries, self.hits)
    }
}
