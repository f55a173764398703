//! Engines around engines: all that a wrapper doesn't say is the inner engine's.

use std::sync::Arc;

use crate::case::Case;
use crate::env::Environment;
use crate::record::{Capture, Run};
use crate::schedule::Schedule;
use crate::weights::Model;
use crate::workload::{Request, Workload};
use crate::world::World;

use super::{Capabilities, Edges, PlainRun, Subject, SubjectError};

/// An engine that carries out what another one does, but for what it overrides: a control, or a fault for a test. Every wrapper
/// is a [`Subject`].
pub trait Wrapper: Sync {
    /// The engine inside.
    fn inner(&self) -> &dyn Subject;
    /// See [`Subject::device`].
    fn device(&self) -> &str {
        self.inner().device()
    }
    /// See [`Subject::capabilities`].
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }
    /// See [`Subject::edges`].
    fn edges(&self) -> Edges {
        self.inner().edges()
    }
    /// See [`Subject::execute`].
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        self.inner().execute(world, workload, schedule, seed, capture)
    }
    /// See [`Subject::weights`].
    fn weights(&self) -> Result<Arc<Model>, SubjectError> {
        self.inner().weights()
    }
    /// See [`Subject::replay_in_fresh_process`].
    fn replay_in_fresh_process(&self, case: &Case) -> Result<String, SubjectError> {
        self.inner().replay_in_fresh_process(case)
    }
}

impl<W: Wrapper> Subject for W {
    fn name(&self) -> &str {
        self.inner().name()
    }
    fn device(&self) -> &str {
        Wrapper::device(self)
    }
    fn environment(&self) -> Environment {
        self.inner().environment()
    }
    fn capabilities(&self) -> Capabilities {
        Wrapper::capabilities(self)
    }
    fn edges(&self) -> Edges {
        Wrapper::edges(self)
    }
    fn default_world(&self) -> World {
        self.inner().default_world()
    }
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        Wrapper::execute(self, world, workload, schedule, seed, capture)
    }
    fn plain(
        &self,
        request: &Request,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<PlainRun, SubjectError> {
        self.inner().plain(request, seed, capture)
    }
    fn weights(&self) -> Result<Arc<Model>, SubjectError> {
        Wrapper::weights(self)
    }
    fn replay_in_fresh_process(&self, case: &Case) -> Result<String, SubjectError> {
        Wrapper::replay_in_fresh_process(self, case)
    }
}
