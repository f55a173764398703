//! Generation in the plain engine: prompt, draw, stop.

use crate::device::{Device, DeviceError};
use crate::record::{Capture, Finish, KvDigest};
use crate::text::Tokenizer;
use crate::workload::{Request, SampleId};

use super::super::sampler::Draws;
use super::logprobs::LogSoftmax;
use super::watch::{Watch, Watched};
use super::{Logits, Plain};

/// What a sample of a request comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Generated tokens.
    pub tokens: Vec<u32>,
    /// Bytes of the generated text, up to a stop string.
    pub text: Vec<u8>,
    /// Why it stopped.
    pub finish: Finish,
    /// Digest of the logits at each computed position.
    pub logits: Vec<u64>,
    /// K and V of each computed position, a digest a layer.
    pub kv: Vec<Vec<KvDigest>>,
    /// Log-probabilities that were asked for, by position of the token.
    pub scores: Vec<Score>,
    /// Greedy draws in which several tokens had the largest logit.
    pub ties: u64,
    /// What else is reported of each computed position; nothing unless it was asked for.
    pub watched: Vec<Watched>,
}

/// The log-probability of a token, and of the best tokens in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Position of the token.
    pub position: u32,
    /// The token.
    pub token: u32,
    /// Its log-probability.
    pub logprob: f32,
    /// The best tokens, best first, and theirs.
    pub top: Vec<(u32, f32)>,
}

impl<D: Device> Plain<D> {
    /// Generates the first sample of a request whose prompt is resolved. Stop strings need a tokenizer. `capture` asks for layer
    /// digests, and for values.
    pub fn generate(
        &mut self,
        request: &Request,
        run_seed: u64,
        tokenizer: Option<&Tokenizer>,
        capture: Option<&Capture>,
    ) -> Result<Generated, DeviceError> {
        let id = SampleId { uid: request.uid, sample: request.first_sample };
        let watch = match capture {
            Some(capture) => Some(Watch::begin(&mut self.device, capture, id)?),
            None => None,
        };
        let generated = self.generate_watched(request, run_seed, tokenizer, watch.as_ref());
        if watch.is_some() {
            Watch::end(&mut self.device);
        }
        generated
    }

    fn generate_watched(
        &mut self,
        request: &Request,
        run_seed: u64,
        tokenizer: Option<&Tokenizer>,
        watch: Option<&Watch<'_>>,
    ) -> Result<Generated, DeviceError> {
        let Some(prompt) = request.prompt.tokens().filter(|prompt| !prompt.is_empty()) else {
            return Err(DeviceError::Launch("plain: a prompt without tokens".into()));
        };
        let draws =
            Draws::new(request.sampling, request.seed, run_seed, request.first_sample, request.uid);
        let most = prompt.len() + request.max_tokens as usize;
        // The last token drawn is never fed back.
        let mut text = self.text(most - 1)?;
        let mut tokens = prompt.to_vec();
        let (mut digests, mut scores, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ties, mut watched) = (0, Vec::new());
        let finish = loop {
            let position = digests.len();
            if let Some(watch) = watch {
                watch.before(&mut self.device, position as u32);
            }
            let logits = self.next(&mut text, tokens[position])?;
            if let Some(watch) = watch {
                watched.push(watch.after(self, position as u32, &logits)?);
            }
            let Logits { values, digest } = logits;
            digests.push(digest);
            let next = position + 1;
            if next == tokens.len() {
                let Some(token) = draws.draw(&values, &tokens, next as u32) else {
                    break Finish::Undecided;
                };
                let best = |x: &&f32| **x == values[token as usize];
                let tied = request.sampling.is_greedy() && values.iter().filter(best).count() > 1;
                ties += u64::from(tied);
                tokens.push(token);
            }
            let asked =
                if next < prompt.len() { request.prompt_logprobs } else { request.logprobs };
            if let Some(top) = asked {
                scores.push(self.score(&values, next, tokens[next], top as usize));
            }
            if next < prompt.len() {
                continue;
            }
            let token = tokens[next];
            if self.model.config.eos.contains(&token) && !request.ignore_eos {
                break Finish::Eos;
            }
            if request.stop_token_ids.contains(&token) {
                break Finish::Stop;
            }
            if let Some(tokenizer) = tokenizer {
                bytes.extend(tokenizer.bytes(token));
                if let Some(at) = first_of(&bytes, &request.stop) {
                    bytes.truncate(at);
                    break Finish::Stop;
                }
            }
            if tokens.len() == most {
                break Finish::Length;
            }
        };
        let kv = self.kv(&text)?;
        let tokens = tokens.split_off(prompt.len());
        Ok(Generated { tokens, text: bytes, finish, logits: digests, kv, scores, ties, watched })
    }

    fn score(&self, logits: &[f32], position: usize, token: u32, top: usize) -> Score {
        let block = self.model.config.constants.vocab_block as usize;
        let softmax = LogSoftmax::new(logits, block);
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        ids.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
        ids.truncate(top);
        Score {
            position: position as u32,
            token,
            logprob: softmax.of(logits[token as usize]),
            top: ids.into_iter().map(|id| (id, softmax.of(logits[id as usize]))).collect(),
        }
    }
}

/// Where the first of these strings begins.
fn first_of(bytes: &[u8], strings: &[String]) -> Option<usize> {
    (0..bytes.len()).find(|&at| strings.iter().any(|s| bytes[at..].starts_with(s.as_bytes())))
}
