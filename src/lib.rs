//! Property testing for batch-invariant LLM inference.
//!
//! A request sent to an inference server shares its steps with strangers. Its output must not depend on them in a
//! single bit: not on who they are or when they came, not on where its own prefill was cut, not on being preempted, not
//! on what a prefix cache served. Lockstep searches schedules for one that changes a bit, shrinks it to a case in which
//! nothing can be left out, and replays that case from a file. A pass that did not exercise its mechanism is a failure
//! too.
//!
//! # Testing an engine of your own
//!
//! Implement [`Subject`](subject::Subject): carry out a schedule on a fresh instance and report what was observed. Then
//! make a test target with `harness = false`:
//!
//! ```no_run
//! # fn my_engine() -> std::sync::Arc<dyn lockstep::subject::Subject + Send> { unimplemented!() }
//! use std::process::ExitCode;
//! use lockstep::harness::Suite;
//! use lockstep::relation::RELATIONS;
//! use lockstep::strategy::Space;
//!
//! fn main() -> ExitCode {
//!     let arguments = lockstep::libtest_mimic::Arguments::from_args();
//!     let suite = Suite::from_env("tests/regressions");
//!     let engine = my_engine();
//!     let mut trials = suite.replays(&[engine.clone()], "").expect("only case files in the folder");
//!     for relation in RELATIONS {
//!         let space = Space::new(engine.edges(), engine.default_world());
//!         trials.push(suite.search(&engine, "mine", relation, space, suite.cases));
//!     }
//!     suite.run(&arguments, engine.device(), trials)
//! }
//! ```
//!
//! `examples/own_engine` is a whole one. Relations that an engine can't be judged by, given its
//! [`Capabilities`](subject::Capabilities), say so; they never pass.
//!
//! # Where things are
//!
//! [`contract`] fixes every bit, [`device`] executes operators under it, [`engine`] is the fixture. [`world`],
//! [`workload`] and [`schedule`] are the three inputs of an execution, [`strategy`] draws and shrinks them, [`relation`]
//! says what must hold, [`harness`] runs campaigns. ARCHITECTURE.md in the repository says who may import whom.
//!
//! # Environment variables
//!
//! | variable | meaning |
//! | --- | --- |
//! | `PROPTEST_CASES` | cases a trial |
//! | `PROPTEST_RNG_SEED` | seed of the campaigns; 0 without it, so that runs repeat |
//! | `LOCKSTEP_DEVICE` | `auto`, `host`, `hash`, `cuda` or `cuda:N` |
//!
//! A variable that begins with `LOCKSTEP_` and that nothing reads is an error.

pub mod case;
#[cfg(feature = "cli")]
pub mod certify;
pub mod contract;
pub mod coverage;
pub mod device;
pub mod engine;
pub mod env;
pub mod fixture;
pub mod harness;
pub mod input;
pub mod lifecycle;
pub mod record;
pub mod reference;
pub mod relation;
pub mod schedule;
pub mod schema;
#[cfg(feature = "cli")]
pub mod serve;
pub mod strategy;
pub mod subject;
pub mod text;
pub mod unwind;
pub mod weights;
pub mod workload;
pub mod world;

pub use libtest_mimic;
