//! Copies and swaps that land late, and what may fall between.

use super::*;

const SWAP: Act = Act::Preempt { kind: PreemptKind::Swap, away: 0 };

const LANDED: [Sentinel; 4] = [
    Sentinel::CopyLandedLate,
    Sentinel::SwapOutLandedLate,
    Sentinel::SwapInLandedLate,
    Sentinel::CopyLandedAfterLeaving,
];

fn roomy(pool_blocks: u32, swap_blocks: u32) -> Bench {
    let mut b = bench(pool_blocks);
    b.world.swap_blocks = swap_blocks;
    b.world.poison = true;
    b
}

fn landed(run: &Run) -> [u64; 4] {
    LANDED.map(|sentinel| run.sentinels.get(sentinel))
}

/// Goal: while a copy is in flight its source stays what it was, whoever else leaves it, and its destination is read by
/// nobody. Method: the parent's copy of the shared block is late; both sides go in each way that there is, and a third
/// request takes whatever block becomes free.
#[test]
fn a_late_copy_reads_its_source_as_it_was() {
    let b = roomy(6, 4);
    let mut two = Request { samples: 2, ..request(1, 0..7, 6) };
    two.sampling.temperature = 1.0;
    let requests = [two, request(2, 20..27, 5)];
    let late = |sample, tokens, late| (1, sample, computed(1, tokens), Act::Land { late });
    let base = [
        (1, 1, Mark::Start, Act::Arrive { steps: 1 }),
        (1, 1, Mark::Offer { n: 1 }, Act::Fork),
        (2, 0, Mark::Start, Act::Arrive { steps: 2 }),
        late(0, 7, 3),
    ];
    let act = |sample, tokens, act| vec![(1, sample, computed(1, tokens), act)];
    // What falls between; copies that land late, and those of them that come too late.
    let cases = [
        (vec![], 1, 0),
        (act(0, 8, Act::Abort), 1, 1),
        (act(0, 8, PREEMPT), 1, 1),
        (act(0, 8, SWAP), 1, 1),
        (act(1, 7, Act::Abort), 1, 0),
        (act(1, 7, PREEMPT), 1, 0),
        (act(1, 7, SWAP), 1, 0),
        (vec![late(1, 6, 2)], 2, 0),
        ([vec![late(1, 6, 4)], act(1, 7, Act::Abort), act(0, 8, Act::Abort)].concat(), 2, 2),
        ([vec![late(1, 6, 1)], act(1, 7, SWAP), act(0, 8, PREEMPT)].concat(), 2, 2),
    ];
    for (between, copies, dropped) in cases {
        let intents = [&base[..], &between].concat();
        let run = b.run_samples(&requests, &intents).unwrap();
        assert!(inert(&run).iter().all(Option::is_none), "{between:?} {:?}", inert(&run));
        assert_eq!(landed(&run), [copies, 0, 0, dropped], "{between:?}");
        b.assert_as_alone(&requests, &run);
    }
}

/// Goal: the blocks that a late swap reads are nobody else's until it lands. Method: another request needs every block.
#[test]
fn a_late_swap_to_host_memory_keeps_its_blocks_until_it_lands() {
    let b = roomy(5, 3);
    let requests = [request(1, 0..9, 4), request(2, 20..30, 4)];
    let [at_once, late] = [0, 3].map(|late| {
        let intents = [
            (1, computed(1, 9), Act::Preempt { kind: PreemptKind::Swap, away: 9 }),
            (1, computed(1, 9), Act::Land { late }),
            (2, Mark::Start, Act::Arrive { steps: 1 }),
        ];
        let run = b.run(&requests, &intents).unwrap();
        assert_eq!(inert(&run)[1], (late == 0).then_some(Inert::SameAsDefault));
        assert_eq!(landed(&run), [0, u64::from(late > 0), 0, 0]);
        assert_eq!(run.steps[1].rows, 10, "2 is next");
        b.assert_as_alone(&requests, &run);
        run.trajectory.boundaries.len()
    });
    // 2 is admitted at boundary 1, or after boundary 4.
    assert_eq!(late - at_once, 4);
}

/// Goal: what comes back late is read by nobody before, and its slots and blocks are nobody else's. Method: it is left to
/// land, or its request goes in each way that there is, while others swap to and take what is free.
#[test]
fn a_late_swap_back_is_waited_for_or_dropped() {
    let b = roomy(8, 3);
    let requests = [request(1, 0..9, 4), request(2, 20..27, 6)];
    let base = [
        (1, computed(1, 10), SWAP),
        (1, Mark::Offer { n: 2 }, Act::Land { late: 3 }),
        (2, computed(1, 9), SWAP),
    ];
    let act = |act| vec![(1, computed(2, 10), act)];
    let nothing = Some(Inert::NothingToSwap);
    // The last case: nothing is there to swap again.
    let cases = [
        (vec![], 0, None),
        (act(PREEMPT), 1, None),
        (act(Act::Abort), 1, None),
        (act(Act::Stall { steps: 6 }), 0, None),
        (act(SWAP), 0, nothing),
    ];
    for (between, dropped, why) in cases {
        let run = b.run(&requests, &[&base[..], &between].concat()).unwrap();
        let reasons = inert(&run);
        assert_eq!(reasons[..2], [None; 2], "{between:?}");
        assert_eq!(reasons.get(3).copied().flatten(), why, "{between:?}");
        assert_eq!(landed(&run), [0, 0, 1, dropped], "{between:?}");
        // Its slots are taken until it has landed, so that the other one finds no room.
        assert_eq!(reasons[2], Some(Inert::NoSwapRoom), "{between:?}");
        b.assert_as_alone(&requests, &run);
    }
}

/// Liveness: whatever lands late in the smallest pools, everything finishes within the bound, and as it does alone.
#[test]
fn copies_and_swaps_that_land_late_in_the_smallest_pool_finish() {
    let mut two = Request { samples: 3, ..request(1, 0..6, 6) };
    two.sampling.temperature = 1.0;
    let requests = [two, request(2, 0..7, 5), request(3, 20..23, 4)];
    for pool_blocks in 3..8 {
        let b = roomy(pool_blocks, 5);
        let mut intents = Vec::new();
        for (uid, sample) in [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0)] {
            intents.push((
                uid,
                sample,
                Mark::Start,
                Act::Arrive { steps: sample + uid as u32 % 2 },
            ));
            for residency in 1..=5 {
                let offer = Mark::Offer { n: residency };
                intents.push((uid, sample, offer, Act::Fork));
                intents.push((uid, sample, offer, Act::Land { late: residency % 3 }));
                let kind = if residency % 2 == 1 { SWAP } else { PREEMPT };
                intents.push((uid, sample, computed(residency, 5 + residency), kind));
                // What is in flight is swapped at once, so that there is nothing before a late swap.
                let tokens = if residency % 2 == 1 { 5 + residency..6 + residency } else { 0..10 };
                for tokens in tokens {
                    let late = (uid as u32 + sample + tokens) % 4;
                    let mark = computed(residency, tokens);
                    intents.push((uid, sample, mark, Act::Land { late }));
                }
            }
        }
        // An execution that does not finish within the bound is an error.
        let run = b.run_samples(&requests, &intents).unwrap();
        assert!(landed(&run)[1..3].iter().all(|n| *n > 0), "{pool_blocks}: {:?}", landed(&run));
        b.assert_as_alone(&requests, &run);
    }
}
