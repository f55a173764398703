//! Continuous batching: one thread, one token a step for each sequence that runs. Several requests
//! are in flight because a step takes time, as they are on a real server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use super::faults::{Echo, Faults, How, Logprobs, Parameters, Seeds, When};
use super::model::{self, Context};
use super::params::Params;

const BLOCK_TOKENS: usize = 16;
const PREFILL_TOKENS_A_STEP: usize = 128;
const ALTERNATIVES: usize = 20;

/// A token of an answer, or of a prompt that is scored.
#[derive(Clone, Debug)]
pub(crate) struct Scored {
    pub(crate) token: u32,
    /// None for the first token of a prompt.
    pub(crate) logprob: Option<f32>,
    /// The best tokens, in falling order.
    pub(crate) best: Vec<(u32, f32)>,
}

pub(crate) enum Event {
    Prompt { cached: usize, scores: Vec<Scored> },
    Token { sample: usize, scored: Scored, busy: bool },
    Finish { sample: usize, reason: &'static str },
}

struct Sequence {
    /// Counts the requests of this engine.
    number: u64,
    sample: usize,
    params: Arc<Params>,
    prompt_tokens: usize,
    context: Context,
    cached: usize,
    /// How often the prompt had been seen before.
    seen: u64,
    prefill_steps: usize,
    produced: usize,
    shorter: bool,
    odd_finish: bool,
    events: Sender<Event>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    requests: u64,
    seen: BTreeMap<u64, u64>,
    cache: BTreeSet<u64>,
    /// The length of the first prompt that had company.
    marked_tokens: Option<usize>,
    running_max: usize,
    stopped: bool,
}

pub(crate) struct Engine {
    faults: Faults,
    state: Mutex<State>,
    changed: Condvar,
}

impl Engine {
    pub(crate) fn start(faults: Faults) -> Arc<Self> {
        let state = Mutex::new(State::default());
        let engine = Arc::new(Self { faults, state, changed: Condvar::new() });
        let worker = Arc::clone(&engine);
        thread::spawn(move || worker.work());
        engine
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the state")
    }

    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Sequences that run and that wait, strangers' included.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.lock();
        (state.running.len() + self.faults.strangers, state.waiting.len())
    }

    /// The most sequences that ever ran together.
    pub(crate) fn running_max(&self) -> usize {
        self.lock().running_max
    }

    pub(crate) fn empty_cache(&self) {
        self.lock().cache.clear();
    }

    /// Takes a request; its events come over the channel.
    pub(crate) fn submit(&self, prompt: &[u32], params: &Arc<Params>, events: Sender<Event>) {
        let mut state = self.lock();
        let number = state.requests;
        state.requests += 1;
        let key = model::mix(Context::of(prompt).hash() ^ params.salt);
        let seen = state.seen.entry(key).or_default();
        let seen_before = *seen;
        *seen += 1;
        let cached = if self.faults.prefix_cache && params.caches {
            cached_tokens(&mut state.cache, prompt, params.salt)
        } else {
            0
        };
        let scores = if params.echo { self.score(prompt) } else { Vec::new() };
        // A receiver that is gone is found out by the first token.
        let _ = events.send(Event::Prompt { cached, scores });
        for sample in 0..params.samples {
            state.waiting.push_back(Sequence {
                number,
                sample,
                params: Arc::clone(params),
                prompt_tokens: prompt.len(),
                context: Context::of(prompt),
                cached,
                seen: seen_before,
                prefill_steps: (prompt.len() - cached).div_ceil(PREFILL_TOKENS_A_STEP),
                produced: 0,
                shorter: false,
                odd_finish: false,
                events: events.clone(),
            });
        }
        self.changed.notify_all();
    }

    fn score(&self, prompt: &[u32]) -> Vec<Scored> {
        let mut context = Context::new();
        let mut scores = Vec::new();
        for (at, &token) in prompt.iter().enumerate() {
            let mut logits = model::logits(context);
            if self.faults.echo == Echo::Drifts {
                model::drift(&mut logits, context, 7, 1e-3);
            }
            let logprobs = model::logprobs(&logits, 1.0);
            scores.push(if at == 0 {
                Scored { token, logprob: None, best: Vec::new() }
            } else {
                scored(token, &logprobs)
            });
            context.push(token);
        }
        scores
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            while state.waiting.is_empty() && state.running.is_empty() && !state.stopped {
                state = self.changed.wait(state).expect("no thread panics with the state");
            }
            if state.stopped {
                return;
            }
            drop(state);
            thread::sleep(Duration::from_micros(self.faults.step_us));
            state = self.lock();
            while state.running.len() < self.faults.cap {
                let Some(next) = state.waiting.pop_front() else { break };
                state.running.push(next);
            }
            state.running_max = state.running_max.max(state.running.len());
            self.step(&mut state);
        }
    }

    fn step(&self, state: &mut State) {
        let width = state.running.len() + self.faults.strangers;
        if width > 1 && state.marked_tokens.is_none() {
            state.marked_tokens = state.running.first().map(|sequence| sequence.prompt_tokens);
        }
        let lengths: BTreeSet<usize> =
            state.running.iter().map(|sequence| sequence.prompt_tokens).collect();
        let step = Step { width, lengths: lengths.len(), marked_tokens: state.marked_tokens };
        let mut place = 0;
        state.running.retain_mut(|sequence| {
            let stays = self.advance(sequence, &step, place);
            place += 1;
            stays
        });
    }

    /// One step of one sequence; false when it is done.
    fn advance(&self, sequence: &mut Sequence, step: &Step, place: usize) -> bool {
        if sequence.prefill_steps > 1 {
            sequence.prefill_steps -= 1;
            return true;
        }
        let params = Arc::clone(&sequence.params);
        let sample = sequence.sample;
        if params.answer_tokens_max == 0 {
            let _ = sequence.events.send(Event::Finish { sample, reason: "length" });
            return false;
        }
        let (chosen, shown) = self.next_token(sequence, step, place);
        let ends = chosen == model::END && !params.ignores_end;
        sequence.context.push(chosen);
        sequence.produced += 1;
        let token = Event::Token { sample, scored: shown, busy: step.width > 1 };
        if !ends && sequence.events.send(token).is_err() {
            return false;
        }
        let mut most = params.answer_tokens_max;
        if let Some(less) = self.faults.answer_tokens_max {
            most = most.min(less as usize);
        }
        if sequence.shorter {
            most = most.saturating_sub(2);
        }
        if !ends && sequence.produced < most {
            return true;
        }
        let odd = ends || sequence.odd_finish || self.faults.answer_tokens_max.is_some();
        let reason = if odd { "stop" } else { "length" };
        let _ = sequence.events.send(Event::Finish { sample, reason });
        false
    }

    /// The token that the context goes on with, and what the client is shown.
    fn next_token(&self, sequence: &mut Sequence, step: &Step, place: usize) -> (u32, Scored) {
        let params = &sequence.params;
        let mut context = sequence.context;
        let mut drifts = Vec::new();
        let mut twin = false;
        for disturbance in &self.faults.disturbances {
            let lot = model::unit(model::mix(sequence.number ^ (self.faults.life << 32)));
            if lot >= disturbance.rate || !met(disturbance.when, sequence, step, place) {
                continue;
            }
            match disturbance.how {
                How::Drift(size) => drifts.push((kind(disturbance.when, sequence, step), size)),
                How::Foreign if sequence.produced >= 2 => context = context.foreign(),
                How::Foreign => {}
                How::Twin => twin = true,
                How::Shorter => sequence.shorter = true,
                How::FinishReason => sequence.odd_finish = true,
            }
        }
        let mut logits = model::logits(context);
        for (kind, size) in drifts {
            model::drift(&mut logits, context, kind, size);
        }
        if sequence.produced < params.answer_tokens_min {
            logits[model::END as usize] = -30.0;
        }
        let mut temperature = params.temperature;
        if temperature == 0.0 && self.faults.parameters == Parameters::ZeroIsUnset {
            temperature = 1.0;
        }
        let seed = match (self.faults.seeds, params.seed) {
            (Seeds::Honoured, Some(seed)) => model::mix(seed) ^ sequence.sample as u64,
            (Seeds::OfProcess, _) => self.faults.life,
            _ => model::mix(sequence.number) ^ self.faults.life ^ sequence.sample as u64,
        };
        let at = sequence.prompt_tokens + sequence.produced;
        let chosen = model::choose(&logits, temperature, seed, at);
        let divisor = match self.faults.logprobs {
            Logprobs::Processed if temperature > 0.0 => temperature,
            Logprobs::Mixed if sequence.number % 2 == 1 => 1.5,
            _ => 1.0,
        };
        let mut shown = scored(chosen, &model::logprobs(&logits, divisor));
        if let Some(other) = model::twin(chosen).filter(|_| twin) {
            shown.token = other;
            for entry in &mut shown.best {
                if entry.0 == chosen {
                    entry.0 = other;
                }
            }
        }
        (chosen, shown)
    }
}

/// What a step is to the sequences in it.
struct Step {
    width: usize,
    lengths: usize,
    marked_tokens: Option<usize>,
}

fn met(when: When, sequence: &Sequence, step: &Step, place: usize) -> bool {
    match when {
        When::InFlight(least) => step.width >= least,
        When::OtherLengths => step.lengths > 1,
        When::FirstRequests(count) => sequence.number < count,
        When::FirstOfPrompt => sequence.seen == 0,
        When::ThirdOfPrompt => sequence.seen >= 2,
        When::Warm => sequence.cached > 0,
        When::AfterRequests(count) => sequence.number >= count,
        When::OddPlace => place % 2 == 1,
        When::EachRequest | When::Always => true,
        When::Streamed => sequence.params.stream,
        When::SampledInFlight => sequence.params.temperature > 0.0 && step.width > 1,
        When::OneLengthInFlight => {
            step.width > 1 && step.marked_tokens == Some(sequence.prompt_tokens)
        }
    }
}

/// Which set of small values a drift adds.
fn kind(when: When, sequence: &Sequence, step: &Step) -> u64 {
    match when {
        When::EachRequest => 1000 + sequence.number,
        When::InFlight(_) => 100 + step.width as u64,
        _ => 1,
    }
}

fn scored(token: u32, logprobs: &[f32]) -> Scored {
    let mut order: Vec<u32> = (0..model::VOCABULARY).collect();
    let by_value =
        |&a: &u32, &b: &u32| logprobs[b as usize].total_cmp(&logprobs[a as usize]).then(a.cmp(&b));
    order.select_nth_unstable_by(ALTERNATIVES, by_value);
    order.truncate(ALTERNATIVES);
    order.sort_by(by_value);
    let best = order.into_iter().map(|token| (token, logprobs[token as usize])).collect();
    Scored { token, logprob: Some(logprobs[token as usize]), best }
}

/// Tokens of the prompt that earlier prompts of the same salt have left, in whole blocks; the last
/// token is always computed.
fn cached_tokens(cache: &mut BTreeSet<u64>, prompt: &[u32], salt: u64) -> usize {
    let mut hash = model::mix(salt);
    let mut cached = 0;
    let mut whole = true;
    for (at, block) in prompt.chunks_exact(BLOCK_TOKENS).enumerate() {
        for &token in block {
            hash = model::mix(hash ^ u64::from(token));
        }
        whole &= !cache.insert(hash);
        if whole {
            cached = (at + 1) * BLOCK_TOKENS;
        }
    }
    if cached == prompt.len() { cached - BLOCK_TOKENS } else { cached }
}
