//! The prefix index: finds whole blocks whose KV was written for the same tokens.
//!
//! The key is a chained hash, cut to the world's `hash_bits`; a hit also compares the whole prefix, so equal
//! hashes of different prefixes are told apart, and compares the namespace. A block enters only after its last position was written.

use std::collections::BTreeMap;

use crate::record::TrajectoryHasher;

use super::blocks::BlockId;

/// Whole blocks by prefix.
#[derive(Clone, Debug)]
pub(super) struct PrefixIndex {
    hash_bits: u8,
    /// Candidates by hash, in order of publication.
    by_hash: BTreeMap<u64, Vec<Entry>>,
    /// Hash under which a block stands.
    hash_of: BTreeMap<BlockId, u64>,
}

#[derive(Clone, Debug)]
struct Entry {
    block: BlockId,
    namespace: u32,
    /// All tokens from position 0 to the end of the block.
    prefix: Vec<u32>,
}

/// What a lookup met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lookup {
    /// Blocks of the longest findable prefix, in order.
    pub(super) blocks: Vec<BlockId>,
    /// Entries with an equal hash and other tokens.
    pub(super) collisions: u64,
    /// Whether one more block would have been found but for the namespace.
    pub(super) kept_apart: bool,
}

impl Entry {
    fn is(&self, namespace: u32, prefix: &[u32]) -> bool {
        self.namespace == namespace && self.prefix == prefix
    }
}

impl PrefixIndex {
    /// An empty index that keeps `hash_bits` bits of each hash.
    pub(super) fn new(hash_bits: u8) -> PrefixIndex {
        PrefixIndex { hash_bits, by_hash: BTreeMap::new(), hash_of: BTreeMap::new() }
    }

    /// The longest run of whole blocks of `tokens` in a namespace, at most `limit` of them.
    pub(super) fn lookup(
        &self,
        namespace: u32,
        tokens: &[u32],
        block_size: usize,
        limit: usize,
    ) -> Lookup {
        let mut found = Lookup::default();
        let mut chain = SEED;
        for (i, block) in tokens.chunks_exact(block_size).take(limit).enumerate() {
            chain = extend(chain, block);
            let prefix = &tokens[..(i + 1) * block_size];
            let candidates = self.by_hash.get(&self.cut(chain)).map_or(&[][..], Vec::as_slice);
            let hit = candidates.iter().find(|e| e.is(namespace, prefix));
            found.collisions += candidates.iter().filter(|e| e.prefix != prefix).count() as u64;
            match hit {
                Some(entry) => found.blocks.push(entry.block),
                None => {
                    found.kept_apart = candidates.iter().any(|e| e.prefix == prefix);
                    break;
                }
            }
        }
        found
    }

    /// The block that is findable in a namespace under `prefix` (whole blocks), whether or not those before it are.
    pub(super) fn find(
        &self,
        namespace: u32,
        prefix: &[u32],
        block_size: usize,
    ) -> Option<BlockId> {
        let chain = prefix.chunks_exact(block_size).fold(SEED, extend);
        let entries = self.by_hash.get(&self.cut(chain))?;
        entries.iter().find(|e| e.is(namespace, prefix)).map(|e| e.block)
    }

    /// Makes `block` findable in a namespace under `prefix` (whole blocks). Returns false if that prefix is findable
    /// there already.
    pub(super) fn publish(
        &mut self,
        namespace: u32,
        prefix: &[u32],
        block_size: usize,
        block: BlockId,
    ) -> bool {
        let chain = prefix.chunks_exact(block_size).fold(SEED, extend);
        let hash = self.cut(chain);
        let entries = self.by_hash.entry(hash).or_default();
        if entries.iter().any(|e| e.is(namespace, prefix)) {
            return false;
        }
        entries.push(Entry { block, namespace, prefix: prefix.to_vec() });
        self.hash_of.insert(block, hash);
        true
    }

    /// Whether the block is findable.
    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.hash_of.contains_key(&block)
    }

    /// Makes the block unfindable. Returns the prefix it stood for.
    pub(super) fn remove(&mut self, block: BlockId) -> Option<Vec<u32>> {
        let hash = self.hash_of.remove(&block)?;
        let entries = self.by_hash.get_mut(&hash)?;
        let at = entries.iter().position(|e| e.block == block)?;
        let entry = entries.remove(at);
        if entries.is_empty() {
            self.by_hash.remove(&hash);
        }
        Some(entry.prefix)
    }

    /// Writes (hash, block, namespace) of each entry in order to the trajectory.
    pub(super) fn hash_into(&self, hasher: &mut TrajectoryHasher) {
        hasher.tag("index");
        hasher.u64(self.by_hash.values().map(Vec::len).sum::<usize>() as u64);
        for (hash, entries) in &self.by_hash {
            for entry in entries {
                hasher.u64(*hash);
                hasher.u64(u64::from(entry.block) << 32 | u64::from(entry.namespace));
            }
        }
    }

    fn cut(&self, hash: u64) -> u64 {
        match self.hash_bits {
            0 => 0,
            bits => hash >> (64 - u32::from(bits)),
        }
    }
}

const SEED: u64 = 0x243f_6a88_85a3_08d3;

/// Extends a chained hash by a block's tokens (multiply and xor-shift per token; quality is not what
/// correctness rests on, since tokens are compared).
fn extend(chain: u64, tokens: &[u32]) -> u64 {
    tokens.iter().fold(chain ^ 0x9e37_79b9_7f4a_7c15, |h, t| {
        let x = (h ^ u64::from(*t)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x ^ (x >> 32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(bits: u8) -> PrefixIndex {
        let mut index = PrefixIndex::new(bits);
        assert!(index.publish(0, &[1, 2], 2, 7));
        assert!(index.publish(0, &[1, 2, 3, 4], 2, 8));
        index
    }

    #[test]
    fn a_lookup_returns_the_longest_run_of_equal_blocks() {
        let index = index(64);
        assert_eq!(index.lookup(0, &[1, 2, 3, 4, 5], 2, 9).blocks, [7, 8]);
        assert_eq!(index.lookup(0, &[1, 2, 3, 9], 2, 9).blocks, [7]);
        assert_eq!(index.lookup(0, &[1, 2, 3, 4], 2, 1).blocks, [7]);
        assert!(index.lookup(0, &[2, 1, 3, 4], 2, 9).blocks.is_empty());
        assert!(index.lookup(0, &[1], 2, 9).blocks.is_empty());
    }

    /// With no hash bits every prefix collides with every other, and tokens alone decide.
    #[test]
    fn colliding_prefixes_are_told_apart_by_their_tokens() {
        let mut index = index(0);
        assert!(index.publish(0, &[5, 6], 2, 9));
        let found = index.lookup(0, &[5, 6, 3, 4], 2, 9);
        assert_eq!(found.blocks, [9]);
        assert!(found.collisions >= 3);
    }

    #[test]
    fn a_removed_block_is_not_found_and_its_children_are_unreachable() {
        let mut index = index(64);
        assert_eq!(index.remove(7), Some(vec![1, 2]));
        assert!(!index.contains(7));
        assert!(index.lookup(0, &[1, 2, 3, 4], 2, 9).blocks.is_empty());
        assert_eq!(index.find(0, &[1, 2, 3, 4], 2), Some(8));
        assert_eq!(index.find(1, &[1, 2, 3, 4], 2), None);
        assert_eq!(index.find(0, &[1, 2], 2), None);
        assert!(index.publish(0, &[1, 2], 2, 3));
        assert_eq!(index.lookup(0, &[1, 2, 3, 4], 2, 9).blocks, [3, 8]);
        assert!(!index.publish(0, &[1, 2], 2, 4), "published twice");
    }

    #[test]
    fn namespaces_are_kept_apart_and_that_is_told_only_where_it_mattered() {
        let mut index = index(64);
        assert!(index.publish(1, &[1, 2], 2, 9), "the same tokens in another namespace");
        let found = index.lookup(1, &[1, 2, 3, 4], 2, 9);
        assert_eq!((found.blocks, found.kept_apart), (vec![9], true));
        assert!(!index.lookup(0, &[1, 2, 3, 4], 2, 9).kept_apart);
        assert!(!index.lookup(1, &[1, 2, 9, 9], 2, 9).kept_apart, "nobody has these tokens");
        let other = index.lookup(2, &[1, 2], 2, 9);
        assert_eq!((other.blocks, other.kept_apart, other.collisions), (vec![], true, 0));
    }
}
