//! Pressure: cases in which the pool surely runs out, and the schedule prefers another victim than the default would.
//!
//! Whether and when a pool runs out depends on everybody, so it can't be read off one request's course. Here the
//! requests are so plain (all there from the start, no common prefixes, a length known beforehand) that a few lines of
//! counting tell who will be short of a block, and who could make room.

use crate::schedule::{Act, Intent, Mark, Schedule};
use crate::world::World;

use super::Space;
use super::draw::Draw;
use super::schedule::after_making_room;
use super::swarm::{Feature, Swarm};
use super::workload::Planned;

/// A request as far as blocks are concerned.
#[derive(Clone, Copy, Debug)]
struct Counted {
    prompt: usize,
    /// Positions that it computes in all.
    positions: usize,
    computed: usize,
    blocks: usize,
    resident: bool,
}

/// When somebody is short of a block: tokens computed by each request that could make room instead of the youngest, by
/// index.
type Shortage = Vec<(usize, usize)>;

/// Makes the requests plain, sizes the pool, and lays out a victim; `None` if this is no such case, or if no pool is
/// short in the way that it takes.
pub(super) fn lay(
    draw: &mut Draw<'_>,
    space: &Space,
    swarm: &Swarm,
    world: &mut World,
    planned: &mut [Planned],
) -> Option<Schedule> {
    if !draw.percent(swarm.level(Feature::Pressure)) {
        return None;
    }
    // Three at least: who asks, who makes room, and the youngest. What continues another has no known length.
    let is_plain = planned.iter().all(|p| p.follows.is_none());
    if planned.len() < 3 || !is_plain || world.token_budget.is_some() {
        return None;
    }
    let block = world.block_size as usize;
    let counted: Vec<Counted> = planned
        .iter()
        .map(|p| Counted {
            prompt: p.prompt_len,
            positions: p.prompt_len + p.request.max_tokens as usize - 1,
            computed: 0,
            blocks: 0,
            resident: false,
        })
        .collect();
    let largest = counted.iter().map(|c| c.positions.div_ceil(block)).max()?;
    let all: usize = counted.iter().map(|c| c.positions.div_ceil(block)).sum();
    let short: Vec<(usize, Shortage)> = (largest..all)
        .filter_map(|pool| shortage(&counted, block, pool).map(|who| (pool, who)))
        .collect();
    if short.is_empty() {
        return None;
    }
    let (pool, who) = &short[draw.below(short.len())];
    let (index, computed) = draw.pick(who);
    world.pool_blocks = *pool as u32;
    for (i, plan) in planned.iter_mut().enumerate() {
        plan.request.samples = 1;
        plan.request.ignore_eos = true;
        // In namespaces of their own they share nothing.
        plan.request.namespace = i as u32;
    }
    let of = |plan: &Planned, tokens: usize, act| Intent {
        uid: plan.request.uid,
        sample: plan.request.first_sample,
        mark: Mark::Computed { residency: 1, tokens: tokens as u32 },
        act,
    };
    let mut intents = vec![of(&planned[index], draw.between(0, computed), Act::Victim)];
    // These do not change when who needs which block.
    for (i, plan) in planned.iter().enumerate() {
        if draw.percent(swarm.level(Feature::Rank) / 2) {
            let to = if i == 0 { planned.len() } else { 0 };
            intents.push(of(plan, 0, Act::Rank { to: to as u32 }));
        }
        if !world.buckets.is_empty() && draw.percent(swarm.level(Feature::Bucket) / 2) {
            intents.push(of(plan, plan.prompt_len, Act::Bucket { extra: 1 }));
        }
    }
    // The prefill after its return computes what it had, and the token drawn last.
    let known = (computed + 1).max(planned[index].prompt_len);
    intents.extend(after_making_room(draw, space, swarm, world, planned, index, known));
    Some(Schedule { intents })
}

/// Follows the default policy in a pool of `pool` blocks up to the first shortage. `None` if there is none, or nobody
/// who was resident before it could make room but the youngest.
fn shortage(counted: &[Counted], block: usize, pool: usize) -> Option<Shortage> {
    let mut requests = counted.to_vec();
    let mut free = pool;
    while requests.iter().any(|r| r.computed < r.positions) {
        let before: Vec<usize> = requests.iter().map(|r| r.computed).collect();
        for r in requests.iter_mut().filter(|r| !r.resident && r.computed == 0) {
            if r.prompt.div_ceil(block) > free {
                break;
            }
            r.resident = true;
        }
        for i in 0..requests.len() {
            if !requests[i].resident {
                continue;
            }
            let end = requests[i].prompt.max(requests[i].computed + 1);
            let needed = end.div_ceil(block) - requests[i].blocks;
            if needed > free {
                let after = (i..requests.len()).filter(|&j| requests[j].resident);
                let mut who: Shortage =
                    after.map(|j| (j, before[j])).filter(|(_, computed)| *computed > 0).collect();
                let youngest = (i..requests.len()).rev().find(|&j| requests[j].resident);
                who.retain(|(j, _)| Some(*j) != youngest);
                return (!who.is_empty()).then_some(who);
            }
            free -= needed;
            requests[i].blocks += needed;
            requests[i].computed = end;
        }
        for r in requests.iter_mut().filter(|r| r.resident && r.computed == r.positions) {
            r.resident = false;
            free += std::mem::take(&mut r.blocks);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(prompt: usize, generates: usize) -> Counted {
        Counted {
            prompt,
            positions: prompt + generates - 1,
            computed: 0,
            blocks: 0,
            resident: false,
        }
    }

    #[test]
    fn a_shortage_names_who_could_make_room_but_the_youngest() {
        let three = [counted(4, 6), counted(4, 6), counted(4, 6)];
        // Three blocks for the prompts, one more at the second boundary; the second request is short then.
        assert_eq!(shortage(&three, 4, 4), Some(vec![(1, 4)]));
        // Short already for its first block: nobody has been resident before.
        assert_eq!(shortage(&three, 4, 2), None);
        // With room for the growth of two only the third, and youngest, is short.
        assert_eq!(shortage(&three, 4, 5), None);
        assert_eq!(shortage(&three, 4, 9), None);
    }
}
