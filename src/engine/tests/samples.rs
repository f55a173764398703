//! Several samples a request, and forks with copy-on-write.

use crate::contract::sampler::{seeded_key, unseeded_key};
use crate::engine::sequence::Sequence;
use crate::workload::SampleId;

use super::*;

impl Bench {
    /// Runs a workload under intents that name samples.
    pub(super) fn run_samples(
        &self,
        requests: &[Request],
        intents: &[(u64, u32, Mark, Act)],
    ) -> Result<Run, EngineError> {
        let workload = Workload { requests: requests.to_vec() };
        let intent = |&(uid, sample, mark, act): &_| Intent { uid, sample, mark, act };
        let schedule = Schedule { intents: intents.iter().map(intent).collect() };
        execute(&self.model, &self.world, &workload, &schedule, 5, None)
    }

    /// What each sample did is, bit for bit, what it does alone, or a part of that if it was aborted.
    pub(super) fn assert_as_alone(&self, requests: &[Request], run: &Run) {
        let workload = Workload { requests: requests.to_vec() };
        for (id, got) in &run.outputs {
            let alone = self.run_samples(&workload.alone(*id).requests, &[]).unwrap();
            let expected = &alone.outputs[id];
            if got.finish == Some(Finish::Aborted) {
                assert!(expected.tokens.starts_with(&got.tokens), "{id}");
            } else {
                assert_eq!((&got.tokens, got.finish), (&expected.tokens, expected.finish), "{id}");
            }
            for bits in &got.positions {
                let same = expected.positions.iter().find(|p| p.position == bits.position).unwrap();
                assert_eq!(bits.logits, same.logits, "{id}, {}", bits.position);
            }
            for bits in &got.kv {
                let same = expected.kv.iter().find(|kv| kv.position == bits.position).unwrap();
                assert_eq!(bits.layers, same.layers, "{id}, {bits:?}");
            }
        }
    }
}

const fn id(uid: u64, sample: u32) -> SampleId {
    SampleId { uid, sample }
}

/// A request with `samples` samples that are not greedy.
fn sampled(uid: u64, prompt: impl IntoIterator<Item = u32>, max: u32, samples: u32) -> Request {
    let mut request = Request { samples, ..request(uid, prompt, max) };
    request.sampling.temperature = 1.5;
    request
}

const OFFER: Mark = Mark::Offer { n: 1 };

const fn arrive(steps: u32) -> Act {
    Act::Arrive { steps }
}

#[test]
fn samples_draw_with_keys_of_their_own_and_each_is_what_it_is_alone() {
    let b = bench(32);
    for seed in [None, Some(7)] {
        let requests = [Request { seed, ..sampled(3, 0..6, 8, 3) }, sampled(4, 0..6, 8, 1)];
        let run = b.run_samples(&requests, &[]).unwrap();
        let ids: Vec<SampleId> = run.outputs.keys().copied().collect();
        assert_eq!(ids, [id(3, 0), id(3, 1), id(3, 2), id(4, 0)]);
        assert_ne!(run.outputs[&id(3, 0)].tokens, run.outputs[&id(3, 1)].tokens);
        assert_ne!(run.outputs[&id(3, 1)].tokens, run.outputs[&id(3, 2)].tokens);
        b.assert_as_alone(&requests, &run);
        let key = Sequence::new(&requests[0], id(3, 2), 5).key;
        assert_eq!(key, seed.map_or(unseeded_key(5, 2, 3), |seed| seeded_key(seed, 2)));
    }
}

/// The prompt is 7 tokens: a fork takes over 6 positions, the last two of them in a block that is not full.
#[test]
fn a_fork_shares_the_partial_block_and_whoever_writes_first_copies_it() {
    let b = bench(16);
    let requests = [sampled(1, 0..7, 6, 2)];
    let fork = [(1, 1, Mark::Start, arrive(1)), (1, 1, OFFER, Act::Fork)];
    let run = b.run_samples(&requests, &fork).unwrap();
    assert_eq!(inert(&run), [None, None]);
    let count = |run: &Run, sentinel| run.sentinels.get(sentinel);
    assert_eq!((count(&run, Sentinel::Fork), count(&run, Sentinel::ForkPartial)), (1, 1));
    assert_eq!((count(&run, Sentinel::CowCopy), count(&run, Sentinel::CowByParent)), (1, 1));
    assert_eq!(run.outputs[&id(1, 1)].rows_computed, 1 + 5);
    let forked = run.outputs[&id(1, 1)].kv.iter().filter(|kv| kv.moment == KvMoment::Forked);
    assert_eq!(forked.map(|kv| kv.position).collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
    b.assert_as_alone(&requests, &run);
    // The elder one stands still: now it is the younger one that writes first.
    let mut stalled = fork.to_vec();
    stalled.push((1, 0, computed(1, 7), Act::Stall { steps: 2 }));
    let run = b.run_samples(&requests, &stalled).unwrap();
    assert_eq!((count(&run, Sentinel::CowCopy), count(&run, Sentinel::CowByParent)), (1, 0));
    b.assert_as_alone(&requests, &run);
}

#[test]
fn three_samples_of_a_block_need_two_copies_also_in_a_chain_of_forks() {
    let b = bench(16);
    let requests = [sampled(1, 0..6, 9, 3)];
    let intents = [
        (1, 1, Mark::Start, arrive(2)),
        (1, 2, Mark::Start, arrive(2)),
        (1, 1, OFFER, Act::Fork),
        (1, 2, OFFER, Act::Fork),
    ];
    let run = b.run_samples(&requests, &intents).unwrap();
    assert_eq!(inert(&run), [None; 4]);
    assert_eq!(run.sentinels.get(Sentinel::Fork), 2);
    assert_eq!(run.sentinels.get(Sentinel::CowCopy), 2);
    b.assert_as_alone(&requests, &run);
    // The first one has left: the third can only fork from the second.
    let mut chain = intents.to_vec();
    chain[1].3 = arrive(4);
    chain.push((1, 0, computed(1, 9), Act::Abort));
    let run = b.run_samples(&requests, &chain).unwrap();
    assert_eq!(inert(&run), [None; 5]);
    b.assert_as_alone(&requests, &run);
}

#[test]
fn a_fork_that_changes_nothing_or_has_nobody_is_inert() {
    let b = bench(16);
    // The cache serves whole blocks of all but the last token: here that is all that a fork could take over.
    let requests = [sampled(1, 0..9, 6, 2)];
    let same = [(1, 1, Mark::Start, arrive(1)), (1, 1, OFFER, Act::Fork)];
    let run = b.run_samples(&requests, &same).unwrap();
    assert_eq!(inert(&run), [None, Some(Inert::SameAsDefault)]);
    assert_eq!(run.sentinels.get(Sentinel::Fork), 0);
    let nobody = [
        (1, 1, OFFER, Act::Fork),
        (1, 0, OFFER, Act::Fork),
        (1, 1, computed(1, 3), Act::Fork),
        (1, 5, OFFER, Act::Fork),
    ];
    let run = b.run_samples(&requests, &nobody).unwrap();
    let expected = [Inert::NoSibling, Inert::WrongMark, Inert::WrongMark, Inert::NoSuchRequest];
    assert_eq!(inert(&run), expected.map(Some));
    // A prompt of one token leaves nothing to share.
    let one = [sampled(1, [3], 6, 2)];
    let run = b.run_samples(&one, &same).unwrap();
    assert_eq!(inert(&run), [None, Some(Inert::NoSibling)]);
}

/// A block that the elder one had filled and published is shared as a partial one; the elder one finishes before the
/// younger one writes. The block must then be unfindable, or others would be served what is written over.
#[test]
fn a_findable_block_is_not_written() {
    let mut b = bench(16);
    b.world.token_budget = Some(1);
    let request = sampled(1, 0..10, 4, 2);
    let alone = b.run_samples(&[Request { samples: 1, ..request.clone() }], &[]).unwrap();
    let prompt: Vec<u32> = (0..10).chain(alone.first(1).unwrap().tokens.clone()).collect();
    let requests = [request, sampled(2, prompt, 2, 1)];
    let intents = [
        (1, 1, Mark::Start, arrive(12)),
        (1, 1, OFFER, Act::Fork),
        (2, 0, Mark::Start, arrive(15)),
    ];
    let run = b.run_samples(&requests, &intents).unwrap();
    assert_eq!(inert(&run), [None; 3]);
    assert_eq!((run.sentinels.get(Sentinel::Fork), run.sentinels.get(Sentinel::CowCopy)), (1, 0));
    // Two blocks of the prompt are served, the third is not there any more.
    assert_eq!(run.outputs[&id(2, 0)].rows_computed, 14 - 8 + 1);
    b.assert_as_alone(&requests, &run);
}

/// Liveness: in the smallest pool a copy has to be paid with somebody's residency, at worst with one's own.
#[test]
fn a_storm_of_forks_in_the_smallest_pools_finishes_and_changes_nothing() {
    for pool in [4, 5, 7] {
        let b = bench(pool);
        let requests = [sampled(1, 0..7, 8, 4), sampled(2, 0..6, 6, 2)];
        let mut intents = Vec::new();
        for (uid, samples) in [(1, 4), (2, 2)] {
            for sample in 1..samples {
                intents.push((uid, sample, Mark::Start, arrive(sample)));
            }
            for sample in 0..samples {
                for n in 1..6 {
                    intents.push((uid, sample, Mark::Offer { n }, Act::Fork));
                    intents.push((uid, sample, computed(n, 5 + n), PREEMPT));
                }
            }
        }
        let run = b.run_samples(&requests, &intents).unwrap();
        assert!(run.sentinels.get(Sentinel::Fork) > 0, "{pool}");
        assert!(run.outputs.values().all(|o| o.finish == Some(Finish::Length)), "{pool}");
        b.assert_as_alone(&requests, &run);
    }
}
