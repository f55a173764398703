//! The subject: the trait through which the harness sees any engine.
//!
//! To test an engine of your own, implement [`Subject`]: carry out a schedule on a *fresh* instance and report what you
//! observed. What the engine cannot do it leaves out of [`Capabilities`]; relations that need it then say
//! "inapplicable", never "held".

pub mod guard;
mod one_bit;
mod wrapper;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::case::Case;
use crate::env::Environment;
use crate::lifecycle::{EVENTS, Event};
use crate::record::{Capture, Output, Run, SENTINELS, Sentinel};
use crate::schedule::{ActKind, Schedule};
use crate::weights::Model;
use crate::workload::{Request, Workload};
use crate::world::World;

pub use one_bit::OneBit;
pub use wrapper::Wrapper;

/// What a subject can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Acts that it can carry out.
    pub acts: BTreeSet<ActKind>,
    /// Whether it reports a digest of the logits at every computed position.
    pub logits: bool,
    /// Whether it reports K and V digests.
    pub kv: bool,
    /// Whether it reports layer digests: of each operator's f32 results before they are rounded, at every computed position.
    pub sites: bool,
    /// Whether there is a plain engine of its model to compare it with: one request, no scheduler.
    pub plain: bool,
    /// Whether a pass in f64 can be made of its weights: [`Subject::weights`].
    pub exact: Option<Exact>,
    /// Whether exact ties of the largest logits are to be expected, so that a minimum of them is due.
    pub ties: bool,
    /// Whether it reports the log-probabilities that requests ask for.
    pub logprobs: bool,
    /// Whether it reports its draws, with keys that are derived as docs/contract.md section 11 says.
    pub draws: bool,
    /// Whether it reports what it holds when every request has left.
    pub ledger: bool,
    /// Whether it reports a trajectory.
    pub trajectory: bool,
    /// Whether it can repeat a case in a fresh process.
    pub fresh_process: bool,
    /// Mechanisms that it has and counts. The campaign minima of others are not due; gates always are.
    pub sentinels: BTreeSet<Sentinel>,
    /// Lifecycle events that it has and reports ([`Run::life`]). Coverage of others is not due.
    pub events: BTreeSet<Event>,
}

/// What a pass in f64 can be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Digest of configuration and weights.
    pub digest: String,
    /// Positions a case that such a pass can afford.
    pub positions: u32,
}

impl Capabilities {
    /// Everything but weights.
    pub fn all() -> Capabilities {
        Capabilities {
            acts: ActKind::ALL.into_iter().collect(),
            logits: true,
            kv: true,
            sites: true,
            plain: true,
            exact: None,
            ties: true,
            logprobs: true,
            draws: true,
            ledger: true,
            trajectory: true,
            fresh_process: true,
            sentinels: SENTINELS.iter().map(|(sentinel, _)| *sentinel).collect(),
            events: EVENTS.iter().map(|(event, _)| *event).collect(),
        }
    }
}

/// Sizes at which a subject's behaviour changes, and limits of its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edges {
    /// Numbers of rows in a step at which a launch variant changes: the first of each new variant.
    pub rows: Vec<u32>,
    /// Positions per attention tile.
    pub tile: u32,
    /// Positions per attention split.
    pub split: u32,
    /// Vocabulary size.
    pub vocab: u32,
    /// Longest sequence, in positions.
    pub positions_max: u32,
}

/// An execution failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectError {
    /// The case is not executable: bad input, one line.
    BadInput(String),
    /// Model or device are missing.
    Unavailable(String),
    /// The engine broke: a crash, a leak, or requests that never finished.
    Failed(String),
}

impl fmt::Display for SubjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubjectError::BadInput(why)
            | SubjectError::Unavailable(why)
            | SubjectError::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for SubjectError {}

/// What a plain engine makes of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainRun {
    /// Its output, as an engine reports it; with layer digests and values only where they were asked for.
    pub output: Output,
    /// Greedy draws in which several tokens had the largest logit.
    pub ties: u64,
}

/// An engine under test.
pub trait Subject: Sync {
    /// Model or engine name, for reports.
    fn name(&self) -> &str;
    /// Device name, for reports: `host`, `cuda`.
    fn device(&self) -> &str;
    /// Where results made with it are made.
    fn environment(&self) -> Environment {
        Environment::current(self.device(), None, None)
    }
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// Where its behaviour changes.
    fn edges(&self) -> Edges;
    /// The world that generated cases start from.
    fn default_world(&self) -> World;
    /// Carries out `schedule` on a fresh instance. The result is a function of the arguments alone.
    ///
    /// `capture` asks for values besides the digests, in [`Output::captured`]. A subject that has none leaves them out.
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError>;
    /// What a plain engine of the same model makes of the first sample of a request alone: no scheduler, no blocks, no
    /// batch, code of its own around the operators. Called only if [`Capabilities::plain`] says so.
    ///
    /// `capture` asks for layer digests, and for values as in [`Subject::execute`]. They serve reports alone: one that has none
    /// leaves them out.
    fn plain(
        &self,
        request: &Request,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<PlainRun, SubjectError> {
        let _ = (request, seed, capture);
        Err(SubjectError::Unavailable("no plain engine".into()))
    }
    /// The weights, on the host, as they are after their rounding to 16 bits. Called only if [`Capabilities::exact`] says
    /// so; an engine of another architecture than [`Model`] has none.
    fn weights(&self) -> Result<Arc<Model>, SubjectError> {
        Err(SubjectError::Unavailable("no weights on the host".into()))
    }
    /// Carries out the case in a fresh process and returns the trajectory hash. Called only if
    /// [`Capabilities::fresh_process`] says so.
    fn replay_in_fresh_process(&self, case: &Case) -> Result<String, SubjectError> {
        let _ = case;
        Err(SubjectError::Unavailable("no fresh process".into()))
    }
}
