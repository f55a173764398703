//! Bounded exhaustive exploration of the real scheduler, to check the lifecycle table both ways.
//!
//! Method: from a few small worlds (three sequences, a pool of five blocks), at every boundary every combination of the
//! acts below is given to a copy of the scheduler, a stub in the place of the forward pass draws each token or the end of
//! the sequence, and states that were seen before are dropped. What a state is: the scheduler's own, with blocks named in
//! order of appearance and boundaries counted from now, and the last two events of each sequence. Every transition and
//! n-gram seen must be in the table, and every one that the table calls feasible must be seen.

mod witnesses;
mod worlds;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::lifecycle::{self, Event, State as Life, Transition};
use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use crate::workload::Workload;
use crate::world::World;

use super::deviations::Deviations;
use super::flights::Cargo;
use super::scheduler::{Granules, Scheduler, Slice};
use super::sequence::{Sequence, State};
use witnesses::witness;
use worlds::{Kind, Random, Root, WALKED_WORLDS, roots, walked};

/// The end-of-sequence token.
const EOS: u32 = 99;
/// A stop token.
const STOP: u32 = 98;
/// Boundaries from the start that must be reached.
const DEPTH_MIN: usize = 14;
/// Most boundaries of a random walk.
const WALK_MAX: usize = 80;
/// Most sequences of a world.
const SEQUENCES_MAX: usize = 4;
/// Most sequences that deviate at one boundary.
const DEVIATING_MAX: usize = 2;

/// What a sequence did last, and how it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Past {
    state: Life,
    before: [Option<Event>; 2],
}

#[derive(Clone)]
struct Node {
    scheduler: Scheduler,
    /// Of each sequence.
    past: [Past; SEQUENCES_MAX],
    /// Deviations so far.
    deviations: usize,
    depth: usize,
}

impl Node {
    fn new(scheduler: Scheduler) -> Node {
        let past = Past { state: Life::Absent, before: [None; 2] };
        Node { scheduler, past: [past; SEQUENCES_MAX], deviations: 0, depth: 0 }
    }
}

/// What an exploration saw.
#[derive(Default)]
struct Seen {
    transitions: BTreeSet<Transition>,
    bigrams: BTreeSet<[Event; 2]>,
    trigrams: BTreeSet<[Event; 3]>,
    states: usize,
    edges: usize,
    depth: usize,
    /// Boundaries of random walks.
    walked: usize,
}

impl Root {
    fn workload(&self) -> Workload {
        Workload { requests: self.requests.clone() }
    }

    fn start(&self) -> Node {
        let sizes = [self.block_size, self.pool_blocks, self.swap_blocks];
        let mut scheduler = scheduler(sizes, &self.workload(), &Schedule::default());
        for (sequence, arrival) in scheduler.sequences.iter_mut().zip(self.arrivals) {
            sequence.arrival = arrival.into();
        }
        Node::new(scheduler)
    }

    fn explore(&self, seen: &mut Seen) {
        let workload = self.workload();
        let mut known = BTreeSet::new();
        let mut queue = VecDeque::from([self.start()]);
        let (mut states, mut edges, mut depth) = (0, 0, 0);
        while let Some(node) = queue.pop_front() {
            if states >= self.states_max {
                break;
            }
            states += 1;
            depth = depth.max(node.depth);
            let options: Vec<Vec<Vec<Intent>>> =
                node.scheduler.sequences.iter().map(|s| self.options(&node.scheduler, s)).collect();
            let left = self.deviations_max - node.deviations;
            for (intents, deviations) in combinations(&options, left.min(DEVIATING_MAX)) {
                for child in self.children(&node, &workload, intents) {
                    edges += 1;
                    let mut child = seen.fold(&node, child);
                    child.deviations += deviations;
                    if child.scheduler.is_done() {
                        child.scheduler.check_idle().unwrap();
                    } else if known.insert(key(&child)) {
                        queue.push_back(child);
                    }
                }
            }
        }
        let rest = queue.len();
        println!(
            "{}: {states} states, {edges} edges, {depth} boundaries deep, {rest} states left",
            self.name
        );
        seen.states += states;
        seen.edges += edges;
        seen.depth = seen.depth.max(depth);
    }

    /// Walks of random decisions, as many as it likes: deeper than the exhaustive search can go.
    fn walk(&self, seen: &mut Seen, random: &mut Random, walks: usize) {
        let workload = self.workload();
        for _ in 0..walks {
            let mut node = self.start();
            let busy = 1 + random.below(8);
            while !node.scheduler.is_done() && node.depth < WALK_MAX {
                let mut intents = Vec::new();
                for s in &node.scheduler.sequences {
                    let options = self.options(&node.scheduler, s);
                    let forks = |o: &&Vec<Intent>| o.iter().any(|i| i.act == Act::Fork);
                    let fork = options.iter().find(forks).filter(|_| random.below(2) == 0);
                    if let Some(fork) = fork {
                        intents.extend_from_slice(fork);
                    } else if random.below(9) < busy {
                        intents.extend_from_slice(&options[random.below(options.len())]);
                    }
                }
                let mut children = self.children(&node, &workload, intents);
                let end = if random.below(8) == 0 { random.below(children.len()) } else { 0 };
                node = seen.fold(&node, children.swap_remove(end));
                seen.walked += 1;
            }
        }
    }

    /// The deviations of one sequence at the next boundary; the first is none.
    fn options(&self, scheduler: &Scheduler, s: &Sequence) -> Vec<Vec<Intent>> {
        let has = |kind: &Kind| self.acts.contains(kind);
        let intent = |mark, act| Intent { uid: s.id.uid, sample: s.id.sample, mark, act };
        let at = |residency, act| intent(Mark::Computed { residency, tokens: 0 }, act);
        let offer = |act| intent(Mark::Offer { n: s.offers + 1 }, act);
        let chunks = |residency| {
            let cut = has(&Kind::Cut).then(|| vec![at(residency, Act::Cut { tokens: 1 })]);
            let land = has(&Kind::Land).then(|| vec![at(residency, Act::Land { late: 1 })]);
            [Some(Vec::new()), cut, land].into_iter().flatten().collect::<Vec<_>>()
        };
        let is_offered = s.offer_at <= scheduler.boundary && s.arrival <= scheduler.boundary;
        let mut options = Vec::new();
        let mut kinds = vec![Vec::new()];
        match s.state {
            State::Future | State::Waiting | State::Swapped if is_offered => {
                let evict = |block| offer(Act::Evict { block });
                let refuse = offer(Act::Hit { at_most: 0 });
                kinds.push(vec![(Kind::Hold, offer(Act::Hold { steps: 1 }))]);
                kinds.push(vec![(Kind::Abort, offer(Act::Abort))]);
                if s.state == State::Swapped {
                    kinds.push(vec![(Kind::Land, offer(Act::Land { late: 1 }))]);
                }
                if s.state != State::Swapped {
                    kinds.push(vec![(Kind::Refuse, refuse)]);
                    kinds.push(vec![(Kind::Evict, evict(1))]);
                    kinds.push([1, 0].map(|b| (Kind::Evict, evict(b))).to_vec());
                    kinds.push([2, 1, 0].map(|b| (Kind::Evict, evict(b))).to_vec());
                    kinds.push(vec![(Kind::Evict, evict(1)), (Kind::Refuse, refuse)]);
                }
                if s.id.sample > 0 && s.state != State::Swapped {
                    kinds.push(vec![(Kind::Fork, offer(Act::Fork))]);
                }
                for kind in kinds.iter().filter(|kind| kind.iter().all(|(k, _)| has(k))) {
                    for chunk in chunks(s.residency + 1) {
                        let intents = kind.iter().map(|(_, intent)| *intent);
                        options.push(intents.chain(chunk).collect());
                    }
                }
            }
            State::Running => {
                let preempt = |kind| at(s.residency, Act::Preempt { kind, away: 0 });
                let i = scheduler.sequences.iter().position(|q| q.id == s.id).unwrap();
                if scheduler.is_in_flight(i) {
                    options.push(Vec::new());
                } else {
                    options.extend(chunks(s.residency));
                }
                kinds.push(vec![(Kind::Abort, at(s.residency, Act::Abort))]);
                kinds.push(vec![(Kind::Preempt, preempt(PreemptKind::Recompute))]);
                kinds.push(vec![(Kind::Swap, preempt(PreemptKind::Swap))]);
                let land = at(s.residency, Act::Land { late: 1 });
                kinds.push(vec![(Kind::Swap, preempt(PreemptKind::Swap)), (Kind::Land, land)]);
                for kind in &kinds[1..] {
                    if kind.iter().all(|(k, _)| has(k)) {
                        options.push(kind.iter().map(|(_, intent)| *intent).collect());
                    }
                }
            }
            _ => options.push(Vec::new()),
        }
        options
    }

    /// The states after a boundary with these intents: one for each way in which its draws may end.
    fn children(&self, node: &Node, workload: &Workload, intents: Vec<Intent>) -> Vec<Scheduler> {
        let mut next = node.scheduler.clone();
        next.life.clear();
        next.deviations = Deviations::new(&Schedule { intents }, workload);
        let step = next.boundary();
        let mut all = Vec::new();
        let all_ends = [None, Some(EOS), Some(STOP)];
        let ends = if self.acts.contains(&Kind::End) { &all_ends[..] } else { &all_ends[..1] };
        for &end in ends {
            let mut child = next.clone();
            carry_out(&mut child, &step, end);
            all.push(child);
        }
        all
    }
}

/// The scheduler at the start of an execution. `sizes` are those of a block in positions, and of the pool and the swap pool
/// in blocks.
pub(super) fn scheduler(sizes: [u32; 3], workload: &Workload, schedule: &Schedule) -> Scheduler {
    let world = World::of_blocks(sizes);
    let granules = Granules { tile: 16, split: 32, vocab: 264, positions_max: 512 };
    Scheduler::new(&world, workload, schedule, 0, granules, &[EOS])
}

/// What the engine does after a boundary, with draws that all end in the same way.
pub(super) fn carry_out(scheduler: &mut Scheduler, step: &[Slice], ends: Option<u32>) {
    if step.is_empty() {
        scheduler.skip_idle();
    } else {
        commit(scheduler, step, ends);
    }
    for flight in scheduler.landings() {
        scheduler.land_copies(&flight);
        if let Some(slice) = flight.chunk().filter(|_| scheduler.landed(&flight)) {
            commit(scheduler, std::slice::from_ref(slice), ends);
        }
    }
    scheduler.deeds.clear();
}

/// Takes in a step whose draws all end their sequences, or are tokens that only depend on the position.
fn commit(scheduler: &mut Scheduler, step: &[Slice], ends: Option<u32>) {
    let draws = step.iter().filter(|slice| scheduler.draws(slice));
    let token = |slice: &Slice| ends.unwrap_or((slice.start + slice.len) as u32);
    let drawn: Vec<Option<u32>> = draws.map(|slice| Some(token(slice))).collect();
    scheduler.commit(step, &drawn);
}

/// Every choice of one option a sequence, in which at most `most` sequences deviate.
fn combinations(options: &[Vec<Vec<Intent>>], most: usize) -> Vec<(Vec<Intent>, usize)> {
    let mut all = vec![(Vec::new(), 0)];
    for of_one in options {
        let mut longer = Vec::with_capacity(all.len() * of_one.len());
        for (intents, deviating) in &all {
            for option in of_one {
                let deviating = deviating + usize::from(!option.is_empty());
                if deviating <= most {
                    longer.push(([&intents[..], option].concat(), deviating));
                }
            }
        }
        all = longer;
    }
    all
}

impl Seen {
    /// Takes in the events of the boundary between a node and its child.
    fn fold(&mut self, node: &Node, scheduler: Scheduler) -> Node {
        let mut past = node.past;
        for e in &scheduler.life {
            let i = scheduler.sequences.iter().position(|s| s.id == e.id).unwrap();
            let Past { state, before } = past[i];
            self.transitions.insert(Transition { from: state, event: e.event, to: e.state });
            if let Some(b) = before[1] {
                self.bigrams.insert([b, e.event]);
                if let Some(a) = before[0] {
                    self.trigrams.insert([a, b, e.event]);
                }
            }
            past[i] = Past { state: e.state, before: [before[1], Some(e.event)] };
        }
        Node { scheduler, past, deviations: node.deviations, depth: node.depth + 1 }
    }
}

/// Hash of what decides how a state goes on.
fn key(node: &Node) -> u64 {
    let s = &node.scheduler;
    let mut names = BTreeMap::new();
    let mut name = |block: u32| {
        let next = names.len();
        *names.entry(block).or_insert(next)
    };
    let mut hasher = DefaultHasher::new();
    node.deviations.hash(&mut hasher);
    let from_now = |at: u64| at.saturating_sub(s.boundary);
    for (q, past) in s.sequences.iter().zip(&node.past) {
        past.hash(&mut hasher);
        let state = match q.state {
            State::Future => 0,
            State::Waiting => 1,
            State::Running => 2,
            State::Swapped => 3,
            State::Finished(_) => 4,
        };
        let numbers = [state, q.computed, q.tokens.len(), q.indexed, q.slots.len()];
        (numbers, q.is_decoding, q.residency == 0, q.forked).hash(&mut hasher);
        if matches!(q.state, State::Future | State::Waiting | State::Swapped) {
            (from_now(q.arrival), from_now(q.offer_at)).hash(&mut hasher);
        }
        from_now(q.step_at).hash(&mut hasher);
        q.blocks.iter().map(|b| name(*b)).collect::<Vec<_>>().hash(&mut hasher);
    }
    for flight in &s.flights {
        (flight.index, from_now(flight.lands_at)).hash(&mut hasher);
        flight.chunk().map(|slice| (slice.start, slice.len)).hash(&mut hasher);
        flight.copy().map(|copy| name(copy.from)).hash(&mut hasher);
        matches!(flight.cargo, Cargo::SwapIn { .. }).hash(&mut hasher);
        flight.left.hash(&mut hasher);
        flight.blocks.iter().map(|b| name(*b)).collect::<Vec<_>>().hash(&mut hasher);
    }
    let [free, cached] = s.pool.lists();
    cached.iter().map(|b| name(*b)).collect::<Vec<_>>().hash(&mut hasher);
    free.len().hash(&mut hasher);
    // What is findable: of the tokens that any sequence has or had, finished ones included.
    for q in &s.sequences {
        for end in (s.block_size..=q.tokens.len()).step_by(s.block_size) {
            let found = s.index.find(q.namespace, &q.tokens[..end], s.block_size);
            found.map(&mut name).hash(&mut hasher);
        }
    }
    let mut counts: Vec<(usize, u32)> =
        (0..s.pool.len() as u32).map(|b| (name(b), s.pool.references(b))).collect();
    counts.retain(|(_, n)| *n > 0);
    counts.sort_unstable();
    counts.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn the_lifecycle_table_is_what_the_scheduler_does_both_ways() {
    let mut seen = Seen::default();
    for root in roots() {
        root.explore(&mut seen);
    }
    println!("{} states, {} edges, {} boundaries deep", seen.states, seen.edges, seen.depth);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..WALKED_WORLDS {
        walked(&mut random).walk(&mut seen, &mut random, 20);
    }
    println!("{} boundaries walked", seen.walked);
    witness(&mut seen);
    let feasible = lifecycle::reachable(|_| true);
    let report = |what: &str, missing: Vec<String>| {
        println!("{what}: {}", missing.len());
        for m in &missing {
            println!("  {m}");
        }
        missing.len()
    };
    let names = |g: &[Event]| g.iter().map(|e| e.name()).collect::<Vec<_>>().join(" ");
    let undeclared: Vec<String> =
        seen.transitions.iter().filter(|t| !feasible.contains(t)).map(|t| t.to_string()).collect();
    let unseen: Vec<String> =
        feasible.iter().filter(|t| !seen.transitions.contains(t)).map(|t| t.to_string()).collect();
    let mut wrong = report("transitions that the table lacks", undeclared);
    wrong += report("transitions never seen", unseen);
    let grams = lifecycle::grams::<2>(&feasible);
    wrong += report(
        "pairs never seen",
        grams.iter().filter(|g| !seen.bigrams.contains(*g)).map(|g| names(g)).collect(),
    );
    let grams = lifecycle::grams::<3>(&feasible);
    println!("{} of {} triples", seen.trigrams.len(), grams.len());
    wrong += report(
        "triples never seen",
        grams.iter().filter(|g| !seen.trigrams.contains(*g)).map(|g| names(g)).collect(),
    );
    assert_eq!(wrong, 0);
    assert!(seen.depth >= DEPTH_MIN);
}
