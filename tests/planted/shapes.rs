//! Two public shapes of faults, as tests of their own: a cached prefix of exactly one block inside a mixed batch, and a
//! request that needs one block more than the pool has.

use lockstep::case::Case;
use lockstep::contract::Mode;
use lockstep::fixture::Fixture;
use lockstep::harness::shrink::failure_of;
use lockstep::record::{Finish, Run, Sentinel};
use lockstep::relation::RELATIONS;
use lockstep::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use lockstep::subject::{Subject, SubjectError};
use lockstep::weights;
use lockstep::workload::{Request, SampleId, Workload};
use lockstep::world::World;

use super::faulty::Fault;
use super::{Bug, Engine, size};

fn host() -> Fixture<lockstep::device::host::Host> {
    Fixture::host("tiny", weights::source("tiny", None).unwrap(), Mode::Invariant).unwrap()
}

/// A sequence that decodes, and one that arrives a step later with `cached` tokens of the same beginning and two more.
fn mixed(world: World, cached: usize) -> Case {
    let long = 3 * world.block_size;
    let prompt: Vec<u32> = (0..long).map(|i| 7 * i % 250).collect();
    let mut other = prompt[..cached].to_vec();
    other.extend([251, 252]);
    let request = |uid, prompt, max_tokens| Request {
        ignore_eos: true,
        ..Request::new(uid, prompt, max_tokens)
    };
    let late = Intent { uid: 2, sample: 0, mark: Mark::Start, act: Act::Arrive { steps: 1 } };
    Case {
        world: World { pool_blocks: 16, ..world },
        workload: Workload { requests: vec![request(1, prompt, 4), request(2, other, 2)] },
        schedule: Schedule { intents: vec![late] },
        seed: 0,
    }
}

fn run(subject: &dyn Subject, case: &Case) -> Result<Run, SubjectError> {
    let Case { world, workload, schedule, seed } = case;
    subject.execute(world, workload, schedule, *seed, None)
}

/// Goal: the shape itself is sound. Method: prefixes of one block and a token less and more, of none and of two, beside a
/// sequence that decodes, must hold every relation; with the fault the one of exactly one block alone must not.
#[test]
fn a_prefix_of_exactly_one_block_in_a_mixed_batch() {
    let sound = host();
    let faulty = Engine::new(Bug::Device(Fault::OneBlockShared));
    let block = sound.default_world().block_size as usize;
    for (cached, hit) in [(1, 0), (block - 1, 0), (block, 1), (block + 1, 1), (2 * block, 2)] {
        let case = mixed(sound.default_world(), cached);
        let found = run(&sound, &case).unwrap();
        assert_eq!(found.sentinels.get(Sentinel::HitTokensSaved), u64::from(hit > 0), "{cached}");
        // The second step has both: a row that is decoded, and the chunk behind the hit.
        let rows = 1 + cached + 2 - hit * block;
        assert_eq!((found.steps[1].rows, found.steps[1].sequences), (rows as u32, 2), "{cached}");
        for relation in RELATIONS {
            let failure = failure_of(&sound, relation, &case).unwrap();
            assert!(failure.is_none(), "{}, {cached} cached: {failure:?}", relation.id);
        }
        let case = mixed(faulty.default_world(), cached);
        let broken = RELATIONS
            .iter()
            .filter(|r| r.id != "D1")
            .any(|r| failure_of(&faulty, r, &case).unwrap().is_some());
        assert_eq!(broken, hit == 1, "{cached} cached");
    }
}

/// Goal: campaigns find the fault and shrink it to the shape: each to a case in which nothing can be left out, and most
/// of them to the minimum, which is derived in `bugs.rs`.
#[test]
fn campaigns_find_the_prefix_of_one_block_and_shrink_it() {
    let engine = Engine::new(Bug::Device(Fault::OneBlockShared));
    let mut sizes = Vec::new();
    let mut reached = 0;
    for seed in 11..16 {
        let report = engine.campaign(seed, "I2.prefix");
        let failure = report.failure.expect("the campaign finds it");
        let shrunk = failure.shrunk.expect("it repeats");
        assert!(shrunk.minimal);
        let block = shrunk.case.world.block_size as usize;
        sizes.push(size(&shrunk.case));
        reached += usize::from(size(&shrunk.case) == (2, 1, 2 * block + 5));
    }
    assert!(reached >= 3, "{sizes:?}");
}

/// A request that needs `blocks` blocks to its last position, of which the pool has `pool`.
fn exact(world: World, blocks: u32, pool: u32, samples: u32, swap: bool) -> Case {
    let positions = blocks * world.block_size;
    let prompt: Vec<u32> = (0..positions - 2).map(|i| 5 * i % 250).collect();
    let away = Intent {
        uid: 1,
        sample: 0,
        mark: Mark::Computed { residency: 1, tokens: 1 },
        act: Act::Preempt { kind: PreemptKind::Swap, away: 1 },
    };
    let request = Request { samples, ignore_eos: true, ..Request::new(1, prompt, 3) };
    Case {
        world: World { pool_blocks: pool, swap_blocks: if swap { blocks } else { 0 }, ..world },
        workload: Workload { requests: vec![request] },
        schedule: Schedule { intents: if swap { vec![away] } else { Vec::new() } },
        seed: 0,
    }
}

/// Goal: a request that can never fit is refused before anything runs, and one that just fits runs. Method: pools of exactly
/// what it needs and of one block less, alone, with samples that must take turns, and swapped out and back.
#[test]
fn one_block_more_than_the_pool_has() {
    let subject = host();
    for blocks in [1, 2, 5] {
        for (samples, swap) in [(1, false), (3, false), (1, true), (3, true)] {
            let world = subject.default_world();
            let case = exact(world.clone(), blocks, blocks, samples, swap);
            let found = run(&subject, &case).unwrap();
            assert_eq!(found.outputs.len(), samples as usize);
            for sample in 0..samples {
                let output = &found.outputs[&SampleId { uid: 1, sample }];
                assert_eq!((output.tokens.len(), output.finish), (3, Some(Finish::Length)));
            }
            assert_eq!(found.sentinels.get(Sentinel::SwapIn), u64::from(swap));
            for relation in RELATIONS {
                let failure = failure_of(&subject, relation, &case).unwrap();
                assert!(failure.is_none(), "{}: {failure:?}", relation.id);
            }
            if blocks > 1 {
                let error = run(&subject, &exact(world, blocks, blocks - 1, samples, swap));
                let Err(SubjectError::BadInput(why)) = error else { panic!("{error:?}") };
                let pool = blocks - 1;
                assert_eq!(
                    why,
                    format!(
                        "request 1 needs {blocks} blocks, the pool has {pool}: it can never fit"
                    )
                );
            }
        }
    }
}
