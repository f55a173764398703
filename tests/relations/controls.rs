//! Engines with a fault that a relation must find, besides the batch-dependent mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libtest_mimic::Trial;
use lockstep::harness::{Report, Suite};
use lockstep::record::{Capture, Run};
use lockstep::relation::{Observable, by_id};
use lockstep::schedule::Schedule;
use lockstep::strategy::Space;
use lockstep::subject::{Subject, SubjectError};
use lockstep::workload::Workload;
use lockstep::world::World;

use crate::Shared;

/// The trials, without model and device.
pub(crate) const NAMES: [&str; 2] =
    ["c0::unstable_order::i3::replay", "c0::one_bit::i1::cohabitants"];

/// Adds the trials of a sound subject.
pub(crate) fn add(suite: &Suite, subject: &Shared, suffix: &str, trials: &mut Vec<Trial>) {
    let label = format!("{}{suffix}", subject.name());
    let space = || Space::new(subject.edges(), subject.default_world());
    let (i1, i3) = (by_id("I1").expect("a relation"), by_id("I3").expect("a relation"));
    let unstable: Shared =
        Arc::new(UnstableOrder { inner: Arc::clone(subject), executions: AtomicU64::new(0) });
    let cases = suite.cases;
    trials.push(suite.control(
        &unstable,
        "unstable_order",
        &label,
        i3,
        space(),
        cases,
        state_differs,
    ));
    trials.push(suite.one_bit(subject, &label, i1, space(), cases));
}

fn state_differs(report: &Report) -> Result<(), String> {
    let failure = report.failure.as_ref().ok_or("no failure")?;
    let (requests, observable) =
        (failure.case().workload.requests.len(), failure.reported().observable);
    let is_minimal = failure.shrunk.as_ref().is_some_and(|s| s.minimal);
    if is_minimal && requests == 2 && observable == Observable::Trajectory {
        Ok(())
    } else {
        Err(format!("{requests} requests, {} differ, minimal: {is_minimal}", observable.name()))
    }
}

/// An engine that takes requests in an order which depends on what the process did before, as those of a hash map with a
/// random state do.
struct UnstableOrder {
    inner: Shared,
    executions: AtomicU64,
}

impl lockstep::subject::Wrapper for UnstableOrder {
    fn inner(&self) -> &dyn Subject {
        &*self.inner
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
        if self.executions.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            workload.requests.reverse();
        }
        self.inner.execute(world, &workload, schedule, seed, capture)
    }
}
