//! Storms: a few short sequences in a tight pool, with deviations at nearly every boundary.
//!
//! Ordinary courses leave a request in peace most of the time, so that runs of three rare events hardly occur. Here each
//! sequence goes through several residencies, and at each offer and each first chunk something is decided otherwise.
//! Marks are the first boundaries of a residency and progress that is sure to come, so that most intents fire.

use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use crate::workload::{Request, SampleId};
use crate::world::World;

use super::Space;
use super::draw::Draw;
use super::swarm::{Feature, Swarm};
use super::workload::Planned;

/// Draws a storm, if the case is to have one: makes the world tight, the requests few and short.
pub(super) fn lay(
    draw: &mut Draw<'_>,
    space: &Space,
    swarm: &Swarm,
    world: &mut World,
    planned: &mut Vec<Planned>,
) -> Option<Schedule> {
    let positions_max = space.edges.positions_max as usize;
    if swarm.level(Feature::Storm) == 0 || space.prompts.is_some() || positions_max < 64 {
        return None;
    }
    world.block_size = draw.pick(&[1, 2, 3, 4, 5, 7]);
    world.prefix_cache = true;
    world.token_budget = None;
    let block = world.block_size as usize;
    let samples = draw.pick(&[1, 2, 2, 3]);
    let length = 1 + draw.below(2 * block + 2);
    let vocab = space.edges.vocab as usize;
    let prompt: Vec<u32> = (0..length).map(|_| draw.below(vocab) as u32).collect();
    let kin = samples > 1;
    let mut request = |uid: u64, prompt: Vec<u32>, max_tokens: usize, samples: u32| Planned {
        prompt_len: prompt.len(),
        request: Request {
            samples,
            ignore_eos: draw.percent(80),
            ..Request::new(uid, prompt, max_tokens as u32)
        },
        shared: 0,
        foreign: 0,
        follows: None,
    };
    let mut all = vec![request(1, prompt.clone(), 0, samples)];
    if samples < 3 {
        all.push(request(2, Vec::new(), 0, 1));
    }
    // Whom others fork from stays long enough to be found.
    all[0].request.max_tokens = if kin { draw.between(5, 9) } else { draw.between(1, 8) } as u32;
    if let Some(other) = all.get_mut(1) {
        let mut tokens = prompt[..draw.below(length + 1)].to_vec();
        let own = 1 + draw.below(2 * block);
        tokens.extend((0..own).map(|_| draw.below(vocab) as u32));
        other.prompt_len = tokens.len();
        other.request.prompt = tokens.into();
        other.request.max_tokens = draw.between(1, 5) as u32;
        if !kin {
            other.request.samples = 2;
        }
    }
    let blocks = |p: &Planned| p.blocks(world.block_size) / p.request.samples as usize;
    let largest = all.iter().map(blocks).max().unwrap_or(1);
    // Siblings need room next to the one that they fork from.
    let spare = if kin { largest / 2 + 1 } else { 0 };
    world.pool_blocks = (largest + spare + draw.below(3)) as u32;
    let mut schedule = Schedule::default();
    for plan in &all {
        for id in plan.request.sample_ids() {
            let mut gust = Gust { draw, plan, id, block, offers: 0, intents: Vec::new() };
            gust.blow(kin && id.uid == 1);
            schedule.intents.append(&mut gust.intents);
        }
    }
    *planned = all;
    Some(schedule)
}

/// One sequence's part of a storm.
struct Gust<'a, 'r> {
    draw: &'a mut Draw<'r>,
    plan: &'a Planned,
    id: SampleId,
    block: usize,
    offers: u32,
    intents: Vec<Intent>,
}

impl Gust<'_, '_> {
    fn push(&mut self, mark: Mark, act: Act) {
        let SampleId { uid, sample } = self.id;
        self.intents.push(Intent { uid, sample, mark, act });
    }

    /// Lays out its residencies. `kin`: it has siblings, or is one; the first of them is left in peace.
    fn blow(&mut self, kin: bool) {
        let is_parent = kin && self.id.sample == 0;
        let forks = kin && self.id.sample > 0;
        let steps = if forks { self.draw.between(1, 3) } else { self.draw.below(3) } as u32;
        if steps > 0 && !is_parent {
            self.push(Mark::Start, Act::Arrive { steps });
        }
        let residencies = if is_parent { 1 } else { self.draw.between(1, 4) as u32 };
        let known = self.plan.prompt_len;
        // Tokens that it comes back with, and those that it had when it left.
        let (mut back, mut left) = (0, 0);
        for residency in 1..=residencies {
            if !forks && !is_parent {
                for _ in 0..self.draw.pick(&[0, 0, 1, 2]) {
                    self.offers += 1;
                    let steps = self.draw.between(1, 2) as u32;
                    self.push(Mark::Offer { n: self.offers }, Act::Hold { steps });
                }
            }
            self.offers += 1;
            let offer = Mark::Offer { n: self.offers };
            let now = |tokens: usize| Mark::Computed { residency, tokens: tokens as u32 };
            if forks && back == 0 && known > 1 && (residency == 1 || self.draw.percent(40)) {
                self.push(offer, Act::Fork);
            } else if residency > 1 && back == 0 && left >= known && known > self.block && !kin {
                let own = (known - 1) / self.block;
                for block in (0..own).rev().take(self.draw.below(3)) {
                    self.push(offer, Act::Evict { block: block as u32 });
                }
            }
            if self.draw.percent(35) && !is_parent {
                let late = self.draw.between(1, 2) as u32;
                self.push(now(0), Act::Land { late });
            } else if self.draw.percent(40) && known > 1 && back == 0 && !forks {
                self.push(now(0), Act::Cut { tokens: 1 });
            }
            if residency == residencies {
                if self.draw.percent(15) && !is_parent {
                    let at = self.draw_at(known);
                    self.push(now(at), Act::Abort);
                }
                break;
            }
            let at = self.draw_at(known);
            let swaps = at > 0 && self.draw.percent(50);
            let kind = if swaps { PreemptKind::Swap } else { PreemptKind::Recompute };
            let away = self.draw.below(2) as u32;
            self.push(now(at), Act::Preempt { kind, away });
            (back, left) = (if swaps { at } else { 0 }, at);
        }
    }

    /// A moment to leave at: at once, after the prefill, or a token later.
    fn draw_at(&mut self, known: usize) -> usize {
        let tokens = self.plan.request.max_tokens as usize;
        match self.draw.below(3) {
            0 => 0,
            _ if tokens < 2 => 0,
            1 => known,
            _ => known + self.draw.below(tokens - 1),
        }
    }
}
