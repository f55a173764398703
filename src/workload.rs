//! The workload: requests, each a pure description.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::contract::sampler::SamplerParams;

/// One request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Identity: schedules refer to it, unseeded draws depend on it.
    pub uid: u64,
    /// Prompt token ids, at least one.
    pub prompt: Vec<u32>,
    /// Tokens to generate, at least one.
    pub max_tokens: u32,
    /// Sampling parameters; greedy by default.
    #[serde(default)]
    pub sampling: SamplerParams,
    /// Seed of the draws; without one they depend on the run's seed and the uid.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Keep generating after an end-of-sequence token.
    #[serde(default)]
    pub ignore_eos: bool,
}

impl Request {
    /// Positions whose K and V are ever computed: the last token drawn is never fed back.
    pub fn positions_max(&self) -> usize {
        self.prompt.len() + self.max_tokens as usize - 1
    }

    /// Blocks needed when the request has run to its end.
    pub fn blocks_max(&self, block_size: u32) -> usize {
        self.positions_max().div_ceil(block_size as usize)
    }
}

/// The requests of an execution, in the order of submission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The requests.
    pub requests: Vec<Request>,
}

/// Most requests of a workload.
pub const REQUESTS_MAX: usize = 4096;
/// Most tokens of a prompt or an output.
pub const TOKENS_MAX: usize = 1 << 20;

impl Workload {
    /// The workload with request `uid` alone.
    pub fn alone(&self, uid: u64) -> Workload {
        Workload { requests: self.requests.iter().filter(|r| r.uid == uid).cloned().collect() }
    }

    /// The request with this uid.
    pub fn get(&self, uid: u64) -> Option<&Request> {
        self.requests.iter().find(|r| r.uid == uid)
    }

    /// Checks limits that do not depend on a model; the error is one line.
    pub fn validate(&self) -> Result<(), String> {
        if self.requests.is_empty() {
            return Err("the workload has no requests".into());
        }
        if self.requests.len() > REQUESTS_MAX {
            return Err(format!(
                "the workload has {} requests, at most {REQUESTS_MAX} are allowed",
                self.requests.len()
            ));
        }
        let mut seen = BTreeSet::new();
        for r in &self.requests {
            if !seen.insert(r.uid) {
                return Err(format!("request {} appears twice", r.uid));
            }
            if r.prompt.is_empty() {
                return Err(format!("request {} has an empty prompt", r.uid));
            }
            if r.max_tokens == 0 {
                return Err(format!("request {} asks for 0 tokens", r.uid));
            }
            if r.prompt.len() > TOKENS_MAX || r.max_tokens as usize > TOKENS_MAX {
                return Err(format!("request {} is longer than {TOKENS_MAX} tokens", r.uid));
            }
            r.sampling.validate().map_err(|why| format!("request {}: {why}", r.uid))?;
        }
        Ok(())
    }
}
