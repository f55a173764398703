//! A forecast's sequences: their expected tokens, known by hashes alone, and how far they have come.

use crate::schedule::{Intent, Mark};
use crate::workload::{Request, SampleId, Workload};

use super::Stand;

/// A sample of a request.
#[derive(Clone, Debug)]
pub(in crate::strategy) struct Sequence {
    pub(in crate::strategy) id: SampleId,
    pub(in crate::strategy) stand: Stand,
    /// First boundary at which it may be offered; its arrival at first.
    pub(in crate::strategy) offer_at: u64,
    /// Residencies so far, the present one included.
    pub(in crate::strategy) residency: u32,
    /// Offers so far.
    pub(in crate::strategy) offers: u32,
    /// Positions computed.
    pub(in crate::strategy) computed: usize,
    pub(super) arrival: u64,
    pub(super) prompt_len: usize,
    /// Prompt and output.
    pub(super) known: usize,
    /// Length with the whole output.
    pub(super) longest: usize,
    /// Hash of all known tokens.
    chain: u64,
    /// Hashes of its whole blocks' prefixes.
    pub(super) chains: Vec<u64>,
    /// What its draws depend on besides the tokens before them.
    salt: u64,
    /// Whether it computes its whole prompt itself.
    pub(super) scores_prompt: bool,
    pub(super) blocks: Vec<u32>,
    /// Leading blocks that were attached or published.
    pub(super) indexed: usize,
    pub(super) slots: usize,
    /// Whether its next chunk is a token.
    pub(super) decodes: bool,
    pub(super) step_at: u64,
    pub(super) rank: Option<u32>,
    pub(super) ranked_by: Option<usize>,
    pub(super) victim: Option<usize>,
    /// Its intents that are not taken.
    pub(super) pending: Vec<usize>,
}

/// Takes one more token into a hash.
fn mix(chain: u64, token: u64) -> u64 {
    let x = (chain ^ token).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^ (x >> 32)
}

/// The token that is drawn after `chain`.
fn token(chain: u64, salt: u64) -> u64 {
    mix(chain, salt.wrapping_add(0x9e37_79b9_7f4a_7c15)) | 1 << 32
}

/// What the draws of a sample depend on besides the tokens before them.
fn salt(request: &Request, sample: u32) -> u64 {
    let sampling = &request.sampling;
    let penalty = u64::from(sampling.repetition_penalty.to_bits());
    if sampling.is_greedy() {
        return mix(0, penalty);
    }
    let key = request.seed.unwrap_or(request.uid << 32);
    mix(mix(mix(penalty, key), sample.into()), sampling.temperature.to_bits().into())
}

/// Tokens of a prompt, those of a continuation as they are expected.
fn prompt(workload: &Workload, request: &Request) -> Vec<u64> {
    let own = request.prompt.own_tokens().iter().map(|t| u64::from(*t));
    let Some(c) = request.prompt.continuation() else { return own.collect() };
    let Some(of) = workload.get(c.of).filter(|of| of.uid != request.uid) else {
        return own.collect();
    };
    let mut tokens = prompt(workload, of);
    let mut chain = tokens.iter().fold(u64::from(of.namespace), |h, t| mix(h, *t));
    let salt = salt(of, 0);
    for _ in 0..c.upto.min(of.max_tokens) {
        tokens.push(token(chain, salt));
        chain = mix(chain, tokens[tokens.len() - 1]);
    }
    tokens.extend(own);
    tokens
}

impl Sequence {
    pub(super) fn new(
        workload: &Workload,
        request: &Request,
        id: SampleId,
        block_size: usize,
    ) -> Sequence {
        let prompt = prompt(workload, request);
        let mut sequence = Sequence {
            id,
            stand: Stand::Waiting,
            offer_at: 0,
            residency: 0,
            offers: 0,
            computed: 0,
            arrival: 0,
            prompt_len: prompt.len(),
            known: 0,
            longest: prompt.len() + request.max_tokens as usize,
            chain: request.namespace.into(),
            chains: Vec::new(),
            salt: salt(request, id.sample),
            scores_prompt: request.prompt_logprobs.is_some(),
            blocks: Vec::new(),
            indexed: 0,
            slots: 0,
            decodes: false,
            step_at: 0,
            rank: None,
            ranked_by: None,
            victim: None,
            pending: Vec::new(),
        };
        for token in prompt {
            sequence.push(token, block_size);
        }
        sequence
    }

    fn push(&mut self, token: u64, block_size: usize) {
        self.chain = mix(self.chain, token);
        self.known += 1;
        if self.known.is_multiple_of(block_size) {
            self.chains.push(self.chain);
        }
    }

    /// Draws a token.
    pub(super) fn draw(&mut self, block_size: usize) {
        self.push(token(self.chain, self.salt), block_size);
    }

    /// Takes the first pending intent that satisfies `wanted`.
    pub(super) fn take(
        &mut self,
        intents: &[Intent],
        wanted: impl Fn(&Intent) -> bool,
    ) -> Option<usize> {
        let at = self.pending.iter().position(|k| wanted(&intents[*k]))?;
        Some(self.pending.remove(at))
    }

    /// Whether an intent at this mark is still to be taken.
    pub(in crate::strategy) fn awaits(&self, intents: &[Intent], mark: Mark) -> bool {
        self.pending.iter().any(|k| intents[*k].mark == mark)
    }
}
