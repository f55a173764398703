//! Continuous batching: one thread, one token a step for each sequence that runs. Several requests
//! are in flight because a step takes time, as they are on a real server.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use super::cache::{self, Hit, PrefixCache};
use super::decode::{self, Scored};
use super::faults::Faults;
use super::kinds::Keeps;
use super::model::{self, Context};
use super::params::Params;
use super::step::Step;

const PREFILL_TOKENS_A_STEP: usize = 128;
/// Tokens of an answer that is cut.
const CUT_TOKENS: usize = 5;

/// What becomes of a choice of an answer.
pub(crate) enum Event {
    /// Its prompt was looked up in the cache.
    Prompt {
        choice: usize,
        cached: usize,
        scores: Vec<Scored>,
    },
    Token {
        choice: usize,
        scored: Scored,
        busy: bool,
    },
    Finish {
        choice: usize,
        reason: Option<&'static str>,
    },
}

pub(crate) struct Sequence {
    /// Counts the prompts of this engine.
    pub(crate) number: u64,
    /// Its place among the choices of the answer, and among the samples of its prompt.
    choice: usize,
    pub(crate) sample: usize,
    pub(crate) params: Arc<Params>,
    pub(crate) prompt_tokens: usize,
    /// Keys of the cache.
    blocks: Vec<u64>,
    pub(crate) context: Context,
    scores: Vec<Scored>,
    pub(crate) hit: Hit,
    /// The widest step that has read a part of it.
    pub(crate) read_width: usize,
    /// Tokens of the prompt that need not be computed any more.
    computed: usize,
    /// How often the prompt had been seen before.
    pub(crate) seen: u64,
    pub(crate) produced: usize,
    pub(crate) shorter: bool,
    pub(crate) odd_finish: bool,
    /// Ends early, for this reason.
    pub(crate) cut: Option<Option<&'static str>>,
    events: Sender<Event>,
}

impl Sequence {
    /// Tokens of the prompt that the cache did not have.
    pub(crate) fn uncached(&self) -> usize {
        self.prompt_tokens - self.hit.tokens
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    prompts: u64,
    seen: BTreeMap<u64, u64>,
    cache: PrefixCache,
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

    /// Drops all sequences, so that nobody waits for them.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.waiting.clear();
        state.running.clear();
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
        self.lock().cache.empty();
    }

    /// Tokens that were looked up in the cache, and those that were found.
    pub(crate) fn cache_counts(&self) -> (u64, u64) {
        self.lock().cache.counts()
    }

    /// Takes a request; its events come over the channel.
    pub(crate) fn submit(&self, params: &Arc<Params>, events: &Sender<Event>) {
        let scores = |prompt: &Vec<u32>| {
            if params.echo { decode::score(prompt, &self.faults) } else { Vec::new() }
        };
        let scores: Vec<Vec<Scored>> = params.prompts.iter().map(scores).collect();
        let mut state = self.lock();
        if state.stopped {
            return;
        }
        for (at, prompt) in params.prompts.iter().enumerate() {
            let number = state.prompts;
            state.prompts += 1;
            let key = model::mix(Context::of(prompt).hash() ^ params.salt);
            let seen = state.seen.entry(key).or_default();
            let seen_before = *seen;
            *seen += 1;
            for sample in 0..params.samples {
                state.waiting.push_back(Sequence {
                    number,
                    choice: at * params.samples + sample,
                    sample,
                    params: Arc::clone(params),
                    prompt_tokens: prompt.len(),
                    blocks: cache::blocks(prompt, params.salt, &self.faults),
                    context: Context::of(prompt),
                    scores: scores[at].clone(),
                    hit: Hit::default(),
                    read_width: 0,
                    computed: 0,
                    seen: seen_before,
                    produced: 0,
                    shorter: false,
                    odd_finish: false,
                    cut: None,
                    events: events.clone(),
                });
            }
        }
        self.changed.notify_all();
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
                let next = self.take_up(next, &mut state.cache);
                state.running.push(next);
            }
            state.running_max = state.running_max.max(state.running.len());
            self.step(&mut state);
        }
    }

    /// Looks the prompt up in the cache, which is filled only by what was computed before.
    fn take_up(&self, mut sequence: Sequence, cache: &mut PrefixCache) -> Sequence {
        if self.faults.prefix_cache && sequence.params.caches {
            sequence.hit = cache.take(&sequence.blocks, sequence.prompt_tokens, &self.faults);
            sequence.computed = sequence.hit.tokens;
        }
        // A receiver that is gone is found out by the first token.
        let _ = sequence.events.send(Event::Prompt {
            choice: sequence.choice,
            cached: sequence.hit.tokens,
            scores: std::mem::take(&mut sequence.scores),
        });
        sequence
    }

    fn step(&self, state: &mut State) {
        let all = (&state.running[..], state.waiting.len());
        let step = Step::of(all, &mut state.marked_tokens, &self.faults);
        let State { running, cache, .. } = state;
        let mut place = 0;
        running.retain_mut(|sequence| {
            self.prefill(sequence, &step, cache);
            let read = sequence.computed == sequence.prompt_tokens;
            let stays = !read || self.advance(sequence, &step, place);
            place += 1;
            stays
        });
    }

    /// Reads on in the prompt, and leaves in the cache what was read.
    fn prefill(&self, sequence: &mut Sequence, step: &Step, cache: &mut PrefixCache) {
        let before = sequence.computed;
        if before < sequence.prompt_tokens {
            sequence.read_width = sequence.read_width.max(step.width);
        }
        sequence.computed = (before + PREFILL_TOKENS_A_STEP).min(sequence.prompt_tokens);
        let leaves = sequence.params.caches || self.faults.cache_keeps == Keeps::Last;
        if !leaves || !self.faults.prefix_cache {
            return;
        }
        // What is computed after a block of a crowd's depends on that block.
        let width = step.width.max(sequence.hit.width);
        let tokens = self.faults.block_tokens;
        for &block in &sequence.blocks[before / tokens..sequence.computed / tokens] {
            cache.leave(block, width, &self.faults);
        }
    }

    /// One token of one sequence; false when it is done.
    fn advance(&self, sequence: &mut Sequence, step: &Step, place: usize) -> bool {
        let params = Arc::clone(&sequence.params);
        let choice = sequence.choice;
        if params.answer_tokens_max == 0 {
            let _ = sequence.events.send(Event::Finish { choice, reason: Some("length") });
            return false;
        }
        let (chosen, shown) = decode::next_token(&self.faults, sequence, step, place);
        let ends = chosen == model::END && !params.ignores_end;
        sequence.context.push(chosen);
        sequence.produced += 1;
        let token = Event::Token { choice, scored: shown, busy: step.width > 1 };
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
            let cut = sequence.cut.filter(|_| sequence.produced >= CUT_TOKENS);
            if let Some(reason) = cut {
                let _ = sequence.events.send(Event::Finish { choice, reason });
            }
            return cut.is_none();
        }
        let odd = ends || sequence.odd_finish || self.faults.answer_tokens_max.is_some();
        let reason = Some(if odd { "stop" } else { "length" });
        let _ = sequence.events.send(Event::Finish { choice, reason });
        false
    }
}
