//! Worlds and workloads: lengths at the edges where behaviour changes, related prompts, pools from roomy to tight.

use crate::contract::sampler::SamplerParams;
use crate::subject::Edges;
use crate::workload::{Continue, Prompt, Request, Workload};
use crate::world::World;

use super::Space;
use super::draw::Draw;
use super::output;
use super::swarm::{Feature, Swarm};

/// A generated request, and what the schedule generator needs to know of it.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) request: Request,
    /// Tokens it shares with an earlier request of its namespace.
    pub(super) shared: usize,
    /// Tokens it shares with the prompt of an earlier request of another namespace.
    pub(super) foreign: usize,
    /// Index of the request that it continues.
    pub(super) follows: Option<usize>,
    /// Length of its prompt, if it is a continuation the most that it can be.
    pub(super) prompt_len: usize,
}

impl Planned {
    /// Finds out what it shares with earlier requests.
    fn compare(&mut self, earlier: &[Planned]) {
        let Some(prompt) = self.request.prompt.tokens() else { return };
        let (mut shared, mut foreign) = (0, 0);
        for other in earlier.iter().map(|e| &e.request) {
            let tokens = common(other.prompt.tokens().unwrap_or_default(), prompt);
            let is_own = other.namespace == self.request.namespace;
            let most = if is_own { &mut shared } else { &mut foreign };
            *most = tokens.max(*most);
        }
        (self.shared, self.foreign) = (shared, foreign);
    }

    /// Blocks that all its samples need.
    pub(super) fn blocks(&self, block_size: u32) -> usize {
        let positions = self.prompt_len + self.request.max_tokens as usize - 1;
        self.request.samples as usize * positions.div_ceil(block_size as usize)
    }
}

/// Longest sequence, in positions, that some cases are to fill.
const FULL_MAX: usize = 1024;

/// Number of requests.
pub(super) fn count(draw: &mut Draw<'_>, space: &Space, swarm: &Swarm, least: usize) -> usize {
    if swarm.level(Feature::Crowd) > 0 {
        return draw.between(6, space.requests_max).max(least);
    }
    let drawn = 1 + draw.weighted(&[3, 27, 33, 22, 10, 5]);
    drawn.min(space.requests_max).max(least)
}

/// The requests.
pub(super) fn requests(
    draw: &mut Draw<'_>,
    space: &Space,
    swarm: &Swarm,
    world: &World,
    count: usize,
    directed: bool,
) -> Vec<Planned> {
    let mut planned: Vec<Planned> = Vec::with_capacity(count);
    let crowd = swarm.level(Feature::Crowd) > 0;
    let has_long = directed || draw.percent(space.long_percent);
    let long = if has_long { draw.below(count) } else { usize::MAX };
    for i in 0..count {
        // In a directed case everyone stays long enough to meet the others.
        let least = if directed { space.output_max } else { 1 };
        let most = if crowd { 4 } else { space.output_max };
        let max_tokens = draw.between(least, most).min(space.edges.positions_max as usize);
        let room = space.positions_max(max_tokens);
        let wanted = if i == long {
            let split = space.edges.split as usize;
            let full = space.edges.positions_max as usize <= FULL_MAX && draw.percent(2);
            match full && !directed {
                // As long as the model allows, or one position less.
                true => room - draw.below(2).min(room - 1),
                false => split + 1 + draw.below(split / 2) + draw.below(split),
            }
        } else if crowd {
            draw.between(1, 6)
        } else {
            length(draw, space, world.block_size as usize)
        };
        let mut prompt = prompt(draw, space, swarm, world, &planned, wanted.clamp(1, room));
        prompt.truncate(room);
        let mut plan = Planned {
            shared: 0,
            foreign: 0,
            follows: None,
            prompt_len: prompt.len(),
            request: Request {
                sampling: sampling(draw, space, swarm),
                seed: draw.percent(50).then(|| draw.word() >> 32),
                ignore_eos: draw.percent(75),
                ..Request::new(i as u64 + 1, prompt, max_tokens as u32)
            },
        };
        if draw.percent(swarm.level(Feature::Namespace)) {
            plan.request.namespace = if directed { i % 2 } else { draw.below(2) } as u32;
        }
        if !follow(draw, space, swarm, &mut planned, &mut plan) {
            plan.compare(&planned);
        }
        if !crowd {
            samples(draw, space, swarm, &mut plan);
        }
        output::draw(draw, space, swarm, &mut plan);
        planned.push(sibling(draw, swarm, &planned, i as u64 + 1).unwrap_or(plan));
    }
    planned
}

/// Now and then a request that asks for all that an earlier one asks for: an identical sibling.
fn sibling(draw: &mut Draw<'_>, swarm: &Swarm, earlier: &[Planned], uid: u64) -> Option<Planned> {
    if earlier.is_empty() || !draw.percent(swarm.level(Feature::Siblings) / 4) {
        return None;
    }
    let of = &earlier[draw.below(earlier.len())];
    let prompt_len = of.request.prompt.tokens()?.len();
    let request = Request { uid, ..of.request.clone() };
    let mut plan = Planned { request, shared: 0, foreign: 0, follows: None, prompt_len };
    plan.compare(earlier);
    Some(plan)
}

/// Lets a request continue an earlier one, if there is room for that.
fn follow(
    draw: &mut Draw<'_>,
    space: &Space,
    swarm: &Swarm,
    earlier: &mut [Planned],
    plan: &mut Planned,
) -> bool {
    if earlier.is_empty() || !draw.percent(swarm.level(Feature::Follow) / 2) {
        return false;
    }
    let at = draw.below(earlier.len());
    let of = &mut earlier[at];
    let all = of.request.max_tokens as usize;
    let upto = if draw.percent(70) { all } else { draw.below(all + 1) };
    let vocab = space.edges.vocab as usize;
    let then: Vec<u32> = (0..draw.below(6)).map(|_| draw.below(vocab) as u32).collect();
    let prompt_len = of.prompt_len + upto + then.len();
    if prompt_len > space.positions_max(plan.request.max_tokens as usize) {
        return false;
    }
    // Most of them run to their end, so that lengths are what they are planned to be.
    of.request.ignore_eos |= draw.percent(80);
    plan.prompt_len = prompt_len;
    plan.follows = Some(at);
    plan.request.namespace = of.request.namespace;
    plan.shared = of.prompt_len + upto.min(all - 1);
    let of = of.request.uid;
    plan.request.prompt = Prompt::Continue(Continue { of, upto: upto as u32, then });
    true
}

/// Lets a request have several samples, that meet each other.
fn samples(draw: &mut Draw<'_>, space: &Space, swarm: &Swarm, plan: &mut Planned) {
    if !draw.percent(swarm.level(Feature::Samples) / 2) {
        return;
    }
    let request = &mut plan.request;
    request.samples = 2 + draw.weighted(&[60, 30, 10]) as u32;
    if draw.percent(10) {
        request.first_sample = 1 + draw.below(3) as u32;
    }
    request.ignore_eos |= draw.percent(80);
    let longest = (space.edges.positions_max as usize + 1).saturating_sub(plan.prompt_len);
    let wanted = draw.between(4, space.output_max).min(longest.max(1)) as u32;
    // A continuation was planned for the tokens that there are.
    request.max_tokens = request.max_tokens.max(wanted);
}

/// A prompt length: at an edge, or anywhere below the usual length.
fn length(draw: &mut Draw<'_>, space: &Space, block: usize) -> usize {
    let Edges { tile, split, .. } = space.edges;
    if draw.percent(45) {
        let edge = draw.pick(&[block, 2 * block, 3 * block, tile as usize, split as usize]);
        if edge <= space.prompt_usual * 2 {
            return edge + draw.below(3) - 1;
        }
    }
    draw.between(1, space.prompt_usual)
}

/// A prompt of `length` tokens.
fn prompt(
    draw: &mut Draw<'_>,
    space: &Space,
    swarm: &Swarm,
    world: &World,
    earlier: &[Planned],
    length: usize,
) -> Vec<u32> {
    if let Some(texts) = &space.prompts {
        // A long prompt was asked for: one past the first split, if there is one.
        let past = |t: &&Vec<u32>| t.len() > space.edges.split as usize;
        let long: Vec<&Vec<u32>> = texts.iter().filter(past).collect();
        let is_long = length > space.edges.split as usize && !long.is_empty();
        let text = if is_long { draw.pick(&long) } else { &texts[draw.below(texts.len())] };
        // Real prompts stay whole most of the time; a cut one ends where `length` says.
        let keep = if is_long || draw.percent(75) { text.len() } else { length.min(text.len()) };
        return text[..keep.min(space.positions_max(space.output_max)).max(1)].to_vec();
    }
    let vocab = space.edges.vocab as usize;
    let mut prompt: Vec<u32> = (0..length).map(|_| draw.below(vocab) as u32).collect();
    let others: Vec<&[u32]> = earlier.iter().filter_map(|e| e.request.prompt.tokens()).collect();
    if others.is_empty() {
        return prompt;
    }
    let other = draw.pick(&others);
    if draw.percent(swarm.level(Feature::Siblings) / 2) {
        prompt = other.to_vec();
        if draw.percent(60) {
            // A minimal pair: one token differs, at any place of a block.
            let at = draw.below(prompt.len());
            prompt[at] = (prompt[at] + 1 + draw.below(vocab - 1) as u32) % vocab as u32;
        }
    } else if draw.percent(swarm.level(Feature::Shared).max(swarm.level(Feature::Namespace))) {
        let block = world.block_size as usize;
        let blocks = other.len() / block;
        let edge = block * draw.between(1, blocks.max(1)) + draw.below(3) - 1;
        let shared = edge.min(other.len());
        let tail = (length - 1).min(block * 2);
        prompt.truncate(tail.max(1));
        prompt.splice(0..0, other[..shared].iter().copied());
    }
    prompt
}

/// Length of the common prefix.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

fn sampling(draw: &mut Draw<'_>, space: &Space, swarm: &Swarm) -> SamplerParams {
    let mut params = SamplerParams::default();
    if draw.percent(swarm.level(Feature::Sampled)) {
        params.temperature = draw.pick(&[0.5, 0.8, 1.0, 1.5]);
        if draw.percent(30) {
            let vocab = space.edges.vocab;
            params.top_k = draw.pick(&[1, 2, 5, 40, vocab - 1, vocab, vocab + 1]);
        }
        if draw.percent(30) {
            params.top_p = draw.pick(&[0.1, 0.5, 0.9]);
        }
        if draw.percent(20) {
            params.min_p = draw.pick(&[0.02, 0.2]);
        }
    }
    if draw.percent(swarm.level(Feature::Sampled) / 4) {
        params.repetition_penalty = draw.pick(&[0.8, 1.1, 1.5]);
    }
    params
}

/// The world, before its pool is sized.
pub(super) fn world(draw: &mut Draw<'_>, space: &Space, swarm: &Swarm) -> World {
    let mut world = space.world.clone();
    if draw.percent(swarm.level(Feature::Odd)) {
        match draw.below(3) {
            0 => world.prefix_cache = false,
            1 => world.hash_bits = draw.below(4) as u8,
            _ => {
                world.block_size =
                    draw.pick(&[1, 2, world.block_size, world.block_size * 2, space.edges.tile]);
            }
        }
    }
    if draw.percent(swarm.level(Feature::Budget)) {
        world.token_budget = Some(draw.between(1, space.prompt_usual) as u32);
    } else if draw.percent(swarm.level(Feature::Samples) / 12) {
        // A forked sample then waits beside the one that it forked from, which may leave before anything is copied.
        world.token_budget = Some(1 + draw.below(2) as u32);
    }
    if draw.percent(swarm.level(Feature::Bucket)) {
        world.buckets = buckets(draw, space);
    }
    world.poison = draw.percent(swarm.level(Feature::Poison));
    world
}

/// A few padding buckets at the edges where launches change. The host computes every padding row, so they are small.
fn buckets(draw: &mut Draw<'_>, space: &Space) -> Vec<u32> {
    let mut buckets: Vec<u32> = (0..draw.between(2, 4))
        .map(|_| draw.pick(&space.edges.rows).saturating_add(draw.below(3) as u32).max(2) - 1)
        .collect();
    let largest = buckets.iter().copied().max().unwrap_or(1);
    buckets.push(largest + 1 + draw.below(6) as u32);
    buckets.sort_unstable();
    buckets.dedup();
    buckets
}

/// Sizes the pool: room for everything at once, or down to one block more than the largest request needs.
pub(super) fn size_pool(
    draw: &mut Draw<'_>,
    swarm: &Swarm,
    world: &mut World,
    workload: &Workload,
) {
    let lengths = workload.lengths();
    let blocks = || lengths.iter().map(|l| l.blocks(world.block_size));
    let samples = workload.requests.iter().map(|r| r.samples as usize);
    let all: usize = blocks().zip(samples).map(|(blocks, samples)| blocks * samples).sum();
    let largest = blocks().max().unwrap_or(1);
    let pool = if draw.percent(swarm.level(Feature::Tight)) && all > largest {
        largest + draw.below((all - largest) / 2 + 1)
    } else {
        all + draw.below(9)
    };
    world.pool_blocks = pool.max(1) as u32;
}

/// Sizes the host memory to swap to: room for everything, now and then for next to nothing.
pub(super) fn size_swap(
    draw: &mut Draw<'_>,
    swarm: &Swarm,
    world: &mut World,
    workload: &Workload,
) {
    if swarm.level(Feature::Swap) == 0 {
        return;
    }
    let requests = workload.requests.iter().zip(workload.lengths());
    let all: usize = requests.map(|(r, l)| r.samples as usize * l.blocks(world.block_size)).sum();
    world.swap_blocks = if draw.percent(10) { 1 + draw.below(2) } else { all } as u32;
}
