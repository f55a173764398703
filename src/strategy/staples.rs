//! Staples: small groups of requests that are sure to exercise each mechanism, added to the first cases of a campaign.
//!
//! A drawn case exercises a relation with some probability. A campaign of three cases is to exercise all of them, so its
//! cases also hold these requests, of which only the tokens are drawn. They have room of their own in the pool and
//! leave what was drawn as it is.

use crate::contract::sampler::SamplerParams;
use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use crate::workload::{Request, Workload};
use crate::world::World;

use super::Space;
use super::draw::Draw;

/// Tokens that a staple generates, where the model's context has room for them.
const TOKENS: usize = 6;
/// Boundaries after which the first blocks of a staple are surely findable.
const PUBLISHED: u32 = 4;
/// Row counts that steps are padded to: one bucket more is never more than twice the work.
const BUCKETS: [u32; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// A case that staples are added to.
pub(super) struct Parts<'a> {
    pub(super) world: &'a mut World,
    pub(super) workload: &'a mut Workload,
    pub(super) schedule: &'a mut Schedule,
}

/// Adds the staples of case `index` of a campaign, if it has any.
pub(super) fn add(draw: &mut Draw<'_>, space: &Space, index: usize, parts: &mut Parts<'_>) {
    let largest = parts.workload.requests.iter().map(|r| r.uid).max().unwrap_or(0);
    let mut table = Table { draw, space, parts, uid: largest };
    match index {
        0 => table.prefix(),
        1 => table.leaving(),
        2 => table.launches(),
        _ => return,
    }
    table.parts.world.prefix_cache = true;
    table.parts.world.token_budget = None;
}

struct Table<'a, 'b, 'r> {
    draw: &'a mut Draw<'r>,
    space: &'a Space,
    parts: &'a mut Parts<'b>,
    /// Largest uid so far.
    uid: u64,
}

impl Table<'_, '_, '_> {
    /// A request that is cut, placed, preempted; one that its prefix serves; one of another namespace; identical ones that
    /// meet, and draw at random.
    fn prefix(&mut self) {
        let (siblings, seed) = (self.prompt(), self.draw.word() >> 32);
        for _ in 0..2 {
            self.request(siblings.clone(), |r| {
                r.sampling = SamplerParams { temperature: 1.5, ..r.sampling };
                r.seed = Some(seed);
            });
        }
        let prompt = self.prompt();
        let all = prompt.len() as u32;
        let first = self.request(prompt.clone(), |_| {});
        self.at(first, computed(0), Act::Cut { tokens: (all - 1).max(1) });
        self.at(first, computed(0), Act::Place { nth: 1 });
        let kind = PreemptKind::Recompute;
        self.at(first, computed(all), Act::Preempt { kind, away: 1 });
        let served = self.request(prompt.clone(), |_| {});
        self.at(served, Mark::Start, Act::Arrive { steps: PUBLISHED });
        let apart = self.request(prompt, |r| r.namespace = 1);
        self.at(apart, Mark::Start, Act::Arrive { steps: PUBLISHED });
    }

    /// A request with a sample that is forked; one that is swapped, one that is aborted, one whose block is evicted.
    fn leaving(&mut self) {
        // Of blocks of one position a prefix hit serves as much as a fork.
        self.parts.world.block_size = self.parts.world.block_size.max(2);
        let mut prompt = self.prompt();
        let all = prompt.len() as u32;
        // The last block that is shared is a partial one.
        let more = prompt.len() < self.space.positions_max(TOKENS);
        prompt.extend_from_within(..usize::from(more));
        let forked = self.request(prompt, |r| r.samples = 2);
        let sample = |mark, act| Intent { uid: forked, sample: 1, mark, act };
        let held = sample(Mark::Offer { n: 1 }, Act::Hold { steps: 2 });
        self.parts.schedule.intents.extend([held, sample(Mark::Offer { n: 2 }, Act::Fork)]);
        let swapped = self.alone();
        let kind = PreemptKind::Swap;
        self.at(swapped, computed(all), Act::Preempt { kind, away: 1 });
        let aborted = self.alone();
        self.at(aborted, computed(all), Act::Abort);
        let evicted = self.alone();
        let kind = PreemptKind::Recompute;
        self.at(evicted, computed(all), Act::Preempt { kind, away: 1 });
        self.at(evicted, Mark::Offer { n: 2 }, Act::Evict { block: 0 });
        let blocks = all as usize + TOKENS;
        self.parts.world.swap_blocks += blocks.div_ceil(self.block()) as u32;
    }

    /// A request whose step has one bucket more than it needs, and one whose chunk lands late; in poisoned memory.
    fn launches(&mut self) {
        self.parts.world.buckets = BUCKETS.to_vec();
        self.parts.world.poison = true;
        let padded = self.alone();
        let late = self.alone();
        let all = self.length() as u32;
        self.at(padded, computed(all), Act::Bucket { extra: 1 });
        self.at(late, computed(all), Act::Land { late: 2 });
    }

    fn block(&self) -> usize {
        self.parts.world.block_size as usize
    }

    /// Length of a prompt: two whole blocks and a token.
    fn length(&self) -> usize {
        (2 * self.block() + 1).min(self.space.positions_max(TOKENS))
    }

    fn prompt(&mut self) -> Vec<u32> {
        let length = self.length();
        if let Some(texts) = &self.space.prompts {
            let text = &texts[self.draw.below(texts.len())];
            return text.iter().copied().cycle().take(length).collect();
        }
        let vocab = self.space.edges.vocab as usize;
        (0..length).map(|_| self.draw.below(vocab) as u32).collect()
    }

    /// A request with a prompt of its own.
    fn alone(&mut self) -> u64 {
        let prompt = self.prompt();
        self.request(prompt, |_| {})
    }

    /// Adds a request, and blocks for all of it; returns its uid.
    fn request(&mut self, prompt: Vec<u32>, change: impl FnOnce(&mut Request)) -> u64 {
        self.uid += 1;
        let tokens = TOKENS.min(self.space.edges.positions_max as usize);
        let mut request = Request::new(self.uid, prompt, tokens as u32);
        request.ignore_eos = true;
        change(&mut request);
        let positions = request.prompt.own_tokens().len() + tokens - 1;
        let blocks = positions.div_ceil(self.block()) as u32 * request.samples;
        self.parts.world.pool_blocks += blocks;
        self.parts.workload.requests.push(request);
        self.uid
    }

    fn at(&mut self, uid: u64, mark: Mark, act: Act) {
        self.parts.schedule.intents.push(Intent { uid, sample: 0, mark, act });
    }
}

/// In the first residency, with this many tokens computed.
fn computed(tokens: u32) -> Mark {
    Mark::Computed { residency: 1, tokens }
}

#[cfg(test)]
mod tests {
    use proptest::strategy::ValueTree;

    use super::super::cases;
    use super::super::tests::space;
    use crate::schedule::ActKind;

    /// Goal: the acts of every mechanism stand in the first three cases, whatever the seed, and these are executable.
    #[test]
    fn the_first_three_cases_hold_every_act_that_a_gate_asks_for() {
        for positions_max in [4, 40, 512] {
            let mut space = space();
            space.edges.positions_max = positions_max;
            for seed in 0..20 {
                let first = [0, 1, 2].map(|i| cases(space.clone()).nth(seed, i).current());
                for case in &first {
                    case.validate().unwrap();
                    for (r, l) in case.workload.requests.iter().zip(case.workload.lengths()) {
                        assert!(l.positions <= positions_max as usize, "request {}", r.uid);
                    }
                }
                let intents = first.iter().flat_map(|case| &case.schedule.intents);
                let acts: Vec<ActKind> = intents.map(|i| i.act.kind()).collect();
                use ActKind::{Abort, Bucket, Cut, Evict, Fork, Land, Place, Preempt, Swap};
                for act in [Cut, Preempt, Swap, Fork, Abort, Place, Evict, Bucket, Land] {
                    assert!(acts.contains(&act), "{act:?} in seed {seed}");
                }
                assert!(first[2].world.poison);
            }
        }
    }
}
