//! Launches of the log-softmax and the sampler.

use std::collections::BTreeMap;

use super::compile::Source;
use super::context::{Arg, Buffer, Shape};
use super::{Cuda, require, require_len};
use crate::contract::tree::LANES_MAX;
use crate::device::{DeviceError, SampleRow};

/// `NONE` of sample.cu.
const NONE: u32 = u32::MAX;
/// u32 words of `struct Draw` of sample.cu.
const DRAW_WORDS: usize = 14;

impl Cuda {
    /// See [`crate::device::Device::logprobs`].
    pub(super) fn logprobs_of(
        &mut self,
        vocab: usize,
        logits: &Buffer<f32>,
        rows: &[u32],
        ids: &[u32],
    ) -> Result<Vec<f32>, DeviceError> {
        let block = self.contract.constants.vocab_block as usize;
        require(rows.len() == ids.len(), || {
            format!("logprobs: {} rows for {} ids", rows.len(), ids.len())
        })?;
        require(block.min(LANES_MAX).is_power_of_two(), || format!("logprobs: blocks of {block}"))?;
        let mut index = BTreeMap::new();
        for (row, id) in rows.iter().zip(ids) {
            require((*id as usize) < vocab, || format!("logprobs: id {id} of {vocab}"))?;
            require_len("logprobs", "logits", logits.len(), (*row as usize + 1) * vocab)?;
            index.insert(*row, 0_u32);
        }
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        for (i, at) in index.values_mut().enumerate() {
            *at = i as u32;
        }
        let unique: Vec<u32> = index.keys().copied().collect();
        let questions: Vec<u32> = rows.iter().map(|row| index[row]).collect();
        let blocks = vocab.div_ceil(block);
        let n = |n: usize| Arg::U32(n as u32);
        let row_ids = self.context.upload(&unique)?;
        let sums = self.context.alloc::<f32>(unique.len() * blocks * 2)?;
        let folded = self.context.alloc::<f32>(unique.len() * 2)?;
        let args =
            [logits.arg(), row_ids.arg(), n(vocab), n(block), n(block.min(LANES_MAX)), sums.arg()];
        let shape = Shape::new((blocks, unique.len(), 1), 256);
        // SAFETY: logprob_blocks' parameters; every row lies in the logits, one sum a (row, block).
        unsafe { self.launch(Source::LOGPROBS, "logprob_blocks", shape, &args) }?;
        let args = [sums.arg(), n(unique.len()), n(blocks), folded.arg()];
        // SAFETY: logprob_fold's parameters; one result a row.
        unsafe {
            self.launch(Source::LOGPROBS, "logprob_fold", Shape::elements(unique.len()), &args)
        }?;
        let (index, ids_there) = (self.context.upload(&questions)?, self.context.upload(ids)?);
        let out = self.context.alloc::<f32>(ids.len())?;
        let args = [
            logits.arg(),
            row_ids.arg(),
            n(vocab),
            folded.arg(),
            index.arg(),
            ids_there.arg(),
            n(ids.len()),
            out.arg(),
        ];
        // SAFETY: logprob_read's parameters; ids lie in the vocabulary.
        unsafe {
            self.launch(Source::LOGPROBS, "logprob_read", Shape::elements(ids.len()), &args)
        }?;
        self.context.download(&out, ids.len())
    }

    /// See [`crate::device::Device::sample`].
    pub(super) fn sample_rows(
        &mut self,
        vocab: usize,
        logits: &Buffer<f32>,
        rows: &[SampleRow],
    ) -> Result<Vec<Option<u32>>, DeviceError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        require(vocab > 0, || "sample: an empty vocabulary".into())?;
        let (mut draws, mut seen) = (Vec::with_capacity(rows.len() * DRAW_WORDS), Vec::new());
        for row in rows {
            require_len("sample", "logits", logits.len(), (row.row as usize + 1) * vocab)?;
            let stray = row.seen.iter().find(|id| **id as usize >= vocab);
            require(stray.is_none(), || format!("sample: id {stray:?} of {vocab}"))?;
            draws.extend(words(row, seen.len()));
            seen.extend_from_slice(&row.seen);
        }
        let penalised = rows.iter().any(|r| r.params.repetition_penalty != 1.0);
        let own = self.context.alloc::<f32>(if penalised { rows.len() * vocab } else { 0 })?;
        let (draws, seen) = (self.context.upload(&draws)?, self.context.upload(&seen)?);
        let tokens = self.context.alloc::<u32>(rows.len())?;
        let args = [
            logits.arg(),
            Arg::U32(vocab as u32),
            draws.arg(),
            seen.arg(),
            own.arg(),
            tokens.arg(),
        ];
        let shape = Shape::new((rows.len(), 1, 1), 512);
        // SAFETY: sample's parameters; rows and seen ids were checked, and there is a penalised row for each draw
        // if one needs it.
        unsafe { self.launch(Source::SAMPLE, "sample", shape, &args) }?;
        let tokens = self.context.download(&tokens, rows.len())?;
        Ok(tokens.into_iter().map(|t| (t != NONE).then_some(t)).collect())
    }
}

/// `struct Draw` of sample.cu.
fn words(row: &SampleRow, seen_first: usize) -> [u32; DRAW_WORDS] {
    let p = &row.params;
    let floor = p.weight_floor();
    [
        floor as u32,
        (floor >> 32) as u32,
        row.row,
        u32::from(p.is_greedy()),
        p.temperature.to_bits(),
        p.repetition_penalty.to_bits(),
        p.top_k,
        p.mass_share().map_or(NONE, |share| share as u32),
        seen_first as u32,
        row.seen.len() as u32,
        row.key[0],
        row.key[1],
        row.position,
        0,
    ]
}
