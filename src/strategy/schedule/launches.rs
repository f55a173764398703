//! How blocks are placed, steps padded and chunks landed along a course.

use crate::schedule::{Act, Mark};

use super::{Course, Feature};

impl Course<'_, '_> {
    /// Percent of late landings; nobody forks from what is in flight.
    fn land_percent(&self) -> usize {
        self.level(Feature::Land) / if self.is_forked_from() { 8 } else { 2 }
    }

    /// Places some of the blocks that the prefill of tokens `from..known` takes.
    pub(super) fn place(&mut self, from: usize, known: usize) {
        // In a tight pool there may be one free block, and so no choice.
        let level = self.level(Feature::Place) / if self.tight { 4 } else { 1 };
        if !self.draw.percent(level) {
            return;
        }
        let block = self.world.block_size as usize;
        let taken = known.div_ceil(block) - from / block;
        for _ in 0..self.draw.between(1, taken.min(3)) {
            let nth = 1 + self.draw.below(8) as u32;
            self.push(Mark::Offer { n: self.offers }, Act::Place { nth });
        }
    }

    /// Buckets and late landings, while up to `until` tokens are computed in this residency.
    pub(super) fn launches(&mut self, residency: u32, from: usize, known: usize, until: usize) {
        let mark = |tokens: usize| Mark::Computed { residency, tokens: tokens as u32 };
        // The steps of decoding are the ones that a bucket surely holds.
        let buckets = self.world.buckets.len();
        let fits = self.world.buckets.get(buckets.wrapping_sub(2));
        if known <= until && fits.is_some_and(|rows| *rows as usize > self.requests) {
            for _ in 0..self.draw.between(0, 2) {
                let at = self.draw.between(known, until.min(known + 2));
                let extra = self.draw.between(1, 2) as u32;
                self.push(mark(at), Act::Bucket { extra });
            }
        }
        if from <= until && self.draw.percent(self.land_percent()) {
            let at = if self.draw.percent(40) { from } else { self.draw.between(from, until) };
            let late = self.draw.between(1, 4) as u32;
            self.push(mark(at), Act::Land { late });
        }
    }

    /// Lets the chunk whose end `left` is the mark of its leave land after that. Returns the tokens that have landed by
    /// then.
    pub(super) fn lands_after_leaving(
        &mut self,
        residency: u32,
        from: usize,
        known: usize,
        left: usize,
        swapped: bool,
    ) -> Option<usize> {
        if !self.draw.percent(self.land_percent()) {
            return None;
        }
        // The chunk that ends at `left` starts where the one before it ends.
        let ends = self.intents.iter().filter_map(|intent| match (intent.mark, intent.act) {
            (Mark::Computed { residency: r, tokens: at }, Act::Cut { tokens })
                if r == residency =>
            {
                Some((at + tokens) as usize)
            }
            _ => None,
        });
        let start = match left > known {
            true => left - 1,
            false => ends.filter(|end| *end < left).max().unwrap_or(from),
        };
        // Nothing landed is nothing to swap.
        if swapped && start == 0 {
            return None;
        }
        let late = self.draw.between(1, 4) as u32;
        self.push(Mark::Computed { residency, tokens: start as u32 }, Act::Land { late });
        Some(start)
    }
}
