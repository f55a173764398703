//! Schedules: deviations placed along each request's expected course, so that most of them fire.

use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use crate::world::World;

use super::Space;
use super::draw::Draw;
use super::swarm::{Feature, Swarm};
use super::workload::Planned;

/// Draws the deviations of all requests.
pub(super) fn schedule(
    draw: &mut Draw<'_>,
    space: &Space,
    swarm: &Swarm,
    world: &World,
    planned: &[Planned],
) -> Schedule {
    let blocks: usize = planned.iter().map(|p| p.blocks(world.block_size)).sum();
    let tight = (world.pool_blocks as usize) < blocks;
    let mut schedule = Schedule::default();
    for (i, plan) in planned.iter().enumerate() {
        let mut course = Course {
            draw,
            space,
            swarm,
            world,
            plan,
            requests: planned.len(),
            tight,
            offers: 0,
            intents: Vec::new(),
        };
        course.lay(i);
        schedule.intents.append(&mut course.intents);
    }
    schedule
}

/// One request's expected course, as far as it is laid out.
struct Course<'a, 'r> {
    draw: &'a mut Draw<'r>,
    space: &'a Space,
    swarm: &'a Swarm,
    world: &'a World,
    plan: &'a Planned,
    requests: usize,
    /// Whether pool pressure may preempt it in ways that are not laid out here.
    tight: bool,
    /// Offers that the course has used up.
    offers: u32,
    intents: Vec<Intent>,
}

impl Course<'_, '_> {
    fn lay(&mut self, place: usize) {
        let prompt = self.plan.prompt_len;
        // The last boundary at which the request is resident has this many tokens computed.
        let last = prompt + self.plan.request.max_tokens as usize - 2;
        let mut hit = self.arrive(place);
        self.hold();
        self.offers += 1;
        hit = self.trim(hit, 50);
        let mut from = hit * self.world.block_size as usize;
        let mut residency = 1;
        let mut known = prompt;
        let can_leave = self.plan.request.max_tokens >= 2 || self.level(Feature::Cut) > 0;
        loop {
            let first_cut = self.cuts(residency, from, known);
            self.linger(residency, from, last);
            let again = residency == 1 || self.draw.percent(40);
            let percent = self.level(Feature::Preempt) / if self.tight { 4 } else { 2 };
            if residency > 3 || !again || !can_leave || !self.draw.percent(percent) {
                break;
            }
            let Some(tokens) = self.preempt(residency, first_cut, known, last) else { break };
            // What is cached of its own blocks comes back as a hit, unless the schedule refuses it.
            let block = self.world.block_size as usize;
            hit = if self.world.prefix_cache { tokens / block } else { 0 };
            self.hold();
            self.offers += 1;
            hit = if self.tight { hit } else { self.trim(hit, 60) };
            from = hit * block;
            residency += 1;
            known = known.max(tokens + 1);
        }
        self.volunteer(place);
    }

    /// Offers itself as a victim, where the pool is tight and the default would take somebody younger.
    fn volunteer(&mut self, place: usize) {
        let percent = self.level(Feature::Preempt) / 3;
        let has_elder_and_younger = place > 0 && place + 1 < self.requests;
        if self.tight && has_elder_and_younger && self.draw.percent(percent) {
            self.push(Mark::Computed { residency: 1, tokens: 1 }, Act::Victim);
        }
    }

    fn level(&self, feature: Feature) -> usize {
        self.swarm.level(feature)
    }

    fn push(&mut self, mark: Mark, act: Act) {
        self.intents.push(Intent { uid: self.plan.request.uid, sample: 0, mark, act });
    }

    /// Staggers the arrival. Returns the whole blocks that a prefix hit is expected to serve.
    fn arrive(&mut self, place: usize) -> usize {
        let shares = self.plan.shared >= self.world.block_size as usize;
        let percent = if shares { 85 } else { self.level(Feature::Arrive) };
        if place == 0 || !self.draw.percent(percent) {
            return 0;
        }
        // Late enough for an earlier request's prefill to be published, most of the time.
        let steps = self.draw.between(2 + place, 4 + 2 * place) as u32;
        self.push(Mark::Start, Act::Arrive { steps });
        if !self.world.prefix_cache {
            return 0;
        }
        let block = self.world.block_size as usize;
        (self.plan.shared / block).min((self.plan.prompt_len - 1) / block)
    }

    /// Refuses the next offer for a while.
    fn hold(&mut self) {
        if self.draw.percent(self.level(Feature::Hold) / 3) {
            self.offers += 1;
            let steps = self.draw.between(1, 4) as u32;
            self.push(Mark::Offer { n: self.offers }, Act::Hold { steps });
        }
    }

    /// Trims or refuses the hit expected at the present offer. Returns what is left of it, in blocks.
    fn trim(&mut self, expected: usize, percent: usize) -> usize {
        let wanted = percent * self.level(Feature::Hit) / 100;
        if expected == 0 || !self.draw.percent(wanted) {
            return expected;
        }
        let at_most = if self.draw.percent(50) { 0 } else { self.draw.below(expected) };
        self.push(Mark::Offer { n: self.offers }, Act::Hit { at_most: at_most as u32 });
        at_most
    }

    /// Cuts the prefill of tokens `from..known` at edges and elsewhere. Returns the first cut.
    fn cuts(&mut self, residency: u32, from: usize, known: usize) -> Option<usize> {
        if known < from + 2 || !self.draw.percent(self.level(Feature::Cut)) {
            return None;
        }
        let block = self.world.block_size as usize;
        let (tile, split) = (self.space.edges.tile as usize, self.space.edges.split as usize);
        let mut at: Vec<usize> = (0..self.draw.between(1, 3))
            .map(|_| {
                let granule = self.draw.pick(&[0, block, tile, split]);
                let place = self.draw.between(from + 1, known - 1);
                let moved = match granule {
                    0 => place,
                    _ => place / granule * granule + self.draw.below(3),
                };
                moved.saturating_sub(1).clamp(from + 1, known - 1)
            })
            .collect();
        at.sort_unstable();
        at.dedup();
        let mut before = from;
        for cut in &at {
            let mark = Mark::Computed { residency, tokens: before as u32 };
            self.push(mark, Act::Cut { tokens: (cut - before) as u32 });
            before = *cut;
        }
        at.first().copied()
    }

    /// Stalls and ranks.
    fn linger(&mut self, residency: u32, from: usize, last: usize) {
        if self.draw.percent(self.level(Feature::Stall) / 3) && last > from {
            let tokens = self.draw.between(from + 1, last) as u32;
            let steps = self.draw.between(1, 3) as u32;
            self.push(Mark::Computed { residency, tokens }, Act::Stall { steps });
        }
        if self.draw.percent(self.level(Feature::Rank) / 2) {
            let tokens = self.draw.between(1, last.max(1)) as u32;
            let to = self.draw.below(self.requests) as u32;
            self.push(Mark::Computed { residency, tokens }, Act::Rank { to });
        }
    }

    /// Preempts it, in the middle of its prefill or later. Returns the tokens computed by then.
    fn preempt(
        &mut self,
        residency: u32,
        first_cut: Option<usize>,
        known: usize,
        last: usize,
    ) -> Option<usize> {
        let tokens = match first_cut {
            Some(cut) if self.draw.percent(50) => cut,
            _ if last >= known => self.draw.between(known, last),
            _ => first_cut?,
        };
        let away = self.draw.below(4) as u32;
        let mark = Mark::Computed { residency, tokens: tokens as u32 };
        self.push(mark, Act::Preempt { kind: PreemptKind::Recompute, away });
        Some(tokens)
    }
}
