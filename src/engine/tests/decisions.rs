//! Placement, chosen eviction, padding buckets, late landing, poison.

use super::*;

const fn place(nth: u32) -> Act {
    Act::Place { nth }
}

/// Tokens, and the bits of every position that was computed, are those of each request alone.
fn assert_unchanged(b: &Bench, requests: &[Request], run: &Run) {
    for request in requests {
        let alone = b.run(std::slice::from_ref(request), &[]).unwrap();
        let (got, expected) = (run.first(request.uid).unwrap(), alone.first(request.uid).unwrap());
        assert_eq!(got.tokens, expected.tokens, "request {}", request.uid);
        for bits in &got.positions {
            let same = expected.positions.iter().find(|p| p.position == bits.position).unwrap();
            assert_eq!(bits.logits, same.logits, "request {}, {bits:?}", request.uid);
        }
        for bits in &got.kv {
            let same = expected.kv.iter().find(|kv| kv.position == bits.position).unwrap();
            assert_eq!(bits.layers, same.layers, "request {}, {bits:?}", request.uid);
        }
    }
}

#[test]
fn a_placed_block_is_the_nth_free_one_and_fragments_the_table() {
    let b = bench(8);
    let requests = [request(1, 0..9, 4)];
    let intents = [
        (1, Mark::Offer { n: 1 }, place(2)),
        (1, computed(1, 0), place(0)),
        (1, computed(1, 12), place(99)),
    ];
    let run = b.run(&requests, &intents).unwrap();
    // 12 positions are three blocks; nothing is allocated from 12 on.
    assert_eq!(inert(&run), [None, Some(Inert::SameAsDefault), Some(Inert::MarkNotReached)]);
    assert_eq!(run.sentinels.get(Sentinel::Placed), 1);
    assert_eq!(run.sentinels.get(Sentinel::FragmentedTable), 1);
    assert_unchanged(&b, &requests, &run);
    // The last of fewer: with one block in the pool, there is no choice.
    let run = bench(1).run(&[request(1, 0..3, 2)], &[(1, computed(1, 0), place(7))]).unwrap();
    assert_eq!(inert(&run), [Some(Inert::SameAsDefault)]);
}

#[test]
fn an_evicted_block_of_its_own_is_computed_again() {
    let b = bench(8);
    let requests = [request(1, 0..9, 4)];
    let evict = |block| (1, Mark::Offer { n: 2 }, Act::Evict { block });
    let run = b.run(&requests, &[(1, computed(1, 10), PREEMPT), evict(1)]).unwrap();
    assert_eq!(inert(&run), [None, None]);
    assert_eq!(run.sentinels.get(Sentinel::EvictChosen), 1);
    assert_eq!(run.sentinels.get(Sentinel::EvictReread), 1);
    let again = positions(&run, 1).iter().filter(|p| p.0 == 2).count();
    assert_eq!(again, 8, "positions 4 .. 12");
    assert_unchanged(&b, &requests, &run);
    // Not findable, twice the same, past the end of its tokens.
    let none = [(1, Mark::Offer { n: 1 }, Act::Evict { block: 0 })];
    assert_eq!(inert(&b.run(&requests, &none).unwrap()), [Some(Inert::SameAsDefault)]);
    let intents = [(1, computed(1, 10), PREEMPT), evict(0), evict(0), evict(2), evict(u32::MAX)];
    let run = b.run(&requests, &intents).unwrap();
    let same = Some(Inert::SameAsDefault);
    assert_eq!(inert(&run), [None, None, same, same, same]);
    let mut without = bench(8);
    without.world.prefix_cache = false;
    assert_eq!(inert(&without.run(&requests, &none).unwrap()), [same]);
}

/// A block that another request uses is not evicted.
#[test]
fn a_block_in_use_is_not_evicted() {
    let requests = [request(1, 0..9, 9), request(2, 0..9, 2)];
    let intents = [
        (2, Mark::Start, Act::Arrive { steps: 2 }),
        (2, Mark::Offer { n: 1 }, Act::Evict { block: 0 }),
    ];
    let run = bench(16).run(&requests, &intents).unwrap();
    assert_eq!(inert(&run), [None, Some(Inert::SameAsDefault)]);
    assert_eq!(run.sentinels.get(Sentinel::EvictChosen), 0);
    assert_eq!(run.sentinels.get(Sentinel::BlockShared), 2);
}

#[test]
fn steps_are_padded_to_their_bucket_and_the_schedule_picks_a_larger_one() {
    let mut b = bench(16);
    b.world.buckets = vec![3, 8, 17];
    let requests = [request(1, 0..9, 3), request(2, 3..12, 3)];
    let bucket = |tokens, extra| (1, computed(1, tokens), Act::Bucket { extra });
    let run = b.run(&requests, &[bucket(9, 1), bucket(10, 9)]).unwrap();
    let rows: Vec<u32> = run.steps.iter().map(|s| s.rows).collect();
    // 18 rows are more than the last bucket; then 2 rows in 8, and in 17 at most.
    assert_eq!(rows, [18, 8, 17]);
    assert_eq!(inert(&run), [None, None]);
    assert_eq!(run.sentinels.get(Sentinel::PaddedStep), 2);
    assert_eq!(run.sentinels.get(Sentinel::BucketChanged), 2);
    assert_unchanged(&b, &requests, &run);
    b.world.buckets.clear();
    let run = b.run(&requests, &[bucket(9, 1)]).unwrap();
    assert_eq!(inert(&run), [Some(Inert::SameAsDefault)]);
    assert_eq!(run.sentinels.get(Sentinel::PaddedStep), 0);
}

#[test]
fn a_bucket_whose_logits_do_not_fit_is_refused() {
    let mut b = bench(4);
    for buckets in [vec![0], vec![2, 2], vec![5, 4], vec![4097], (1..=65).collect()] {
        b.world.buckets = buckets;
        let error = b.run(&[request(1, [1], 1)], &[]).unwrap_err();
        assert!(matches!(&error, EngineError::BadInput(line) if !line.contains('\n')), "{error}");
    }
}

#[test]
fn a_late_chunk_keeps_its_request_out_of_other_steps() {
    let b = bench(16);
    let requests = [request(1, 0..9, 4), request(2, 20..25, 9)];
    let intents = [
        (1, computed(1, 0), Act::Cut { tokens: 5 }),
        (1, computed(1, 5), Act::Land { late: 3 }),
        (1, computed(1, 9), Act::Land { late: 1 }),
        (2, computed(1, 99), Act::Land { late: 1 }),
        (2, computed(1, 5), Act::Land { late: 0 }),
    ];
    let run = b.run(&requests, &intents).unwrap();
    let shapes: Vec<(u32, u32)> = run.steps.iter().map(|s| (s.rows, s.sequences)).collect();
    // Boundaries: 0 both; 1 the second chunk of 1 takes off; 2, 3; 4 lands after the step; 5 takes off again; 6 lands.
    let mut expected =
        vec![(10, 2), (1, 1), (1, 1), (1, 1), (1, 1), (4, 1), (1, 1), (1, 1), (1, 1)];
    expected.extend([(2, 2), (2, 2)]);
    assert_eq!(shapes, expected);
    let reasons = [None, None, None, Some(Inert::MarkNotReached), Some(Inert::SameAsDefault)];
    assert_eq!(inert(&run), reasons);
    assert_eq!(run.sentinels.get(Sentinel::LandedLate), 2);
    assert_eq!(run.sentinels.get(Sentinel::LandedAfterLeaving), 0);
    assert_unchanged(&b, &requests, &run);
}

/// A preemption falls between launch and landing. The blocks stay pinned, the result is dropped.
#[test]
fn a_flight_that_was_left_keeps_its_blocks_until_it_lands() {
    let mut b = bench(6);
    let requests = [request(1, 0..9, 4), request(2, 20..25, 6)];
    let intents = [(1, computed(1, 0), Act::Land { late: 3 }), (1, computed(1, 9), PREEMPT)];
    for poison in [false, true] {
        b.world.poison = poison;
        let run = b.run(&requests, &intents).unwrap();
        assert_eq!(inert(&run), [None, None]);
        assert_eq!(run.sentinels.get(Sentinel::LandedLate), 1);
        assert_eq!(run.sentinels.get(Sentinel::LandedAfterLeaving), 1);
        assert_eq!(positions(&run, 1).iter().filter(|p| p.0 == 1).count(), 0, "dropped");
        assert_unchanged(&b, &requests, &run);
    }
}

/// Poison changes no bit and no decision, and is there: freed blocks were filled.
#[test]
fn poison_changes_nothing() {
    let mut b = bench(7);
    b.world.buckets = vec![4, 16];
    let requests = [request(1, 0..9, 6), request(2, 0..5, 9), request(3, 0..9, 4)];
    let intents = [
        (1, computed(1, 10), PREEMPT),
        (2, computed(1, 7), PREEMPT),
        (2, computed(1, 5), Act::Land { late: 2 }),
        (1, Mark::Offer { n: 2 }, Act::Evict { block: 0 }),
    ];
    let clean = b.run(&requests, &intents).unwrap();
    b.world.poison = true;
    let poisoned = b.run(&requests, &intents).unwrap();
    assert_eq!(clean.outputs, poisoned.outputs);
    assert_eq!(clean.trajectory, poisoned.trajectory);
    assert_eq!(clean.sentinels.get(Sentinel::Poisoned), 0);
    assert!(poisoned.sentinels.get(Sentinel::Poisoned) > 0);
    assert_unchanged(&b, &requests, &poisoned);
}

/// Liveness: whatever flies, is held back and is preempted, everything finishes within the bound.
#[test]
fn a_storm_of_late_landings_in_the_smallest_pool_finishes() {
    let requests: Vec<Request> = (1..=6).map(|uid| request(uid, 0..(uid as u32 + 2), 5)).collect();
    let mut intents = Vec::new();
    for uid in 1..=6u64 {
        for residency in 1..=4 {
            for tokens in 0..6 {
                let late = (uid as u32 + tokens) % 4;
                intents.push((uid, computed(residency, tokens), Act::Land { late }));
                intents.push((uid, computed(residency, tokens), place(tokens)));
            }
            intents.push((uid, computed(residency, 3 + residency), PREEMPT));
            intents.push((uid, Mark::Offer { n: residency }, Act::Evict { block: 0 }));
            intents.push((uid, computed(residency, 1), Act::Victim));
        }
    }
    for poison in [false, true] {
        let mut b = bench(3);
        b.world.poison = poison;
        let run = b.run(&requests, &intents).unwrap();
        let workload = Workload { requests: requests.clone() };
        let schedule = Schedule {
            intents: intents
                .iter()
                .map(|&(uid, mark, act)| Intent { uid, sample: 0, mark, act })
                .collect(),
        };
        assert!((run.trajectory.boundaries.len() as u64) < boundary_bound(&workload, &schedule));
        assert!(run.sentinels.get(Sentinel::LandedAfterLeaving) > 0);
        assert_unchanged(&b, &requests, &run);
    }
}

/// A sample in flight writes to a block that nobody may share: it is not forked from.
#[test]
fn a_sample_in_flight_is_not_forked_from() {
    let b = bench(16);
    let mut two = request(1, 0..10, 5);
    two.samples = 2;
    let intents = |late| {
        let intent = |sample, mark, act| Intent { uid: 1, sample, mark, act };
        vec![
            intent(1, Mark::Offer { n: 1 }, Act::Hold { steps: 2 }),
            intent(0, computed(1, 10), Act::Land { late }),
            intent(1, Mark::Offer { n: 2 }, Act::Fork),
        ]
    };
    for (late, expected) in [(0, None), (3, Some(Inert::NoSibling))] {
        let schedule = Schedule { intents: intents(late) };
        let workload = Workload { requests: vec![two.clone()] };
        let run = execute(&b.model, &b.world, &workload, &schedule, 5, None).unwrap();
        assert_eq!(inert(&run)[2], expected);
        assert_eq!(run.sentinels.get(Sentinel::Fork), u64::from(late == 0));
    }
}

/// Swap and abort while a chunk is in flight: what it computes is dropped, and the ledgers are at base in the end.
#[test]
fn swap_and_abort_may_fall_between_launch_and_landing() {
    let mut b = bench(8);
    b.world.swap_blocks = 4;
    let requests = [request(1, 0..9, 5), request(2, 20..25, 6)];
    let swap = Act::Preempt { kind: PreemptKind::Swap, away: 0 };
    for (act, computed_again) in [(swap, true), (Act::Abort, false)] {
        let intents = [(1, computed(1, 9), Act::Land { late: 2 }), (1, computed(1, 10), act)];
        let run = b.run(&requests, &intents).unwrap();
        assert_eq!(inert(&run), [None, None]);
        assert_eq!(run.sentinels.get(Sentinel::LandedAfterLeaving), 1);
        let of_position_9 = positions(&run, 1).iter().filter(|p| p.1 == 9).count();
        assert_eq!(of_position_9, usize::from(computed_again));
        assert_unchanged(&b, &requests[usize::from(!computed_again)..], &run);
    }
}
