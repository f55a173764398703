//! The positive control for any engine: the same engine, with one bit of its results flipped in company.

use std::sync::Arc;

use crate::record::{Capture, Run};
use crate::schedule::Schedule;
use crate::workload::Workload;
use crate::world::World;

use super::{Subject, SubjectError};

/// An engine that flips the lowest bit of the last logits of a sample which shared a step, or of its last token if it reports no
/// logits. A harness that doesn't find this sees nothing in this engine.
pub struct OneBit(pub Arc<dyn Subject + Send>);

impl super::Wrapper for OneBit {
    fn inner(&self) -> &dyn Subject {
        &*self.0
    }
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        let mut run = self.0.execute(world, workload, schedule, seed, capture)?;
        for output in run.outputs.values_mut().filter(|o| o.shared_steps > 0) {
            match output.positions.last_mut() {
                Some(last) => last.logits ^= 1,
                None => output.tokens.iter_mut().last().into_iter().for_each(|token| *token ^= 1),
            }
        }
        Ok(run)
    }
}
