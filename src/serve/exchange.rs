//! A request and its answer: from what a client asks for to requests of the engine, and from the engine's news to the
//! pieces of an answer. A plain answer is the pieces of a stream put together, so the two cannot differ.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::engine::live::Progress;
use crate::record::{Finish, TokenScore};
use crate::workload::{Request, SampleId};

use super::engine_thread::Ticket;
use super::error::ApiError;
use super::limits::CHOICES_MAX;
use super::model::App;
use super::openai::asked::Asked;
use super::openai::logprobs::{ChatLogprobs, Logprobs, Offset};
use super::openai::wire::{PromptTokens, StopReason, Usage};
use super::text::Growing;

/// Which of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Completion,
    Chat,
}

/// A prompt.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) ids: Vec<u32>,
    /// As it was given; of ids their text.
    pub(super) text: String,
    /// Whether the first id is none of the text's.
    pub(super) has_bos: bool,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) asked: Asked,
    pub(super) prompts: Vec<Prompt>,
    /// Tokens to generate; `None`: as many as there is room for.
    pub(super) max_tokens: Option<u32>,
    /// Whether the prompt is a part of the answer.
    pub(super) echo: bool,
    /// Alternatives listed with log-probabilities, if these are wanted.
    pub(super) logprobs: Option<u32>,
    /// A token that ends an answer of this kind in any case.
    pub(super) end_of_turn: Option<u32>,
}

impl Plan {
    /// Whether it scores alone: the engine generates a token at least, which is dropped.
    fn only_scores(&self) -> bool {
        self.max_tokens == Some(0)
    }

    /// The requests of the engine; the error says what can't be.
    fn requests(&self, app: &App) -> Result<Vec<Request>, ApiError> {
        let choices = self.prompts.len().saturating_mul(self.asked.n as usize);
        if choices > CHOICES_MAX {
            let why = format!("{choices} choices are asked for, at most {CHOICES_MAX} are given");
            return Err(ApiError::param("n", why));
        }
        if self.only_scores() && !self.echo {
            let why = "max_tokens is 0, must be at least 1 without echo";
            return Err(ApiError::param("max_tokens", why));
        }
        let first = app.desk.uids(self.prompts.len());
        let namespace = app.namespace(self.asked.cache_salt.as_deref());
        let mut stop_token_ids = self.asked.stop_token_ids.clone();
        stop_token_ids.extend(self.end_of_turn.filter(|_| !self.asked.ignore_eos));
        let mut requests = Vec::with_capacity(self.prompts.len());
        for (prompt, uid) in self.prompts.iter().zip(first..) {
            // The last token that is drawn takes no position.
            let room = (app.positions_max + 1).saturating_sub(prompt.ids.len());
            let wanted = self.max_tokens.map_or(room, |tokens| tokens as usize).max(1);
            if wanted > room || room == 0 {
                return Err(ApiError::too_long(format!(
                    "a prompt of {} tokens and {wanted} more are longer than the {} that there is room for",
                    prompt.ids.len(),
                    app.positions_max + 1
                )));
            }
            let request = Request {
                sampling: self.asked.sampling,
                seed: self.asked.seed,
                ignore_eos: self.asked.ignore_eos,
                samples: self.asked.n,
                namespace,
                stop_token_ids: stop_token_ids.clone(),
                stop: self.asked.stop.clone(),
                logprobs: self.logprobs,
                prompt_logprobs: self.logprobs.filter(|_| self.echo),
                ..Request::new(uid, prompt.ids.clone(), wanted as u32)
            };
            app.served.check(&request).map_err(ApiError::bad)?;
            requests.push(request);
        }
        Ok(requests)
    }
}

/// A choice as it comes together.
#[derive(Debug)]
struct Choice {
    index: usize,
    prompt: usize,
    text: Growing,
    offset: Offset,
    tokens: Vec<u32>,
    prompt_scores: Vec<TokenScore>,
    cached: usize,
    /// Whether a piece of it was made.
    began: bool,
}

/// What one token adds to a choice.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) index: usize,
    pub(super) is_first: bool,
    pub(super) text: String,
    pub(super) logprobs: Option<Logprobs>,
    pub(super) chat_logprobs: Option<ChatLogprobs>,
    pub(super) prompt_token_ids: Option<Vec<u32>>,
    pub(super) token_ids: Option<Vec<u32>>,
    pub(super) finish_reason: Option<&'static str>,
    pub(super) stop_reason: Option<StopReason>,
}

impl Piece {
    /// Adds the next piece of the same choice.
    pub(super) fn extend(&mut self, next: Piece) {
        self.text.push_str(&next.text);
        if let (Some(all), Some(more)) = (&mut self.logprobs, next.logprobs) {
            all.extend(more);
        }
        if let (Some(all), Some(more)) = (&mut self.chat_logprobs, next.chat_logprobs) {
            all.extend(more);
        }
        if let (Some(all), Some(more)) = (&mut self.token_ids, next.token_ids) {
            all.extend(more);
        }
        self.finish_reason = next.finish_reason;
        self.stop_reason = next.stop_reason;
    }
}

/// A request that the engine works on.
pub(super) struct Exchange {
    pub(super) app: Arc<App>,
    pub(super) plan: Plan,
    pub(super) ticket: Ticket,
    pub(super) id: String,
    pub(super) created: u64,
    choices: BTreeMap<SampleId, Choice>,
}

impl Exchange {
    /// Hands a request over to the engine.
    pub(super) fn begin(app: &Arc<App>, plan: Plan) -> Result<Exchange, ApiError> {
        let requests = plan.requests(app)?;
        let first = requests.first().map_or(0, |r| r.uid);
        let n = plan.asked.n as usize;
        let samples = requests.iter().enumerate().flat_map(|(prompt, request)| {
            request.sample_ids().enumerate().map(move |(sample, id)| (id, prompt, sample))
        });
        let choice = |(id, prompt, sample)| {
            let choice = Choice {
                index: prompt * n + sample,
                prompt,
                text: Growing::new(plan.asked.stop.clone()),
                offset: Offset::default(),
                tokens: Vec::new(),
                prompt_scores: Vec::new(),
                cached: 0,
                began: false,
            };
            (id, choice)
        };
        let choices = samples.map(choice).collect();
        let kind = match plan.kind {
            Kind::Completion => "cmpl",
            Kind::Chat => "chatcmpl",
        };
        let ticket = app.desk.submit(requests)?;
        let app = Arc::clone(app);
        Ok(Exchange {
            app,
            plan,
            ticket,
            id: format!("{kind}-{first}"),
            created: seconds(),
            choices,
        })
    }

    /// The piece that news of the engine comes to, if it is one.
    pub(super) fn piece(&mut self, news: Progress) -> Result<Option<Piece>, ApiError> {
        let Exchange { app, plan, choices, .. } = self;
        let choice = choices.get_mut(&news.id).expect("news of what was submitted");
        if let Some(cached) = news.cached {
            choice.cached = cached;
        }
        choice.prompt_scores.extend(news.prompt_scores);
        match news.end {
            Some((Finish::Undecided, _)) => {
                return Err(ApiError::failed(
                    "a logit was not finite: nothing may be drawn from it",
                ));
            }
            Some((Finish::Aborted, _)) => return Err(app.desk.gone()),
            _ => {}
        }
        let Some((token, score)) = news.token else { return Ok(None) };
        let prompt = &plan.prompts[choice.prompt];
        let names = app.names(plan.asked.named_by_id);
        let mut piece = Piece {
            index: choice.index,
            is_first: !choice.began,
            text: String::new(),
            logprobs: plan
                .logprobs
                .filter(|_| plan.kind == Kind::Completion)
                .map(|_| Logprobs::default()),
            chat_logprobs: plan
                .logprobs
                .filter(|_| plan.kind == Kind::Chat)
                .map(|_| ChatLogprobs::default()),
            prompt_token_ids: None,
            token_ids: plan.asked.token_ids.then(Vec::new),
            finish_reason: None,
            stop_reason: None,
        };
        if piece.is_first {
            choice.began = true;
            piece.prompt_token_ids = plan.asked.token_ids.then(|| prompt.ids.clone());
            if plan.echo {
                piece.text.push_str(&prompt.text);
                if let Some(logprobs) = &mut piece.logprobs {
                    let scores = std::mem::take(&mut choice.prompt_scores);
                    let scores = std::iter::once(None).chain(scores.iter().map(Some));
                    for (i, (id, score)) in prompt.ids.iter().zip(scores).enumerate() {
                        let shown =
                            if i == 0 && prompt.has_bos { Vec::new() } else { names.bytes(*id) };
                        logprobs.push(names, choice.offset.advance(&shown), *id, score);
                    }
                }
            }
        }
        if plan.only_scores() {
            piece.finish_reason = Some("length");
            return Ok(Some(piece));
        }
        choice.tokens.push(token);
        let bytes = names.bytes(token);
        if let Some(ids) = &mut piece.token_ids {
            ids.push(token);
        }
        if let Some(logprobs) = &mut piece.logprobs {
            logprobs.push(names, choice.offset.advance(&bytes), token, score.as_ref());
        }
        if let (Some(logprobs), Some(score)) = (&mut piece.chat_logprobs, &score) {
            logprobs.push(names, score);
        }
        match news.end {
            None => piece.text.push_str(&choice.text.push(&bytes)),
            Some((finish, text)) => {
                piece.text.push_str(&choice.text.finish(&text));
                piece.finish_reason =
                    Some(if finish == Finish::Length { "length" } else { "stop" });
                if finish == Finish::Stop {
                    let all: Vec<u8> = choice.tokens.iter().flat_map(|t| names.bytes(*t)).collect();
                    piece.stop_reason = stop_reason(plan, token, &all[text.len().min(all.len())..]);
                }
            }
        }
        Ok(Some(piece))
    }

    /// Tokens so far.
    pub(super) fn usage(&self) -> Usage {
        let prompt_tokens = self.plan.prompts.iter().map(|prompt| prompt.ids.len()).sum();
        let completion_tokens = self.choices.values().map(|choice| choice.tokens.len()).sum();
        let firsts = self.choices.iter().filter(|(id, _)| id.sample == 0);
        let cached_tokens = firsts.map(|(_, choice)| choice.cached).sum();
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptTokens { cached_tokens },
        }
    }
}

/// What the client named that ended an output: its last token, or a string that `rest`, which is no part of the text,
/// begins with.
fn stop_reason(plan: &Plan, token: u32, rest: &[u8]) -> Option<StopReason> {
    if plan.asked.stop_token_ids.contains(&token) {
        return Some(StopReason::Token(token));
    }
    let stop = plan.asked.stop.iter().find(|stop| rest.starts_with(stop.as_bytes()));
    stop.cloned().map(StopReason::Text)
}

/// Seconds since 1970.
pub(super) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
