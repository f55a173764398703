//! The engine's scheduling on `tiny`, decision by decision.

use crate::contract::{MatrixUnit, Mode};
use crate::device::host::Host;
use crate::record::{Finish, Inert, KvMoment, Run, Sentinel};
use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use crate::weights;
use crate::workload::{Request, Workload};
use crate::world::World;

use super::{DeviceModel, EngineError, boundary_bound, contract_of, execute};

mod captures;
mod decisions;
mod landing;
mod leaving;
mod live;
mod samples;

struct Bench {
    model: DeviceModel<Host>,
    world: World,
}

/// `tiny` with a pool of `pool_blocks` blocks of 4.
fn bench(pool_blocks: u32) -> Bench {
    let model = weights::open("tiny", None).unwrap();
    let (contract, rope) = contract_of(&model.config, model.dtype, MatrixUnit::SM90, 512);
    let device = DeviceModel::upload(&model, Host::new(contract), &rope).unwrap();
    let world = World {
        model: "tiny".into(),
        model_digest: device.digest().into(),
        dtype: model.dtype,
        mode: Mode::Invariant,
        block_size: 4,
        pool_blocks,
        token_budget: None,
        prefix_cache: true,
        hash_bits: 64,
        swap_blocks: 0,
        buckets: Vec::new(),
        poison: false,
    };
    Bench { model: device, world }
}

fn request(uid: u64, prompt: impl IntoIterator<Item = u32>, max_tokens: u32) -> Request {
    let prompt: Vec<u32> = prompt.into_iter().collect();
    Request { ignore_eos: true, ..Request::new(uid, prompt, max_tokens) }
}

fn computed(residency: u32, tokens: u32) -> Mark {
    Mark::Computed { residency, tokens }
}

const PREEMPT: Act = Act::Preempt { kind: PreemptKind::Recompute, away: 0 };

impl Bench {
    fn run(&self, requests: &[Request], intents: &[(u64, Mark, Act)]) -> Result<Run, EngineError> {
        let workload = Workload { requests: requests.to_vec() };
        let intents =
            intents.iter().map(|&(uid, mark, act)| Intent { uid, sample: 0, mark, act }).collect();
        execute(&self.model, &self.world, &workload, &Schedule { intents }, 5, None)
    }
}

/// Positions computed for a request, in order.
fn positions(run: &Run, uid: u64) -> Vec<(u32, u32)> {
    run.first(uid).unwrap().positions.iter().map(|p| (p.residency, p.position)).collect()
}

fn inert(run: &Run) -> Vec<Option<Inert>> {
    run.intents.iter().map(|o| o.inert).collect()
}

#[test]
fn the_smallest_request_takes_one_step_and_one_block() {
    let run = bench(1).run(&[request(1, [7], 1)], &[]).unwrap();
    assert_eq!(run.steps.len(), 1);
    let output = &run.first(1).unwrap();
    assert_eq!((output.tokens.len(), output.finish), (1, Some(Finish::Length)));
    assert_eq!((output.rows_computed, output.kv_due), (1, 1));
    assert_eq!(output.kv[0].layers.len(), 2);
}

/// A public fault shape: a request that needs one block more than the pool has hangs instead of being refused.
#[test]
fn a_request_that_needs_one_block_more_than_the_pool_is_refused_with_the_numbers() {
    // 8 prompt tokens and 5 generated ones are 12 positions: the last token drawn is never fed back.
    let fits = request(1, 0..8, 5);
    assert!(bench(3).run(std::slice::from_ref(&fits), &[]).is_ok());
    let error = bench(2).run(&[fits], &[]).unwrap_err();
    let EngineError::BadInput(line) = error else { panic!("{error}") };
    assert_eq!(line, "request 1 needs 3 blocks, the pool has 2: it can never fit");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let b = bench(64);
    let cases = [
        vec![],
        vec![request(1, [], 1)],
        vec![request(1, [1], 0)],
        vec![request(1, [264], 1)],
        vec![request(1, [1], 1), request(1, [2], 1)],
        vec![request(1, [1], 4096)],
    ];
    for requests in cases {
        let error = b.run(&requests, &[]).unwrap_err();
        assert!(matches!(&error, EngineError::BadInput(line) if !line.contains('\n')), "{error}");
    }
}

#[test]
fn a_cut_splits_the_prefill_where_it_says() {
    let cuts =
        [(1, computed(1, 0), Act::Cut { tokens: 3 }), (1, computed(1, 3), Act::Cut { tokens: 2 })];
    let run = bench(8).run(&[request(1, 0..9, 2)], &cuts).unwrap();
    let rows: Vec<u32> = run.steps.iter().map(|s| s.rows).collect();
    assert_eq!(rows, [3, 2, 4, 1]);
    assert_eq!(run.sentinels.get(Sentinel::Cut), 2);
    assert_eq!(inert(&run), [None, None]);
    // A cut longer than what is left changes nothing, and says so.
    let long = [(1, computed(1, 0), Act::Cut { tokens: 9 })];
    let run = bench(8).run(&[request(1, 0..9, 2)], &long).unwrap();
    assert_eq!(inert(&run), [Some(Inert::SameAsDefault)]);
    assert_eq!(run.sentinels.get(Sentinel::Cut), 0);
}

#[test]
fn a_preempted_request_computes_again_what_the_cache_does_not_hold() {
    let run = bench(8).run(&[request(1, 0..9, 4)], &[(1, computed(1, 10), PREEMPT)]).unwrap();
    let mut expected: Vec<(u32, u32)> = (0..10).map(|p| (1, p)).collect();
    // Blocks 0 and 1 are whole and come back as a hit; positions 8 to 10 are one prefill chunk.
    expected.extend((8..12).map(|p| (2, p)));
    assert_eq!(positions(&run, 1), expected);
    assert_eq!(run.sentinels.get(Sentinel::HitTokensSaved), 1);
    assert_eq!(run.sentinels.get(Sentinel::ScoredInPrefill), 2);
    let attached: Vec<u32> = run
        .first(1)
        .unwrap()
        .kv
        .iter()
        .filter(|kv| kv.moment == KvMoment::Attached)
        .map(|kv| kv.position)
        .collect();
    assert_eq!(attached, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_refused_hit_computes_everything_again() {
    let intents =
        [(1, computed(1, 10), PREEMPT), (1, Mark::Offer { n: 2 }, Act::Hit { at_most: 0 })];
    let run = bench(8).run(&[request(1, 0..9, 4)], &intents).unwrap();
    assert_eq!(inert(&run), [None, None]);
    assert_eq!(run.sentinels.get(Sentinel::HitRefused), 1);
    let again = positions(&run, 1).iter().filter(|p| p.0 == 2).count();
    assert_eq!(again, 12);
}

#[test]
fn preemption_can_strike_in_the_middle_of_a_prefill_and_again_in_the_next_one() {
    let intents = [
        (1, computed(1, 0), Act::Cut { tokens: 3 }),
        (1, computed(1, 3), PREEMPT),
        (1, computed(2, 0), Act::Cut { tokens: 2 }),
        (1, computed(2, 2), PREEMPT),
    ];
    let run = bench(8).run(&[request(1, 0..9, 2)], &intents).unwrap();
    assert_eq!(inert(&run), [None; 4]);
    assert_eq!(run.sentinels.get(Sentinel::PreemptMidPrefill), 2);
    assert_eq!(run.sentinels.get(Sentinel::PreemptAgain), 1);
    assert_eq!(positions(&run, 1).iter().filter(|p| p.0 == 3).count(), 10);
}

/// A public fault shape: a prefix of exactly one block, inside a mixed batch.
#[test]
fn a_prefix_of_exactly_one_block_is_shared_while_its_owner_runs() {
    let first = request(1, [9, 8, 7, 6, 5], 8);
    for (prompt, saved) in [(vec![9, 8, 7, 6], 0), (vec![9, 8, 7, 6, 1], 4), (vec![9, 8, 7], 0)] {
        let length = prompt.len();
        let intents = [(2, Mark::Start, Act::Arrive { steps: 2 })];
        let run = bench(16).run(&[first.clone(), request(2, prompt, 2)], &intents).unwrap();
        assert_eq!(run.first(2).unwrap().rows_computed as usize, length + 1 - saved, "{length}");
        assert_eq!(run.sentinels.get(Sentinel::BlockShared), u64::from(saved > 0));
    }
}

#[test]
fn held_requests_wait_and_stalled_ones_sit_out() {
    let requests = [request(1, 0..4, 4), request(2, 10..14, 4)];
    let intents = [
        (1, Mark::Offer { n: 1 }, Act::Hold { steps: 2 }),
        (2, computed(1, 5), Act::Stall { steps: 1 }),
    ];
    let run = bench(8).run(&requests, &intents).unwrap();
    assert_eq!(inert(&run), [None, None]);
    assert_eq!(run.sentinels.get(Sentinel::AdmitRefused), 1);
    // Boundaries 0 and 1: only request 2. Boundary 2: request 1's prefill, request 2 stalled.
    let shapes: Vec<(u32, u32)> = run.steps.iter().map(|s| (s.rows, s.sequences)).collect();
    assert_eq!(shapes, [(4, 1), (1, 1), (4, 1), (2, 2), (2, 2), (1, 1)]);
}

#[test]
fn a_rank_moves_the_rows() {
    let requests = [request(1, 0..4, 4), request(2, 10..14, 4)];
    let run = bench(8).run(&requests, &[(1, computed(1, 4), Act::Rank { to: 1 })]).unwrap();
    assert_eq!(run.sentinels.get(Sentinel::RowMoved), 2);
}

/// Three requests outgrow the pool; the default takes the youngest, the schedule somebody else.
#[test]
fn pool_pressure_takes_the_youngest_unless_the_schedule_prefers_another() {
    let requests: Vec<Request> =
        (1..=3).map(|uid| request(uid, (0..4).map(|t| t + 20 * uid as u32), 6)).collect();
    let evicted = |run: &Run| -> Vec<u64> {
        let outputs = run.outputs.iter();
        let again = outputs.filter(|(_, o)| o.positions.iter().any(|p| p.residency > 1));
        again.map(|(id, _)| id.uid).collect()
    };
    let default = bench(4).run(&requests, &[]).unwrap();
    assert!(default.sentinels.get(Sentinel::PreemptForRoom) > 0);
    assert!(evicted(&default).contains(&3));
    let run = bench(4).run(&requests, &[(2, computed(1, 1), Act::Victim)]).unwrap();
    assert_eq!(inert(&run), [None]);
    assert!(evicted(&run).contains(&2));
}

/// Totality: any intents at all can be executed, those that make no sense are inert with a reason, and everything
/// finishes within the bound.
#[test]
fn senseless_schedules_are_inert_and_finish() {
    let requests = [request(1, 0..6, 3), request(2, 3..9, 3)];
    let intents = [
        (9, Mark::Start, Act::Arrive { steps: 3 }),
        (1, Mark::Start, Act::Cut { tokens: 1 }),
        (1, Mark::Offer { n: 7 }, Act::Hold { steps: 1 }),
        (1, computed(4, 0), PREEMPT),
        (2, computed(1, 4000), PREEMPT),
        (2, computed(1, 0), Act::Victim),
        (2, Mark::Offer { n: 1 }, Act::Hit { at_most: 3 }),
    ];
    let run = bench(32).run(&requests, &intents).unwrap();
    let reasons = [
        Some(Inert::NoSuchRequest),
        Some(Inert::WrongMark),
        Some(Inert::MarkNotReached),
        Some(Inert::MarkNotReached),
        Some(Inert::MarkNotReached),
        Some(Inert::NeverAsked),
        Some(Inert::SameAsDefault),
    ];
    assert_eq!(inert(&run), reasons);
}

/// Liveness under the tightest pool: every request is preempted again and again, and still all finish in the bound.
#[test]
fn a_storm_in_the_smallest_pool_finishes() {
    let requests: Vec<Request> = (1..=6).map(|uid| request(uid, 0..(uid as u32 + 2), 5)).collect();
    let mut intents = Vec::new();
    for uid in 1..=6 {
        for residency in 1..=4 {
            intents.push((uid, computed(residency, residency), PREEMPT));
            intents.push((uid, computed(residency, 0), Act::Cut { tokens: 1 }));
            intents.push((uid, Mark::Offer { n: residency }, Act::Hit { at_most: 0 }));
        }
    }
    let run = bench(3).run(&requests, &intents).unwrap();
    let workload = Workload { requests };
    let schedule = Schedule {
        intents: intents
            .iter()
            .map(|&(uid, mark, act)| Intent { uid, sample: 0, mark, act })
            .collect(),
    };
    assert!((run.trajectory.boundaries.len() as u64) < boundary_bound(&workload, &schedule));
    assert!(run.outputs.values().all(|o| o.tokens.len() == 5));
}

#[test]
fn a_token_budget_is_shared_by_the_step() {
    let mut b = bench(16);
    b.world.token_budget = Some(5);
    let run = b.run(&[request(1, 0..8, 2), request(2, 8..12, 2)], &[]).unwrap();
    assert!(run.steps.iter().all(|s| s.rows <= 5));
    assert_eq!(run.steps[0].rows, 5);
}

#[test]
fn without_a_prefix_cache_nothing_is_attached() {
    let mut b = bench(16);
    b.world.prefix_cache = false;
    let run = b.run(&[request(1, 0..9, 4)], &[(1, computed(1, 10), PREEMPT)]).unwrap();
    assert_eq!(run.sentinels.get(Sentinel::HitTokensSaved), 0);
    assert_eq!(run.first(1).unwrap().rows_computed, 10 + 12);
}

#[test]
fn the_same_inputs_give_the_same_run_and_another_seed_other_draws() {
    let b = bench(16);
    let mut sampled = request(1, 0..8, 8);
    sampled.sampling.temperature = 1.5;
    let workload = Workload { requests: vec![sampled] };
    let run =
        |seed| execute(&b.model, &b.world, &workload, &Schedule::default(), seed, None).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).first(1).unwrap().tokens, run(2).first(1).unwrap().tokens);
    assert_ne!(run(1).trajectory.hash(), run(2).trajectory.hash());
}

/// The events of a sequence, by name.
fn life(run: &Run, uid: u64) -> Vec<&'static str> {
    run.life.iter().filter(|e| e.id.uid == uid).map(|e| e.event.name()).collect()
}

#[test]
fn lifecycle_events_come_in_the_order_in_which_they_happen() {
    let cuts = [
        (1, Mark::Offer { n: 1 }, Act::Hold { steps: 1 }),
        (1, computed(1, 0), Act::Cut { tokens: 3 }),
        (1, computed(1, 9), PREEMPT),
    ];
    let run = bench(8).run(&[request(1, 0..9, 2)], &cuts).unwrap();
    let expected = [
        "arrive",
        "admit_refused",
        "admit",
        "chunk",
        "chunk",
        "publish",
        "preempt_recompute",
        "resume",
        "cache_hit",
        "chunk",
        "finish_length",
    ];
    assert_eq!(life(&run, 1), expected);
    let table = crate::lifecycle::transitions();
    let mut from = crate::lifecycle::State::Absent;
    for e in &run.life {
        let t = crate::lifecycle::Transition { from, event: e.event, to: e.state };
        assert!(table.contains(&t), "{t}");
        from = e.state;
    }
}
