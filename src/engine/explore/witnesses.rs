//! Directed witnesses: executions that show a triple of events which neither the exhaustive search nor the walks are sure to
//! meet, a copy on write next to something rare. Each is a workload and a schedule, carried out by the real scheduler.

use crate::lifecycle::Event::{self, *};
use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use crate::workload::{Request, Workload};

use super::worlds::request;
use super::{Node, Seen, carry_out, scheduler};

/// Boundaries within which each ends.
const BOUNDARIES_MAX: usize = 40;

/// An execution that shows a triple.
struct Witness {
    shows: [Event; 3],
    /// Positions of a block, blocks of the pool and of the swap pool.
    sizes: [u32; 3],
    requests: Vec<Request>,
    /// All of them fire.
    intents: Vec<Intent>,
}

/// An act of sample `sample` of request 1 at an offer.
fn offer(sample: u32, n: u32, act: Act) -> Intent {
    Intent { uid: 1, sample, mark: Mark::Offer { n }, act }
}

/// An act of sample `sample` of request 1 once so many tokens are computed, in that residency.
fn at(sample: u32, residency: u32, tokens: u32, act: Act) -> Intent {
    Intent { uid: 1, sample, mark: Mark::Computed { residency, tokens }, act }
}

const fn hold(steps: u32) -> Act {
    Act::Hold { steps }
}

const fn swap(away: u32) -> Act {
    Act::Preempt { kind: PreemptKind::Swap, away }
}

const RECOMPUTE: Act = Act::Preempt { kind: PreemptKind::Recompute, away: 0 };
const LATE: Act = Act::Land { late: 3 };

/// Request 1, with as many samples, its prompt that long.
fn kin(prompt: u32, max_tokens: u32, samples: u32) -> Request {
    request(1, &(1..=prompt).collect::<Vec<u32>>(), max_tokens, samples)
}

/// Request 2: nothing of it is request 1's. It leaves whole cached blocks behind.
fn stranger(prompt: u32) -> Request {
    request(2, &(50..50 + prompt).collect::<Vec<u32>>(), 1, 1)
}

fn witnesses() -> Vec<Witness> {
    // Sample 1 is forked from sample 0 in the boundary in which that one comes back: its next write copies.
    let comes_back =
        |away, held| vec![at(0, 1, 0, swap(away)), offer(1, 1, hold(held)), offer(1, 2, Act::Fork)];
    // The chunk of sample 0 after its copy is in flight when something happens to it.
    let then = |mut intents: Vec<Intent>, late: Intent, last: Intent| {
        intents.extend([late, last]);
        intents
    };
    // Sample 0 stops within a block, sample 1 is forked there; the copy takes the last free block, the next evicts.
    let crowded = vec![at(0, 1, 0, Act::Cut { tokens: 3 }), offer(1, 2, Act::Fork)];
    let crowd = || vec![stranger(5), kin(6, 1, 2)];
    vec![
        Witness {
            shows: [AdmitRefused, SwapIn, CowCopy],
            sizes: [4, 4, 2],
            requests: vec![kin(2, 2, 2)],
            intents: [comes_back(0, 2), vec![offer(0, 2, hold(1))]].concat(),
        },
        Witness {
            shows: [SwapIn, CowCopy, PreemptRecompute],
            sizes: [5, 3, 3],
            requests: vec![kin(4, 2, 2)],
            intents: then(comes_back(1, 2), at(0, 2, 0, LATE), at(0, 2, 5, RECOMPUTE)),
        },
        Witness {
            shows: [SwapIn, CowCopy, PreemptSwap],
            sizes: [5, 3, 3],
            requests: vec![kin(4, 2, 2)],
            intents: then(comes_back(1, 2), at(0, 2, 0, LATE), at(0, 2, 5, swap(0))),
        },
        Witness {
            shows: [SwapIn, CowCopy, Abort],
            sizes: [5, 3, 3],
            requests: vec![kin(4, 2, 2)],
            intents: then(comes_back(1, 2), at(0, 2, 0, LATE), at(0, 2, 5, Act::Abort)),
        },
        // Sample 1 comes back in the middle of its prefill, which sample 0's cached blocks are evicted for.
        Witness {
            shows: [SwapIn, CowCopy, Evict],
            sizes: [4, 3, 1],
            requests: vec![kin(5, 1, 3)],
            intents: vec![
                at(1, 1, 0, Act::Cut { tokens: 3 }),
                at(1, 1, 1, swap(2)),
                offer(2, 1, hold(3)),
                offer(2, 2, Act::Fork),
            ],
        },
        // Sample 0 comes back to the last free block and an evicted one. The last sample gives up the cached block of its
        // prefix, which is free then, for the copy.
        Witness {
            shows: [Evict, SwapIn, CowCopy],
            sizes: [4, 4, 2],
            requests: vec![stranger(8), kin(6, 2, 3)],
            intents: vec![
                at(0, 1, 6, swap(1)),
                offer(1, 1, hold(2)),
                offer(1, 2, Act::Fork),
                offer(2, 1, hold(2)),
                offer(2, 2, Act::Evict { block: 0 }),
            ],
        },
        // Sample 0 comes back in the middle of its prefill; the first block, evicted meanwhile, is published again.
        Witness {
            shows: [Decode, Publish, CowCopy],
            sizes: [4, 4, 3],
            requests: vec![kin(6, 3, 3)],
            intents: vec![at(0, 1, 4, swap(1)), offer(1, 1, hold(3)), offer(1, 2, Act::Fork)],
        },
        Witness {
            shows: [CowCopy, Evict, Abort],
            sizes: [2, 5, 5],
            requests: crowd(),
            intents: then(crowded.clone(), at(0, 1, 3, LATE), at(0, 1, 6, Act::Abort)),
        },
        Witness {
            shows: [CowCopy, Evict, PreemptSwap],
            sizes: [2, 5, 5],
            requests: crowd(),
            intents: then(crowded.clone(), at(0, 1, 3, LATE), at(0, 1, 6, swap(0))),
        },
        Witness {
            shows: [Publish, CowCopy, Evict],
            sizes: [2, 5, 5],
            requests: crowd(),
            intents: crowded,
        },
        Witness {
            shows: [Publish, CowCopy, Chunk],
            sizes: [2, 3, 3],
            requests: vec![kin(4, 1, 2)],
            intents: vec![at(0, 1, 0, Act::Cut { tokens: 3 }), offer(1, 2, Act::Fork)],
        },
        Witness {
            shows: [Publish, Chunk, CowCopy],
            sizes: [3, 3, 2],
            requests: vec![kin(5, 2, 2)],
            intents: vec![at(0, 1, 0, Act::Cut { tokens: 3 }), offer(1, 2, Act::Fork)],
        },
    ]
}

/// Carries out every witness. Panics where one does not show its triple, or has an intent that does not fire.
pub(super) fn witness(seen: &mut Seen) {
    for Witness { shows, sizes, requests, intents } in witnesses() {
        let workload = Workload { requests };
        let mut node = Node::new(scheduler(sizes, &workload, &Schedule { intents }));
        let mut own = Seen::default();
        while !node.scheduler.is_done() {
            assert!(node.depth < BOUNDARIES_MAX, "{shows:?}");
            let mut next = node.scheduler.clone();
            next.life.clear();
            let step = next.boundary();
            carry_out(&mut next, &step, None);
            node = own.fold(&node, next);
        }
        node.scheduler.check_idle().unwrap();
        let outcomes = node.scheduler.deviations.outcomes();
        let inert: Vec<_> = outcomes.iter().filter(|o| o.inert.is_some()).collect();
        assert!(own.trigrams.contains(&shows), "{shows:?} is not shown; inert {inert:?}");
        assert!(inert.is_empty(), "{shows:?}: {inert:?}");
        seen.transitions.append(&mut own.transitions);
        seen.bigrams.append(&mut own.bigrams);
        seen.trigrams.append(&mut own.trigrams);
    }
}
