//! Blocks and what is findable, as far as a forecast needs them.

use std::collections::{BTreeMap, VecDeque};

/// The pool: reference counts, free and cached blocks, and the whole prefixes that cached blocks stand for.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    references: Vec<u32>,
    free: VecDeque<u32>,
    /// Findable and unreferenced, least recently used first.
    cached: VecDeque<u32>,
    /// Block of a prefix, by the prefix's hash.
    found: BTreeMap<u64, u32>,
    /// Hash under which a block is findable.
    hashes: Vec<Option<u64>>,
}

impl Pool {
    pub(super) fn new(blocks: u32) -> Pool {
        Pool {
            references: vec![0; blocks as usize],
            free: (0..blocks).collect(),
            cached: VecDeque::new(),
            found: BTreeMap::new(),
            hashes: vec![None; blocks as usize],
        }
    }

    /// Blocks that could be handed out.
    pub(super) fn available(&self) -> usize {
        self.free.len() + self.cached.len()
    }

    /// References to a block.
    pub(super) fn references(&self, block: u32) -> u32 {
        self.references[block as usize]
    }

    /// Hands out a block: the `nth` free one, or cached one if none is free, at most the last. Returns it, its place,
    /// and whether it was evicted.
    pub(super) fn take(&mut self, nth: usize) -> Option<(u32, usize, bool)> {
        let evicts = self.free.is_empty();
        let list = if evicts { &mut self.cached } else { &mut self.free };
        let nth = nth.min(list.len().checked_sub(1)?);
        let block = list.remove(nth)?;
        self.references[block as usize] = 1;
        if evicts {
            self.forget(block);
        }
        Some((block, nth, evicts))
    }

    /// Adds a reference to a findable block.
    pub(super) fn share(&mut self, block: u32) {
        self.references[block as usize] += 1;
        if self.references[block as usize] == 1 {
            self.cached.retain(|b| *b != block);
        }
    }

    /// Drops a reference of each block, the last one first.
    pub(super) fn give_back(&mut self, blocks: &[u32]) {
        for &block in blocks.iter().rev() {
            let count = &mut self.references[block as usize];
            *count -= 1;
            if *count == 0 {
                match self.hashes[block as usize] {
                    Some(_) => self.cached.push_back(block),
                    None => self.free.push_back(block),
                }
            }
        }
    }

    /// Evicts the cached block of a prefix. Returns false if there is none, or if it is in use.
    pub(super) fn evict(&mut self, hash: u64) -> bool {
        let Some(&block) = self.found.get(&hash) else { return false };
        if self.references(block) > 0 {
            return false;
        }
        self.cached.retain(|b| *b != block);
        self.free.push_back(block);
        self.forget(block);
        true
    }

    /// The block of a prefix.
    pub(super) fn find(&self, hash: u64) -> Option<u32> {
        self.found.get(&hash).copied()
    }

    /// Makes a block findable, unless its prefix is. Returns whether it is now.
    pub(super) fn publish(&mut self, hash: u64, block: u32) -> bool {
        if self.found.contains_key(&hash) {
            return false;
        }
        self.found.insert(hash, block);
        self.hashes[block as usize] = Some(hash);
        true
    }

    /// Makes a block unfindable.
    pub(super) fn forget(&mut self, block: u32) {
        if let Some(hash) = self.hashes[block as usize].take() {
            self.found.remove(&hash);
        }
    }
}
