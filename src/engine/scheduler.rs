//! The scheduler: a state machine over requests, blocks and the prefix index. It launches nothing.
//!
//! A boundary takes every decision between two steps, in a fixed order: arrivals, acts of resident requests,
//! admission, then the composition of the step in order of priority. The default policy decides whatever the schedule
//! leaves open; nothing else decides. Priority is (arrival, order of submission) and never changes, so the oldest
//! request always makes progress.

use std::sync::Arc;

use crate::lifecycle::Event;
use crate::record::{
    Boundary, BoundaryCounts, Finish, Held, KvMoment, LifeEvent, Sentinel, SentinelCounts,
};
use crate::schedule::{Act, Mark, PreemptKind, Schedule};
use crate::text::Tokenizer;
use crate::workload::Workload;
use crate::world::World;

use super::blocks::{BlockId, BlockPool};
use super::deeds::{Deed, KvRead};
use super::deviations::{Deviations, Taken};
use super::flights::{Cargo, Flight};
use super::prefix::PrefixIndex;
use super::room::Room;
use super::sequence::{Sequence, State};
use super::swap::SwapPool;

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

/// The chunk that a sequence is to compute in this step.
struct Chunk {
    len: usize,
    /// What the default policy would compute.
    default: usize,
    /// The intent that chose `len`.
    cut: Option<Taken>,
}

/// Sizes at which chunks are called "mid", and limits of requests, for counts alone: no decision depends on them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granules {
    pub(super) tile: usize,
    pub(super) split: usize,
    pub(super) vocab: usize,
    pub(super) positions_max: usize,
}

#[derive(Clone)]
pub(super) struct Scheduler {
    pub(super) block_size: usize,
    token_budget: usize,
    pub(super) prefix_cache: bool,
    pub(super) granules: Granules,
    pub(super) eos: Vec<u32>,
    /// Gives the bytes of tokens, where the model's have any of their own.
    pub(super) text: Option<Arc<Tokenizer>>,
    pub(super) sequences: Vec<Sequence>,
    /// Their order of priority, which never changes.
    pub(super) order: Arc<[usize]>,
    pub(super) pool: BlockPool,
    pub(super) swap: SwapPool,
    pub(super) index: PrefixIndex,
    pub(super) deviations: Deviations,
    pub(super) sentinels: SentinelCounts,
    /// Lifecycle events so far.
    pub(super) life: Vec<LifeEvent>,
    pub(super) boundaries: BoundaryCounts,
    /// Filled by decisions, drained by the engine.
    pub(super) deeds: Vec<Deed>,
    pub(super) boundary: u64,
    /// Chunks, copies and swaps that were launched and have not landed, in the order of their launches.
    pub(super) flights: Vec<Flight>,
    /// Row counts that steps are padded to, ascending.
    pub(super) buckets: Vec<u32>,
    /// Whether memory that nobody may read is filled with NaN.
    pub(super) poison: bool,
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
        let sequences: Vec<Sequence> = workload
            .requests
            .iter()
            .flat_map(|request| request.sample_ids().map(move |id| (request, id)))
            .map(|(request, id)| {
                let mut sequence = Sequence::new(request, id, run_seed);
                let arrive = |act| matches!(act, Act::Arrive { .. });
                while let Some(taken) = deviations.take(id, |_| true, arrive) {
                    if let Act::Arrive { steps } = taken.act {
                        sequence.arrival += u64::from(steps);
                        deviations.settle(taken, steps > 0);
                    }
                }
                sequence
            })
            .collect();
        let mut order: Vec<usize> = (0..sequences.len()).collect();
        order.sort_by_key(|&i| (sequences[i].arrival, i));
        Scheduler {
            block_size: world.block_size as usize,
            token_budget: world.token_budget.map_or(usize::MAX, |b| b as usize),
            prefix_cache: world.prefix_cache,
            granules,
            eos: eos.to_vec(),
            text: None,
            sequences,
            order: order.into(),
            pool: BlockPool::new(world.pool_blocks),
            swap: SwapPool::new(world.swap_blocks),
            index: PrefixIndex::new(world.hash_bits),
            deviations,
            sentinels: SentinelCounts::default(),
            life: Vec::new(),
            boundaries: BoundaryCounts::default(),
            deeds: Vec::new(),
            boundary: 0,
            flights: Vec::new(),
            buckets: world.buckets.clone(),
            poison: world.poison,
        }
    }

    /// Whether every request is done, and nothing is in flight.
    pub(super) fn is_done(&self) -> bool {
        self.sequences.iter().all(Sequence::is_finished) && self.flights.is_empty()
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
    pub(super) fn by_priority(&self) -> impl Iterator<Item = usize> + use<> {
        let order = Arc::clone(&self.order);
        (0..order.len()).map(move |at| order[at])
    }

    fn arrive(&mut self) {
        for i in 0..self.sequences.len() {
            let sequence = &mut self.sequences[i];
            if sequence.state == State::Future && sequence.arrival <= self.boundary {
                sequence.state = State::Waiting;
                self.note(i, Event::Arrive);
            }
        }
    }

    /// Acts at the marks of a resident sequence, except `Cut`, which is asked for when its chunk is chosen.
    fn act_on(&mut self, i: usize) {
        let sequence = &self.sequences[i];
        let (id, residency, computed) = (sequence.id, sequence.residency, self.launched(i));
        let due = |mark| is_computed(mark, residency, computed);
        if let Some(taken) = self.deviations.take(id, due, |act| act == Act::Abort) {
            self.abort(i);
            self.deviations.settle(taken, true);
            return;
        }
        // A preemption leaves nothing for the other acts to act on, so it comes first.
        let preempt = |act| matches!(act, Act::Preempt { .. });
        while let Some(taken) = self.deviations.take(id, due, preempt) {
            let offer_at = self.boundary + taken.act.delay();
            if matches!(taken.act, Act::Preempt { kind: PreemptKind::Swap, .. }) {
                if let Err(why) = self.swap_out(i, offer_at) {
                    self.deviations.fail(taken, why);
                    continue;
                }
            } else {
                self.preempt(i, offer_at);
            }
            return self.deviations.settle(taken, true);
        }
        let wanted = |act| matches!(act, Act::Stall { .. } | Act::Rank { .. } | Act::Victim);
        while let Some(taken) = self.deviations.take(id, due, wanted) {
            let sequence = &mut self.sequences[i];
            match taken.act {
                Act::Stall { steps } => {
                    let until = self.boundary + u64::from(steps);
                    let differs = until > sequence.step_at.max(self.boundary);
                    sequence.step_at = sequence.step_at.max(until);
                    self.deviations.settle(taken, differs);
                }
                Act::Rank { to } => {
                    sequence.rank = Some(to);
                    if let Some(earlier) = sequence.ranked_by.replace(taken) {
                        self.deviations.overtake(earlier);
                    }
                }
                Act::Victim => match sequence.victim {
                    // Already the next victim: nothing more to ask for.
                    Some(_) => self.deviations.settle(taken, false),
                    None => sequence.victim = Some(taken),
                },
                _ => unreachable!("not asked for"),
            }
        }
    }

    /// Takes the residency of a sequence; it may be offered again from boundary `offer_at` on.
    pub(super) fn preempt(&mut self, i: usize, offer_at: u64) {
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
        sequence.is_decoding = false;
        sequence.indexed = 0;
        sequence.row = None;
        self.note(i, Event::PreemptRecompute);
    }

    /// Gives back the blocks, tail first so that the tail of a prefix is evicted before its head, after asking for
    /// one more look at what they hold.
    pub(super) fn release(&mut self, i: usize) {
        let (standing, positions) = self.standing(i);
        let sequence = &mut self.sequences[i];
        let blocks = std::mem::take(&mut sequence.blocks);
        if blocks.windows(2).any(|pair| pair[1] != pair[0] + 1) {
            self.sentinels.hit(Sentinel::FragmentedTable);
        }
        sequence.forked = false;
        self.deeds.push(Deed::Read(KvRead {
            id: sequence.id,
            residency: sequence.residency,
            moment: KvMoment::Released,
            blocks: standing,
            positions,
        }));
        // What is still to be written must not be handed out before: the flight keeps the references.
        if !self.leave_flight(i) {
            self.free_blocks(&blocks);
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
            if self.is_in_flight(i) {
                continue;
            }
            let (start, remaining) = (sequence.computed, sequence.remaining());
            if budget < usize::MAX {
                self.boundaries.near(Boundary::BudgetRoom, budget, remaining);
            }
            let Chunk { len, default, cut } = self.chunk(i, remaining.min(budget));
            let landing = self.landing_due(i);
            let late = landing.map_or(0, |taken| taken.act.delay());
            let room = self.make_room(i, start + len, &step, late > 0);
            let has_room = room != Room::Gone;
            match cut {
                Some(taken) if has_room => {
                    self.deviations.settle(taken, len < default);
                    if len < default {
                        self.sentinels.hit(Sentinel::Cut);
                    }
                }
                Some(taken) => self.deviations.overtake(taken),
                None => {}
            }
            match landing {
                Some(taken) if has_room => self.deviations.settle(taken, late > 0),
                Some(taken) => self.deviations.overtake(taken),
                None => {}
            }
            let Room::Made(copy) = room else { continue };
            self.note_cut(start + len, len < remaining);
            budget -= len;
            let slice = Slice { index: i, start, len };
            if late > 0 {
                self.take_off(i, Cargo::Chunk { slice, copy }, late);
            } else {
                step.push(slice);
            }
        }
        step
    }

    /// The next chunk: the default, unless the schedule cuts it.
    fn chunk(&mut self, i: usize, default: usize) -> Chunk {
        let sequence = &self.sequences[i];
        let (id, residency, computed) = (sequence.id, sequence.residency, sequence.computed);
        let due = |mark| is_computed(mark, residency, computed);
        let taken = self.deviations.take(id, due, |act| matches!(act, Act::Cut { .. }));
        let len = match taken.map(|taken| taken.act) {
            Some(Act::Cut { tokens }) => default.min(tokens as usize).max(1),
            _ => default,
        };
        Chunk { len, default, cut: taken }
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

    /// Puts the slices in row order: oldest first, but ranked sequences at their place.
    fn order_rows(&mut self, step: &mut Vec<Slice>) {
        let default: Vec<usize> = step.iter().map(|slice| slice.index).collect();
        let (mut ranked, mut ordered): (Vec<Slice>, Vec<Slice>) =
            step.drain(..).partition(|slice| self.sequences[slice.index].rank.is_some());
        ranked.sort_by_key(|slice| self.sequences[slice.index].rank);
        for slice in ranked {
            let to = self.sequences[slice.index].rank.unwrap_or(0) as usize;
            ordered.insert(to.min(ordered.len()), slice);
        }
        let mut row = 0;
        for (slice, usual) in ordered.iter().zip(default) {
            let sequence = &mut self.sequences[slice.index];
            if let Some(taken) = sequence.ranked_by.take() {
                self.deviations.settle(taken, slice.index != usual);
            }
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
        self.boundaries.near(Boundary::StepSequences, ordered.len(), 1);
        if ordered.len() > 1 {
            self.sentinels.hit(Sentinel::SharedStep);
        }
        if self.has_siblings(&ordered) {
            self.sentinels.hit(Sentinel::SiblingsMet);
        }
        *step = ordered;
    }

    /// Whether two sequences of a step have equal tokens.
    fn has_siblings(&self, step: &[Slice]) -> bool {
        let tokens = |slice: &Slice| &self.sequences[slice.index].tokens;
        let later = |at: usize| step[at + 1..].iter().map(tokens);
        (0..step.len()).any(|at| later(at).any(|other| other == tokens(&step[at])))
    }

    /// Nothing could run: moves to the next boundary at which something can. Boundaries in between would decide nothing.
    pub(super) fn skip_idle(&mut self) {
        // While something is in flight, its request passes marks.
        if !self.flights.is_empty() {
            return;
        }
        let next = |sequence: &Sequence| match sequence.state {
            State::Future => Some(sequence.arrival),
            State::Waiting | State::Swapped => Some(sequence.offer_at),
            State::Running => Some(sequence.step_at),
            State::Finished(_) => None,
        };
        let later = self.sequences.iter().filter_map(next).filter(|at| *at >= self.boundary);
        self.boundary = later.min().unwrap_or(self.boundary);
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
            let sequence = &mut self.sequences[slice.index];
            sequence.computed += slice.len;
            let event = if sequence.is_decoding { Event::Decode } else { Event::Chunk };
            if event == Event::Decode {
                self.sentinels.hit(Sentinel::Decoded);
            }
            sequence.is_decoding = draws;
            self.note(slice.index, event);
            self.note_ends(event, slice.start, slice.start + slice.len);
            self.publish(slice.index);
            if !draws {
                continue;
            }
            let token = *drawn.next().expect("one draw a finished chunk");
            let finish = match token {
                None => Some(Finish::Undecided),
                Some(token) => self.take_token(slice.index, token),
            };
            if let Some(finish) = finish {
                self.release(slice.index);
                self.sequences[slice.index].state = State::Finished(finish);
                match finish {
                    Finish::Eos => self.note(slice.index, Event::FinishEos),
                    Finish::Stop => self.note(slice.index, Event::FinishStop),
                    Finish::Length => self.note(slice.index, Event::FinishLength),
                    // Nothing was drawn: no event of the table. Aborted: not here.
                    Finish::Undecided | Finish::Aborted => {}
                }
            }
        }
    }

    /// Counts where a computed chunk began and ended.
    fn note_ends(&mut self, event: Event, start: usize, end: usize) {
        use Boundary::{ChunkBlock, ChunkSplit, ChunkTile, DecodeBlock, DecodeSplit, DecodeTile};
        let Granules { tile, split, .. } = self.granules;
        let kinds = match event {
            Event::Decode => [DecodeBlock, DecodeTile, DecodeSplit],
            _ => [ChunkBlock, ChunkTile, ChunkSplit],
        };
        for (boundary, granule) in kinds.into_iter().zip([self.block_size, tile, split]) {
            self.boundaries.near_multiple(boundary, end, granule);
        }
        if event == Event::Chunk && start > 0 {
            self.boundaries.near_multiple(Boundary::StartTile, start, tile);
        }
    }

    /// Makes blocks findable whose last position has been written.
    fn publish(&mut self, i: usize) {
        if !self.prefix_cache {
            return;
        }
        let sequence = &mut self.sequences[i];
        let mut is_new = false;
        while (sequence.indexed + 1) * self.block_size <= sequence.computed {
            let prefix = &sequence.tokens[..(sequence.indexed + 1) * self.block_size];
            is_new |= self.index.publish(
                sequence.namespace,
                prefix,
                self.block_size,
                sequence.blocks[sequence.indexed],
            );
            if sequence.evicted.remove(&sequence.indexed) {
                self.sentinels.hit(Sentinel::EvictReread);
            }
            sequence.indexed += 1;
        }
        if is_new {
            self.note(i, Event::Publish);
        }
    }

    /// What is held once every request is done: nothing.
    pub(super) fn held(&self) -> Held {
        Held {
            blocks: self.pool.missing().len() as u64,
            swap_blocks: self.swap.taken().iter().filter(|taken| **taken).count() as u64,
        }
    }

    /// Checks that no reference was leaked; called when every request is done.
    pub(super) fn check_idle(&self) -> Result<(), String> {
        self.pool.check_idle()?;
        self.swap.check_idle()
    }
}

/// Whether a mark is reached by a resident sequence.
pub(super) fn is_computed(mark: Mark, in_residency: u32, computed: usize) -> bool {
    matches!(mark, Mark::Computed { residency, tokens }
        if residency == in_residency && computed >= tokens as usize)
}
