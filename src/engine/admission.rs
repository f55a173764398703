//! Admission: who becomes resident, and with which cached blocks.

use crate::lifecycle::Event;
use crate::record::{Boundary, Inert, KvMoment, Sentinel};
use crate::schedule::{Act, Mark};

use super::blocks::BlockId;
use super::deeds::Deed;
use super::prefix::Lookup;
use super::scheduler::{Granules, Scheduler};
use super::sequence::{Sequence, State};
use crate::workload::SampleId;

impl Scheduler {
    /// Admits waiting sequences, oldest first, until one does not fit.
    pub(super) fn admit(&mut self) {
        for i in self.by_priority() {
            let sequence = &self.sequences[i];
            let waits = matches!(sequence.state, State::Waiting | State::Swapped);
            if !waits || sequence.offer_at > self.boundary {
                continue;
            }
            let tokens = sequence.tokens.len();
            if sequence.state == State::Swapped {
                // Its K and V come back whole; nothing of it is looked up.
                if tokens.div_ceil(self.block_size) > self.pool.available() {
                    return;
                }
                self.offer(i, Vec::new());
                continue;
            }
            let found = self.lookup(i);
            let unused = found.blocks.iter().filter(|b| self.pool.references(**b) == 0).count();
            let needed = tokens.div_ceil(self.block_size) - found.blocks.len();
            let available = self.pool.available();
            self.boundaries.near(Boundary::AdmissionRoom, available, needed + unused);
            if needed + unused > available {
                return;
            }
            self.sentinels.add(Sentinel::CollisionResolved, found.collisions);
            if found.kept_apart {
                self.sentinels.hit(Sentinel::NamespaceKeptApart);
            }
            self.offer(i, found.blocks);
        }
    }

    /// What the prefix cache can serve of a sequence. One token at least is computed, for its logits.
    fn lookup(&self, i: usize) -> Lookup {
        let tokens = &self.sequences[i].tokens;
        // A prompt that is scored is computed: its logits are in no cache.
        let serves = self.prefix_cache && self.sequences[i].prompt_logprobs.is_none();
        let limit = if serves { (tokens.len() - 1) / self.block_size } else { 0 };
        self.index.lookup(self.sequences[i].namespace, tokens, self.block_size, limit)
    }

    /// The default would admit this sequence with these cached blocks now; the schedule may refuse or trim.
    fn offer(&mut self, i: usize, mut cached: Vec<BlockId>) {
        let sequence = &mut self.sequences[i];
        sequence.offers += 1;
        sequence.evicted.clear();
        let (id, n) = (sequence.id, sequence.offers);
        let due = |mark| mark == Mark::Offer { n };
        if let Some(taken) = self.deviations.take(id, due, |act| act == Act::Abort) {
            self.deviations.settle(taken, true);
            self.abort(i);
            return self.void_offer(id, n, |_| true);
        }
        if let Some(taken) = self.deviations.take(id, due, |act| matches!(act, Act::Hold { .. })) {
            let steps = taken.act.delay();
            self.deviations.settle(taken, steps > 0);
            if steps > 0 {
                sequence.offer_at = self.boundary + steps;
                self.sentinels.hit(Sentinel::AdmitRefused);
                self.note(i, Event::AdmitRefused);
                return self.void_offer(id, n, |_| true);
            }
        }
        if sequence.state == State::Swapped {
            self.swap_in(i);
            return self.void_offer(id, n, is_about_lookup);
        }
        if let Some(taken) = self.deviations.take(id, due, |act| act == Act::Fork) {
            match self.forkable(i) {
                None => self.deviations.fail(taken, Inert::NoSibling),
                // The prefix lookup found just that.
                Some(forked)
                    if forked.blocks == cached
                        && forked.positions.is_multiple_of(self.block_size) =>
                {
                    self.deviations.settle(taken, false);
                }
                Some(forked) => {
                    self.deviations.settle(taken, true);
                    self.fork(i, forked);
                    return self.void_offer(id, n, is_about_lookup);
                }
            }
        }
        while let Some(taken) =
            self.deviations.take(id, due, |act| matches!(act, Act::Evict { .. }))
        {
            if let Act::Evict { block } = taken.act {
                let evicted = self.evict_own(i, block as usize);
                self.deviations.settle(taken, evicted);
            }
        }
        if !self.sequences[i].evicted.is_empty() {
            cached = self.lookup(i).blocks;
        }
        let findable = cached.len();
        while let Some(taken) = self.deviations.take(id, due, |act| matches!(act, Act::Hit { .. }))
        {
            if let Act::Hit { at_most } = taken.act {
                let trims = (at_most as usize) < cached.len();
                cached.truncate(at_most as usize);
                self.deviations.settle(taken, trims);
            }
        }
        self.attach(i, &cached, findable);
    }

    /// What else was meant for this offer has nothing to act on.
    fn void_offer(&mut self, id: SampleId, n: u32, which: fn(Act) -> bool) {
        let due = |mark| mark == Mark::Offer { n };
        while let Some(taken) = self.deviations.take(id, due, which) {
            self.deviations.overtake(taken);
        }
    }

    /// Evicts the cached block that holds a sequence's own block `j`. Returns false if there is none, or if it is in use.
    fn evict_own(&mut self, i: usize, j: usize) -> bool {
        let sequence = &mut self.sequences[i];
        let prefix = j.checked_add(1).and_then(|n| n.checked_mul(self.block_size));
        let Some(prefix) = prefix.and_then(|end| sequence.tokens.get(..end)) else { return false };
        let Some(block) = self.index.find(sequence.namespace, prefix, self.block_size) else {
            return false;
        };
        if !self.pool.evict(block) {
            return false;
        }
        self.index.remove(block);
        sequence.evicted.insert(j);
        self.sentinels.hit(Sentinel::Evict);
        self.sentinels.hit(Sentinel::EvictChosen);
        self.note(i, Event::Evict);
        if self.poison {
            self.deeds.push(Deed::Poison(block));
        }
        true
    }

    fn attach(&mut self, i: usize, cached: &[BlockId], findable: usize) {
        let sequence = &mut self.sequences[i];
        for &block in cached {
            if self.pool.share(block) {
                self.sentinels.hit(Sentinel::BlockShared);
            }
        }
        sequence.blocks = cached.to_vec();
        sequence.computed = cached.len() * self.block_size;
        sequence.indexed = cached.len();
        self.reside(i, KvMoment::Attached);
        if self.prefix_cache {
            self.boundaries.near(Boundary::HitBlocks, cached.len(), 1);
        }
        if cached.len() < findable && cached.is_empty() {
            self.sentinels.hit(Sentinel::HitRefused);
            self.note(i, Event::CacheRefused);
        }
        if !cached.is_empty() {
            self.note(i, Event::CacheHit);
            let sequence = &self.sequences[i];
            let tokens = sequence.tokens.len();
            self.boundaries.near_multiple(Boundary::HitTokens, tokens, self.block_size);
            self.sentinels.hit(Sentinel::HitTokensSaved);
            let servable = (sequence.tokens.len() - 1) / self.block_size;
            self.sentinels.hit(if cached.len() == servable {
                Sentinel::HitFull
            } else {
                Sentinel::HitPartial
            });
        }
    }

    /// Counts the sizes of a request that is admitted for the first time.
    pub(super) fn note_request(&mut self, i: usize) {
        let Sequence { prompt_len, max_tokens, sampling, .. } = &self.sequences[i];
        let Granules { tile, split, vocab, positions_max } = self.granules;
        let counts = &mut self.boundaries;
        counts.near_multiple(Boundary::PromptBlock, *prompt_len, self.block_size);
        counts.near_multiple(Boundary::PromptTile, *prompt_len, tile);
        counts.near_multiple(Boundary::PromptSplit, *prompt_len, split);
        counts.near(Boundary::Context, prompt_len + max_tokens - 1, positions_max);
        counts.near(Boundary::MaxTokens, *max_tokens, 1);
        if !sampling.is_greedy() {
            counts.near(Boundary::TopKOne, sampling.top_k as usize, 1);
            counts.near(Boundary::TopKVocabulary, sampling.top_k as usize, vocab);
        }
    }
}

/// Whether the act changes what the prefix lookup serves.
fn is_about_lookup(act: Act) -> bool {
    matches!(act, Act::Fork | Act::Hit { .. } | Act::Evict { .. })
}
