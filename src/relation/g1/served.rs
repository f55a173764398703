//! The served path: all prompts of the golden set in one instance, under a fixed schedule.

use crate::record::Sentinel;
use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use crate::subject::{Subject, SubjectError, guard};
use crate::workload::Workload;
use crate::world::World;

use super::{Bits, Prompt, Table, blocks, missing, requests, table};

/// Mechanisms that must have run on the served path, of those that a subject has.
pub const REQUIRED: [Sentinel; 12] = [
    Sentinel::SharedStep,
    Sentinel::RowNotFirst,
    Sentinel::MultiSplitRow,
    Sentinel::Cut,
    Sentinel::CutMidSplit,
    Sentinel::PreemptRecompute,
    Sentinel::PreemptMidPrefill,
    Sentinel::HitTokensSaved,
    Sentinel::SwapIn,
    Sentinel::PaddedStep,
    Sentinel::BucketChanged,
    Sentinel::LandedLate,
];

/// Row counts that steps are padded to.
const BUCKETS: [u32; 9] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048];
/// Boundaries between the arrivals of two groups of prompts.
const APART: u32 = 2;
/// Prompts that arrive together.
const TOGETHER: usize = 5;

/// Executes all prompts in one instance: they arrive in groups, long ones first, and are cut, preempted, swapped, padded and
/// landed late.
///
/// A path on which one of the [mechanisms](REQUIRED) that the subject has did not run is an error: it proves nothing.
pub fn served(subject: &dyn Subject, prompts: &[Prompt]) -> Result<Table, SubjectError> {
    let capabilities = subject.capabilities();
    let mut workload = Workload { requests: requests(prompts) };
    let world = subject.default_world();
    let all: u32 = workload.requests.iter().map(|r| blocks(r, &world)).sum();
    let longest = workload.requests.iter().map(|r| blocks(r, &world)).max().unwrap_or(1);
    let world = World {
        // Not all fit at once: the pool, too, makes requests wait and blocks be used again.
        pool_blocks: longest.max(all / 2),
        swap_blocks: all,
        buckets: BUCKETS.to_vec(),
        poison: true,
        ..world
    };
    let mut intents = schedule(prompts);
    intents.retain(|intent| capabilities.acts.contains(&intent.act.kind()));
    let schedule = Schedule { intents };
    // Hits need one who computed before: long prompts are asked for first.
    workload.requests.reverse();
    let run = guard::execute(subject, &world, &workload, &schedule, 0, None)?;
    workload.requests.reverse();
    for sentinel in REQUIRED {
        let has = capabilities.sentinels.contains(&sentinel);
        if has && run.sentinels.get(sentinel) == 0 {
            return Err(missing(format!("{} never ran on the served path", sentinel.name())));
        }
    }
    Ok(table(subject, Bits::new(&workload, &run)?.lines(subject, prompts)?))
}

/// What happens to each prompt, by its place in the set.
fn schedule(prompts: &[Prompt]) -> Vec<Intent> {
    let mut intents = Vec::new();
    for (index, prompt) in prompts.iter().enumerate() {
        let length = prompt.tokens.len() as u32;
        let mut add =
            |mark, act| intents.push(Intent { uid: index as u64 + 1, sample: 0, mark, act });
        let from_the_end = prompts.len() - 1 - index;
        let steps = (from_the_end / TOGETHER) as u32 * APART;
        if steps > 0 {
            add(Mark::Start, Act::Arrive { steps });
        }
        let computed = |tokens| Mark::Computed { residency: 1, tokens };
        // Two cuts, neither at a round place.
        let cut = length / 3 + 1;
        if index % 3 != 0 && length > 2 {
            add(computed(0), Act::Cut { tokens: cut });
            add(computed(cut), Act::Cut { tokens: (cut / 2).max(1) });
        }
        match index % 5 {
            0 => add(computed(cut), Act::Preempt { kind: PreemptKind::Recompute, away: 1 }),
            1 => add(computed(1), Act::Preempt { kind: PreemptKind::Recompute, away: 1 }),
            2 => add(computed(1), Act::Preempt { kind: PreemptKind::Swap, away: 2 }),
            3 => add(computed(1), Act::Land { late: 2 }),
            _ => add(computed(0), Act::Bucket { extra: 1 }),
        }
        if index % 7 == 3 {
            add(Mark::Offer { n: 1 }, Act::Place { nth: 2 });
        }
    }
    intents
}
