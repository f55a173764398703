//! The executions that judges look at: the case's own run, a canonical run of each request, and repetitions. Each is
//! made once and shared by all relations of the case.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::case::Case;
use crate::record::{Capture, CapturedRow, Run};
use crate::schedule::Schedule;
use crate::subject::{Capabilities, PlainRun, Subject, SubjectError, guard};
use crate::workload::{SampleId, Workload};
use crate::world::World;

/// Executions of one case.
pub struct Executions<'s> {
    subject: &'s dyn Subject,
    capabilities: Capabilities,
    /// The case, its continuations resolved.
    case: Case,
    run: Run,
    canonical: BTreeMap<SampleId, Run>,
    /// Steps launched by all executions so far.
    forwards: u64,
    fresh_processes: u64,
}

impl<'s> Executions<'s> {
    /// Carries out the case.
    pub fn new(subject: &'s dyn Subject, case: &Case) -> Result<Executions<'s>, SubjectError> {
        let mut canonical = BTreeMap::new();
        let case = resolve_into(subject, case, &mut canonical)?;
        let Case { world, workload, schedule, seed } = &case;
        let run = guard::execute(subject, world, workload, schedule, *seed, None)?;
        let runs = canonical.values().chain([&run]);
        let forwards = runs.map(|run| run.steps.len() as u64).sum();
        Ok(Executions {
            subject,
            capabilities: subject.capabilities(),
            case,
            run,
            canonical,
            forwards,
            fresh_processes: 0,
        })
    }

    /// The case, its continuations resolved.
    pub fn case(&self) -> &Case {
        &self.case
    }

    /// The engine.
    pub fn subject(&self) -> &dyn Subject {
        self.subject
    }

    /// What the engine can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The case's own run.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The run, and C(r): a fresh instance in the same world, the sample alone, the empty schedule. Never derived from
    /// the run that it judges.
    pub fn with_canonical(&mut self, id: SampleId) -> Result<(&Run, &Run), SubjectError> {
        if !self.canonical.contains_key(&id) {
            let run = canonical(self.subject, &self.case, &self.case.workload, id)?;
            self.forwards += run.steps.len() as u64;
            self.canonical.insert(id, run);
        }
        Ok((&self.run, &self.canonical[&id]))
    }

    /// The run, and what a plain engine makes of the sample.
    pub fn with_plain(&mut self, id: SampleId) -> Result<(&Run, PlainRun), SubjectError> {
        let alone = self.case.workload.alone(id);
        let Some(request) = alone.requests.first() else {
            return Err(SubjectError::Failed(format!("an output of {id}, which nobody asked for")));
        };
        let plain = self.subject.plain(request, self.case.seed, None)?;
        self.forwards += plain.output.rows_computed;
        Ok((&self.run, plain))
    }

    /// The case carried out again with values kept: those rows of the sample that it names.
    pub fn with_values(&mut self, capture: &Capture) -> Result<Vec<CapturedRow>, SubjectError> {
        let Case { world, workload, schedule, seed } = &self.case;
        let subject = self.subject;
        let mut run = guard::execute(subject, world, workload, schedule, *seed, Some(capture))?;
        self.forwards += run.steps.len() as u64;
        // What was kept must be what the relations saw.
        if run.trajectory.hash() != self.run.trajectory.hash() {
            let why = "an execution that keeps values has another trajectory";
            return Err(SubjectError::Failed(why.into()));
        }
        let output = capture.id.and_then(|id| run.outputs.get_mut(&id));
        Ok(output.map(|output| std::mem::take(&mut output.captured)).unwrap_or_default())
    }

    /// The case carried out in another world.
    pub fn in_world(&mut self, world: &World) -> Result<Run, SubjectError> {
        let Case { workload, schedule, seed, .. } = &self.case;
        let run = guard::execute(self.subject, world, workload, schedule, *seed, None)?;
        self.forwards += run.steps.len() as u64;
        Ok(run)
    }

    /// The case carried out again, in this process.
    pub fn repeat(&mut self) -> Result<Run, SubjectError> {
        let Case { world, workload, schedule, seed } = &self.case;
        let run = guard::execute(self.subject, world, workload, schedule, *seed, None)?;
        self.forwards += run.steps.len() as u64;
        Ok(run)
    }

    /// Another workload, schedule and seed carried out in the case's world.
    pub fn carry_out(
        &mut self,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
    ) -> Result<Run, SubjectError> {
        let run = guard::execute(self.subject, &self.case.world, workload, schedule, seed, None)?;
        self.forwards += run.steps.len() as u64;
        Ok(run)
    }

    /// Trajectory hash from a fresh process.
    pub fn repeat_in_fresh_process(&mut self) -> Result<String, SubjectError> {
        self.fresh_processes += 1;
        self.subject.replay_in_fresh_process(&self.case)
    }

    /// Steps launched by all executions so far, in this process.
    pub fn forwards(&self) -> u64 {
        self.forwards
    }

    /// Repetitions in fresh processes so far.
    pub fn fresh_processes(&self) -> u64 {
        self.fresh_processes
    }
}

/// The canonical execution of a sample of `workload`, which is that of `case` or its resolved part.
pub fn canonical(
    subject: &dyn Subject,
    case: &Case,
    workload: &Workload,
    id: SampleId,
) -> Result<Run, SubjectError> {
    let alone = workload.alone(id);
    guard::execute(subject, &case.world, &alone, &Schedule::default(), case.seed, None)
}

/// The case with each continuation replaced by token ids: the prompt and the output of what it continues, as its
/// canonical execution gives them.
pub fn resolve(subject: &dyn Subject, case: &Case) -> Result<Case, SubjectError> {
    resolve_into(subject, case, &mut BTreeMap::new())
}

/// [`resolve`], keeping the canonical runs that it made.
fn resolve_into(
    subject: &dyn Subject,
    case: &Case,
    runs: &mut BTreeMap<SampleId, Run>,
) -> Result<Case, SubjectError> {
    case.workload.validate().map_err(SubjectError::BadInput)?;
    let workload = case.workload.resolved(|workload, uid| {
        let id = SampleId::first(uid);
        let run = match runs.entry(id) {
            Entry::Occupied(run) => run.into_mut(),
            Entry::Vacant(place) => place.insert(canonical(subject, case, workload, id)?),
        };
        let output = run.outputs.get(&id).ok_or_else(|| {
            SubjectError::Failed(format!("the engine reported no output for {id}"))
        })?;
        Ok(output.tokens.clone())
    })?;
    Ok(Case { workload, ..case.clone() })
}
