//! A forecast of a run: what the default policy does with a workload, and which intents of a schedule differ from it.
//!
//! The policy is written out here once more, in its plain form: no arithmetic, no audits, tokens that only depend on what
//! stands before them. It shares no code with any engine and judges nothing; it only places deviations where they will
//! differ. A subject with another policy, or an output that ends early, makes it wrong, and some intents inert.

mod acts;
mod flights;
mod pool;
mod sequence;

use crate::schedule::{Intent, Schedule};
use crate::workload::Workload;
use crate::world::World;

use pool::Pool;
use sequence::Sequence;

/// Most boundaries followed.
const BOUNDARIES_MAX: usize = 4096;

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// Not resident: not arrived, or waiting.
    Waiting,
    /// Resident.
    Running,
    /// In host memory.
    Swapped,
    /// Done.
    Finished,
}

/// What is expected to happen to a sequence, as far as it is rare somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deed {
    /// It is admitted, for the first time or again.
    Admit,
    /// Its admission is refused.
    Refuse,
    /// Cached blocks are attached.
    Hit,
    /// None of the cached blocks are.
    Miss,
    /// A chunk is computed that leaves more to compute.
    Part,
    /// The last chunk is.
    Chunk,
    /// A token is.
    Decode,
    /// Blocks become findable.
    Publish,
    /// It loses its residency.
    Preempt,
    /// It moves to host memory.
    SwapOut,
    /// It comes back from there.
    SwapIn,
    /// A cached block is evicted for it.
    Evict,
    /// A shared block is copied for it.
    Copy,
    /// It is forked.
    Fork,
    /// It has generated all.
    Finish,
    /// It is aborted.
    Abort,
}

/// A sequence's share of a step.
#[derive(Clone, Debug)]
struct Slice {
    at: usize,
    start: usize,
    len: usize,
}

/// What lands late.
#[derive(Clone, Debug)]
enum Cargo {
    /// A chunk, and the block that is copied for it, if there is one.
    Chunk { slice: Slice, source: Option<u32> },
    /// K and V on their way to host memory.
    SwapOut,
    /// K and V on their way back from so many slots.
    SwapIn { slots: usize },
}

/// Something that lands late.
#[derive(Clone, Debug)]
struct Flight {
    at: usize,
    cargo: Cargo,
    blocks: Vec<u32>,
    lands_at: u64,
    /// Its sequence has lost the residency since.
    left: bool,
}

/// What came of making room.
enum Room {
    /// There is room; the source of a copy may have been kept.
    Made { source: Option<u32> },
    /// The sequence itself had to go.
    Gone,
}

/// A run that is being followed.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    block_size: usize,
    budget: usize,
    prefix_cache: bool,
    buckets: Vec<u32>,
    pub(super) sequences: Vec<Sequence>,
    order: Vec<usize>,
    pool: Pool,
    swap_free: usize,
    flights: Vec<Flight>,
    pub(super) boundary: u64,
    intents: Vec<Intent>,
    /// Whether each intent made a decision differ.
    fired: Vec<bool>,
    /// What happened to each sequence, by its index.
    pub(super) log: Vec<(usize, Deed)>,
}

/// Whether each intent of a schedule is expected to make a decision differ, in the schedule's order.
pub fn fired(world: &World, workload: &Workload, schedule: &Schedule) -> Vec<bool> {
    let mut forecast = Forecast::new(world, workload, schedule);
    let mut boundaries = 0;
    while !forecast.is_done() && boundaries < BOUNDARIES_MAX {
        forecast.step();
        boundaries += 1;
    }
    forecast.fired
}

impl Forecast {
    pub(super) fn new(world: &World, workload: &Workload, schedule: &Schedule) -> Forecast {
        let block_size = world.block_size as usize;
        let samples = workload.requests.iter().flat_map(|r| r.sample_ids().map(move |id| (r, id)));
        let sequences = samples.map(|(r, id)| Sequence::new(workload, r, id, block_size)).collect();
        let mut forecast = Forecast {
            block_size,
            budget: world.token_budget.map_or(usize::MAX, |b| b as usize),
            prefix_cache: world.prefix_cache,
            buckets: world.buckets.clone(),
            sequences,
            order: Vec::new(),
            pool: Pool::new(world.pool_blocks),
            swap_free: world.swap_blocks as usize,
            flights: Vec::new(),
            boundary: 0,
            intents: Vec::new(),
            fired: Vec::new(),
            log: Vec::new(),
        };
        for intent in &schedule.intents {
            forecast.add(*intent);
        }
        forecast.arrivals();
        let sequences = &forecast.sequences;
        let mut order: Vec<usize> = (0..sequences.len()).collect();
        order.sort_by_key(|&i| (sequences[i].arrival, i));
        forecast.order = order;
        forecast
    }

    /// Adds an intent, to be taken from the next boundary on.
    pub(super) fn add(&mut self, intent: Intent) {
        let index = self.intents.len();
        self.intents.push(intent);
        self.fired.push(false);
        if let Some(sequence) = self.sequences.iter_mut().find(|s| s.id == intent.id()) {
            sequence.pending.push(index);
        }
    }

    /// The intents so far.
    pub(super) fn intents(&self) -> &[Intent] {
        &self.intents
    }

    /// Whether everybody is done.
    pub(super) fn is_done(&self) -> bool {
        self.flights.is_empty() && self.sequences.iter().all(|s| s.stand == Stand::Finished)
    }

    /// Takes the next boundary's decisions, and their results in.
    pub(super) fn step(&mut self) {
        for at in 0..self.order.len() {
            let i = self.order[at];
            if self.sequences[i].stand == Stand::Running {
                self.act_on(i);
            }
        }
        self.admit();
        let mut step = self.compose();
        self.order_rows(&mut step);
        self.boundary += 1;
        if step.is_empty() {
            self.skip_idle();
        } else {
            self.pad(&step);
            for slice in &step {
                self.commit(slice);
            }
        }
        self.land();
    }

    /// Moves to the next boundary at which something can run.
    fn skip_idle(&mut self) {
        if !self.flights.is_empty() {
            return;
        }
        let next = self.sequences.iter().filter_map(|s| match s.stand {
            Stand::Waiting | Stand::Swapped => Some(s.offer_at),
            Stand::Running => Some(s.step_at),
            Stand::Finished => None,
        });
        self.boundary = next.filter(|at| *at >= self.boundary).min().unwrap_or(self.boundary);
    }

    /// Admits whoever waits, oldest first, until one does not fit.
    fn admit(&mut self) {
        for at in 0..self.order.len() {
            let i = self.order[at];
            let s = &self.sequences[i];
            let waits = matches!(s.stand, Stand::Waiting | Stand::Swapped);
            if !waits || s.offer_at > self.boundary {
                continue;
            }
            let all = s.known.div_ceil(self.block_size);
            let found = if s.stand == Stand::Swapped { Vec::new() } else { self.lookup(i) };
            let unused = found.iter().filter(|b| self.pool.references(**b) == 0).count();
            if all - found.len() + unused > self.pool.available() {
                return;
            }
            self.offer(i, found);
        }
    }

    /// What the prefix cache can serve of a sequence.
    fn lookup(&self, i: usize) -> Vec<u32> {
        let s = &self.sequences[i];
        if !self.prefix_cache || s.scores_prompt {
            return Vec::new();
        }
        let limit = (s.known - 1) / self.block_size;
        s.chains[..limit].iter().map_while(|chain| self.pool.find(*chain)).collect()
    }

    /// Makes a sequence resident with `computed` positions in `blocks`, the first `indexed` of them findable.
    fn reside(&mut self, i: usize, blocks: Vec<u32>, computed: usize, indexed: usize) {
        let s = &mut self.sequences[i];
        s.stand = Stand::Running;
        s.residency += 1;
        s.step_at = self.boundary;
        (s.blocks, s.computed, s.indexed) = (blocks, computed, indexed);
    }

    /// Gives back the blocks of a sequence that leaves; what is in flight keeps them until it lands.
    fn release(&mut self, i: usize) {
        let blocks = std::mem::take(&mut self.sequences[i].blocks);
        match self.flights.iter_mut().find(|f| !f.left && f.at == i) {
            Some(flight) => flight.left = true,
            None => self.pool.give_back(&blocks),
        }
    }

    fn preempt(&mut self, i: usize, offer_at: u64) {
        self.release(i);
        let s = &mut self.sequences[i];
        s.stand = Stand::Waiting;
        (s.offer_at, s.computed, s.indexed) = (offer_at, 0, 0);
        s.decodes = false;
        self.log.push((i, Deed::Preempt));
    }

    /// Chooses chunks, oldest first.
    fn compose(&mut self) -> Vec<Slice> {
        let mut step = Vec::new();
        let mut budget = self.budget;
        for at in 0..self.order.len() {
            let i = self.order[at];
            let s = &self.sequences[i];
            let runs = s.stand == Stand::Running && s.step_at <= self.boundary && budget > 0;
            if !runs || self.is_in_flight(i) {
                continue;
            }
            let start = s.computed;
            let default = (s.known - start).min(budget);
            let (len, cut) = self.chunk(i, default);
            let landing = self.landing_due(i);
            let late = landing.map_or(0, |(_, late)| late);
            let Room::Made { source } = self.make_room(i, start + len, &step, late > 0) else {
                continue;
            };
            if let Some((k, late)) = landing {
                self.fired[k] = late > 0;
            }
            if let Some(cut) = cut {
                self.fired[cut] = len < default;
            }
            budget -= len;
            let slice = Slice { at: i, start, len };
            match late {
                0 => step.push(slice),
                _ => self.take_off(i, Cargo::Chunk { slice, source }, late),
            }
        }
        step
    }

    /// Finds blocks for `positions`. With `is_late` the source of a copy is kept, as long as there are others.
    fn make_room(&mut self, i: usize, positions: usize, step: &[Slice], is_late: bool) -> Room {
        let mut kept = None;
        let wanted = positions.div_ceil(self.block_size);
        loop {
            let shared = self.shared_write(i);
            if shared.is_none() && self.sequences[i].blocks.len() >= wanted {
                break;
            }
            match (self.hand_out(i), shared) {
                (Some(block), Some(at)) => {
                    let from = std::mem::replace(&mut self.sequences[i].blocks[at], block);
                    match is_late {
                        true => kept = Some(from),
                        false => self.pool.give_back(&[from]),
                    }
                    self.log.push((i, Deed::Copy));
                }
                (Some(block), None) => self.sequences[i].blocks.push(block),
                (None, _) => {
                    if let Some(from) = kept.take() {
                        self.pool.give_back(&[from]);
                        continue;
                    }
                    let victim = self.choose_victim(i, step);
                    self.preempt(victim, self.boundary + 1);
                    if victim == i {
                        return Room::Gone;
                    }
                }
            }
        }
        let s = &self.sequences[i];
        if !s.computed.is_multiple_of(self.block_size) {
            self.pool.forget(s.blocks[s.computed / self.block_size]);
        }
        Room::Made { source: kept }
    }

    /// Index of the block that a sequence writes to next, if others use that block too.
    fn shared_write(&self, i: usize) -> Option<usize> {
        let s = &self.sequences[i];
        let at = s.computed / self.block_size;
        let begun = !s.computed.is_multiple_of(self.block_size);
        (begun && self.pool.references(s.blocks[at]) > 1).then_some(at)
    }

    /// Takes in a computed chunk.
    fn commit(&mut self, slice: &Slice) {
        let s = &mut self.sequences[slice.at];
        let draws = slice.start + slice.len == s.known;
        s.computed += slice.len;
        let deed = match (s.decodes, draws) {
            (true, _) => Deed::Decode,
            (false, true) => Deed::Chunk,
            (false, false) => Deed::Part,
        };
        self.log.push((slice.at, deed));
        s.decodes = draws;
        let mut is_new = false;
        while self.prefix_cache && (s.indexed + 1) * self.block_size <= s.computed {
            is_new |= self.pool.publish(s.chains[s.indexed], s.blocks[s.indexed]);
            s.indexed += 1;
        }
        if is_new {
            self.log.push((slice.at, Deed::Publish));
        }
        if draws {
            s.draw(self.block_size);
            if s.known == s.longest {
                s.stand = Stand::Finished;
                self.log.push((slice.at, Deed::Finish));
                self.release(slice.at);
            }
        }
    }
}
