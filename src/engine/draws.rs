//! Draws: what each sequence that has come to its end is drawn by, and what was drawn.

use crate::device::{Device, SampleRow};
use crate::record::{Draw, Sentinel};
use crate::workload::SampleId;

use super::scheduler::Slice;
use super::{Engine, EngineError};

/// A sequence that is drawn for.
struct Drawing {
    id: SampleId,
    /// Its place in the step.
    place: u32,
    row: SampleRow,
}

impl<D: Device> Engine<'_, D> {
    /// Draws for the slices that end their sequences' tokens, in row order.
    pub(super) fn draw(&mut self, step: &[Slice]) -> Result<Vec<Option<u32>>, EngineError> {
        let drawings = self.drawings(step);
        let drawn = self.sample(&drawings, step.len() > 1)?;
        self.drawn.clear();
        for (Drawing { id, place, row }, token) in drawings.into_iter().zip(&drawn) {
            let Some(token) = *token else { continue };
            let key = (!row.params.is_greedy()).then_some(row.key);
            self.drawn.push((id, Draw { position: row.position, token, key, place }));
        }
        Ok(drawn)
    }

    /// Appends the draws of the last launch to the outputs.
    pub(super) fn record_draws(&mut self) {
        for (id, draw) in self.drawn.drain(..) {
            let draws = &mut self.run.outputs.get_mut(&id).expect("one output a sample").draws;
            if draw.key.is_some() && draws.last().is_some_and(|last| last.place != draw.place) {
                self.run.sentinels.hit(Sentinel::DrawMoved);
            }
            draws.push(draw);
        }
    }

    fn drawings(&self, step: &[Slice]) -> Vec<Drawing> {
        let mut row = 0;
        let mut drawings = Vec::new();
        for (slice, place) in step.iter().zip(0..) {
            row += slice.len;
            if !self.scheduler.draws(slice) {
                continue;
            }
            let sequence = &self.scheduler.sequences[slice.index];
            let mut seen = Vec::new();
            if sequence.sampling.repetition_penalty != 1.0 {
                seen = sequence.tokens.clone();
                seen.sort_unstable();
                seen.dedup();
            }
            let row = SampleRow {
                row: row as u32 - 1,
                params: sequence.sampling,
                seen,
                key: self.planner.draw_key(sequence.key, place),
                position: sequence.tokens.len() as u32,
            };
            drawings.push(Drawing { id: sequence.id, place, row });
        }
        drawings
    }

    /// Draws, and counts the draws that greedy decoding would not have made; one call of the device for both.
    fn sample(
        &mut self,
        drawings: &[Drawing],
        is_shared: bool,
    ) -> Result<Vec<Option<u32>>, EngineError> {
        let random: Vec<usize> =
            (0..drawings.len()).filter(|i| !drawings[*i].row.params.is_greedy()).collect();
        let mut asked: Vec<SampleRow> = drawings.iter().map(|d| d.row.clone()).collect();
        asked.extend(random.iter().map(|i| SampleRow {
            params: Default::default(),
            seen: Vec::new(),
            ..drawings[*i].row.clone()
        }));
        let mut drawn = self.forward.sample(&asked)?;
        let greedy = drawn.split_off(drawings.len());
        for (i, greedy) in random.iter().zip(greedy) {
            if drawn[*i].is_some() && drawn[*i] != greedy {
                self.run.sentinels.hit(Sentinel::DrawNotArgmax);
                if is_shared {
                    self.run.sentinels.hit(Sentinel::DrawNotArgmaxShared);
                }
            }
        }
        Ok(drawn)
    }
}
