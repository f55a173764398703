//! Log-probabilities of tokens: of generated ones when they are drawn, of prompt tokens when the row before them is
//! computed, and of both again whenever that row is computed again.

use crate::contract::sampler;
use crate::device::Device;
use crate::record::{Sentinel, TokenScore};

use super::scheduler::Slice;
use super::{Engine, EngineError};

/// A row whose next token is to be scored.
struct Wanted {
    slice: usize,
    row: usize,
    position: usize,
    token: u32,
    /// Alternatives that are listed with it.
    top: usize,
}

impl<D: Device> Engine<'_, D> {
    /// Scores what the requests of a step asked for, from the logits of this launch.
    pub(super) fn score(
        &mut self,
        step: &[Slice],
        drawn: &[Option<u32>],
    ) -> Result<(), EngineError> {
        let mut wanted = self.wanted(step, drawn);
        if wanted.is_empty() {
            return Ok(());
        }
        let (mut rows, mut ids) = (Vec::new(), Vec::new());
        for w in &mut wanted {
            ids.push(w.token);
            if w.top > 0 {
                let best = sampler::top(&self.forward.logits(w.row)?, w.top);
                w.top = best.len();
                ids.extend(best);
            }
            rows.resize(ids.len(), w.row as u32);
        }
        let mut all = self.forward.logprobs(&rows, &ids)?.into_iter().zip(ids);
        for w in wanted {
            let sequence = &self.scheduler.sequences[step[w.slice].index];
            let mut next = || {
                let (x, id) = all.next().expect("one value an id");
                (id, if x.is_nan() { NAN } else { x.to_bits() })
            };
            let (token, logprob) = next();
            let top = (0..w.top).map(|_| next()).collect();
            let sentinel = match w.position < sequence.prompt_len {
                true => Sentinel::ScoredPrompt,
                false => Sentinel::ScoredOutput,
            };
            self.run.sentinels.hit(sentinel);
            let (residency, position) = (sequence.residency, w.position as u32);
            self.scores
                .push((sequence.id, TokenScore { residency, position, token, logprob, top }));
        }
        Ok(())
    }

    fn wanted(&self, step: &[Slice], drawn: &[Option<u32>]) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        let mut drawn = drawn.iter();
        let mut row = 0;
        for (at, slice) in step.iter().enumerate() {
            let sequence = &self.scheduler.sequences[slice.index];
            let next = match self.scheduler.draws(slice) {
                true => drawn.next().copied().flatten(),
                false => None,
            };
            for position in slice.start + 1..=slice.start + slice.len {
                let asked = match position < sequence.prompt_len {
                    true => sequence.prompt_logprobs,
                    false => sequence.logprobs,
                };
                let token = sequence.tokens.get(position).copied().or(next);
                if let (Some(top), Some(token)) = (asked, token) {
                    wanted.push(Wanted { slice: at, row, position, token, top: top as usize });
                }
                row += 1;
            }
        }
        wanted
    }
}

/// Every NaN, as in digests.
const NAN: u32 = 0x7fff_ffff;
