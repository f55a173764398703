//! Swap, abort, and namespaces.

use super::*;

const SWAP: Act = Act::Preempt { kind: PreemptKind::Swap, away: 0 };

/// `tiny` with a pool and a swap pool.
fn swapping(pool_blocks: u32, swap_blocks: u32) -> Bench {
    let mut b = bench(pool_blocks);
    b.world.swap_blocks = swap_blocks;
    b.world.poison = true;
    b
}

fn read_at(run: &Run, uid: u64, moment: KvMoment) -> Vec<(u32, u32)> {
    let kv = run.first(uid).unwrap().kv.iter().filter(|kv| kv.moment == moment);
    kv.map(|kv| (kv.residency, kv.position)).collect()
}

#[test]
fn what_was_swapped_comes_back_and_is_not_computed_again() {
    let b = swapping(8, 3);
    let requests = [request(1, 0..9, 4)];
    let run = b.run(&requests, &[(1, computed(1, 10), SWAP)]).unwrap();
    assert_eq!(inert(&run), [None]);
    let mut expected: Vec<(u32, u32)> = (0..10).map(|p| (1, p)).collect();
    expected.extend((10..12).map(|p| (2, p)));
    assert_eq!(positions(&run, 1), expected);
    let back: Vec<(u32, u32)> = (0..10).map(|p| (2, p)).collect();
    assert_eq!(read_at(&run, 1, KvMoment::SwappedIn), back);
    let counts = [Sentinel::SwapOut, Sentinel::SwapIn, Sentinel::HitTokensSaved, Sentinel::Resume];
    assert_eq!(counts.map(|s| run.sentinels.get(s)), [1, 1, 0, 0]);
    b.assert_as_alone(&requests, &run);
}

#[test]
fn without_room_or_contents_a_swap_is_inert_and_the_request_stays() {
    let requests = [request(1, 0..9, 4)];
    let swap = [(1, computed(1, 10), SWAP)];
    for (slots, why) in [(0, Some(Inert::NoSwapRoom)), (2, Some(Inert::NoSwapRoom)), (3, None)] {
        let b = swapping(8, slots);
        let run = b.run(&requests, &swap).unwrap();
        assert_eq!(inert(&run), [why], "{slots}");
        assert_eq!(run.sentinels.get(Sentinel::SwapNoRoom), u64::from(why.is_some()));
        let residencies = positions(&run, 1).iter().map(|p| p.0).max();
        assert_eq!(residencies, Some(if why.is_some() { 1 } else { 2 }));
    }
    // Resident, but nothing computed: another request has the whole budget.
    let mut b = swapping(8, 8);
    b.world.token_budget = Some(4);
    let two = [request(1, 0..4, 2), request(2, 10..14, 2)];
    let run = b.run(&two, &[(2, computed(1, 0), SWAP)]).unwrap();
    assert_eq!(inert(&run), [Some(Inert::NothingToSwap)]);
}

#[test]
fn swaps_strike_in_prefills_and_re_prefills_and_again() {
    let b = swapping(8, 3);
    let requests = [request(1, 0..9, 4)];
    let intents = [
        (1, computed(1, 0), Act::Cut { tokens: 3 }),
        (1, computed(1, 3), SWAP),
        (1, computed(2, 3), Act::Cut { tokens: 2 }),
        (1, computed(2, 5), SWAP),
        (1, computed(3, 10), PREEMPT),
        (1, Mark::Offer { n: 4 }, Act::Hit { at_most: 0 }),
        (1, computed(4, 0), Act::Cut { tokens: 6 }),
        (1, computed(4, 6), SWAP),
    ];
    let run = b.run(&requests, &intents).unwrap();
    assert_eq!(inert(&run), [None; 8]);
    let counts = [Sentinel::SwapOut, Sentinel::SwapMidPrefill, Sentinel::SwapAgain];
    assert_eq!(counts.map(|s| run.sentinels.get(s)), [3, 3, 2]);
    b.assert_as_alone(&requests, &run);
}

/// While one is away another takes its blocks, so it comes back to others; hits meant for that offer have no lookup.
#[test]
fn a_swapped_request_comes_back_to_other_blocks() {
    let b = swapping(5, 3);
    let requests = [request(1, 0..9, 4), request(2, 20..30, 4)];
    let intents = [
        (1, computed(1, 9), Act::Preempt { kind: PreemptKind::Swap, away: 1 }),
        (2, Mark::Start, Act::Arrive { steps: 1 }),
        (1, Mark::Offer { n: 2 }, Act::Hit { at_most: 0 }),
    ];
    let run = b.run(&requests, &intents).unwrap();
    assert_eq!(inert(&run), [None, None, Some(Inert::Overtaken)]);
    assert_eq!(run.sentinels.get(Sentinel::SwapMoved), 1);
    b.assert_as_alone(&requests, &run);
}

#[test]
fn an_abort_gives_everything_back_wherever_it_strikes() {
    let b = swapping(6, 4);
    let requests = [request(1, 0..9, 5), request(2, 20..27, 5)];
    let abort = |mark| (1, mark, Act::Abort);
    let offer = |n| Mark::Offer { n };
    let hold = (1, offer(1), Act::Hold { steps: 2 });
    let swap = (1, computed(1, 10), SWAP);
    let cut = (1, computed(1, 0), Act::Cut { tokens: 3 });
    let cases = [
        (vec![abort(offer(1))], 0, Sentinel::Abort),
        (vec![abort(computed(1, 0)), cut], 3, Sentinel::AbortMidPrefill),
        (vec![cut, abort(computed(1, 3))], 3, Sentinel::AbortMidPrefill),
        (vec![abort(computed(1, 11))], 11, Sentinel::Abort),
        (vec![hold, abort(offer(2))], 0, Sentinel::AdmitRefused),
        (vec![swap, abort(offer(2))], 10, Sentinel::AbortSwapped),
        (vec![swap, abort(computed(2, 11))], 11, Sentinel::SwapIn),
    ];
    for (intents, rows, sentinel) in cases {
        // An execution that leaks a block or a slot is an error.
        let run = b.run(&requests, &intents).unwrap();
        let output = run.first(1).unwrap();
        assert_eq!((output.finish, output.rows_computed), (Some(Finish::Aborted), rows));
        assert_eq!(run.sentinels.get(Sentinel::Abort), 1);
        assert!(run.sentinels.get(sentinel) > 0, "{intents:?}");
        assert!(inert(&run).iter().all(Option::is_none), "{intents:?}");
        assert_eq!(run.first(2).unwrap().finish, Some(Finish::Length));
        b.assert_as_alone(&requests, &run);
    }
}

/// Whoever is aborted beside a fork, the other one keeps what they share.
#[test]
fn either_side_of_a_fork_can_be_aborted_before_the_copy() {
    let mut b = swapping(8, 0);
    b.world.token_budget = Some(7);
    let mut request = Request { samples: 2, ..request(1, 0..7, 6) };
    request.sampling.temperature = 1.0;
    let requests = [request];
    for sample in [0, 1] {
        let intents = [
            (1, 1, Mark::Start, Act::Arrive { steps: 1 }),
            (1, 1, Mark::Offer { n: 1 }, Act::Fork),
            (1, sample, computed(1, 8 - sample), Act::Abort),
        ];
        let run = b.run_samples(&requests, &intents).unwrap();
        assert_eq!(inert(&run), [None; 3]);
        assert!(run.sentinels.get(Sentinel::AbortShared) > 0);
        b.assert_as_alone(&requests, &run);
    }
}

#[test]
fn equal_prefixes_of_two_namespaces_are_not_shared() {
    let b = bench(16);
    for (namespace, saved) in [(0, 8), (7, 0)] {
        let requests = [request(1, 0..9, 2), Request { namespace, ..request(2, 0..9, 2) }];
        let run = b.run(&requests, &[(2, Mark::Start, Act::Arrive { steps: 2 })]).unwrap();
        let output = run.first(2).unwrap();
        assert_eq!(output.rows_computed, 10 - saved);
        let apart = run.sentinels.get(Sentinel::NamespaceKeptApart);
        assert_eq!(apart, u64::from(namespace > 0));
        let writers: Vec<u32> = output.writers.iter().copied().collect();
        assert_eq!(writers, if saved > 0 { vec![0] } else { vec![] });
        b.assert_as_alone(&requests, &run);
    }
}

/// A recompute in a namespace of its own is served its own blocks.
#[test]
fn a_namespace_finds_its_own_blocks() {
    let b = bench(16);
    let own = Request { namespace: 3, ..request(1, 0..9, 4) };
    let run = b.run(&[own], &[(1, computed(1, 10), PREEMPT)]).unwrap();
    assert_eq!(run.sentinels.get(Sentinel::HitTokensSaved), 1);
    assert!(run.first(1).unwrap().writers.iter().eq(&[3]));
}

#[test]
fn a_continuation_that_is_not_resolved_is_refused_in_one_line() {
    use crate::workload::{Continue, Prompt};
    let prompt = Prompt::Continue(Continue { of: 1, upto: 1, then: vec![] });
    let follow = Request { prompt, ..request(2, [], 1) };
    let error = bench(8).run(&[request(1, [4], 2), follow], &[]).unwrap_err();
    let EngineError::BadInput(line) = error else { panic!("{error}") };
    assert_eq!(line, "request 2 continues request 1, and its prompt is not resolved");
    let mut b = bench(8);
    b.world.swap_blocks = 1 << 17;
    assert!(matches!(b.run(&[request(1, [4], 2)], &[]), Err(EngineError::BadInput(_))));
}
