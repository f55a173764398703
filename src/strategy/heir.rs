//! Heirs: a sample forks into the middle of a findable block, and whoever filled the block leaves before the sample
//! writes.
//!
//! It is the block's only owner then, so nothing is copied, and it writes where another sequence's tokens can still be
//! found unless the engine forgets them first. Where the steps have room for all, a forked sample writes in the step
//! in which it is forked, while the other is there. Here a budget of one token lets it wait: the other is older and uses
//! the budget up. A request that continues the other's output looks for what it left.

use crate::contract::sampler::SamplerParams;
use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use crate::workload::{Continue, Prompt, Request};
use crate::world::World;

use super::Space;
use super::draw::Draw;
use super::swarm::{Feature, Swarm};
use super::workload::Planned;

/// Uid of the request that is forked, and of the one that continues it.
const FORKED: u64 = 1;
const FOLLOWER: u64 = 2;

/// Replaces the requests and the schedule, if the case is to be of this kind.
pub(super) fn lay(
    draw: &mut Draw<'_>,
    space: &Space,
    swarm: &Swarm,
    world: &mut World,
    planned: &mut Vec<Planned>,
) -> Option<Schedule> {
    let level = swarm.level(Feature::Budget) * swarm.level(Feature::Samples) / 100;
    let is_small = space.edges.positions_max < 64;
    if level == 0 || is_small || space.prompts.is_some() || !draw.percent(level) {
        return None;
    }
    world.prefix_cache = true;
    world.token_budget = Some(1);
    world.block_size = draw.pick(&[3, 4, 5, 7]);
    let block = world.block_size as usize;
    // The prompt ends inside of a block, past its first position: a part of the block is shared.
    let whole = draw.below(3);
    let length = whole * block + draw.between(2, block - 1);
    let end = (whole + 1) * block;
    // A token a boundary: the fork comes when the block is full.
    let at = end + draw.below(3);
    let leaves = match draw.below(3) {
        0 => None,
        1 => Some(Act::Abort),
        _ => Some(Act::Preempt { kind: PreemptKind::Recompute, away: 2 * block as u32 }),
    };
    // Its last step is that in which the other is forked, unless the schedule makes it leave.
    let tokens = at - length + 2 + if leaves.is_some() { draw.between(1, 3) } else { 0 };
    *planned = requests(draw, space, length, tokens);
    let own = |p: &Planned| p.blocks(world.block_size);
    world.pool_blocks = (planned.iter().map(own).sum::<usize>() + draw.below(3)) as u32;
    let of = |uid, sample, mark, act| Intent { uid, sample, mark, act };
    let first = Mark::Computed { residency: 1, tokens: at as u32 + 1 };
    let mut intents = vec![
        of(FORKED, 1, Mark::Start, Act::Arrive { steps: at as u32 }),
        of(FORKED, 1, Mark::Offer { n: 1 }, Act::Fork),
    ];
    intents.extend(leaves.map(|act| of(FORKED, 0, first, act)));
    // When the heir has filled the block.
    let late = at + 2 + end - length + draw.below(3);
    intents.push(of(FOLLOWER, 0, Mark::Start, Act::Arrive { steps: late as u32 }));
    Some(Schedule { intents })
}

/// A request of two samples that draw different tokens, and one that continues the first of them.
fn requests(draw: &mut Draw<'_>, space: &Space, length: usize, tokens: usize) -> Vec<Planned> {
    let vocab = space.edges.vocab as usize;
    let prompt: Vec<u32> = (0..length).map(|_| draw.below(vocab) as u32).collect();
    let forked = Request {
        samples: 2,
        ignore_eos: true,
        sampling: SamplerParams { temperature: 1.5, ..SamplerParams::default() },
        seed: draw.percent(50).then(|| draw.word() >> 32),
        ..Request::new(FORKED, prompt, tokens as u32)
    };
    let then = vec![draw.below(vocab) as u32];
    let mut follower = Request { ignore_eos: true, ..Request::new(FOLLOWER, Vec::new(), 2) };
    follower.prompt = Prompt::Continue(Continue { of: FORKED, upto: tokens as u32, then });
    let plan = |request: Request, prompt_len, shared, follows| Planned {
        request,
        shared,
        foreign: 0,
        follows,
        prompt_len,
    };
    let all = length + tokens;
    vec![plan(forked, length, 0, None), plan(follower, all + 1, all - 1, Some(0))]
}

#[cfg(test)]
mod tests {
    use proptest::strategy::ValueTree;

    use super::super::tests::space;
    use super::super::{DIRECTED, cases, forecast};
    use super::*;

    /// Goal: a campaign has such a case among its directed ones, whatever its seed, and the fork and the leave fire.
    #[test]
    fn a_directed_case_forks_into_a_full_block_and_its_owner_leaves() {
        let index = DIRECTED.iter().position(|f| f.contains(&Feature::Budget)).unwrap() as u64;
        let mut acts = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let case = cases(space()).nth(seed, index).current();
            case.validate().unwrap();
            let fired = forecast::fired(&case.world, &case.workload, &case.schedule);
            assert!(fired.iter().all(|fired| *fired), "seed {seed}: {:?}", case.schedule);
            acts.extend(case.schedule.intents.iter().map(|intent| intent.act.kind()));
        }
        assert_eq!(acts.len(), 4, "{acts:?}");
    }
}
