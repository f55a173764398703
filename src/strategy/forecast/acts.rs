//! How a forecast carries out intents.

use crate::schedule::{Act, Intent, Mark, PreemptKind};

use super::{Cargo, Deed, Forecast, Slice, Stand};

/// Whether an intent's mark is reached by a resident sequence.
fn is_computed(intent: &Intent, in_residency: u32, computed: usize) -> bool {
    matches!(intent.mark, Mark::Computed { residency, tokens }
        if residency == in_residency && computed >= tokens as usize)
}

impl Forecast {
    /// Takes a sequence's first pending intent that is due and satisfies `wanted`; `computed` positions count for marks.
    pub(super) fn due(
        &mut self,
        i: usize,
        computed: usize,
        wanted: fn(Act) -> bool,
    ) -> Option<(usize, Act)> {
        let intents = &self.intents;
        let s = &mut self.sequences[i];
        let residency = s.residency;
        let k = s.take(intents, |x| wanted(x.act) && is_computed(x, residency, computed))?;
        Some((k, intents[k].act))
    }

    /// The same at the present offer.
    pub(super) fn offered(&mut self, i: usize, wanted: fn(Act) -> bool) -> Option<(usize, Act)> {
        let intents = &self.intents;
        let s = &mut self.sequences[i];
        let n = s.offers;
        let k = s.take(intents, |x| wanted(x.act) && x.mark == Mark::Offer { n })?;
        Some((k, intents[k].act))
    }

    pub(super) fn arrivals(&mut self) {
        for i in 0..self.sequences.len() {
            let intents = &self.intents;
            let s = &mut self.sequences[i];
            while let Some(k) = s.take(intents, |x| x.mark == Mark::Start) {
                if let Act::Arrive { steps } = intents[k].act {
                    s.arrival += u64::from(steps);
                    s.offer_at = s.arrival;
                    self.fired[k] = steps > 0;
                }
            }
        }
    }

    /// Acts on a resident sequence.
    pub(super) fn act_on(&mut self, i: usize) {
        let launched = self.launched(i);
        if let Some((k, _)) = self.due(i, launched, |act| act == Act::Abort) {
            self.fired[k] = true;
            self.release(i);
            self.sequences[i].stand = Stand::Finished;
            self.log.push((i, Deed::Abort));
            return;
        }
        while let Some((k, act)) = self.due(i, launched, |act| matches!(act, Act::Preempt { .. })) {
            let offer_at = self.boundary + act.delay();
            if !matches!(act, Act::Preempt { kind: PreemptKind::Swap, .. }) {
                self.preempt(i, offer_at);
            } else if !self.swap_out(i, offer_at) {
                continue;
            }
            self.fired[k] = true;
            return;
        }
        let lingers = |act| matches!(act, Act::Stall { .. } | Act::Rank { .. } | Act::Victim);
        while let Some((k, act)) = self.due(i, launched, lingers) {
            let s = &mut self.sequences[i];
            match act {
                Act::Stall { steps } => {
                    let until = self.boundary + u64::from(steps);
                    self.fired[k] = until > s.step_at.max(self.boundary);
                    s.step_at = s.step_at.max(until);
                }
                Act::Rank { to } => {
                    s.rank = Some(to);
                    s.ranked_by = Some(k);
                }
                _ => s.victim = s.victim.or(Some(k)),
            }
        }
    }

    fn swap_out(&mut self, i: usize, offer_at: u64) -> bool {
        let held = self.sequences[i].computed.div_ceil(self.block_size);
        if held == 0 || held > self.swap_free || self.comes_back(i) {
            return false;
        }
        self.swap_free -= held;
        let landing = if self.is_in_flight(i) { None } else { self.landing_due(i) };
        let late = self.lateness(landing);
        let mut offer_at = offer_at;
        if late > 0 {
            self.take_off(i, Cargo::SwapOut, late);
            offer_at = offer_at.max(self.boundary + late + 1);
        }
        self.release(i);
        let s = &mut self.sequences[i];
        s.stand = Stand::Swapped;
        (s.slots, s.offer_at, s.indexed) = (held, offer_at, 0);
        self.log.push((i, Deed::SwapOut));
        true
    }

    /// The default would admit this sequence with these cached blocks now.
    pub(super) fn offer(&mut self, i: usize, mut cached: Vec<u32>) {
        self.sequences[i].offers += 1;
        if let Some((k, _)) = self.offered(i, |act| act == Act::Abort) {
            self.fired[k] = true;
            let s = &mut self.sequences[i];
            s.stand = Stand::Finished;
            self.swap_free += std::mem::take(&mut s.slots);
            self.log.push((i, Deed::Abort));
            return;
        }
        if let Some((k, act)) = self.offered(i, |act| matches!(act, Act::Hold { .. })) {
            self.fired[k] = act.delay() > 0;
            if act.delay() > 0 {
                self.sequences[i].offer_at = self.boundary + act.delay();
                self.log.push((i, Deed::Refuse));
                return;
            }
        }
        if self.sequences[i].stand == Stand::Swapped {
            let slots = std::mem::take(&mut self.sequences[i].slots);
            let blocks = (0..slots).filter_map(|_| self.hand_out(i)).collect();
            let computed = self.sequences[i].computed;
            self.log.push((i, Deed::SwapIn));
            self.reside(i, blocks, computed, 0);
            let landing = self.return_due(i);
            match self.lateness(landing) {
                0 => self.swap_free += slots,
                late => self.take_off(i, Cargo::SwapIn { slots }, late),
            }
            return;
        }
        if let Some((k, _)) = self.offered(i, |act| act == Act::Fork)
            && let Some((blocks, positions)) = self.forkable(i)
            && (blocks != cached || !positions.is_multiple_of(self.block_size))
        {
            self.fired[k] = true;
            self.log.extend([(i, Deed::Admit), (i, Deed::Fork)]);
            blocks.iter().for_each(|b| self.pool.share(*b));
            return self.reside(i, blocks, positions, positions / self.block_size);
        }
        while let Some((k, act)) = self.offered(i, |act| matches!(act, Act::Evict { .. })) {
            let Act::Evict { block } = act else { continue };
            let chain = self.sequences[i].chains.get(block as usize).copied();
            self.fired[k] = chain.is_some_and(|chain| self.pool.evict(chain));
            if self.fired[k] {
                self.log.push((i, Deed::Evict));
                cached = self.lookup(i);
            }
        }
        let findable = cached.len();
        while let Some((k, act)) = self.offered(i, |act| matches!(act, Act::Hit { .. })) {
            let Act::Hit { at_most } = act else { continue };
            self.fired[k] = (at_most as usize) < cached.len();
            cached.truncate(at_most as usize);
        }
        cached.iter().for_each(|b| self.pool.share(*b));
        let count = cached.len();
        self.log.push((i, Deed::Admit));
        if findable > 0 {
            self.log.push((i, if count > 0 { Deed::Hit } else { Deed::Miss }));
        }
        self.reside(i, cached, count * self.block_size, count);
    }

    /// Own blocks of a sequence that are cached, and that nobody uses.
    pub(in crate::strategy) fn evictable(&self, i: usize) -> Vec<u32> {
        let chains = self.sequences[i].chains.iter().enumerate();
        let unused = |chain| self.pool.find(chain).is_some_and(|b| self.pool.references(b) == 0);
        chains.filter(|(_, chain)| unused(**chain)).map(|(j, _)| j as u32).collect()
    }

    /// Blocks and positions that a fork would attach.
    pub(in crate::strategy) fn forkable(&self, i: usize) -> Option<(Vec<u32>, usize)> {
        let child = &self.sequences[i];
        if child.scores_prompt || child.id.sample == 0 {
            return None;
        }
        let before = self.sequences.iter().enumerate().filter(|(j, s)| {
            s.id.uid == child.id.uid
                && s.id.sample < child.id.sample
                && s.stand == Stand::Running
                && !self.is_in_flight(*j)
        });
        let parent =
            before.map(|(_, s)| s).reduce(|a, b| if b.computed > a.computed { b } else { a })?;
        let positions = parent.computed.min(child.prompt_len - 1);
        let blocks = parent.blocks[..positions.div_ceil(self.block_size)].to_vec();
        (positions > 0).then_some((blocks, positions))
    }

    /// The next chunk, and the intent that cuts it.
    pub(super) fn chunk(&mut self, i: usize, default: usize) -> (usize, Option<usize>) {
        let computed = self.sequences[i].computed;
        match self.due(i, computed, |act| matches!(act, Act::Cut { .. })) {
            Some((k, Act::Cut { tokens })) => (default.min(tokens as usize).max(1), Some(k)),
            _ => (default, None),
        }
    }

    /// A block for a sequence, placed as it is wanted.
    pub(super) fn hand_out(&mut self, i: usize) -> Option<u32> {
        if self.pool.available() == 0 {
            return None;
        }
        let place = |act| matches!(act, Act::Place { .. });
        let computed = self.sequences[i].computed;
        // At an offer the residency is the one before: its marks are still due, as the present one's are later.
        let n = self.sequences[i].offers;
        let residency = self.sequences[i].residency;
        let intents = &self.intents;
        let taken = self.sequences[i].take(intents, |x| {
            place(x.act) && (x.mark == Mark::Offer { n } || is_computed(x, residency, computed))
        });
        let wanted = match taken.map(|k| self.intents[k].act) {
            Some(Act::Place { nth }) => nth as usize,
            _ => 0,
        };
        let (block, nth, evicts) = self.pool.take(wanted)?;
        if evicts {
            self.log.push((i, Deed::Evict));
        }
        if let Some(k) = taken {
            self.fired[k] = nth > 0;
        }
        Some(block)
    }

    /// Who makes room.
    pub(super) fn choose_victim(&mut self, asks: usize, step: &[Slice]) -> usize {
        let is_candidate = |i: &usize| {
            self.sequences[*i].stand == Stand::Running && step.iter().all(|slice| slice.at != *i)
        };
        let candidates = || self.order.iter().copied().filter(is_candidate);
        let youngest = candidates().next_back().unwrap_or(asks);
        let preferred = candidates().find(|i| self.sequences[*i].victim.is_some());
        let Some(chosen) = preferred else { return youngest };
        if let Some(k) = self.sequences[chosen].victim.take() {
            self.fired[k] = chosen != youngest;
        }
        chosen
    }

    /// Puts the slices in row order.
    pub(super) fn order_rows(&mut self, step: &mut Vec<Slice>) {
        let usual: Vec<usize> = step.iter().map(|slice| slice.at).collect();
        let rank = |slice: &Slice| self.sequences[slice.at].rank;
        let (mut ranked, mut ordered): (Vec<Slice>, Vec<Slice>) =
            step.drain(..).partition(|slice| rank(slice).is_some());
        ranked.sort_by_key(rank);
        for slice in ranked {
            let to = rank(&slice).unwrap_or(0) as usize;
            ordered.insert(to.min(ordered.len()), slice);
        }
        for (slice, usual) in ordered.iter().zip(usual) {
            if let Some(k) = self.sequences[slice.at].ranked_by.take() {
                self.fired[k] = slice.at != usual;
            }
        }
        *step = ordered;
    }

    /// Pads a step.
    pub(super) fn pad(&mut self, step: &[Slice]) {
        let rows: usize = step.iter().map(|slice| slice.len).sum();
        let mut chosen = self.buckets.iter().position(|bucket| *bucket as usize >= rows);
        for slice in step {
            while let Some((k, act)) =
                self.due(slice.at, slice.start, |act| matches!(act, Act::Bucket { .. }))
            {
                let before = chosen;
                if let (Act::Bucket { extra }, Some(at)) = (act, &mut chosen) {
                    *at = at.saturating_add(extra as usize).min(self.buckets.len() - 1);
                }
                self.fired[k] = chosen != before;
            }
        }
    }
}
