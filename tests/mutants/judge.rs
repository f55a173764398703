//! Cases in a fixed order, each judged by every relation, until an expected observer sees a difference.
//!
//! An audit or a panic that ends a run hides what the relations would have seen, so such a case is judged once more with
//! the audits off: a mutant that only an audit sees is told from one that both see.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Instant;

use lockstep::case::Case;
use lockstep::contract::{Mode, hex};
use lockstep::harness::shrink::{ShrinkBudget, shrink};
use lockstep::record::Run;
use lockstep::relation::x1::schedules;
use lockstep::relation::{Divergence, Executions, Judgement, RELATIONS, Relation, by_id};
use lockstep::strategy::{Cases, Space, cases};
use lockstep::subject::{Subject, SubjectError};
use lockstep::unwind::guarded;
use lockstep::workload::Request;
use proptest::strategy::ValueTree as _;
use sha2::{Digest as _, Sha256};

use crate::job::{Answer, Broken, Job, Size, Stage, is_expected};
use crate::open::{Opened, Opener, dtype};
use crate::{marker, shapes};

/// Observers that end a run. A mutant that only they have seen is shown more cases, to learn whether a relation sees it too.
const OWN: [&str; 4] = ["audit", "panic", "ledger", "liveness"];
/// What the text of a launch that a device refuses begins with.
const REFUSED: &str = "launch refused";
/// How many more.
const MORE_CASES: u64 = 60;
/// Executions in which a case of the matrix is shrunk: enough for its size, not for a proof that nothing more can go.
const SHRINK_EXECUTIONS: u64 = 100;

/// What was seen of one case.
#[derive(Default)]
struct Seen {
    by: BTreeSet<String>,
    first: Option<String>,
    broken: Vec<(&'static Relation, Divergence)>,
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
    if job.row {
        for stage in &job.stages {
            row(job, stage, &relations, &mut opener, &mut answer)?;
        }
        return Ok(answer);
    }
    let (twins, stages): (Vec<&Stage>, _) = job.stages.iter().partition(|s| s.on == "twin");
    in_turns(job, &stages, &relations, &mut opener, started, &mut answer)?;
    for stage in twins {
        if !answer.expected || job.record {
            twin(job, stage, &mut opener, &mut answer)?;
            answer.expected = answer.by.iter().any(|by| is_expected(by, &job.expect));
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

/// Runs the stages in turns, so that what one of them sees early is not kept waiting by another that sees nothing.
fn in_turns(
    job: &Job,
    stages: &[&Stage],
    relations: &[&'static Relation],
    opener: &mut Opener,
    started: Instant,
    answer: &mut Answer,
) -> Result<(), String> {
    if job.record {
        answer.digests = vec![Vec::new(); stages.len()];
    }
    let mut stands: Vec<Option<Stand<'_>>> = stages.iter().map(|_| None).collect();
    let mut done = vec![0; stages.len()];
    let mut turn = 1;
    while stages.iter().zip(&done).any(|(stage, done)| *done < stage.cases) {
        for (at, stage) in stages.iter().enumerate() {
            let stand = match &mut stands[at] {
                Some(stand) => stand,
                none => none.insert(Stand::new(job, at, stage, relations, opener)?),
            };
            let to = stage.cases.min(stage.turn.saturating_mul(turn));
            if stand.run(done[at]..to, started, answer)? {
                return Ok(());
            }
            done[at] = to;
        }
        turn = turn.saturating_mul(2);
    }
    Ok(())
}

/// A stage, opened.
struct Stand<'j> {
    job: &'j Job,
    /// Place among the stages that run in turns.
    at: usize,
    relations: &'j [&'static Relation],
    subject: Opened,
    unaudited: Opened,
}

impl<'j> Stand<'j> {
    fn new(
        job: &'j Job,
        at: usize,
        stage: &'j Stage,
        relations: &'j [&'static Relation],
        opener: &mut Opener,
    ) -> Result<Stand<'j>, String> {
        let mut open = |audits| {
            opener.open(&stage.on, &stage.model, dtype(&stage.dtype)?, Mode::Invariant, audits)
        };
        let (subject, unaudited) = (open(job.audits)?, open(false)?);
        Ok(Stand { job, at, relations, subject, unaudited })
    }

    fn cases(&self) -> Cases {
        cases(Space::new(self.subject.edges(), self.subject.default_world()))
    }

    /// Runs these cases, or those up to a kill: then the answer is true.
    fn run(
        &self,
        numbers: Range<u64>,
        started: Instant,
        answer: &mut Answer,
    ) -> Result<bool, String> {
        let job = self.job;
        let clean = job.clean.get(self.at).map_or(&[][..], Vec::as_slice);
        let cases = self.cases();
        for index in numbers {
            let case = cases.nth(job.seed, index).current();
            let before = marker::hits();
            let mut seen = self.look(&*self.subject, self.relations, &case, index)?;
            if ["audit", "ledger", "panic"].iter().any(|by| seen.by.contains(*by)) {
                let more = self.look(&*self.unaudited, self.relations, &case, index)?;
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
                answer.digests[self.at].push(seen.digest);
                for name in seen.sentinels.into_keys() {
                    *answer.sentinels.entry(name).or_default() += 1;
                }
            }
            let is_known = answer.killed_at.is_some_and(|at| answer.cases >= at + MORE_CASES);
            if is_known && !job.record {
                return Ok(true);
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
            if answer.expected {
                answer.killed_at.get_or_insert(answer.cases);
            }
            if answer.expected && by_relations && !job.record {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Judges one case by these relations.
    fn look(
        &self,
        subject: &dyn Subject,
        relations: &[&'static Relation],
        case: &Case,
        index: u64,
    ) -> Result<Seen, String> {
        let mut seen = Seen::default();
        let mut executions = match Executions::new(subject, case) {
            Ok(executions) => executions,
            Err(error) => {
                let why = ended(error)?;
                seen.digest = hex(&Sha256::digest(&why));
                seen.failed(why);
                return Ok(seen);
            }
        };
        seen.digest = digest(executions.run());
        seen.sentinels = executions.run().sentinels.by_name();
        for relation in relations {
            // As in a campaign: what costs a whole execution, or a process, is asked more rarely.
            if self.job.relations.len() != 1 && !index.is_multiple_of(relation.every) {
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
                    seen.broken.push((relation, *divergence));
                }
                Err(error) => seen.failed(ended(error)?),
            }
        }
        Ok(seen)
    }
}

/// What ended an execution of a faulty engine: a failure, or a launch that no device can honour. Other errors, a missing
/// device, are not the engine's.
fn ended(error: SubjectError) -> Result<String, String> {
    match error {
        SubjectError::Failed(why) => Ok(why),
        SubjectError::Unavailable(why) if why.starts_with(REFUSED) => Ok(why),
        other => Err(other.to_string()),
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

/// Asks each relation up to the first case in which it is broken. Audits are off, so that none ends a run before it is
/// seen; what else ends runs stands beside the relations.
fn row(
    job: &Job,
    stage: &Stage,
    relations: &[&'static Relation],
    opener: &mut Opener,
    answer: &mut Answer,
) -> Result<(), String> {
    let stand = Stand::new(job, 0, stage, relations, opener)?;
    let cases = stand.cases();
    for index in 0..stage.cases {
        let is_left = |r: &&'static Relation| !answer.broken.contains_key(r.id);
        let left: Vec<_> = relations.iter().copied().filter(is_left).collect();
        let case = cases.nth(job.seed, index).current();
        let seen = stand.look(&*stand.unaudited, &left, &case, index)?;
        answer.cases += 1;
        let cases = index + 1;
        for (relation, divergence) in &seen.broken {
            let shrunk = guarded(|| {
                let budget =
                    ShrinkBudget { executions_max: SHRINK_EXECUTIONS, ..ShrinkBudget::default() };
                size(&shrink(&*stand.unaudited, relation, &case, divergence, budget).case)
            });
            answer.broken.insert(relation.id.to_owned(), Broken { cases, shrunk: shrunk.ok() });
        }
        for by in seen.by.iter().filter(|by| OWN.contains(&by.as_str())) {
            answer.broken.entry(by.clone()).or_insert(Broken { cases, shrunk: None });
        }
    }
    Ok(())
}

fn size(case: &Case) -> Size {
    let tokens = |r: &Request| {
        r.prompt.own_tokens().len() as u64 + u64::from(r.samples) * u64::from(r.max_tokens)
    };
    Size {
        requests: case.workload.requests.len() as u64,
        tokens: case.workload.requests.iter().map(tokens).sum(),
        intents: case.schedule.intents.len() as u64,
    }
}
