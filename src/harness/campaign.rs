//! A campaign: cases from a seed, judged by relations, until the number asked for or the first that fails.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::coverage;
use crate::relation::{Executions, Judgement, Relation, compare};
use crate::strategy::{Cases, Space, cases};
use crate::subject::{Capabilities, Subject, SubjectError};

use super::shrink::{ShrinkBudget, Shrunk, failure_of, shrink};
use super::tally::{CaseResult, RelationTally, Tally, case_result};
use super::turns::Turns;

/// What to run.
pub struct Campaign<'s> {
    /// The engine.
    pub subject: &'s dyn Subject,
    /// Where cases come from.
    pub space: Space,
    /// What is asked of each case.
    pub relations: Vec<&'static Relation>,
    /// Cases, from number 0.
    pub cases: u64,
    /// Stop after this time, whatever the number of cases.
    pub time_max: Option<Duration>,
    /// Seed of the campaign.
    pub seed: u64,
    /// Threads. Changes how fast cases come, never which.
    pub jobs: usize,
    /// Limits of the shrink.
    pub budget: ShrinkBudget,
}

/// What a campaign, or a run of the certifier or an arm of it, came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything that was compared held, and a difference would have been seen.
    Held,
    /// What must be equal differs.
    Broken,
    /// Nothing is broken, but what would show it was not exercised.
    Undecided,
}

impl Verdict {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Held => "held",
            Verdict::Broken => "broken",
            Verdict::Undecided => "undecided",
        }
    }
}

/// A relation broken by a case.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The relation.
    pub relation: &'static Relation,
    /// Number of the case in the campaign.
    pub index: u64,
    /// The case as it was drawn.
    pub original: Case,
    /// The smallest case that fails in the same way; `None` if it does not fail each time.
    pub shrunk: Option<Shrunk>,
    /// The first failure.
    pub divergence: compare::Divergence,
    /// Verdicts of three more executions of the original: whether it failed again.
    pub again: [bool; 3],
    /// Why these could not be carried out, if they could not.
    pub interrupted: Option<String>,
}

impl Failure {
    /// Whether the case fails each time. If not, the engine's own repeatability is what is broken.
    pub fn is_repeatable(&self) -> bool {
        self.again == [true; 3] && self.interrupted.is_none()
    }

    /// The case to report.
    pub fn case(&self) -> &Case {
        self.shrunk.as_ref().map_or(&self.original, |s| &s.case)
    }

    /// The failure of [`Failure::case`].
    pub fn reported(&self) -> &compare::Divergence {
        self.shrunk.as_ref().map_or(&self.divergence, |s| &s.divergence)
    }
}

/// A finished campaign.
#[derive(Clone, Debug)]
pub struct Report {
    /// The sums.
    pub tally: Tally,
    /// The first failing case's first broken relation.
    pub failure: Option<Failure>,
    /// Wall time of the cases, without the shrink.
    pub elapsed: Duration,
}

impl Report {
    /// The verdict. Broken beats undecided.
    pub fn verdict(&self) -> Verdict {
        if self.failure.is_some() {
            Verdict::Broken
        } else if self.judged_nothing()
            || self.vacuous() > 0
            || !self.tally.exercised.undeclared().is_empty()
        {
            Verdict::Undecided
        } else {
            Verdict::Held
        }
    }

    /// Why nothing can be said although nothing is broken; empty unless the verdict is undecided.
    pub fn undecided(&self) -> Vec<String> {
        if self.verdict() != Verdict::Undecided {
            return Vec::new();
        }
        let relations = self.tally.relations.iter();
        if self.judged_nothing() {
            let why = |r: &RelationTally| Some(format!("{}: {}", r.relation.id, r.not_applicable?));
            return relations.filter_map(why).collect();
        }
        let missed = relations.flat_map(|r| r.missed.iter().map(|m| (r.relation.id, m)));
        let missed = missed.map(|(id, minimum)| format!("{id}: {minimum}"));
        let undeclared = self.tally.exercised.undeclared().into_iter();
        missed.chain(undeclared.map(|what| format!("not in the lifecycle table: {what}"))).collect()
    }

    /// Whether the subject can be judged by none of the relations.
    pub fn judged_nothing(&self) -> bool {
        self.tally.relations.iter().all(|r| r.not_applicable.is_some())
    }

    /// Minima missed over all relations.
    pub fn vacuous(&self) -> usize {
        self.tally.relations.iter().map(|r| r.missed.len()).sum()
    }
}

/// A case that was judged.
struct Judged {
    result: CaseResult,
    /// Index of the first broken relation, and how it is broken.
    broken: Option<(usize, compare::Divergence)>,
}

/// A relation, and why the subject can't be judged by it, if it can't.
type Asked = (&'static Relation, Option<&'static str>);

/// Where a campaign is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This many cases are done.
    Cases(u64),
    /// A case failed and is being shrunk.
    Shrinking,
}

/// The sums, and how the campaign ended before its number of cases.
struct Folded {
    tally: Tally,
    /// The first case that is broken or could not be judged.
    ended: Option<Result<Broken, SubjectError>>,
}

/// A broken case: its number, index of the relation, difference.
type Broken = (u64, usize, compare::Divergence);

impl Folded {
    fn add(&mut self, judged: Result<Judged, SubjectError>) {
        match judged {
            Ok(Judged { result, broken }) => {
                let index = self.tally.cases;
                self.tally.add(&result);
                self.ended = broken.map(|(relation, how)| Ok((index, relation, how)));
            }
            Err(why) => self.ended = Some(Err(why)),
        }
    }
}

impl Campaign<'_> {
    /// Runs the campaign, telling `progress` where it is.
    ///
    /// The result is a function of the campaign's fields, except that a time limit decides how many cases there are.
    pub fn run(&self, progress: &(dyn Fn(Progress) + Sync)) -> Result<Report, SubjectError> {
        let capabilities = self.subject.capabilities();
        let asked: Vec<Asked> =
            self.relations.iter().map(|r| (*r, (r.applies)(&capabilities).err())).collect();
        let started = Instant::now();
        let cases = cases(self.space.clone());
        let Folded { mut tally, ended } =
            self.judge_all(&cases, &asked, &capabilities, progress, started);
        let elapsed = started.elapsed();
        tally.settle(&capabilities, &self.subject.edges());
        let failure = match ended.transpose()? {
            Some((index, relation, divergence)) => {
                progress(Progress::Shrinking);
                Some(self.examine(&cases, index, asked[relation].0, divergence))
            }
            None => None,
        };
        Ok(Report { tally, failure, elapsed })
    }

    /// Judges cases on all threads, up to the first that is broken or can't be judged.
    fn judge_all(
        &self,
        cases: &Cases,
        asked: &[Asked],
        capabilities: &Capabilities,
        progress: &(dyn Fn(Progress) + Sync),
        started: Instant,
    ) -> Folded {
        let tally = Tally::new(asked, &self.subject.edges(), capabilities);
        let turns = Turns::new(Folded { tally, ended: None }, self.cases, Folded::add);
        let folder = coverage::Folder::new();
        let is_over = || self.time_max.is_some_and(|max| started.elapsed() >= max);
        let work = || {
            while let Some(turn) = turns.take(is_over) {
                let judged = self.judge(cases, asked, &folder, turn.index());
                let ends = judged.as_ref().map_or(true, |judged| judged.broken.is_some());
                turn.done(judged, ends, |sum| progress(Progress::Cases(sum.tally.cases)));
            }
        };
        if self.jobs <= 1 {
            work();
        } else {
            std::thread::scope(|scope| {
                for _ in 0..self.jobs {
                    scope.spawn(work);
                }
            });
        }
        turns.finish()
    }

    fn judge(
        &self,
        cases: &Cases,
        asked: &[Asked],
        folder: &coverage::Folder,
        index: u64,
    ) -> Result<Judged, SubjectError> {
        let drawn = cases.nth(self.seed, index);
        let case = proptest::strategy::ValueTree::current(&drawn);
        let requests = case.workload.requests.iter().zip(case.workload.lengths());
        let prompts: Vec<usize> =
            requests.flat_map(|(r, lengths)| r.sample_ids().map(move |_| lengths.prompt)).collect();
        let edges = self.subject.edges();
        let mut executions = match Executions::new(self.subject, &case) {
            Ok(executions) => executions,
            Err(SubjectError::Failed(why)) => {
                let divergence = compare::crash(why);
                let mut result = case_result(&Default::default(), &prompts, &edges);
                let broken = Judgement::Broken(Box::new(divergence.clone()));
                result.judgements = vec![Some(broken)];
                return Ok(Judged { result, broken: Some((0, divergence)) });
            }
            Err(error) => return Err(error),
        };
        let mut judgements = Vec::with_capacity(asked.len());
        let mut broken = None;
        for (i, (relation, not_applicable)) in asked.iter().enumerate() {
            if not_applicable.is_some() || !self.asks(relation, index) {
                judgements.push(None);
                continue;
            }
            let judgement = match relation.judge(&mut executions) {
                Ok(judgement) => judgement,
                Err(SubjectError::Failed(why)) => Judgement::Broken(Box::new(compare::crash(why))),
                Err(error) => return Err(error),
            };
            if let (Judgement::Broken(divergence), None) = (&judgement, &broken) {
                broken = Some((i, (**divergence).clone()));
            }
            judgements.push(Some(judgement));
        }
        let mut result = case_result(executions.run(), &prompts, &edges);
        result.covered = Some(folder.fold(executions.run(), drawn.features(), drawn.targets()));
        result.judgements = judgements;
        result.forwards = executions.forwards();
        result.fresh_processes = executions.fresh_processes();
        Ok(Judged { result, broken })
    }

    /// In a mixed campaign, what costs a whole execution is asked of some cases only.
    fn asks(&self, relation: &Relation, index: u64) -> bool {
        self.relations.len() == 1 || index.is_multiple_of(relation.every)
    }

    /// Repeats the failing case, and shrinks it if it fails each time.
    fn examine(
        &self,
        cases: &Cases,
        index: u64,
        relation: &'static Relation,
        divergence: compare::Divergence,
    ) -> Failure {
        let original = proptest::strategy::ValueTree::current(&cases.nth(self.seed, index));
        let mut again = [false; 3];
        let mut interrupted = None;
        for slot in &mut again {
            match failure_of(self.subject, relation, &original) {
                Ok(found) => *slot = found.is_some_and(|d| d.all.contains(&divergence.observable)),
                // What was found stays found, whatever became of the subject.
                Err(error) => {
                    interrupted = Some(error.to_string());
                    break;
                }
            }
        }
        // What fails only sometimes can't be shrunk: a candidate that passes proves nothing.
        let shrunk = (again == [true; 3])
            .then(|| shrink(self.subject, relation, &original, &divergence, self.budget));
        Failure { relation, index, original, shrunk, divergence, again, interrupted }
    }
}
