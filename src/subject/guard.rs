//! Panics of an engine under test, caught and turned into failures that can be shrunk.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::record::{Capture, Run};
use crate::schedule::Schedule;
use crate::workload::Workload;
use crate::world::World;

use super::{Subject, SubjectError};

thread_local! {
    /// While a guarded call runs on this thread: where and why it panicked, once it has.
    static GUARDED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// [`Subject::execute`], with a panic as [`SubjectError::Failed`].
///
/// A fresh instance is used for each execution, so nothing that a panic left half-done is looked at again. The panic
/// hook stays silent for guarded calls: a shrink would otherwise print hundreds of backtraces.
pub fn execute(
    subject: &dyn Subject,
    world: &World,
    workload: &Workload,
    schedule: &Schedule,
    seed: u64,
    capture: Option<Capture>,
) -> Result<Run, SubjectError> {
    quieten();
    GUARDED.set(Some(String::new()));
    let call = AssertUnwindSafe(|| subject.execute(world, workload, schedule, seed, capture));
    let outcome = catch_unwind(call);
    let message = GUARDED.take().unwrap_or_default();
    outcome.unwrap_or(Err(SubjectError::Failed(message)))
}

/// Installs, once, a hook that keeps the message of a guarded panic and passes all others on.
fn quieten() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let kept = GUARDED.with_borrow_mut(|slot| match slot {
                Some(message) => {
                    *message = info.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                    true
                }
                None => false,
            });
            if !kept {
                before(info);
            }
        }));
    });
}
