//! A forecast of a run: what the default policy does with a workload, and which intents of a schedule differ from it.
//!
//! The policy is written out here once more, in its plain form: no arithmetic, no audits, tokens that only depend on what
//! stands before them. It shares no code with any engine and judges nothing; it only places deviations where they will
//! differ. A subject with another policy, or an output that ends early, makes it wrong, and some intents inert.

mod acts;
mod flights;
mod pool;

use crate::schedule::{Intent, Mark, Schedule};
use crate::workload::{Request, SampleId, Workload};
use crate::world::World;

use pool::Pool;

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

/// A sample of a request.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) id: SampleId,
    pub(super) stand: Stand,
    /// First boundary at which it may be offered; its arrival at first.
    pub(super) offer_at: u64,
    /// Residencies so far, the present one included.
    pub(super) residency: u32,
    /// Offers so far.
    pub(super) offers: u32,
    /// Positions computed.
    pub(super) computed: usize,
    arrival: u64,
    prompt_len: usize,
    /// Prompt and output.
    known: usize,
    /// Length with the whole output.
    longest: usize,
    /// Hash of all known tokens.
    chain: u64,
    /// Hashes of its whole blocks' prefixes.
    chains: Vec<u64>,
    /// What its draws depend on besides the tokens before them.
    salt: u64,
    /// Whether it computes its whole prompt itself.
    scores_prompt: bool,
    blocks: Vec<u32>,
    /// Leading blocks that were attached or published.
    indexed: usize,
    slots: usize,
    /// Whether its next chunk is a token.
    decodes: bool,
    step_at: u64,
    rank: Option<u32>,
    ranked_by: Option<usize>,
    victim: Option<usize>,
    /// Its intents that are not taken.
    pending: Vec<usize>,
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

/// Whether each intent of a schedule is expected to make a decision differ.
pub(super) fn fired(world: &World, workload: &Workload, schedule: &Schedule) -> Vec<bool> {
    let mut forecast = Forecast::new(world, workload, schedule);
    let mut boundaries = 0;
    while !forecast.is_done() && boundaries < BOUNDARIES_MAX {
        forecast.step();
        boundaries += 1;
    }
    forecast.fired
}

/// Takes one more token into a hash.
fn mix(chain: u64, token: u64) -> u64 {
    let x = (chain ^ token).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^ (x >> 32)
}

/// The token that is drawn after `chain`.
fn token(chain: u64, salt: u64) -> u64 {
    mix(chain, salt.wrapping_add(0x9e37_79b9_7f4a_7c15)) | 1 << 32
}

/// What the draws of a sample depend on besides the tokens before them.
fn salt(request: &Request, sample: u32) -> u64 {
    let sampling = &request.sampling;
    let penalty = u64::from(sampling.repetition_penalty.to_bits());
    if sampling.is_greedy() {
        return mix(0, penalty);
    }
    let key = request.seed.unwrap_or(request.uid << 32);
    mix(mix(mix(penalty, key), sample.into()), sampling.temperature.to_bits().into())
}

/// Tokens of a prompt, those of a continuation as they are expected.
fn prompt(workload: &Workload, request: &Request) -> Vec<u64> {
    let own = request.prompt.own_tokens().iter().map(|t| u64::from(*t));
    let Some(c) = request.prompt.continuation() else { return own.collect() };
    let Some(of) = workload.get(c.of).filter(|of| of.uid != request.uid) else {
        return own.collect();
    };
    let mut tokens = prompt(workload, of);
    let mut chain = tokens.iter().fold(u64::from(of.namespace), |h, t| mix(h, *t));
    let salt = salt(of, 0);
    for _ in 0..c.upto.min(of.max_tokens) {
        tokens.push(token(chain, salt));
        chain = mix(chain, tokens[tokens.len() - 1]);
    }
    tokens.extend(own);
    tokens
}

impl Sequence {
    fn new(workload: &Workload, request: &Request, id: SampleId, block_size: usize) -> Sequence {
        let prompt = prompt(workload, request);
        let mut sequence = Sequence {
            id,
            stand: Stand::Waiting,
            offer_at: 0,
            residency: 0,
            offers: 0,
            computed: 0,
            arrival: 0,
            prompt_len: prompt.len(),
            known: 0,
            longest: prompt.len() + request.max_tokens as usize,
            chain: request.namespace.into(),
            chains: Vec::new(),
            salt: salt(request, id.sample),
            scores_prompt: request.prompt_logprobs.is_some(),
            blocks: Vec::new(),
            indexed: 0,
            slots: 0,
            decodes: false,
            step_at: 0,
            rank: None,
            ranked_by: None,
            victim: None,
            pending: Vec::new(),
        };
        for token in prompt {
            sequence.push(token, block_size);
        }
        sequence
    }

    fn push(&mut self, token: u64, block_size: usize) {
        self.chain = mix(self.chain, token);
        self.known += 1;
        if self.known.is_multiple_of(block_size) {
            self.chains.push(self.chain);
        }
    }

    /// Takes the first pending intent that satisfies `wanted`.
    fn take(&mut self, intents: &[Intent], wanted: impl Fn(&Intent) -> bool) -> Option<usize> {
        let at = self.pending.iter().position(|k| wanted(&intents[*k]))?;
        Some(self.pending.remove(at))
    }

    /// Whether an intent at this mark is still to be taken.
    pub(super) fn awaits(&self, intents: &[Intent], mark: Mark) -> bool {
        self.pending.iter().any(|k| intents[*k].mark == mark)
    }
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
            s.push(token(s.chain, s.salt), self.block_size);
            if s.known == s.longest {
                s.stand = Stand::Finished;
                self.log.push((slice.at, Deed::Finish));
                self.release(slice.at);
            }
        }
    }
}
