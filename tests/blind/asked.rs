//! An engine that does something else than it was asked for, whatever shares its batches.

use lockstep::record::{Capture, Run};
use lockstep::schedule::Schedule;
use lockstep::subject::{Subject, SubjectError};
use lockstep::workload::{Request, Workload};
use lockstep::world::World;

/// What an execution is asked for.
pub(crate) struct Task {
    world: World,
    workload: Workload,
    schedule: Schedule,
}

impl Task {
    fn each(&mut self, change: impl FnMut(&mut Request)) {
        self.workload.requests.iter_mut().for_each(change);
    }
}

/// What becomes of each task.
pub(crate) type Change = fn(&mut Task);

/// An engine to which each task comes changed. Its plain engine gets what was asked for.
pub(crate) struct Asked {
    pub(crate) engine: Box<dyn Subject + Send>,
    pub(crate) change: Change,
}

impl lockstep::subject::Wrapper for Asked {
    fn inner(&self) -> &dyn Subject {
        &*self.engine
    }
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        let (world, workload) = (world.clone(), workload.clone());
        let mut task = Task { world, workload, schedule: schedule.clone() };
        (self.change)(&mut task);
        self.engine.execute(&task.world, &task.workload, &task.schedule, seed, capture)
    }
}

/// The output is a token shorter than was asked for.
pub(crate) fn one_token_short(task: &mut Task) {
    task.each(|request| request.max_tokens = (request.max_tokens - 1).max(1));
}

/// An end-of-sequence token ends nothing.
pub(crate) fn eos_ignored(task: &mut Task) {
    task.each(|request| request.ignore_eos = true);
}

/// A stop token ends nothing.
pub(crate) fn stops_ignored(task: &mut Task) {
    task.each(|request| request.stop_token_ids.clear());
}

/// Another token than the model's stands before each prompt.
pub(crate) fn other_first_token(task: &mut Task) {
    task.each(|request| request.prompt.own_tokens_mut()[0] ^= 1);
}

/// Nothing is ever preempted, swapped, cut, late or found.
pub(crate) fn nothing_happens(task: &mut Task) {
    task.world.prefix_cache = false;
    task.schedule = Schedule::default();
}
