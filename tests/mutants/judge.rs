//! Cases in a fixed order, each judged by every relation, until an expected observer sees a difference.
//!
//! An audit that ends a run hides what the relations would have seen, so such a case is judged once more with the audits
//! off: a mutant that only an audit sees is told from one that both see.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Instant;

use lockstep::case::Case;
use lockstep::contract::{Mode, hex};
use lockstep::harness::{Campaign, ShrinkBudget};
use lockstep::record::Run;
use lockstep::relation::x1::schedules;
use lockstep::relation::{Executions, Judgement, RELATIONS, Relation, by_id};
use lockstep::strategy::{Space, cases};
use lockstep::subject::{Subject, SubjectError};
use lockstep::unwind::guarded;
use proptest::strategy::ValueTree as _;
use sha2::{Digest as _, Sha256};

use crate::job::{Answer, Job, Stage, is_expected};
use crate::open::{Opened, Opener, dtype};
use crate::{marker, shapes};

/// Observers that end a run. A mutant that only they have seen is shown more cases, to learn whether a relation sees it too.
const OWN: [&str; 4] = ["audit", "panic", "ledger", "liveness"];

/// What was seen of one case.
#[derive(Default)]
struct Seen {
    by: BTreeSet<String>,
    first: Option<String>,
    held: Vec<&'static str>,
    digest: String,
    sentinels: BTreeMap<String, u64>,
}

/// Does a job; the error says why it could not be done.
pub(crate) fn judge(job: &Job, started: Instant) -> Result<Answer, String> {
    let named = job.relations.iter().map(|id| by_id(id).ok_or(format!("no relation {id:?}")));
    let mut relations = named.collect::<Result<Vec<_>, _>>()?;
    if relations.is_empty() {
        relations = RELATIONS.to_vec();
    }
    let mut opener = Opener::default();
    let mut answer = Answer::default();
    for (at, stage) in job.stages.iter().enumerate() {
        if job.cell {
            cell(job, stage, &relations, &mut opener, &mut answer)?;
        } else if stage.on == "twin" {
            twin(job, stage, &mut opener, &mut answer)?;
        } else {
            let clean = job.clean.get(at).map_or(&[][..], Vec::as_slice);
            Stand::new(job, stage, &relations, &mut opener)?.run(clean, started, &mut answer)?;
        }
        answer.expected = answer.by.iter().any(|by| is_expected(by, &job.expect));
        if answer.expected && !job.record {
            break;
        }
    }
    if !answer.expected {
        // Nobody saw a difference that was expected to. What the clean control could judge and this could not is seen too: a
        // campaign reports it.
        let idle = job.clean_held.iter().filter(|id| !answer.held.contains_key(*id));
        answer.by.extend(idle.map(|id| format!("vacuous/{id}")));
        answer.expected = answer.by.iter().any(|by| is_expected(by, &job.expect));
    }
    if answer.seconds == 0.0 {
        answer.seconds = started.elapsed().as_secs_f64();
    }
    if let Some(on) = &job.shapes {
        let subject = opener.open(on, "tiny", dtype("bf16")?, Mode::Invariant, false)?;
        answer.bs1_vs_bsn = Some(shapes::batch_one_against_batch_n(&*subject));
        answer.unique_texts = Some(shapes::unique_texts(&*subject));
    }
    Ok(answer)
}

/// A stage, opened.
struct Stand<'j> {
    job: &'j Job,
    stage: &'j Stage,
    relations: &'j [&'static Relation],
    subject: Opened,
    unaudited: Opened,
}

impl<'j> Stand<'j> {
    fn new(
        job: &'j Job,
        stage: &'j Stage,
        relations: &'j [&'static Relation],
        opener: &mut Opener,
    ) -> Result<Stand<'j>, String> {
        let mut open = |audits| {
            opener.open(&stage.on, &stage.model, dtype(&stage.dtype)?, Mode::Invariant, audits)
        };
        let (subject, unaudited) = (open(job.audits)?, open(false)?);
        Ok(Stand { job, stage, relations, subject, unaudited })
    }

    fn run(&self, clean: &[String], started: Instant, answer: &mut Answer) -> Result<(), String> {
        let job = self.job;
        let cases = cases(Space::new(self.subject.edges(), self.subject.default_world()));
        let mut digests = Vec::new();
        for index in 0..self.stage.cases {
            let case = cases.nth(job.seed, index).current();
            let before = marker::hits();
            let mut seen = self.look(&*self.subject, &case, index)?;
            if seen.by.contains("audit") {
                let more = self.look(&*self.unaudited, &case, index)?;
                seen.by.extend(more.by);
            }
            answer.cases += 1;
            answer.executed += u64::from(marker::hits() > before);
            let fired = |name: &String| seen.sentinels.get(name).is_some_and(|n| *n > 0);
            answer.reached += u64::from(job.needs.iter().all(fired));
            let differs = clean.get(index as usize).is_some_and(|digest| *digest != seen.digest);
            answer.differed += u64::from(differs);
            for id in &seen.held {
                *answer.held.entry((*id).to_owned()).or_default() += 1;
            }
            if job.record {
                digests.push(seen.digest);
                for name in seen.sentinels.into_keys() {
                    *answer.sentinels.entry(name).or_default() += 1;
                }
            }
            if seen.by.is_empty() {
                continue;
            }
            let expected = seen.by.iter().any(|by| is_expected(by, &job.expect));
            if answer.by.is_empty() || expected && !answer.expected {
                answer.seconds = started.elapsed().as_secs_f64();
            }
            answer.expected |= expected;
            answer.first = answer.first.take().or(seen.first);
            answer.by.extend(seen.by);
            let by_relations = answer.by.iter().any(|by| !OWN.contains(&by.as_str()));
            if answer.expected && by_relations && !job.record {
                break;
            }
        }
        if job.record {
            answer.digests.push(digests);
        }
        Ok(())
    }

    /// Judges one case by every relation.
    fn look(&self, subject: &dyn Subject, case: &Case, index: u64) -> Result<Seen, String> {
        let mut seen = Seen::default();
        let mut executions = match Executions::new(subject, case) {
            Ok(executions) => executions,
            Err(SubjectError::Failed(why)) => {
                seen.digest = hex(&Sha256::digest(&why));
                seen.failed(why);
                return Ok(seen);
            }
            Err(error) => return Err(error.to_string()),
        };
        seen.digest = digest(executions.run());
        seen.sentinels = executions.run().sentinels.by_name();
        for relation in self.relations {
            // As in a campaign: what costs a whole execution, or a process, is asked more rarely.
            if self.relations.len() > 1 && !index.is_multiple_of(relation.every) {
                continue;
            }
            let judged = guarded(|| relation.judge(&mut executions))
                .unwrap_or_else(|panic| Err(SubjectError::Failed(panic)));
            match judged {
                Ok(Judgement::Held(_)) => seen.held.push(relation.id),
                Ok(Judgement::Inapplicable(_)) => {}
                Ok(Judgement::Broken(divergence)) => {
                    let names = divergence.all.iter().map(|o| o.name().replace(' ', "_"));
                    seen.by.extend(names.map(|name| format!("{}/{name}", relation.id)));
                    seen.first.get_or_insert_with(|| format!("{}: {divergence}", relation.id));
                }
                Err(SubjectError::Failed(why)) => seen.failed(why),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(seen)
    }
}

impl Seen {
    /// An execution that did not come to its end. What ended it is told from its text.
    fn failed(&mut self, why: String) {
        let kinds = [
            ("audit \"", "audit"),
            ("did not finish within", "liveness"),
            ("idle ", "ledger"),
            ("panicked at", "panic"),
        ];
        let kind = kinds.iter().find(|(text, _)| why.contains(text));
        self.by.insert(kind.map_or("panic", |(_, name)| name).into());
        self.first.get_or_insert(why);
    }
}

/// sha256 over everything that a run left behind.
fn digest(run: &Run) -> String {
    struct Hashing(Sha256);
    impl std::fmt::Write for Hashing {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.update(text.as_bytes());
            Ok(())
        }
    }
    let mut hashing = Hashing(Sha256::new());
    write!(hashing, "{} {:?}", run.trajectory.hash(), run.outputs).expect("hashing fails never");
    hex(&hashing.0.finalize())
}

/// The GPU against the host, bit for bit.
fn twin(job: &Job, stage: &Stage, opener: &mut Opener, answer: &mut Answer) -> Result<(), String> {
    let mut open =
        |on: &str| opener.open(on, &stage.model, dtype(&stage.dtype)?, Mode::Invariant, job.audits);
    let (host, cuda) = (open("host")?, open("cuda")?);
    let before = marker::hits();
    match schedules::compare(&*host, &*cuda, stage.cases, job.seed, 1) {
        Ok(compared) => {
            answer.cases += compared.cases;
            answer.differed += compared.different;
            if let Some(first) = compared.first {
                answer.first.get_or_insert(first);
                answer.by.insert("X1/schedules".into());
            }
        }
        Err(SubjectError::Failed(why)) => {
            answer.first.get_or_insert(why);
            answer.by.insert("panic".into());
        }
        Err(error) => return Err(error.to_string()),
    }
    answer.executed += u64::from(marker::hits() > before);
    if job.record {
        answer.digests.push(Vec::new());
    }
    Ok(())
}

/// One relation on cases drawn for it: whether it is broken, by which case, and how small that becomes.
fn cell(
    job: &Job,
    stage: &Stage,
    relations: &[&'static Relation],
    opener: &mut Opener,
    answer: &mut Answer,
) -> Result<(), String> {
    let subject =
        opener.open(&stage.on, &stage.model, dtype(&stage.dtype)?, Mode::Invariant, job.audits)?;
    let mut space = Space::new(subject.edges(), subject.default_world());
    space.focus = relations.iter().flat_map(|r| r.focus).copied().collect();
    let campaign = Campaign {
        subject: &*subject,
        space,
        relations: relations.to_vec(),
        cases: stage.cases,
        time_max: None,
        seed: job.seed,
        jobs: 1,
        budget: ShrinkBudget { executions_max: 2000, ..ShrinkBudget::default() },
    };
    let report = campaign.run(&|_| ()).map_err(|error| error.to_string())?;
    answer.cases += report.tally.cases;
    answer.seconds += report.elapsed.as_secs_f64();
    if let Some(failure) = report.failure {
        let case = failure.case();
        answer.minimal =
            Some((case.workload.requests.len() as u64, case.schedule.intents.len() as u64));
        let names = failure.divergence.all.iter().map(|o| o.name().replace(' ', "_"));
        answer.by.extend(names.map(|name| format!("{}/{name}", failure.relation.id)));
        answer.first.get_or_insert(failure.divergence.to_string());
    }
    Ok(())
}
