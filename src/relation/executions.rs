//! The executions that judges look at: the case's own run, a canonical run of each request, and repetitions. Each is
//! made once and shared by all relations of the case.

use std::collections::BTreeMap;

use crate::case::Case;
use crate::record::Run;
use crate::schedule::Schedule;
use crate::subject::{Subject, SubjectError, guard};

/// Executions of one case.
pub struct Executions<'s> {
    subject: &'s dyn Subject,
    case: &'s Case,
    run: Run,
    canonical: BTreeMap<u64, Run>,
    /// Whether a repetition in a fresh process is wanted too.
    fresh_process: bool,
    /// Steps launched by all executions so far.
    forwards: u64,
    fresh_processes: u64,
}

impl<'s> Executions<'s> {
    /// Carries out the case.
    pub fn new(
        subject: &'s dyn Subject,
        case: &'s Case,
        fresh_process: bool,
    ) -> Result<Executions<'s>, SubjectError> {
        let Case { world, workload, schedule, seed } = case;
        let run = guard::execute(subject, world, workload, schedule, *seed, None)?;
        let forwards = run.steps.len() as u64;
        Ok(Executions {
            subject,
            case,
            run,
            canonical: BTreeMap::new(),
            fresh_process,
            forwards,
            fresh_processes: 0,
        })
    }

    /// The case.
    pub fn case(&self) -> &Case {
        self.case
    }

    /// The engine.
    pub fn subject(&self) -> &dyn Subject {
        self.subject
    }

    /// The case's own run.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The run, and C(r): a fresh instance in the same world, request `uid` alone, the empty schedule. Never derived
    /// from the run that it judges.
    pub fn with_canonical(&mut self, uid: u64) -> Result<(&Run, &Run), SubjectError> {
        if !self.canonical.contains_key(&uid) {
            let alone = self.case.workload.alone(uid);
            let run = guard::execute(
                self.subject,
                &self.case.world,
                &alone,
                &Schedule::default(),
                self.case.seed,
                None,
            )?;
            self.forwards += run.steps.len() as u64;
            self.canonical.insert(uid, run);
        }
        Ok((&self.run, &self.canonical[&uid]))
    }

    /// The case carried out again, in this process.
    pub fn repeat(&mut self) -> Result<Run, SubjectError> {
        let Case { world, workload, schedule, seed } = self.case;
        let run = guard::execute(self.subject, world, workload, schedule, *seed, None)?;
        self.forwards += run.steps.len() as u64;
        Ok(run)
    }

    /// Trajectory hash from a fresh process, if one is wanted and the subject can.
    pub fn repeat_in_fresh_process(&mut self) -> Result<Option<String>, SubjectError> {
        if !self.fresh_process || !self.subject.capabilities().fresh_process {
            return Ok(None);
        }
        self.fresh_processes += 1;
        self.subject.replay_in_fresh_process(self.case).map(Some)
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
