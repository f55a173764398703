//! Panics of an engine under test, caught and turned into failures that can be shrunk.

use crate::record::{Capture, Run};
use crate::schedule::Schedule;
use crate::unwind::guarded;
use crate::workload::Workload;
use crate::world::World;

use super::{Subject, SubjectError};

/// [`Subject::execute`], with a panic as [`SubjectError::Failed`]: a fresh instance is used for each execution, so
/// nothing that a panic left half-done is looked at again.
pub fn execute(
    subject: &dyn Subject,
    world: &World,
    workload: &Workload,
    schedule: &Schedule,
    seed: u64,
    capture: Option<&Capture>,
) -> Result<Run, SubjectError> {
    guarded(|| subject.execute(world, workload, schedule, seed, capture))
        .unwrap_or_else(|panic| Err(SubjectError::Failed(panic)))
}
