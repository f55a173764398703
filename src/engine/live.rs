//! The live engine: takes requests while it runs, and tells what each step brought.
//!
//! It is the engine of [`execute`](super::execute) under the empty schedule, step by step, with no end: the same
//! scheduler, the same launches. What only a test looks at it neither computes nor keeps, and who is done is
//! forgotten, so it can run for as long as it likes. A request's output is that of its canonical execution in the
//! same world with the same run seed: whatever else differs here, the bits do not. There is no clock in it: a step
//! happens when it is asked for.

use std::collections::BTreeMap;

use crate::device::Device;
use crate::record::{Finish, Held, TokenScore};
use crate::schedule::Schedule;
use crate::workload::{Request, SampleId, Workload};
use crate::world::World;

use super::check::{check_requests, check_world};
use super::scheduler::Scheduler;
use super::sequence::{Sequence, State};
use super::{DeviceModel, Engine, EngineError};

/// An engine instance that runs on and on.
pub struct Live<'m, D: Device> {
    pub(super) engine: Engine<'m, D>,
    model: &'m DeviceModel<D>,
    world: World,
    seed: u64,
    /// What was told of each sample that is not done.
    told: BTreeMap<SampleId, Told>,
}

/// What was told of a sample so far.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// Whether it was in a step.
    began: bool,
    /// Position whose score is told next. A sequence that lost its residency scores again what it computes again.
    scored: u32,
}

/// What a step brought to a sample that was in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The sample.
    pub id: SampleId,
    /// In its first step: prompt tokens that the prefix cache served.
    pub cached: Option<usize>,
    /// Scores of prompt tokens, in order.
    pub prompt_scores: Vec<TokenScore>,
    /// The token that was drawn, with its score if that is wanted.
    pub token: Option<(u32, Option<TokenScore>)>,
    /// Why it is done, and the bytes of its whole text, once it is.
    pub end: Option<(Finish, Vec<u8>)>,
}

/// How busy a live engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sequences that are resident.
    pub running: usize,
    /// Sequences that wait, for the first time or again.
    pub waiting: usize,
    /// Blocks in use; what is merely cached is not.
    pub blocks_used: usize,
    /// Blocks of the pool.
    pub blocks: usize,
}

impl<'m, D: Device> Live<'m, D> {
    /// An idle engine. `seed` is the run seed, on which draws of unseeded requests depend.
    pub fn new(
        model: &'m DeviceModel<D>,
        world: &World,
        seed: u64,
        audits: bool,
    ) -> Result<Live<'m, D>, EngineError> {
        check_world(model, world)?;
        let (nobody, nothing) = (Workload::default(), Schedule::default());
        let engine = Engine::new(model, world, &nobody, &nothing, seed, audits)?;
        Ok(Live { engine, model, world: world.clone(), seed, told: BTreeMap::new() })
    }

    /// Takes a request, whose samples arrive at the next boundary.
    pub fn submit(&mut self, request: Request) -> Result<(), EngineError> {
        let workload = Workload { requests: vec![request] };
        check_requests(self.model, &self.world, &workload)?;
        let request = &workload.requests[0];
        if let Some(id) = request.sample_ids().find(|id| self.told.contains_key(id)) {
            return Err(EngineError::BadInput(format!("{id} is in the engine already")));
        }
        self.told.extend(request.sample_ids().map(|id| (id, Told::default())));
        self.engine.scheduler.take_in_request(request, self.seed);
        Ok(())
    }

    /// Ends what is left of a request, and gives back what it holds. Does nothing if it is done.
    pub fn abort(&mut self, uid: u64) -> Result<(), EngineError> {
        let scheduler = &mut self.engine.scheduler;
        for i in 0..scheduler.sequences.len() {
            if scheduler.sequences[i].id.uid == uid {
                scheduler.abort(i);
            }
        }
        self.engine.do_deeds()?;
        self.forget();
        Ok(())
    }

    /// Takes the next boundary, and tells what it brought, in row order.
    pub fn step(&mut self) -> Result<Vec<Progress>, EngineError> {
        let step = self.engine.boundary()?;
        let mut all = Vec::with_capacity(step.len());
        let mut drawn = self.engine.drawn.drain(..).peekable();
        let mut scores = self.engine.scores.drain(..).peekable();
        for slice in &step {
            let sequence = &self.engine.scheduler.sequences[slice.index];
            let id = sequence.id;
            let told = self.told.get_mut(&id).expect("an entry a sequence");
            let cached = (!told.began).then_some(slice.start);
            told.began = true;
            let mut prompt_scores = Vec::new();
            let mut last = None;
            while let Some((_, score)) = scores.next_if(|(of, _)| *of == id) {
                if score.position < told.scored {
                    continue;
                }
                told.scored = score.position + 1;
                match (score.position as usize) < sequence.prompt_len {
                    true => prompt_scores.push(score),
                    false => last = Some(score),
                }
            }
            let token = drawn.next_if(|(of, _)| *of == id).map(|(_, draw)| (draw.token, last));
            let end = match sequence.state {
                State::Finished(finish) => Some((finish, sequence.text.clone())),
                _ => None,
            };
            all.push(Progress { id, cached, prompt_scores, token, end });
        }
        drop((drawn, scores));
        self.forget();
        Ok(all)
    }

    /// Forgets who is done, and the log of what happened, which nobody reads here.
    fn forget(&mut self) {
        let scheduler = &mut self.engine.scheduler;
        scheduler.life.clear();
        for sequence in scheduler.sequences.iter().filter(|s| s.is_finished()) {
            self.told.remove(&sequence.id);
        }
        scheduler.forget_finished();
    }

    /// Whether nothing is to be done.
    pub fn is_idle(&self) -> bool {
        self.engine.scheduler.sequences.is_empty()
    }

    /// How busy it is.
    pub fn load(&self) -> Load {
        let Scheduler { sequences, pool, .. } = &self.engine.scheduler;
        let running = sequences.iter().filter(|s| s.state == State::Running).count();
        Load {
            running,
            waiting: sequences.len() - running,
            blocks_used: pool.len() - pool.available(),
            blocks: pool.len(),
        }
    }

    /// What is held: nothing once it is idle. An error if it is idle and its books do not balance.
    pub fn held(&self) -> Result<Held, EngineError> {
        if self.is_idle() {
            self.engine.scheduler.check_idle().map_err(EngineError::Ledger)?;
        }
        Ok(self.engine.scheduler.held())
    }
}

impl Scheduler {
    /// Adds the samples of a request, youngest of all.
    fn take_in_request(&mut self, request: &Request, run_seed: u64) {
        for id in request.sample_ids() {
            let arrival = self.boundary;
            self.sequences.push(Sequence { arrival, ..Sequence::new(request, id, run_seed) });
        }
        self.order = (0..self.sequences.len()).collect();
    }

    /// Drops the sequences that are done, to which no flight may belong. The order of the others stays: they stand in
    /// the order of their arrival.
    fn forget_finished(&mut self) {
        assert!(self.flights.is_empty(), "{} flights of a live engine", self.flights.len());
        self.sequences.retain(|sequence| !sequence.is_finished());
        if self.order.len() != self.sequences.len() {
            self.order = (0..self.sequences.len()).collect();
        }
    }
}
