//! A sample of a request in flight.

use std::collections::BTreeSet;

use crate::contract::sampler::{SamplerParams, seeded_key, unseeded_key};
use crate::record::Finish;
use crate::workload::{Request, SampleId};

use super::blocks::BlockId;
use super::deviations::Taken;
use super::swap::SlotId;

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not arrived yet.
    Future,
    /// Waiting for admission, for the first time or again.
    Waiting,
    /// Resident: it owns blocks and takes part in steps.
    Running,
    /// Preempted, with its K and V in host memory.
    Swapped,
    /// Done.
    Finished(Finish),
}

/// A sample of a request and everything the scheduler knows about it.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) id: SampleId,
    pub(super) namespace: u32,
    pub(super) prompt_len: usize,
    /// Prompt, then output.
    pub(super) tokens: Vec<u32>,
    pub(super) max_tokens: usize,
    pub(super) ignore_eos: bool,
    pub(super) stop_token_ids: Vec<u32>,
    pub(super) stop: Vec<String>,
    /// Bytes of the generated text.
    pub(super) text: Vec<u8>,
    /// Alternatives listed with the log-probability of each generated token, if it is wanted.
    pub(super) logprobs: Option<u32>,
    /// The same of prompt tokens.
    pub(super) prompt_logprobs: Option<u32>,
    pub(super) sampling: SamplerParams,
    pub(super) key: [u32; 2],
    pub(super) state: State,
    /// Boundary at which it arrives.
    pub(super) arrival: u64,
    /// Physical blocks, logical order.
    pub(super) blocks: Vec<BlockId>,
    /// Positions whose K and V stand in the blocks.
    pub(super) computed: usize,
    /// In this residency it has computed all its tokens but the one drawn last.
    pub(super) is_decoding: bool,
    /// Leading blocks that were attached from, or offered to, the prefix index.
    pub(super) indexed: usize,
    /// Residencies so far, the present one included.
    pub(super) residency: u32,
    /// Offers so far.
    pub(super) offers: u32,
    /// First boundary at which it may be offered.
    pub(super) offer_at: u64,
    /// First boundary at which it takes part in steps again.
    pub(super) step_at: u64,
    /// Place among the sequences of a step, if the schedule gave it one.
    pub(super) rank: Option<u32>,
    /// The intent that set `rank`, until it is seen whether the row order differs for it.
    pub(super) ranked_by: Option<Taken>,
    /// Set while the schedule wants it to be the next victim.
    pub(super) victim: Option<Taken>,
    /// Own blocks that the schedule evicted before its last admission, and that it has not computed again.
    pub(super) evicted: BTreeSet<usize>,
    /// First row in the last step that it took part in.
    pub(super) row: Option<usize>,
    /// Whether its blocks were attached from another sample in this residency.
    pub(super) forked: bool,
    /// Where its K and V are in host memory, logical order; none unless it is swapped.
    pub(super) slots: Vec<SlotId>,
    /// The blocks that it held when it was swapped.
    pub(super) left: Vec<BlockId>,
    /// Whether it was ever swapped.
    pub(super) was_swapped: bool,
}

impl Sequence {
    /// A sample of a request whose prompt is resolved.
    pub(super) fn new(request: &Request, id: SampleId, run_seed: u64) -> Sequence {
        let prompt = request.prompt.own_tokens();
        Sequence {
            id,
            namespace: request.namespace,
            prompt_len: prompt.len(),
            tokens: prompt.to_vec(),
            max_tokens: request.max_tokens as usize,
            ignore_eos: request.ignore_eos,
            stop_token_ids: request.stop_token_ids.clone(),
            stop: request.stop.clone(),
            text: Vec::new(),
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            sampling: request.sampling,
            key: match request.seed {
                Some(seed) => seeded_key(seed, id.sample),
                None => unseeded_key(run_seed, id.sample, id.uid),
            },
            state: State::Future,
            arrival: 0,
            blocks: Vec::new(),
            computed: 0,
            is_decoding: false,
            indexed: 0,
            residency: 0,
            offers: 0,
            offer_at: 0,
            step_at: 0,
            rank: None,
            ranked_by: None,
            victim: None,
            evicted: BTreeSet::new(),
            row: None,
            forked: false,
            slots: Vec::new(),
            left: Vec::new(),
            was_swapped: false,
        }
    }

    /// Whether several of its tokens are still to be computed, or a part of its prompt.
    pub(super) fn in_prefill(&self) -> bool {
        self.computed < self.prompt_len || self.remaining() > 1
    }

    /// Tokens whose K and V are not computed yet; at least one while it runs.
    pub(super) fn remaining(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Generated tokens.
    pub(super) fn output(&self) -> &[u32] {
        &self.tokens[self.prompt_len..]
    }

    pub(super) fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished(_))
    }
}
