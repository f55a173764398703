//! Physical KV blocks: reference counts, the free list, and the cached blocks that nobody uses.
//!
//! A block is *free* (contents meaningless), *used* (referenced by one or more sequences) or *cached* (unreferenced, but
//! findable through the prefix index until it is evicted). Only the order in which these lists are filled decides
//! which block is handed out; no address or clock does.

use std::collections::VecDeque;

use crate::record::TrajectoryHasher;

/// A physical block id.
pub(super) type BlockId = u32;

/// Where an allocated block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// From the free list.
    Free,
    /// A cached block was evicted; the caller must make it unfindable.
    Evicted,
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allocated {
    pub(super) block: BlockId,
    pub(super) origin: Origin,
    /// Its place in the list that it came from.
    pub(super) nth: usize,
}

/// The pool of physical blocks.
#[derive(Clone, Debug)]
pub(super) struct BlockPool {
    references: Vec<u32>,
    free: VecDeque<BlockId>,
    /// Unreferenced but findable, least recently released first.
    cached: VecDeque<BlockId>,
    /// Whether broken rules go unnoticed.
    is_trusted: bool,
}

impl BlockPool {
    /// A pool of `blocks` free blocks.
    pub(super) fn new(blocks: u32) -> BlockPool {
        BlockPool {
            references: vec![0; blocks as usize],
            free: (0..blocks).collect(),
            cached: VecDeque::new(),
            is_trusted: false,
        }
    }

    /// Looks at no rule any more, as in a run without audits: what breaks one shows in the bits, or in what is held.
    pub(super) fn trust(&mut self) {
        self.is_trusted = true;
    }

    /// Blocks that an allocation could hand out.
    pub(super) fn available(&self) -> usize {
        self.free.len() + self.cached.len()
    }

    /// References to a block.
    pub(super) fn references(&self, block: BlockId) -> u32 {
        self.references[block as usize]
    }

    /// Hands out a block with one reference: the `nth` of the free ones, longest free first; if none is free, the `nth` of
    /// the cached ones, least recently used first. The last one, if there are fewer.
    pub(super) fn allocate(&mut self, nth: usize) -> Option<Allocated> {
        let (list, origin) = match self.free.is_empty() {
            false => (&mut self.free, Origin::Free),
            true => (&mut self.cached, Origin::Evicted),
        };
        let nth = nth.min(list.len().checked_sub(1)?);
        let block = list.remove(nth)?;
        let is_free = self.references[block as usize] == 0;
        assert!(is_free || self.is_trusted, "block {block} handed out while in use");
        self.references[block as usize] = 1;
        Some(Allocated { block, origin, nth })
    }

    /// Moves a cached block to the end of the free list; the caller must make it unfindable. Returns false if it is not
    /// cached.
    pub(super) fn evict(&mut self, block: BlockId) -> bool {
        let Some(at) = self.cached.iter().position(|b| *b == block) else { return false };
        self.cached.remove(at);
        self.free.push_back(block);
        true
    }

    /// Adds a reference to a findable block, cached or in use. Returns whether it was in use already.
    pub(super) fn share(&mut self, block: BlockId) -> bool {
        let count = &mut self.references[block as usize];
        let was_used = *count > 0;
        *count += 1;
        if !was_used {
            let at = self.cached.iter().position(|b| *b == block);
            assert!(at.is_some() || self.is_trusted, "block {block} is findable but not cached");
            at.map(|at| self.cached.remove(at));
        }
        was_used
    }

    /// Drops a reference. The last one sends the block to the cache if it is findable, else to the free list. Returns
    /// whether the block is free now.
    pub(super) fn release(&mut self, block: BlockId, findable: bool) -> bool {
        let count = &mut self.references[block as usize];
        assert!(*count > 0 || self.is_trusted, "block {block} released without a reference");
        if *count == 0 {
            return false;
        }
        *count -= 1;
        if *count == 0 {
            if findable { self.cached.push_back(block) } else { self.free.push_back(block) }
        }
        *count == 0 && !findable
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.references.len()
    }

    /// The free list and the cached list, for audits.
    pub(super) fn lists(&self) -> [&VecDeque<BlockId>; 2] {
        [&self.free, &self.cached]
    }

    /// Puts a block into the free list, whatever it is: a fault to be planted.
    #[cfg(test)]
    pub(super) fn free_again(&mut self, block: BlockId) {
        self.free.push_back(block);
    }

    /// The blocks that an idle pool could not hand out, or could hand out twice: a message each.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut seen = vec![0u32; self.references.len()];
        for block in self.free.iter().chain(&self.cached) {
            seen[*block as usize] += 1;
        }
        let wrong = seen.iter().zip(&self.references).enumerate();
        let wrong = wrong.filter(|(_, (count, references))| **references != 0 || **count != 1);
        let message = |(block, (count, references)): (usize, (&u32, &u32))| {
            format!(
                "idle pool: block {block} has {references} references and stands {count} times in the lists"
            )
        };
        wrong.map(message).collect()
    }

    /// Every block is free or cached, exactly once; the error names the first that is not.
    pub(super) fn check_idle(&self) -> Result<(), String> {
        self.missing().into_iter().next().map_or(Ok(()), Err)
    }

    /// Writes reference counts, free list and cached list to the trajectory.
    pub(super) fn hash_into(&self, hasher: &mut TrajectoryHasher) {
        hasher.tag("references");
        hasher.list(self.references.iter().copied());
        for (tag, list) in [("free", &self.free), ("cached", &self.cached)] {
            hasher.tag(tag);
            hasher.list(list.iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_blocks_go_before_cached_ones_and_the_oldest_cached_one_is_evicted() {
        let mut pool = BlockPool::new(3);
        let next =
            |pool: &mut BlockPool, nth| pool.allocate(nth).map(|a| (a.block, a.origin, a.nth));
        for block in 0..3 {
            assert_eq!(next(&mut pool, 0), Some((block, Origin::Free, 0)));
        }
        assert_eq!(next(&mut pool, 0), None);
        pool.release(1, true);
        pool.release(0, true);
        pool.release(2, false);
        assert_eq!(pool.available(), 3);
        assert!(!pool.share(1));
        assert!(pool.share(1));
        assert_eq!(pool.references(1), 2);
        assert_eq!(next(&mut pool, 0), Some((2, Origin::Free, 0)));
        assert_eq!(next(&mut pool, 0), Some((0, Origin::Evicted, 0)));
        assert_eq!(next(&mut pool, 0), None);
    }

    #[test]
    fn the_nth_block_is_counted_in_the_list_that_hands_out() {
        let mut pool = BlockPool::new(4);
        assert_eq!(pool.allocate(2).unwrap().block, 2);
        assert_eq!(pool.allocate(9).map(|a| (a.block, a.nth)), Some((3, 2)));
        assert_eq!(pool.allocate(0).unwrap().block, 0);
        assert_eq!(pool.allocate(7).map(|a| (a.block, a.nth)), Some((1, 0)));
        assert!((0..4).all(|block| pool.release(block, block > 1) == (block < 2)));
        assert!(!pool.evict(0), "free already");
        assert!(pool.evict(2));
        assert_eq!(pool.allocate(5).unwrap().block, 2, "evicted blocks are the last free ones");
        pool.allocate(0).unwrap();
        pool.allocate(0).unwrap();
        assert_eq!(pool.allocate(1).map(|a| (a.block, a.origin)), Some((3, Origin::Evicted)));
    }

    #[test]
    fn a_leaked_reference_is_named_by_the_idle_check() {
        let mut pool = BlockPool::new(2);
        assert!(pool.check_idle().is_ok());
        let Allocated { block, .. } = pool.allocate(0).unwrap();
        assert!(pool.check_idle().unwrap_err().contains("block 0 has 1 references"));
        pool.release(block, false);
        assert!(pool.check_idle().is_ok());
    }
}
