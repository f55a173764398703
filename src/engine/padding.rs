//! Padding buckets: how many rows a step is launched with.
//!
//! Padding rows are rows of every GEMM and norm, so they change which variants are launched. They have no position,
//! write no K or V and take no part in attention.

use crate::record::{Boundary, Sentinel};
use crate::schedule::Act;

use super::scheduler::{Scheduler, Slice, is_computed};

impl Scheduler {
    /// Index of the smallest bucket that holds `rows` rows.
    fn bucket(&self, rows: usize) -> Option<usize> {
        self.buckets.iter().position(|bucket| *bucket as usize >= rows)
    }

    /// Rows that a launch of `rows` rows is padded with, where the schedule has no say.
    pub(super) fn usual_padding(&self, rows: usize) -> usize {
        self.bucket(rows).map_or(0, |at| self.buckets[at] as usize - rows)
    }

    /// Rows that a step is padded with: up to the smallest bucket that holds it, or as many buckets above as the schedule
    /// says. A step that no bucket holds is not padded.
    pub(super) fn pad(&mut self, step: &[Slice]) -> usize {
        let rows: usize = step.iter().map(|slice| slice.len).sum();
        for bucket in &self.buckets {
            self.boundaries.near(Boundary::Bucket, rows, *bucket as usize);
        }
        let smallest = self.bucket(rows);
        let mut chosen = smallest;
        for slice in step {
            let sequence = &self.sequences[slice.index];
            let (id, residency, computed) = (sequence.id, sequence.residency, sequence.computed);
            let due = |mark| is_computed(mark, residency, computed);
            let bucket = |act| matches!(act, Act::Bucket { .. });
            while let Some(taken) = self.deviations.take(id, due, bucket) {
                let before = chosen;
                if let (Act::Bucket { extra }, Some(at)) = (taken.act, &mut chosen) {
                    *at = at.saturating_add(extra as usize).min(self.buckets.len() - 1);
                }
                self.deviations.settle(taken, chosen != before);
            }
        }
        if chosen != smallest {
            self.sentinels.hit(Sentinel::BucketChanged);
        }
        chosen.map_or(0, |at| self.buckets[at] as usize - rows)
    }
}
