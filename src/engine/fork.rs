//! Fork: a sample attaches the blocks of another sample of its request, the partial last one included, and the first
//! write to a shared block copies it.

use crate::lifecycle::Event;
use crate::record::{KvMoment, Sentinel};

use super::blocks::BlockId;
use super::deeds::{Deed, KvRead};
use super::scheduler::Scheduler;
use super::sequence::{Sequence, State};

/// A copy of a block within the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockCopy {
    pub(super) from: BlockId,
    pub(super) to: BlockId,
}

/// What a fork would attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Forked {
    pub(super) blocks: Vec<BlockId>,
    /// Positions whose K and V are taken over: one token of the prompt at least is computed, for its logits.
    pub(super) positions: usize,
}

impl Scheduler {
    /// The blocks of the resident sample before sequence `i` that has computed most; of several, the first one.
    pub(super) fn forkable(&self, i: usize) -> Option<Forked> {
        let child = &self.sequences[i];
        if child.prompt_logprobs.is_some() {
            return None;
        }
        // What is in flight writes to a block that would be shared, so it is left alone until it has landed.
        let is_before = |s: &Sequence| {
            s.id.uid == child.id.uid && s.id.sample < child.id.sample && s.state == State::Running
        };
        let before = (0..self.sequences.len())
            .filter(|&j| is_before(&self.sequences[j]) && !self.is_in_flight(j))
            .map(|j| &self.sequences[j]);
        let parent = before.reduce(|a, b| if b.computed > a.computed { b } else { a })?;
        let positions = parent.computed.min(child.prompt_len - 1);
        let blocks = parent.blocks[..positions.div_ceil(self.block_size)].to_vec();
        (positions > 0).then_some(Forked { blocks, positions })
    }

    /// Makes sequence `i` resident with another sample's blocks.
    pub(super) fn fork(&mut self, i: usize, forked: Forked) {
        let Forked { blocks, positions } = forked;
        self.sentinels.hit(Sentinel::Fork);
        if !positions.is_multiple_of(self.block_size) {
            self.sentinels.hit(Sentinel::ForkPartial);
        }
        for &block in &blocks {
            if self.pool.share(block) {
                self.sentinels.hit(Sentinel::BlockShared);
            }
        }
        let sequence = &mut self.sequences[i];
        sequence.forked = true;
        sequence.blocks = blocks;
        sequence.computed = positions;
        sequence.indexed = positions / self.block_size;
        self.reside(i, KvMoment::Forked);
        self.note(i, Event::Fork);
    }

    /// Makes a sequence whose blocks are attached resident, and asks for a look at what they hold.
    pub(super) fn reside(&mut self, i: usize, moment: KvMoment) {
        let sequence = &mut self.sequences[i];
        sequence.residency += 1;
        sequence.state = State::Running;
        sequence.step_at = self.boundary;
        let again = sequence.residency > 1;
        // The schedule evicted from its prefix at this offer: only after the act to fork came to nothing.
        let searched = moment != KvMoment::Forked && !sequence.evicted.is_empty();
        self.note_admission(i, if again { Event::Resume } else { Event::Admit }, searched);
        if again {
            self.sentinels.hit(Sentinel::Resume);
        } else {
            self.note_request(i);
        }
        let sequence = &self.sequences[i];
        if sequence.computed > 0 {
            self.deeds.push(Deed::Read(KvRead {
                id: sequence.id,
                residency: sequence.residency,
                moment,
                blocks: sequence.blocks.clone(),
                positions: sequence.computed,
            }));
        }
    }

    /// Index of the block that sequence `i` writes to next, if others use that block too.
    pub(super) fn shared_write(&self, i: usize) -> Option<usize> {
        let sequence = &self.sequences[i];
        let at = sequence.computed / self.block_size;
        let begun = !sequence.computed.is_multiple_of(self.block_size);
        (begun && self.pool.references(sequence.blocks[at]) > 1).then_some(at)
    }

    /// Puts a block in the place of a shared one in the table of sequence `i`. The copy is to be carried out, and keeps the
    /// reference to its source until then.
    pub(super) fn copy_on_write(&mut self, i: usize, at: usize, to: BlockId) -> BlockCopy {
        let sequence = &mut self.sequences[i];
        let from = std::mem::replace(&mut sequence.blocks[at], to);
        self.sentinels.hit(Sentinel::CowCopy);
        if !sequence.forked {
            self.sentinels.hit(Sentinel::CowByParent);
        }
        self.note(i, Event::CowCopy);
        BlockCopy { from, to }
    }

    /// Asks for a copy, and drops the reference to its source.
    pub(super) fn copy(&mut self, copy: BlockCopy) {
        self.deeds.push(Deed::Copy(copy));
        self.free_blocks(&[copy.from]);
    }

    /// Makes the block that sequence `i` writes to next unfindable. It can be findable only after a fork: the sample
    /// that had filled it has left, and this one holds a part of it and writes on from there.
    pub(super) fn claim_write(&mut self, i: usize) {
        let sequence = &self.sequences[i];
        if !sequence.computed.is_multiple_of(self.block_size) {
            self.index.remove(sequence.blocks[sequence.computed / self.block_size]);
        }
    }
}
