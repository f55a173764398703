//! The relations on the toy engine: all that a test target of one's own engine needs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::Arguments;
use lockstep::harness::Suite;
use lockstep::relation::by_id;
use lockstep::strategy::Space;
use lockstep::subject::Subject;

use crate::engine::{Fault, Toy};

/// Replays the cases stored in `regressions`, then searches for new ones.
pub(crate) fn run(arguments: &Arguments, fault: Fault, regressions: PathBuf) -> ExitCode {
    let suite = Suite::from_env(regressions);
    let subject: Arc<dyn Subject + Send> = Arc::new(Toy::new(fault));
    let mut trials = match suite.replays(std::slice::from_ref(&subject), "") {
        Ok(trials) => trials,
        Err(error) => {
            eprintln!("lockstep: {error}");
            return ExitCode::from(2);
        }
    };
    let space = || Space::new(subject.edges(), subject.default_world());
    for relation in ["I1", "I2.chunk", "I3"].into_iter().filter_map(by_id) {
        trials.push(suite.search(&subject, "toy", relation, space(), suite.cases));
    }
    // Whether anything would be found: one bit flipped in company must be.
    let i1 = by_id("I1").expect("it is one of them");
    trials.push(suite.one_bit(&subject, "toy", i1, space(), suite.cases));
    suite.run(arguments, subject.device(), trials)
}
