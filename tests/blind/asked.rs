//! An engine that does something else than it was asked for, whatever shares its batches.

use lockstep::device::host::Host;
use lockstep::fixture::Fixture;
use lockstep::record::{Capture, Run};
use lockstep::schedule::Schedule;
use lockstep::subject::{Capabilities, Edges, PlainRun, Subject, SubjectError};
use lockstep::workload::{Request, Workload};
use lockstep::world::World;

/// What becomes of each request.
pub(crate) type Change = fn(&mut Request);

/// An engine to which each request comes changed. Its plain engine gets what was asked for.
pub(crate) struct Asked {
    pub(crate) engine: Fixture<Host>,
    pub(crate) change: Change,
}

impl Subject for Asked {
    fn name(&self) -> &str {
        self.engine.name()
    }
    fn device(&self) -> &str {
        self.engine.device()
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { fresh_process: false, ..self.engine.capabilities() }
    }
    fn edges(&self) -> Edges {
        self.engine.edges()
    }
    fn default_world(&self) -> World {
        self.engine.default_world()
    }
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        let mut workload = workload.clone();
        workload.requests.iter_mut().for_each(self.change);
        self.engine.execute(world, &workload, schedule, seed, capture)
    }
    fn plain(&self, request: &Request, seed: u64) -> Result<PlainRun, SubjectError> {
        self.engine.plain(request, seed)
    }
}

/// The output is a token shorter than was asked for.
pub(crate) fn one_token_short(request: &mut Request) {
    request.max_tokens = (request.max_tokens - 1).max(1);
}

/// An end-of-sequence token ends nothing.
pub(crate) fn eos_ignored(request: &mut Request) {
    request.ignore_eos = true;
}

/// A stop token ends nothing.
pub(crate) fn stops_ignored(request: &mut Request) {
    request.stop_token_ids.clear();
}

/// Another token than the model's stands before each prompt.
pub(crate) fn other_first_token(request: &mut Request) {
    request.prompt.own_tokens_mut()[0] ^= 1;
}
