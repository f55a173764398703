//! Each rule against a planted corruption.

use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use crate::workload::{Request, Workload};
use crate::world::World;

use super::super::scheduler::Granules;
use super::*;

/// A scheduler with two requests, and audits that have seen all of it.
struct Bench {
    scheduler: Scheduler,
    auditor: Auditor,
}

fn bench(intents: Vec<Intent>) -> Bench {
    let request = |uid: u64| {
        let prompt: Vec<u32> = (0..6).map(|t| t + 10 * uid as u32).collect();
        Request { ignore_eos: true, ..Request::new(uid, prompt, 8) }
    };
    let world = World::of_blocks([4, 9, 4]);
    let workload = Workload { requests: vec![request(1), request(2)] };
    let granules = Granules { tile: 16, split: 32, vocab: 264, positions_max: 512 };
    let schedule = Schedule { intents };
    Bench {
        scheduler: Scheduler::new(&world, &workload, &schedule, 0, granules, &[]),
        auditor: Auditor::new(world.pool_blocks, world.block_size),
    }
}

fn tables_of(s: &Scheduler, step: &[Slice]) -> Vec<Vec<BlockId>> {
    step.iter().map(|slice| s.blocks(slice).to_vec()).collect()
}

impl Bench {
    fn follow(&mut self) {
        for deed in std::mem::take(&mut self.scheduler.deeds) {
            self.auditor.follow(&deed).unwrap();
        }
    }

    fn launch(&mut self, step: &[Slice], tables: &[Vec<BlockId>], left: bool) -> Audited {
        self.auditor.before_launch(&self.scheduler, Launch { slices: step, tables, left })
    }

    /// One boundary, with token 0 drawn wherever one is.
    fn step(&mut self) {
        let step = self.scheduler.boundary();
        let tables = tables_of(&self.scheduler, &step);
        self.follow();
        self.launch(&step, &tables, false).unwrap();
        let draws = vec![Some(0); step.iter().filter(|s| self.scheduler.draws(s)).count()];
        self.scheduler.commit(&step, &draws);
        self.auditor.after_step(&self.scheduler).unwrap();
    }

    /// The rule that is named once `corrupt` has done its work.
    fn rule(corrupt: impl FnOnce(&mut Scheduler)) -> &'static str {
        let mut bench = bench(Vec::new());
        bench.step();
        bench.step();
        corrupt(&mut bench.scheduler);
        bench.auditor.after_step(&bench.scheduler).unwrap_err().rule
    }
}

#[test]
fn an_honest_run_passes_to_its_end() {
    let mut bench = bench(Vec::new());
    while !bench.scheduler.is_done() {
        bench.step();
    }
    bench.scheduler.check_idle().unwrap();
}

#[test]
fn a_leaked_and_a_stolen_reference_are_named_by_the_ledger() {
    let leaked = |s: &mut Scheduler| {
        let block = s.sequences[0].blocks[0];
        s.pool.share(block);
    };
    assert_eq!(Bench::rule(leaked), "ledger");
    let stolen = |s: &mut Scheduler| {
        let block = s.sequences[0].blocks[0];
        s.pool.release(block, s.index.contains(block));
    };
    assert_eq!(Bench::rule(stolen), "ledger");
}

#[test]
fn lists_with_a_block_too_many_too_few_or_in_the_wrong_place_are_named() {
    let twice = |s: &mut Scheduler| {
        let free = s.pool.lists()[0][0];
        s.pool.free_again(free);
    };
    assert_eq!(Bench::rule(twice), "free list");
    let findable = |s: &mut Scheduler| {
        let free = s.pool.lists()[0][0];
        s.index.publish(0, &[1, 2, 3, 4], 4, free);
    };
    assert_eq!(Bench::rule(findable), "free list");
    let forgotten = |s: &mut Scheduler| {
        // The blocks of a finished request, one of them no longer findable.
        let blocks = std::mem::take(&mut s.sequences[0].blocks);
        s.free_blocks(&blocks);
        s.sequences[0].state = State::Waiting;
        s.index.remove(blocks[0]);
    };
    assert_eq!(Bench::rule(forgotten), "free list");
}

#[test]
fn tables_that_are_too_long_repeat_a_block_or_were_not_cleared_are_named() {
    let past_the_end = |s: &mut Scheduler| {
        let block = s.hand_out(0).unwrap();
        s.sequences[0].blocks.push(block);
    };
    assert_eq!(Bench::rule(past_the_end), "block table");
    let repeated = |s: &mut Scheduler| {
        let first = s.sequences[0].blocks[0];
        s.sequences[0].blocks[1] = first;
    };
    assert_eq!(Bench::rule(repeated), "block table");
    let out_of_range = |s: &mut Scheduler| s.sequences[0].blocks[1] = 9;
    assert_eq!(Bench::rule(out_of_range), "block table");
    let not_cleared = |s: &mut Scheduler| s.sequences[0].state = State::Waiting;
    assert_eq!(Bench::rule(not_cleared), "block table");
}

#[test]
fn slots_that_are_held_by_nobody_or_not_taken_are_named() {
    let leaked = |s: &mut Scheduler| {
        s.swap_out(0, 99).unwrap();
        s.sequences[0].slots.clear();
    };
    assert_eq!(Bench::rule(leaked), "swap ledger");
    let freed = |s: &mut Scheduler| {
        s.swap_out(0, 99).unwrap();
        let slots = s.sequences[0].slots.clone();
        s.swap.give_back(&slots[..1]);
    };
    assert_eq!(Bench::rule(freed), "swap ledger");
    let twice = |s: &mut Scheduler| {
        s.swap_out(0, 99).unwrap();
        s.swap_out(1, 99).unwrap();
        s.sequences[1].slots = s.sequences[0].slots.clone();
        s.swap.give_back(&[3]);
    };
    assert_eq!(Bench::rule(twice), "swap ledger");
}

/// Found before its last slot was written.
#[test]
fn a_block_published_too_early_is_named() {
    let early = |s: &mut Scheduler| {
        let partial = s.sequences[0].blocks[1];
        s.index.publish(0, &[1, 2, 3, 4], 4, partial);
    };
    assert_eq!(Bench::rule(early), "published");
}

#[test]
fn launches_that_write_or_read_what_they_must_not_are_named() {
    let rule = |corrupt: fn(&mut Scheduler, &mut Vec<Vec<BlockId>>)| {
        let mut bench = bench(Vec::new());
        bench.step();
        let step = bench.scheduler.boundary();
        let mut tables = tables_of(&bench.scheduler, &step);
        corrupt(&mut bench.scheduler, &mut tables);
        bench.follow();
        bench.launch(&step, &tables, false).unwrap_err().rule
    };
    // Position 6 of request 1 is the third slot of its second block.
    assert_eq!(
        rule(|s, tables| {
            s.pool.share(tables[0][1]);
        }),
        "shared writer"
    );
    assert_eq!(
        rule(|s, tables| {
            s.index.publish(0, &[1, 2, 3, 4], 4, tables[0][1]);
        }),
        "shared writer"
    );
    assert_eq!(rule(|_, tables| tables[0][1] = tables[1][1]), "write set");
    assert_eq!(rule(|_, tables| tables[0][1] = 9), "block table");
    assert_eq!(rule(|_, tables| tables[0].truncate(1)), "block table");
    // A first block swapped for a fresh one: what stood in it is lost.
    assert_eq!(
        rule(|s, tables| {
            let fresh = s.hand_out(0).unwrap();
            s.sequences[0].blocks[0] = fresh;
            tables[0][0] = fresh;
        }),
        "unwritten read"
    );
}

/// The engine that frees blocks at once, although a write to them is in flight.
#[test]
fn a_flight_that_lands_in_blocks_of_another_request_is_named() {
    let mark = |tokens| Mark::Computed { residency: 1, tokens };
    let intents = vec![
        Intent { uid: 1, sample: 0, mark: mark(6), act: Act::Land { late: 2 } },
        Intent {
            uid: 1,
            sample: 0,
            mark: mark(7),
            act: Act::Preempt { kind: PreemptKind::Recompute, away: 9 },
        },
    ];
    for planted in [false, true] {
        let mut bench = bench(intents.clone());
        bench.step();
        bench.step();
        assert_eq!(bench.scheduler.flights.len(), 1);
        let step = bench.scheduler.boundary();
        assert!(bench.scheduler.flights[0].left);
        if planted {
            // As if they had been free, and handed out to request 2.
            let block = bench.scheduler.flights[0].blocks[1];
            bench.scheduler.sequences[1].blocks.push(block);
        } else {
            let tables = tables_of(&bench.scheduler, &step);
            bench.follow();
            bench.launch(&step, &tables, false).unwrap();
            bench.scheduler.commit(&step, &[Some(0)]);
            bench.auditor.after_step(&bench.scheduler).unwrap();
            bench.step();
        }
        let flight = match planted {
            true => bench.scheduler.flights[0].clone(),
            false => bench.scheduler.landings().remove(0),
        };
        let tables = [flight.blocks.clone()];
        let audited = bench.launch(std::slice::from_ref(flight.chunk().unwrap()), &tables, true);
        assert_eq!(audited.err().map(|f| f.rule), planted.then_some("write set"));
    }
}
