//! Schedules: deviations placed along each request's expected course, so that most of them fire.

use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use crate::workload::SampleId;
use crate::world::World;

use super::Space;
use super::draw::Draw;
use super::swarm::{Feature, Swarm};
use super::workload::Planned;

mod launches;

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
    let samples: usize = planned.iter().map(|p| p.request.samples as usize).sum();
    let doomed = doomed(draw, swarm, samples);
    let mut schedule = Schedule::default();
    // Boundaries at which the first sample of each request arrives.
    let mut arrivals: Vec<usize> = Vec::with_capacity(planned.len());
    let mut place = 0;
    for plan in planned {
        // Whom others fork from is left in peace, so that they find it.
        let forks = plan.request.samples > 1 && draw.percent(swarm.level(Feature::Samples));
        let after = plan.follows.map(|of| arrivals[of] + planned[of].request.max_tokens as usize);
        for id in plan.request.sample_ids() {
            let is_first = id.sample == plan.request.first_sample;
            let kin = if is_first {
                Kin::First { forks, after }
            } else {
                let arrival = *arrivals.last().expect("the first sample comes first");
                Kin::Sibling { forks: forks && (!tight || draw.percent(30)), arrival }
            };
            let mut course = Course {
                draw,
                space,
                swarm,
                world,
                plan,
                id,
                kin,
                requests: samples,
                tight,
                doomed: doomed.contains(&place),
                offers: 0,
                intents: Vec::new(),
            };
            let arrival = course.lay(place);
            if is_first {
                arrivals.push(arrival);
            }
            schedule.intents.append(&mut course.intents);
            place += 1;
        }
    }
    schedule
}

/// Draws the deviations of a request that made room in its first residency, from its next offer on.
pub(super) fn after_making_room(
    draw: &mut Draw<'_>,
    space: &Space,
    swarm: &Swarm,
    world: &World,
    planned: &[Planned],
    index: usize,
    known: usize,
) -> Vec<Intent> {
    let plan = &planned[index];
    let doomed = draw.percent(swarm.level(Feature::Abort) / 2);
    let mut course = Course {
        draw,
        space,
        swarm,
        world,
        plan,
        id: SampleId { uid: plan.request.uid, sample: plan.request.first_sample },
        kin: Kin::First { forks: false, after: None },
        requests: planned.len(),
        tight: true,
        doomed,
        offers: 1,
        intents: Vec::new(),
    };
    course.hold();
    course.offers += 1;
    course.place(0, known);
    course.residencies(index, true, 2, 0, known);
    course.intents
}

/// Which of the samples are aborted, by their place.
fn doomed(draw: &mut Draw<'_>, swarm: &Swarm, samples: usize) -> Vec<usize> {
    let level = swarm.level(Feature::Abort);
    let percent = if samples > 1 { level } else { level / 3 };
    let mut doomed = Vec::new();
    for percent in [percent, percent / 3] {
        if draw.percent(percent) {
            doomed.push(draw.below(samples));
        }
    }
    doomed
}

/// How a course depends on that of another sample.
#[derive(Clone, Copy, Debug)]
enum Kin {
    /// The first sample of its request.
    First {
        /// Whether others fork from it.
        forks: bool,
        /// Boundary at which what it continues has finished.
        after: Option<usize>,
    },
    /// A later sample.
    Sibling {
        /// Whether it is to be forked.
        forks: bool,
        /// Boundary at which the first sample arrives.
        arrival: usize,
    },
}

/// One sample's expected course, as far as it is laid out.
struct Course<'a, 'r> {
    draw: &'a mut Draw<'r>,
    space: &'a Space,
    swarm: &'a Swarm,
    world: &'a World,
    plan: &'a Planned,
    id: SampleId,
    kin: Kin,
    requests: usize,
    /// Whether pool pressure may preempt it in ways that are not laid out here.
    tight: bool,
    /// Whether it is to be aborted.
    doomed: bool,
    /// Offers that the course has used up.
    offers: u32,
    intents: Vec<Intent>,
}

/// Where a sample stands when it becomes resident.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// Boundary at which it arrives.
    arrival: usize,
    /// Blocks that the prefix cache is expected to serve.
    hit: usize,
    /// Whether what it continues has finished by then.
    follows: bool,
    /// Tokens that it takes over from another sample.
    forked: Option<usize>,
}

impl Course<'_, '_> {
    /// Lays the course out. Returns the boundary of the arrival.
    fn lay(&mut self, place: usize) -> usize {
        let prompt = self.plan.prompt_len;
        let start = self.arrive(place);
        if start.forked.is_none() {
            self.hold();
        }
        self.offers += 1;
        if self.doomed && self.draw.percent(8) {
            self.push(Mark::Offer { n: self.offers }, Act::Abort);
            return start.arrival;
        }
        let block = self.world.block_size as usize;
        let from = match start.forked {
            Some(tokens) => {
                self.push(Mark::Offer { n: self.offers }, Act::Fork);
                tokens
            }
            // What it continues has left by then.
            None if start.follows && !self.tight && self.draw.percent(40) => {
                self.thin_out(start.hit, 0) * block
            }
            None => self.trim(start.hit, 50) * block,
        };
        if start.forked.is_none() {
            self.place(from, prompt);
        }
        // Who is there from the start meets the others.
        let alone = self.requests == 1 || start.arrival > 0;
        self.residencies(place, alone, 1, from, prompt);
        start.arrival
    }

    /// Lays out a residency and those after it: `from` tokens are there at its start, `known` is where its prefill ends.
    fn residencies(
        &mut self,
        place: usize,
        alone: bool,
        first: u32,
        mut from: usize,
        mut known: usize,
    ) {
        let block = self.world.block_size as usize;
        // The last boundary at which the request is resident has this many tokens computed.
        let last = self.plan.prompt_len + self.plan.request.max_tokens as usize - 2;
        let mut residency = first;
        let can_leave = self.plan.request.max_tokens >= 2 || self.level(Feature::Cut) > 0;
        loop {
            let first_cut = self.cuts(residency, from, known);
            self.linger(place, residency, from, last, alone || residency > 1);
            let swaps = self.level(Feature::Swap) > 0;
            let again = residency == first || self.draw.percent(if swaps { 60 } else { 40 });
            let leaves = self.level(Feature::Preempt).max(self.level(Feature::Swap));
            let percent = match self.doomed && swaps && !self.tight {
                // So that some are aborted while they are swapped.
                true => 80,
                false => leaves / if self.tight || self.is_forked_from() { 4 } else { 2 },
            };
            let stays = residency > 3 || !again || !can_leave || !self.draw.percent(percent);
            if self.doomed
                && (stays || self.tight || self.draw.percent(if swaps { 25 } else { 50 }))
            {
                self.launches(residency, from, known, last);
                self.abort(residency, from, first_cut, last);
                break;
            }
            if stays {
                self.launches(residency, from, known, last);
                break;
            }
            let left = self.preempt(residency, first_cut, known, last);
            let Some((mut tokens, swapped)) = left else { break };
            self.launches(residency, from, known, tokens - 1);
            if let Some(landed) = self.lands_after_leaving(residency, from, known, tokens, swapped)
            {
                // What was in flight is dropped.
                tokens = landed;
            }
            self.hold();
            self.offers += 1;
            if swapped && self.draw.percent(self.level(Feature::Land) / 2) {
                let late = self.draw.between(1, 3) as u32;
                self.push(Mark::Offer { n: self.offers }, Act::Land { late });
            }
            if self.doomed && self.draw.percent(50) {
                self.push(Mark::Offer { n: self.offers }, Act::Abort);
                break;
            }
            from = if swapped {
                tokens
            } else {
                // What is cached of its own blocks comes back as a hit, unless the schedule refuses it.
                let hit = if self.world.prefix_cache { tokens / block } else { 0 };
                let forks = matches!(self.kin, Kin::Sibling { forks: true, .. });
                if forks && self.draw.percent(15) {
                    self.push(Mark::Offer { n: self.offers }, Act::Fork);
                    self.plan.prompt_len - 1
                } else if self.tight {
                    hit * block
                } else {
                    // A block that others have too may be in use.
                    let kept = self.plan.shared.div_ceil(block);
                    self.thin_out(hit, kept) * block
                }
            };
            self.place(from, known.max(tokens + 1));
            residency += 1;
            known = known.max(tokens + 1);
        }
    }

    /// Whether others find it and fork from it, if it is left in peace.
    fn is_forked_from(&self) -> bool {
        matches!(self.kin, Kin::First { forks: true, .. })
    }

    /// Thins out, trims or refuses the hit expected at the present offer on blocks that nobody uses, past the first `kept`.
    /// Returns what is left of it, in blocks.
    fn thin_out(&mut self, hit: usize, kept: usize) -> usize {
        let alone = self.plan.request.samples == 1;
        if hit <= kept || !alone || !self.draw.percent(self.level(Feature::Evict)) {
            return self.trim(hit, 60);
        }
        let mut left =
            if self.draw.percent(50) { hit - 1 } else { self.draw.between(kept, hit - 1) };
        self.push(Mark::Offer { n: self.offers }, Act::Evict { block: left as u32 });
        if left > kept && self.draw.percent(20) {
            left = self.draw.between(kept, left - 1);
            self.push(Mark::Offer { n: self.offers }, Act::Evict { block: left as u32 });
        }
        self.trim(left, 30)
    }

    /// Aborts it in this residency, and takes back what was meant for later.
    fn abort(&mut self, in_residency: u32, from: usize, first_cut: Option<usize>, last: usize) {
        let at = match first_cut {
            Some(cut) if self.draw.percent(40) => cut,
            // Before anything of it is computed.
            _ if self.draw.percent(12) => from,
            _ => self.draw.between(from, last.max(from)),
        } as u32;
        self.intents.retain(|intent| {
            !matches!(intent.mark, Mark::Computed { residency, tokens }
                if residency == in_residency && tokens >= at)
        });
        self.push(Mark::Computed { residency: in_residency, tokens: at }, Act::Abort);
    }

    fn level(&self, feature: Feature) -> usize {
        self.swarm.level(feature)
    }

    fn push(&mut self, mark: Mark, act: Act) {
        let SampleId { uid, sample } = self.id;
        self.intents.push(Intent { uid, sample, mark, act });
    }

    /// Staggers the arrival.
    fn arrive(&mut self, place: usize) -> Start {
        let block = self.world.block_size as usize;
        let max_tokens = self.plan.request.max_tokens as usize;
        let cached = |tokens: usize| match self.world.prefix_cache {
            true => (tokens / block).min((self.plan.prompt_len - 1) / block),
            false => 0,
        };
        let mut start = Start { arrival: 0, hit: 0, follows: false, forked: None };
        match self.kin {
            Kin::Sibling { forks: true, arrival } if self.plan.prompt_len > 1 && max_tokens > 1 => {
                // Whoever it forks from may end early.
                let last = max_tokens - 1;
                let latest = if self.draw.percent(70) { last.div_ceil(2) } else { last };
                start.arrival = arrival + self.draw.between(1, latest);
                // Where the prefix cache serves as much as a fork would, nothing would differ.
                let all = self.plan.prompt_len - 1;
                if !all.is_multiple_of(block) || !self.world.prefix_cache {
                    start.forked = Some(all);
                } else {
                    start.hit = cached(all);
                }
            }
            Kin::Sibling { arrival, .. } => {
                start.arrival = arrival;
                if self.draw.percent(60) {
                    start.arrival += self.draw.between(2, 4);
                    start.hit = cached(self.plan.prompt_len);
                }
            }
            Kin::First { after: Some(after), .. } if self.draw.percent(90) => {
                start.arrival = after + self.draw.between(2, 6);
                start.hit = cached(self.plan.shared);
                start.follows = true;
            }
            Kin::First { .. } => {
                let shares = self.plan.shared.max(self.plan.foreign) >= block;
                let percent = if shares { 85 } else { self.level(Feature::Arrive) };
                if place > 0 && self.draw.percent(percent) {
                    // Late enough for an earlier request's prefill to be published, most of the time.
                    start.arrival = self.draw.between(2 + place, 4 + 2 * place);
                    start.hit = cached(self.plan.shared);
                }
            }
        }
        if start.arrival > 0 {
            self.push(Mark::Start, Act::Arrive { steps: start.arrival as u32 });
        }
        start
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
    fn linger(&mut self, place: usize, residency: u32, from: usize, last: usize, alone: bool) {
        if self.draw.percent(self.level(Feature::Stall) / 3) && last > from {
            let tokens = self.draw.between(from + 1, last) as u32;
            let steps = self.draw.between(1, 3) as u32;
            self.push(Mark::Computed { residency, tokens }, Act::Stall { steps });
        }
        if self.draw.percent(self.level(Feature::Rank) / if alone { 10 } else { 1 }) {
            // Early, while the others are there: the eldest goes behind them, the others before them.
            let tokens = self.draw.between(0, self.plan.prompt_len.min(last)) as u32;
            let to = match place {
                0 => self.requests,
                _ if self.draw.percent(70) => 0,
                _ => self.draw.below(place),
            };
            self.push(Mark::Computed { residency, tokens }, Act::Rank { to: to as u32 });
        }
    }

    /// Preempts it, in the middle of its prefill or later. Returns the tokens computed by then, and whether they are kept
    /// in host memory.
    fn preempt(
        &mut self,
        residency: u32,
        first_cut: Option<usize>,
        known: usize,
        last: usize,
    ) -> Option<(usize, bool)> {
        let tokens = match first_cut {
            Some(cut) if self.draw.percent(50) => cut,
            _ if last >= known => self.draw.between(known, last),
            _ => first_cut?,
        };
        let (recompute, swap) = (self.level(Feature::Preempt), self.level(Feature::Swap));
        let swapped = self.draw.below(recompute + swap) < swap;
        let kind = if swapped { PreemptKind::Swap } else { PreemptKind::Recompute };
        let away = self.draw.below(4) as u32;
        let mark = Mark::Computed { residency, tokens: tokens as u32 };
        self.push(mark, Act::Preempt { kind, away });
        if swapped && self.draw.percent(self.level(Feature::Land) / 3) {
            let late = self.draw.between(1, 3) as u32;
            self.push(mark, Act::Land { late });
        }
        Some((tokens, swapped))
    }
}
