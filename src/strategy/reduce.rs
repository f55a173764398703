//! Single reductions of a case: what "smaller by one step" means.
//!
//! A reduction deletes an intent, makes two cuts one, a request with its intents, lowers one number, or makes one part of the world
//! ordinary. A case is 1-minimal if none of its single reductions still fails.

use std::collections::BTreeMap;

use crate::case::Case;
use crate::contract::sampler::SamplerParams;
use crate::schedule::{Act, Intent, Mark, PreemptKind};
use crate::workload::Prompt;

/// The resolved prompts of continuations by uid, as the case at hand resolves them: a continuation whose request is
/// deleted is frozen to its prompt.
pub type Frozen = BTreeMap<u64, Vec<u32>>;

/// Seeds that are tried in place of a run's own, from 0: which one is smaller means nothing beyond that.
pub(super) const SEEDS_TRIED: u64 = 8;

/// A number of a case that can be lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// Length of the prompt of the request at this index, or of what it adds to another one's output; the end is cut
    /// off.
    PromptLength(usize),
    /// Generated tokens that the request at this index takes over from another one.
    Upto(usize),
    /// Tokens that the request at this index generates.
    MaxTokens(usize),
    /// 1 while the request at this index samples otherwise than greedily.
    Sampling(usize),
    /// 1 while the request at this index has a seed.
    Seed(usize),
    /// Stop tokens and strings of the request at this index; the last ones are left out.
    Stops(usize),
    /// Alternatives listed with each log-probability of the request at this index, and one; 0 without any.
    Logprobs(usize),
    /// The same of prompt tokens.
    PromptLogprobs(usize),
    /// Samples of the request at this index; the last ones are left out.
    Samples(usize),
    /// The same; the first ones are left out.
    LeadingSamples(usize),
    /// Number of the first sample of the request at this index; those of its intents follow.
    FirstSample(usize),
    /// Namespace of the request at this index.
    Namespace(usize),
    /// Number in the mark of the intent at this index: `n`, or tokens.
    Mark(usize),
    /// Residency in the mark of the intent at this index.
    Residency(usize),
    /// Number in the act of the intent at this index.
    Act(usize),
    /// 1 while the intent at this index preempts by swap, not by recompute.
    Swap(usize),
    /// Blocks to swap to.
    SwapBlocks,
    /// 1 while the world has a token budget.
    TokenBudget,
    /// Hash bits that are missing from 64.
    HashBits,
    /// 1 while the prefix cache is off.
    PrefixCache,
    /// Padding buckets; the largest are left out first.
    Buckets,
    /// 1 while unused memory is poisoned.
    Poison,
    /// Distance of the pool from one that just holds everything at once, in blocks.
    Pool,
    /// The run's seed.
    RunSeed,
}

/// Pairs of cuts of one sequence in one residency, one right after the other in the schedule.
pub fn merges(case: &Case) -> Vec<(usize, usize)> {
    let intents = &case.schedule.intents;
    let place = |i: usize| match (intents[i].act, intents[i].mark) {
        (Act::Cut { .. }, Mark::Computed { residency, .. }) => Some((intents[i].id(), residency)),
        _ => None,
    };
    let next = |i: usize| {
        let here = place(i)?;
        (i + 1..intents.len()).find(|j| place(*j) == Some(here)).map(|j| (i, j))
    };
    (0..intents.len()).filter_map(next).collect()
}

/// The case with two cuts made one, as long as both together, at the mark of the first.
pub fn merged(case: &Case, (first, second): (usize, usize)) -> Case {
    let mut case = case.clone();
    let removed = case.schedule.intents.remove(first);
    let kept = &mut case.schedule.intents[second - 1];
    kept.mark = removed.mark;
    if let (Act::Cut { tokens }, Act::Cut { tokens: more }) = (&mut kept.act, removed.act) {
        *tokens = tokens.saturating_add(more);
    }
    case
}

/// All fields of a case.
pub fn fields(case: &Case) -> Vec<Field> {
    let mut fields = Vec::new();
    for i in 0..case.workload.requests.len() {
        fields.extend([
            Field::PromptLength(i),
            Field::MaxTokens(i),
            Field::Sampling(i),
            Field::Seed(i),
            Field::Stops(i),
            Field::Logprobs(i),
            Field::PromptLogprobs(i),
            Field::Upto(i),
            Field::Samples(i),
            Field::LeadingSamples(i),
            Field::FirstSample(i),
            Field::Namespace(i),
        ]);
    }
    for i in 0..case.schedule.intents.len() {
        fields.extend([Field::Residency(i), Field::Mark(i), Field::Act(i), Field::Swap(i)]);
    }
    fields.extend([
        Field::SwapBlocks,
        Field::TokenBudget,
        Field::HashBits,
        Field::PrefixCache,
        Field::Buckets,
        Field::Poison,
        Field::Pool,
        Field::RunSeed,
    ]);
    fields
}

/// (value, floor) of a field. A field at its floor can't be lowered.
pub fn value(case: &Case, field: Field) -> (u64, u64) {
    let request = |i: usize| &case.workload.requests[i];
    let intent = |i: usize| &case.schedule.intents[i];
    match field {
        Field::PromptLength(i) => {
            let prompt = &request(i).prompt;
            (prompt.own_tokens().len() as u64, u64::from(prompt.continuation().is_none()))
        }
        Field::Upto(i) => (request(i).prompt.continuation().map_or(0, |c| c.upto.into()), 0),
        Field::Samples(i) | Field::LeadingSamples(i) => (request(i).samples.into(), 1),
        Field::FirstSample(i) => (request(i).first_sample.into(), 0),
        Field::Namespace(i) => (request(i).namespace.into(), 0),
        Field::MaxTokens(i) => (request(i).max_tokens.into(), 1),
        Field::Sampling(i) => (u64::from(request(i).sampling != SamplerParams::default()), 0),
        Field::Seed(i) => (request(i).seed.is_some().into(), 0),
        Field::Stops(i) => ((request(i).stop_token_ids.len() + request(i).stop.len()) as u64, 0),
        Field::Logprobs(i) => (request(i).logprobs.map_or(0, |n| u64::from(n) + 1), 0),
        Field::PromptLogprobs(i) => (request(i).prompt_logprobs.map_or(0, |n| u64::from(n) + 1), 0),
        Field::Mark(i) => match intent(i).mark {
            Mark::Start => (0, 0),
            Mark::Offer { n } => (n.into(), 1),
            Mark::Computed { tokens, .. } => (tokens.into(), 0),
        },
        Field::Residency(i) => match intent(i).mark {
            Mark::Computed { residency, .. } => (residency.into(), 1),
            Mark::Start | Mark::Offer { .. } => (0, 0),
        },
        Field::Act(i) => match intent(i).act {
            Act::Arrive { steps } | Act::Hold { steps } | Act::Stall { steps } => (steps.into(), 1),
            Act::Hit { at_most } => (at_most.into(), 0),
            Act::Rank { to } => (to.into(), 0),
            Act::Cut { tokens } => (tokens.into(), 1),
            Act::Preempt { away, .. } => (away.into(), 0),
            Act::Victim | Act::Fork | Act::Abort => (0, 0),
            Act::Place { nth } => (nth.into(), 0),
            Act::Evict { block } => (block.into(), 0),
            Act::Bucket { extra } => (extra.into(), 0),
            Act::Land { late } => (late.into(), 0),
        },
        Field::Swap(i) => {
            let swap = matches!(intent(i).act, Act::Preempt { kind: PreemptKind::Swap, .. });
            (swap.into(), 0)
        }
        Field::SwapBlocks => (case.world.swap_blocks.into(), 0),
        Field::TokenBudget => (case.world.token_budget.is_some().into(), 0),
        Field::HashBits => (64 - u64::from(case.world.hash_bits.min(64)), 0),
        Field::PrefixCache => (u64::from(!case.world.prefix_cache), 0),
        Field::Buckets => (case.world.buckets.len() as u64, 0),
        Field::Poison => (case.world.poison.into(), 0),
        Field::Pool => (u64::from(case.world.pool_blocks).abs_diff(roomy(case)), 0),
        Field::RunSeed => (case.seed, 0),
    }
}

/// The case with a field lowered to `to`, which is at least its floor.
pub fn lowered(case: &Case, field: Field, to: u64) -> Case {
    let mut case = case.clone();
    match field {
        Field::PromptLength(i) => {
            case.workload.requests[i].prompt.own_tokens_mut().truncate(to as usize);
        }
        Field::Upto(i) => {
            if let Prompt::Continue(c) = &mut case.workload.requests[i].prompt {
                c.upto = to as u32;
            }
        }
        Field::Samples(i) => case.workload.requests[i].samples = to as u32,
        Field::LeadingSamples(i) => {
            let request = &mut case.workload.requests[i];
            request.first_sample += request.samples - to as u32;
            request.samples = to as u32;
        }
        Field::FirstSample(i) => {
            let request = &mut case.workload.requests[i];
            let less = request.first_sample - to as u32;
            request.first_sample = to as u32;
            for intent in case.schedule.intents.iter_mut().filter(|x| x.uid == request.uid) {
                intent.sample = intent.sample.saturating_sub(less);
            }
        }
        Field::Namespace(i) => case.workload.requests[i].namespace = to as u32,
        Field::MaxTokens(i) => case.workload.requests[i].max_tokens = to as u32,
        Field::Sampling(i) => case.workload.requests[i].sampling = SamplerParams::default(),
        Field::Seed(i) => case.workload.requests[i].seed = None,
        Field::Stops(i) => {
            let request = &mut case.workload.requests[i];
            let tokens = request.stop_token_ids.len();
            request.stop.truncate((to as usize).saturating_sub(tokens));
            request.stop_token_ids.truncate(to as usize);
        }
        Field::Logprobs(i) => case.workload.requests[i].logprobs = (to as u32).checked_sub(1),
        Field::PromptLogprobs(i) => {
            case.workload.requests[i].prompt_logprobs = (to as u32).checked_sub(1);
        }
        Field::Mark(i) => match &mut case.schedule.intents[i].mark {
            Mark::Start => {}
            Mark::Offer { n } => *n = to as u32,
            Mark::Computed { tokens, .. } => *tokens = to as u32,
        },
        Field::Residency(i) => {
            if let Mark::Computed { residency, .. } = &mut case.schedule.intents[i].mark {
                *residency = to as u32;
            }
        }
        Field::Act(i) => match &mut case.schedule.intents[i].act {
            Act::Arrive { steps } | Act::Hold { steps } | Act::Stall { steps } => {
                *steps = to as u32;
            }
            Act::Hit { at_most } => *at_most = to as u32,
            Act::Rank { to: place } => *place = to as u32,
            Act::Cut { tokens } => *tokens = to as u32,
            Act::Preempt { away, .. } => *away = to as u32,
            Act::Victim | Act::Fork | Act::Abort => {}
            Act::Place { nth } => *nth = to as u32,
            Act::Evict { block } => *block = to as u32,
            Act::Bucket { extra } => *extra = to as u32,
            Act::Land { late } => *late = to as u32,
        },
        Field::Swap(i) => {
            if let Act::Preempt { kind, .. } = &mut case.schedule.intents[i].act {
                *kind = PreemptKind::Recompute;
            }
        }
        Field::SwapBlocks => case.world.swap_blocks = to as u32,
        Field::TokenBudget => case.world.token_budget = None,
        Field::HashBits => case.world.hash_bits = (64 - to) as u8,
        Field::PrefixCache => case.world.prefix_cache = true,
        Field::Buckets => case.world.buckets.truncate(to as usize),
        Field::Poison => case.world.poison = false,
        Field::Pool => {
            let roomy = roomy(&case);
            let is_tight = u64::from(case.world.pool_blocks) < roomy;
            case.world.pool_blocks = if is_tight { roomy - to } else { roomy + to } as u32;
        }
        Field::RunSeed => case.seed = to,
    }
    case
}

/// Blocks that hold every request at once.
pub(super) fn roomy(case: &Case) -> u64 {
    let size = case.world.block_size;
    let requests = case.workload.requests.iter().zip(case.workload.lengths());
    requests.map(|(r, lengths)| u64::from(r.samples) * lengths.blocks(size) as u64).sum()
}

/// The case without the intents at `from..to`.
pub fn without_intents(case: &Case, from: usize, to: usize) -> Case {
    let mut case = case.clone();
    case.schedule.intents.drain(from..to);
    case
}

/// The case without the requests at `from..to` and their intents; what continues one of them is frozen. `None` if no
/// request would be left, or if there is nothing to freeze to.
pub fn without_requests(case: &Case, from: usize, to: usize, frozen: &Frozen) -> Option<Case> {
    if to - from >= case.workload.requests.len() {
        return None;
    }
    let mut case = case.clone();
    let gone: Vec<u64> = case.workload.requests.drain(from..to).map(|r| r.uid).collect();
    case.schedule.intents.retain(|i: &Intent| !gone.contains(&i.uid));
    for request in &mut case.workload.requests {
        if request.prompt.continuation().is_some_and(|c| gone.contains(&c.of)) {
            request.prompt = Prompt::Tokens(frozen.get(&request.uid)?.clone());
        }
    }
    Some(case)
}

/// Places of prompt tokens that are not 0: (request index, position).
pub fn tokens(case: &Case) -> Vec<(usize, usize)> {
    let requests = case.workload.requests.iter().enumerate();
    requests
        .flat_map(|(i, r)| {
            let set = r.prompt.own_tokens().iter().enumerate().filter(|(_, t)| **t != 0);
            set.map(move |(p, _)| (i, p))
        })
        .collect()
}

/// The case with the prompt tokens at these places set to 0.
pub fn with_zeros(case: &Case, places: &[(usize, usize)]) -> Case {
    let mut case = case.clone();
    for &(request, position) in places {
        case.workload.requests[request].prompt.own_tokens_mut()[position] = 0;
    }
    case
}

/// Every single reduction: deletions, tokens set to 0, each field lowered by one and to its floor, the run's seed to each of
/// the first few.
pub fn singles(case: &Case, frozen: &Frozen) -> Vec<Case> {
    let mut out = Vec::new();
    out.extend((0..case.schedule.intents.len()).map(|i| without_intents(case, i, i + 1)));
    let requests = 0..case.workload.requests.len();
    out.extend(requests.filter_map(|i| without_requests(case, i, i + 1, frozen)));
    out.extend(merges(case).into_iter().map(|pair| merged(case, pair)));
    out.extend(tokens(case).into_iter().map(|place| with_zeros(case, &[place])));
    for field in fields(case) {
        let (value, floor) = value(case, field);
        if value > floor {
            if field == Field::RunSeed {
                let seeds = floor..value.min(SEEDS_TRIED);
                out.extend(seeds.map(|seed| lowered(case, field, seed)));
                continue;
            }
            out.push(lowered(case, field, floor));
            if value - 1 > floor {
                out.push(lowered(case, field, value - 1));
            }
        }
    }
    out
}
