//! The workload: requests, each a pure description.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::contract::sampler::SamplerParams;

/// One sample of a request: what the engine computes as a sequence of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SampleId {
    /// The request.
    pub uid: u64,
    /// The sample, from 0.
    pub sample: u32,
}

impl SampleId {
    /// Sample 0 of a request.
    pub fn first(uid: u64) -> SampleId {
        SampleId { uid, sample: 0 }
    }
}

impl fmt::Display for SampleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sample {
            0 => write!(f, "request {}", self.uid),
            sample => write!(f, "request {}, sample {sample}", self.uid),
        }
    }
}

/// A prompt: token ids, or the continuation of another request's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Prompt {
    /// Token ids, at least one.
    Tokens(Vec<u32>),
    /// Resolved before the run: an engine refuses it.
    Continue(Continue),
}

/// A follow-up of another request: its prompt, the first tokens that it generates, and more.
///
/// It is resolved from the canonical execution of `of`, sample 0, so that nothing of the run decides it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Continue {
    /// The request that is continued; it stands before this one in the workload.
    pub of: u64,
    /// Most generated tokens taken over: fewer if it generates fewer.
    pub upto: u32,
    /// Token ids after them.
    pub then: Vec<u32>,
}

impl Prompt {
    /// The token ids, unless they are still to be resolved.
    pub fn tokens(&self) -> Option<&[u32]> {
        match self {
            Prompt::Tokens(tokens) => Some(tokens),
            Prompt::Continue(_) => None,
        }
    }

    /// The token ids that stand in the description itself.
    pub fn own_tokens(&self) -> &[u32] {
        match self {
            Prompt::Tokens(tokens) => tokens,
            Prompt::Continue(continuation) => &continuation.then,
        }
    }

    /// The token ids that stand in the description itself, to change.
    pub fn own_tokens_mut(&mut self) -> &mut Vec<u32> {
        match self {
            Prompt::Tokens(tokens) => tokens,
            Prompt::Continue(continuation) => &mut continuation.then,
        }
    }

    /// The continuation, if it is one.
    pub fn continuation(&self) -> Option<&Continue> {
        match self {
            Prompt::Tokens(_) => None,
            Prompt::Continue(continuation) => Some(continuation),
        }
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Prompt {
        Prompt::Tokens(tokens)
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Identity: schedules refer to it, unseeded draws depend on it.
    pub uid: u64,
    /// What is given.
    pub prompt: Prompt,
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
    /// Outputs to generate, each a sequence of its own, at least one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub samples: u32,
    /// Number of the first sample; the others follow. So one sample alone can be asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_sample: u32,
    /// Namespace of the prefix cache: requests of two namespaces never share a block.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub namespace: u32,
    /// Token ids that end the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop_token_ids: Vec<u32>,
    /// Strings that end the output; no part of its text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Asks for the log-probability of each generated token, and of this many best tokens beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<u32>,
    /// The same of each prompt token but the first, which has none. Such a request computes its whole prompt itself: it
    /// takes nothing from the prefix cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<u32>,
}

fn one() -> u32 {
    1
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Request {
    /// A request with one greedy sample.
    pub fn new(uid: u64, prompt: impl Into<Prompt>, max_tokens: u32) -> Request {
        Request {
            uid,
            prompt: prompt.into(),
            max_tokens,
            sampling: SamplerParams::default(),
            seed: None,
            ignore_eos: false,
            samples: 1,
            first_sample: 0,
            namespace: 0,
            stop_token_ids: Vec::new(),
            stop: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
        }
    }

    /// Tokens of a sample with this many generated ones that its log-probabilities are asked for. The prompt is resolved.
    pub fn scores_due(&self, generated: usize) -> usize {
        let prompt = self.prompt_logprobs.map_or(0, |_| self.prompt.own_tokens().len() - 1);
        prompt + self.logprobs.map_or(0, |_| generated)
    }

    /// Checks what ends its output and what is returned with it; the error is one line.
    fn validate_output(&self) -> Result<(), String> {
        let uid = self.uid;
        if self.stop_token_ids.len() > STOP_TOKENS_MAX || self.stop.len() > STOP_STRINGS_MAX {
            return Err(format!(
                "request {uid} has {} stop tokens and {} stop strings, at most {STOP_TOKENS_MAX} and {STOP_STRINGS_MAX} are allowed",
                self.stop_token_ids.len(),
                self.stop.len()
            ));
        }
        if self.stop.iter().any(|s| s.is_empty() || s.len() > STOP_BYTES_MAX) {
            return Err(format!(
                "request {uid} has a stop string that is empty or longer than {STOP_BYTES_MAX} bytes"
            ));
        }
        let top = self.logprobs.max(self.prompt_logprobs).unwrap_or(0);
        if top > LOGPROBS_MAX {
            return Err(format!(
                "request {uid} asks for {top} alternatives a token, at most {LOGPROBS_MAX} are allowed"
            ));
        }
        Ok(())
    }

    /// Its samples, in order.
    pub fn sample_ids(&self) -> impl Iterator<Item = SampleId> + use<> {
        let uid = self.uid;
        let first = self.first_sample;
        (first..first.saturating_add(self.samples)).map(move |sample| SampleId { uid, sample })
    }
}

/// The requests of an execution, in the order of submission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The requests.
    pub requests: Vec<Request>,
}

/// Most requests of a workload, and most samples of all its requests together.
pub const REQUESTS_MAX: usize = 4096;
/// Most stop tokens of a request.
pub const STOP_TOKENS_MAX: usize = 64;
/// Most stop strings of a request.
pub const STOP_STRINGS_MAX: usize = 64;
/// Longest stop string, in bytes.
pub const STOP_BYTES_MAX: usize = 256;
/// Most alternatives listed with a token's log-probability.
pub const LOGPROBS_MAX: u32 = 20;
/// Most samples of a request.
pub const SAMPLES_MAX: u32 = 256;
/// Largest number of a sample.
pub const SAMPLE_MAX: u32 = 1 << 16;
/// Most tokens of a prompt or an output.
pub const TOKENS_MAX: usize = 1 << 20;

/// Longest lengths that a request can come to, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Of its prompt; exact unless it is a continuation.
    pub prompt: usize,
    /// Positions whose K and V are ever computed: the last token drawn is never fed back.
    pub positions: usize,
}

impl Lengths {
    /// Blocks of `block_size` positions needed when a sample has run to its end.
    pub fn blocks(&self, block_size: u32) -> usize {
        self.positions.div_ceil(block_size as usize)
    }
}

impl Workload {
    /// The workload with one sample of a request alone.
    pub fn alone(&self, id: SampleId) -> Workload {
        let requests = self.requests.iter().filter(|r| r.uid == id.uid).cloned();
        let alone = |r| Request { samples: 1, first_sample: id.sample, ..r };
        Workload { requests: requests.map(alone).collect() }
    }

    /// The request with this uid.
    pub fn get(&self, uid: u64) -> Option<&Request> {
        self.requests.iter().find(|r| r.uid == uid)
    }

    /// All samples of all requests, in the order of submission.
    pub fn sample_ids(&self) -> impl Iterator<Item = SampleId> {
        self.requests.iter().flat_map(Request::sample_ids)
    }

    /// Longest lengths of each request, in order. A continuation of a request that does not stand before it counts as
    /// what it adds alone.
    pub fn lengths(&self) -> Vec<Lengths> {
        let mut prompts: BTreeMap<u64, (usize, u32)> = BTreeMap::new();
        let mut lengths = Vec::with_capacity(self.requests.len());
        for r in &self.requests {
            let before = r.prompt.continuation().map_or(0, |c| {
                let (prompt, max_tokens) = prompts.get(&c.of).copied().unwrap_or((0, 0));
                prompt.saturating_add(c.upto.min(max_tokens) as usize)
            });
            let prompt = before.saturating_add(r.prompt.own_tokens().len());
            prompts.insert(r.uid, (prompt, r.max_tokens));
            let positions = prompt.saturating_add(r.max_tokens as usize).saturating_sub(1);
            lengths.push(Lengths { prompt, positions });
        }
        lengths
    }

    /// The workload with each continuation replaced by token ids, where `generated(workload, uid)` gives the tokens
    /// that sample 0 of a request, whose prompt is resolved already in the workload given, generates alone.
    pub fn resolved<E>(
        &self,
        mut generated: impl FnMut(&Workload, u64) -> Result<Vec<u32>, E>,
    ) -> Result<Workload, E> {
        let mut resolved = Workload::default();
        for r in &self.requests {
            let mut request = r.clone();
            if let Some(Continue { of, upto, then }) = r.prompt.continuation() {
                let before = resolved.get(*of).and_then(|r| r.prompt.tokens());
                let mut tokens = before.unwrap_or_default().to_vec();
                if *upto > 0 {
                    let output = generated(&resolved, *of)?;
                    tokens.extend_from_slice(&output[..output.len().min(*upto as usize)]);
                }
                tokens.extend_from_slice(then);
                request.prompt = Prompt::Tokens(tokens);
            }
            resolved.requests.push(request);
        }
        Ok(resolved)
    }

    /// Whether a prompt is a continuation.
    pub fn has_continuations(&self) -> bool {
        self.requests.iter().any(|r| r.prompt.continuation().is_some())
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
        let mut seen = std::collections::BTreeSet::new();
        let mut samples = 0;
        for (r, lengths) in self.requests.iter().zip(self.lengths()) {
            if let Some(c) = r.prompt.continuation()
                && !seen.contains(&c.of)
            {
                return Err(format!(
                    "request {} continues request {}, which does not stand before it",
                    r.uid, c.of
                ));
            }
            if !seen.insert(r.uid) {
                return Err(format!("request {} appears twice", r.uid));
            }
            if lengths.prompt == 0 {
                return Err(format!("request {} has an empty prompt", r.uid));
            }
            if r.max_tokens == 0 {
                return Err(format!("request {} asks for 0 tokens", r.uid));
            }
            if lengths.prompt > TOKENS_MAX || r.max_tokens as usize > TOKENS_MAX {
                return Err(format!("request {} is longer than {TOKENS_MAX} tokens", r.uid));
            }
            if r.samples == 0 || r.samples > SAMPLES_MAX {
                return Err(format!(
                    "request {}: samples is {}, expected 1 to {SAMPLES_MAX}",
                    r.uid, r.samples
                ));
            }
            if r.first_sample > SAMPLE_MAX {
                return Err(format!(
                    "request {}: first_sample is {}, at most {SAMPLE_MAX} is allowed",
                    r.uid, r.first_sample
                ));
            }
            samples += r.samples as usize;
            r.validate_output()?;
            r.sampling.validate().map_err(|why| format!("request {}: {why}", r.uid))?;
        }
        if samples > REQUESTS_MAX {
            return Err(format!(
                "the workload has {samples} samples, at most {REQUESTS_MAX} are allowed"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(uid: u64, of: u64, upto: u32, then: &[u32]) -> Request {
        Request::new(uid, Prompt::Continue(Continue { of, upto, then: then.to_vec() }), 3)
    }

    #[test]
    fn a_continuation_is_prompt_then_output_then_its_own_tokens_also_of_a_continuation() {
        let workload = Workload {
            requests: vec![
                Request::new(7, vec![1, 2], 4),
                follow(8, 7, 2, &[9]),
                follow(9, 8, 9, &[]),
            ],
        };
        workload.validate().unwrap();
        let prompts: Vec<usize> = workload.lengths().iter().map(|l| l.prompt).collect();
        assert_eq!(prompts, [2, 5, 8]);
        let mut asked = Vec::new();
        let resolved = workload
            .resolved(|w, uid| {
                asked.push((uid, w.get(uid).unwrap().prompt.tokens().unwrap().to_vec()));
                Ok::<_, ()>(vec![50, 51, 52])
            })
            .unwrap();
        assert_eq!(asked, [(7, vec![1, 2]), (8, vec![1, 2, 50, 51, 9])]);
        let last = resolved.get(9).unwrap().prompt.tokens().unwrap();
        assert_eq!(last, [1, 2, 50, 51, 9, 50, 51, 52]);
    }

    #[test]
    fn what_can_not_be_continued_is_refused_in_one_line() {
        let of = || Request::new(1, vec![1], 1);
        let bad = [
            vec![follow(1, 1, 0, &[2])],
            vec![follow(2, 1, 0, &[2]), of()],
            vec![of(), follow(2, 3, 1, &[])],
            vec![Request { samples: 0, ..of() }],
            vec![Request { samples: SAMPLES_MAX + 1, ..of() }],
            vec![Request { first_sample: u32::MAX, ..of() }],
        ];
        for requests in bad {
            let line = Workload { requests }.validate().unwrap_err();
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn old_files_read_and_ordinary_requests_are_written_as_before() {
        let json = r#"{"uid":1,"prompt":[3,4],"max_tokens":5}"#;
        let request: Request = serde_json::from_str(json).unwrap();
        assert_eq!(request, Request::new(1, vec![3, 4], 5));
        let text = serde_json::to_string(&request).unwrap();
        assert!(["samples", "namespace"].iter().all(|field| !text.contains(field)), "{text}");
        let text = serde_json::to_string(&follow(2, 1, 3, &[4])).unwrap();
        assert!(text.contains(r#""prompt":{"of":1,"upto":3,"then":[4]}"#), "{text}");
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), follow(2, 1, 3, &[4]));
        let bad = text.replace("upto", "up_to");
        assert!(serde_json::from_str::<Request>(&bad).is_err());
    }
}
