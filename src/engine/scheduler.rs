//! The scheduler: a state machine over requests, blocks and the prefix index. It launches nothing.
//!
//! A boundary takes every decision between two steps, in a fixed order: arrivals, acts of resident requests,
//! admission, then the composition of the step in order of priority. The default policy decides whatever the schedule
//! leaves open; nothing else decides. Priority is (arrival, order of submission) and never changes, so the oldest
//! request always makes progress.

use crate::record::{Finish, KvMoment, Sentinel, SentinelCounts};
use crate::schedule::{Act, Mark, Schedule};
use crate::workload::Workload;
use crate::world::World;

use super::blocks::{BlockId, BlockPool, Origin};
use super::deviations::Deviations;
use super::prefix::PrefixIndex;
use super::sequence::{Sequence, State};

/// A sequence's share of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// Index of the sequence.
    pub(super) index: usize,
    /// First position computed.
    pub(super) start: usize,
    /// Positions computed.
    pub(super) len: usize,
}

/// K and V to be read back before the next launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KvRead {
    pub(super) uid: u64,
    pub(super) residency: u32,
    pub(super) moment: KvMoment,
    pub(super) blocks: Vec<BlockId>,
    /// Positions 0 .. this.
    pub(super) positions: usize,
}

/// Sizes at which chunks are called "mid".
#[derive(Clone, Copy, Debug)]
pub(super) struct Granules {
    pub(super) tile: usize,
    pub(super) split: usize,
}

pub(super) struct Scheduler {
    block_size: usize,
    token_budget: usize,
    prefix_cache: bool,
    granules: Granules,
    eos: Vec<u32>,
    pub(super) sequences: Vec<Sequence>,
    pub(super) pool: BlockPool,
    pub(super) index: PrefixIndex,
    pub(super) deviations: Deviations,
    pub(super) sentinels: SentinelCounts,
    /// Filled by decisions, drained by the engine.
    pub(super) reads: Vec<KvRead>,
    pub(super) boundary: u64,
}

impl Scheduler {
    pub(super) fn new(
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        run_seed: u64,
        granules: Granules,
        eos: &[u32],
    ) -> Scheduler {
        let mut deviations = Deviations::new(schedule, workload);
        let sequences = workload
            .requests
            .iter()
            .map(|request| {
                let mut sequence = Sequence::new(request, run_seed);
                let arrive = |act| matches!(act, Act::Arrive { .. });
                while let Some(taken) = deviations.take(request.uid, |_| true, arrive) {
                    if let Act::Arrive { steps } = taken.act {
                        sequence.arrival += u64::from(steps);
                        deviations.settle(taken, steps > 0);
                    }
                }
                sequence
            })
            .collect();
        Scheduler {
            block_size: world.block_size as usize,
            token_budget: world.token_budget.map_or(usize::MAX, |b| b as usize),
            prefix_cache: world.prefix_cache,
            granules,
            eos: eos.to_vec(),
            sequences,
            pool: BlockPool::new(world.pool_blocks),
            index: PrefixIndex::new(world.hash_bits),
            deviations,
            sentinels: SentinelCounts::default(),
            reads: Vec::new(),
            boundary: 0,
        }
    }

    /// Whether every request is done.
    pub(super) fn is_done(&self) -> bool {
        self.sequences.iter().all(Sequence::is_finished)
    }

    /// Takes the decisions of the next boundary and returns the step, in row order. Empty if nothing may run yet.
    pub(super) fn boundary(&mut self) -> Vec<Slice> {
        self.arrive();
        for i in self.by_priority() {
            if self.sequences[i].state == State::Running {
                self.act_on(i);
            }
        }
        self.admit();
        let mut step = self.compose();
        self.order_rows(&mut step);
        self.boundary += 1;
        step
    }

    /// Indices of the sequences, oldest first.
    fn by_priority(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.sequences.len()).collect();
        order.sort_by_key(|&i| (self.sequences[i].arrival, i));
        order
    }

    fn arrive(&mut self) {
        for sequence in &mut self.sequences {
            if sequence.state == State::Future && sequence.arrival <= self.boundary {
                sequence.state = State::Waiting;
            }
        }
    }

    /// Acts at the marks of a resident sequence, except `Cut`, which is asked for when its chunk is chosen.
    fn act_on(&mut self, i: usize) {
        let sequence = &mut self.sequences[i];
        let (uid, residency, computed) = (sequence.uid, sequence.residency, sequence.computed);
        let due = |mark| is_computed(mark, residency, computed);
        let wanted = |act| {
            matches!(act, Act::Stall { .. } | Act::Rank { .. } | Act::Preempt { .. } | Act::Victim)
        };
        while let Some(taken) = self.deviations.take(uid, due, wanted) {
            let sequence = &mut self.sequences[i];
            match taken.act {
                Act::Stall { steps } => {
                    sequence.step_at = self.boundary + u64::from(steps);
                    self.deviations.settle(taken, steps > 0);
                }
                Act::Rank { to } => {
                    sequence.rank = Some(to);
                    self.deviations.settle(taken, true);
                }
                Act::Victim => match sequence.victim {
                    // Already the next victim: nothing more to ask for.
                    Some(_) => self.deviations.settle(taken, false),
                    None => sequence.victim = Some(taken),
                },
                Act::Preempt { away, .. } => {
                    self.preempt(i, self.boundary + u64::from(away));
                    self.deviations.settle(taken, true);
                    return;
                }
                _ => unreachable!("not asked for"),
            }
        }
    }

    /// Takes the residency of a sequence; it may be offered again from boundary `offer_at` on.
    fn preempt(&mut self, i: usize, offer_at: u64) {
        self.release(i);
        let sequence = &mut self.sequences[i];
        self.sentinels.hit(Sentinel::PreemptRecompute);
        if sequence.computed < sequence.prompt_len {
            self.sentinels.hit(Sentinel::PreemptMidPrefill);
        }
        if sequence.residency > 1 {
            self.sentinels.hit(Sentinel::PreemptAgain);
        }
        sequence.state = State::Waiting;
        sequence.offer_at = offer_at;
        sequence.computed = 0;
        sequence.indexed = 0;
        sequence.row = None;
    }

    /// Gives back the blocks, tail first so that the tail of a prefix is evicted before its head, after asking for
    /// one more look at what they hold.
    fn release(&mut self, i: usize) {
        let sequence = &mut self.sequences[i];
        let blocks = std::mem::take(&mut sequence.blocks);
        if blocks.windows(2).any(|pair| pair[1] != pair[0] + 1) {
            self.sentinels.hit(Sentinel::FragmentedTable);
        }
        for &block in blocks.iter().rev() {
            self.pool.release(block, self.index.contains(block));
        }
        self.reads.push(KvRead {
            uid: sequence.uid,
            residency: sequence.residency,
            moment: KvMoment::Released,
            blocks,
            positions: sequence.computed,
        });
    }

    /// Admits waiting sequences, oldest first, until one does not fit.
    fn admit(&mut self) {
        for i in self.by_priority() {
            let sequence = &self.sequences[i];
            if sequence.state != State::Waiting || sequence.offer_at > self.boundary {
                continue;
            }
            let tokens = sequence.tokens.len();
            // One token at least is computed, for its logits.
            let limit = if self.prefix_cache { (tokens - 1) / self.block_size } else { 0 };
            let found = self.index.lookup(&sequence.tokens, self.block_size, limit);
            let unused = found.blocks.iter().filter(|b| self.pool.references(**b) == 0).count();
            let needed = tokens.div_ceil(self.block_size) - found.blocks.len();
            if needed + unused > self.pool.available() {
                return;
            }
            self.sentinels.add(Sentinel::CollisionResolved, found.collisions);
            self.offer(i, found.blocks);
        }
    }

    /// The default would admit this sequence with these cached blocks now; the schedule may refuse or trim.
    fn offer(&mut self, i: usize, mut cached: Vec<BlockId>) {
        let sequence = &mut self.sequences[i];
        sequence.offers += 1;
        let (uid, n) = (sequence.uid, sequence.offers);
        let due = |mark| mark == Mark::Offer { n };
        if let Some(taken) = self.deviations.take(uid, due, |act| matches!(act, Act::Hold { .. })) {
            let steps = taken.act.delay();
            self.deviations.settle(taken, steps > 0);
            if steps > 0 {
                sequence.offer_at = self.boundary + steps;
                self.sentinels.hit(Sentinel::AdmitRefused);
                return;
            }
        }
        let findable = cached.len();
        while let Some(taken) = self.deviations.take(uid, due, |act| matches!(act, Act::Hit { .. }))
        {
            if let Act::Hit { at_most } = taken.act {
                let trims = (at_most as usize) < cached.len();
                cached.truncate(at_most as usize);
                self.deviations.settle(taken, trims);
            }
        }
        self.attach(i, &cached, findable);
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
        sequence.residency += 1;
        sequence.state = State::Running;
        sequence.step_at = self.boundary;
        if sequence.residency > 1 {
            self.sentinels.hit(Sentinel::Resume);
        }
        if cached.len() < findable && cached.is_empty() {
            self.sentinels.hit(Sentinel::HitRefused);
        }
        if !cached.is_empty() {
            self.sentinels.hit(Sentinel::HitTokensSaved);
            let servable = (sequence.tokens.len() - 1) / self.block_size;
            self.sentinels.hit(if cached.len() == servable {
                Sentinel::HitFull
            } else {
                Sentinel::HitPartial
            });
            self.reads.push(KvRead {
                uid: sequence.uid,
                residency: sequence.residency,
                moment: KvMoment::Attached,
                blocks: sequence.blocks.clone(),
                positions: sequence.computed,
            });
        }
    }

    /// Chooses chunks and finds blocks for them, oldest first.
    fn compose(&mut self) -> Vec<Slice> {
        let mut step: Vec<Slice> = Vec::new();
        let mut budget = self.token_budget;
        for i in self.by_priority() {
            let sequence = &self.sequences[i];
            if sequence.state != State::Running || sequence.step_at > self.boundary || budget == 0 {
                continue;
            }
            let (start, remaining) = (sequence.computed, sequence.remaining());
            let len = self.chunk(i, remaining.min(budget));
            if !self.make_room(i, start + len, &step) {
                continue;
            }
            self.note_cut(start + len, len < remaining);
            budget -= len;
            step.push(Slice { index: i, start, len });
        }
        step
    }

    /// Length of the next chunk: the default, unless the schedule cuts it.
    fn chunk(&mut self, i: usize, default: usize) -> usize {
        let sequence = &self.sequences[i];
        let (uid, residency, computed) = (sequence.uid, sequence.residency, sequence.computed);
        let due = |mark| is_computed(mark, residency, computed);
        let taken = self.deviations.take(uid, due, |act| matches!(act, Act::Cut { .. }));
        let Some(taken) = taken else { return default };
        let Act::Cut { tokens } = taken.act else { unreachable!("not asked for") };
        let len = default.min(tokens as usize).max(1);
        self.deviations.settle(taken, len < default);
        if len < default {
            self.sentinels.hit(Sentinel::Cut);
        }
        len
    }

    fn note_cut(&mut self, end: usize, is_cut: bool) {
        if !is_cut {
            return;
        }
        let granules = [
            (self.block_size, Sentinel::CutMidBlock),
            (self.granules.tile, Sentinel::CutMidTile),
            (self.granules.split, Sentinel::CutMidSplit),
        ];
        for (granule, sentinel) in granules {
            if !end.is_multiple_of(granule) {
                self.sentinels.hit(sentinel);
            }
        }
    }

    /// Allocates blocks so that sequence `i` holds `positions`. Victims make room: whom the schedule prefers, else the
    /// youngest. Returns false if the sequence itself had to go.
    fn make_room(&mut self, i: usize, positions: usize, step: &[Slice]) -> bool {
        let wanted = positions.div_ceil(self.block_size);
        while self.sequences[i].blocks.len() < wanted {
            match self.pool.allocate() {
                Some((block, origin)) => {
                    if origin == Origin::Evicted {
                        self.index.remove(block);
                        self.sentinels.hit(Sentinel::Evict);
                    }
                    self.sequences[i].blocks.push(block);
                }
                None => {
                    let victim = self.victim(step);
                    self.sentinels.hit(Sentinel::PreemptForRoom);
                    self.preempt(victim, self.boundary + 1);
                    if victim == i {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Who makes room. Sequences that already have their place in the step are safe.
    fn victim(&mut self, step: &[Slice]) -> usize {
        let candidates: Vec<usize> = self
            .by_priority()
            .into_iter()
            .filter(|&i| self.sequences[i].state == State::Running)
            .filter(|&i| step.iter().all(|slice| slice.index != i))
            .collect();
        let youngest = *candidates.last().expect("the sequence that asks is a candidate");
        let preferred = candidates.iter().copied().find(|&i| self.sequences[i].victim.is_some());
        let Some(chosen) = preferred else { return youngest };
        let taken = self.sequences[chosen].victim.take().expect("just seen");
        self.deviations.settle(taken, chosen != youngest);
        chosen
    }

    /// Puts the slices in row order: oldest first, but ranked sequences at their place.
    fn order_rows(&mut self, step: &mut Vec<Slice>) {
        let (mut ranked, mut ordered): (Vec<Slice>, Vec<Slice>) =
            step.drain(..).partition(|slice| self.sequences[slice.index].rank.is_some());
        ranked.sort_by_key(|slice| self.sequences[slice.index].rank);
        for slice in ranked {
            let to = self.sequences[slice.index].rank.unwrap_or(0) as usize;
            ordered.insert(to.min(ordered.len()), slice);
        }
        let mut row = 0;
        for slice in &ordered {
            let sequence = &mut self.sequences[slice.index];
            if row > 0 {
                self.sentinels.hit(Sentinel::RowNotFirst);
            }
            if sequence.row.is_some_and(|before| before != row) {
                self.sentinels.hit(Sentinel::RowMoved);
            }
            sequence.row = Some(row);
            if sequence.residency > 1 && slice.len > 1 {
                let scored = (slice.start + slice.len).saturating_sub(sequence.prompt_len);
                self.sentinels.add(Sentinel::ScoredInPrefill, scored.min(slice.len) as u64);
            }
            row += slice.len;
        }
        if ordered.len() > 1 {
            self.sentinels.hit(Sentinel::SharedStep);
        }
        *step = ordered;
    }

    /// Blocks of a sequence, for the layout of a step.
    pub(super) fn blocks(&self, slice: &Slice) -> &[BlockId] {
        &self.sequences[slice.index].blocks
    }

    /// Whether a token is to be drawn after this slice.
    pub(super) fn draws(&self, slice: &Slice) -> bool {
        slice.start + slice.len == self.sequences[slice.index].tokens.len()
    }

    /// Takes in a computed step: progress, publication of full blocks, drawn tokens (`None`: not finite), finishes.
    pub(super) fn commit(&mut self, step: &[Slice], drawn: &[Option<u32>]) {
        let mut drawn = drawn.iter();
        for slice in step {
            let draws = self.draws(slice);
            self.sequences[slice.index].computed += slice.len;
            self.publish(slice.index);
            if !draws {
                continue;
            }
            let token = *drawn.next().expect("one draw a finished chunk");
            let sequence = &mut self.sequences[slice.index];
            let finish = match token {
                None => Some(Finish::Undecided),
                Some(token) => {
                    sequence.tokens.push(token);
                    if self.eos.contains(&token) && !sequence.ignore_eos {
                        Some(Finish::Eos)
                    } else if sequence.output().len() == sequence.max_tokens {
                        Some(Finish::Length)
                    } else {
                        None
                    }
                }
            };
            if let Some(finish) = finish {
                self.release(slice.index);
                self.sequences[slice.index].state = State::Finished(finish);
            }
        }
    }

    /// Makes blocks findable whose last position has been written.
    fn publish(&mut self, i: usize) {
        if !self.prefix_cache {
            return;
        }
        let sequence = &mut self.sequences[i];
        while (sequence.indexed + 1) * self.block_size <= sequence.computed {
            let prefix = &sequence.tokens[..(sequence.indexed + 1) * self.block_size];
            self.index.publish(prefix, self.block_size, sequence.blocks[sequence.indexed]);
            sequence.indexed += 1;
        }
    }

    /// Checks that no reference was leaked; called when every request is done.
    pub(super) fn check_idle(&self) -> Result<(), String> {
        self.pool.check_idle()
    }
}

/// Whether a mark is reached by a resident sequence.
fn is_computed(mark: Mark, in_residency: u32, computed: usize) -> bool {
    matches!(mark, Mark::Computed { residency, tokens }
        if residency == in_residency && computed >= tokens as usize)
}
