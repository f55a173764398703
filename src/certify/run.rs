//! A whole run: probe, arms, controls, verdict.

use super::arms::{
    Bench, References, concurrent, order, prefix, repeat, scored, seed, stream, time,
};
use super::certificate::{
    Arm, ArmRecord, CERTIFICATE_SCHEMA, Certificate, Control, Controls, Settings, Witness,
};
use super::control;
use super::error::CertifyError;
use super::options::{Options, Progress, Target};
use super::plan::{FEW, Plan, Prompts};
use super::probe::{self, Facts};
use super::score::{Outcome, Score};
use super::session::{Ledger, Session};
use super::shrink;
use super::stats;
use super::verdict::{self, Circumstances};
use super::wire::hidden::Hidden;
use super::wire::{Client, Dialect};
use super::witness::By;
use crate::env::Tool;

/// Why an arm is not asked although it could be.
const NOT_ASKED: &str = "not asked for, or left out to fit the budget";
const NOT_REPEATABLE: &str = "requests one at a time differ already";

/// Judges a server.
pub fn run(
    target: &Target,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Certificate, CertifyError> {
    let client = Client::new(target, options.timeout)?;
    let plan = Plan::new(options, target.control.is_some())?;
    let options = &plan.options;
    let ledger = Ledger::new(options, progress, plan.requests());
    ledger.stage("probe");
    let identity = probe::identify(&client, target)?;
    let dialect = Dialect::new(&identity.model, target);
    let mut session = Session::new(&ledger, client, dialect);
    let facts = probe::probe(&mut session, target, identity, options.answer_tokens)?;
    let mut prompts = Prompts::new(options.seed, &facts, options.answer_tokens);
    let mut bench = Bench { session: &mut session, facts: &facts, options, prompts: &mut prompts };
    let (outcomes, positive) = arms(&mut bench, target)?;
    let mut records = Vec::new();
    let (mut findings, mut firsts) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        records.push(outcome.record);
        findings.extend(outcome.findings);
        firsts.extend(outcome.first.map(|first| (first, outcome.crowd)));
    }
    verdict::withhold(&mut records);
    if options.shrinks {
        shrink::first_crowd(bench.session, &mut firsts, &records);
    }
    let divergences = firsts.into_iter().map(|(first, _)| first).collect();
    let samples = session.samples.of(prompts.made(options.prompts), options.answer_tokens);
    let controls = Controls { positive, negative: negative(&records) };
    let crowds = [Arm::ConcurrentCold, Arm::ConcurrentWarm, Arm::Order, Arm::Seed];
    let trials: u64 = records.iter().filter(|r| crowds.contains(&r.arm)).map(|r| r.of).sum();
    let answers = [trials, options.answers_min];
    let around =
        Circumstances { controls: &controls, replayed: facts.replayed.as_deref(), answers };
    let (verdict, reasons) = verdict::decide(&records, &around);
    let witness = Witness {
        max_in_flight: session.max_in_flight,
        by: witnessed_by(&session),
        witnessed: session.witnessed,
        unwitnessed: session.unwitnessed,
        load_when_idle: facts.load_when_idle,
    };
    let mut server = facts.server.clone();
    server.resolution = session.resolution;
    let certificate = Certificate {
        schema: CERTIFICATE_SCHEMA.to_string(),
        verdict,
        reasons,
        scope: scope(&facts, &witness, &records, &plan),
        server,
        witness,
        controls,
        arms: records,
        findings,
        divergences,
        samples,
        power: stats::power(trials),
        requests: ledger.requests(),
        tokens: ledger.tokens(),
        seconds: ledger.elapsed().as_secs_f64(),
        settings: settings(options),
        tool: Tool::current(),
    };
    without_secrets(certificate, &Hidden::of(target))
}

/// The certificate without secrets, wherever the server gave them back: in texts of tokens, in names.
fn without_secrets(certificate: Certificate, hidden: &Hidden) -> Result<Certificate, CertifyError> {
    let mut json = serde_json::to_value(&certificate).expect("a certificate serialises");
    hidden.value(&mut json);
    let unusable = |_| CertifyError::Unusable("the server's answers give the key back".into());
    serde_json::from_value(json).map_err(unusable)
}

/// Every arm, in its order, and the positive control between them.
fn arms(
    bench: &mut Bench<'_, '_>,
    target: &Target,
) -> Result<(Vec<Outcome>, Control), CertifyError> {
    let options = bench.options;
    let stage = |bench: &Bench<'_, '_>, arm: Arm| bench.session.ledger.stage(arm.name());
    stage(bench, Arm::Repeat);
    let (first, references) = repeat::run(bench, options.prompts, options.repeats);
    let clean = first.record.differing == 0 && first.record.of > 0;
    let mut outcomes = vec![first];
    let blocked = match &bench.facts.replayed {
        Some(why) => Some(format!("answers come from a cache in front of the model: {why}")),
        None => (!clean).then(|| NOT_REPEATABLE.to_owned()),
    };
    if let Some(why) = blocked {
        outcomes.extend(Arm::ALL.into_iter().skip(1).map(|arm| Score::refused(arm, why.as_str())));
        return Ok((outcomes, not_asked(why)));
    }
    bench.session.ledger.stage("positive control");
    let positive = control::positive(bench, target, &references)?;
    let few = options.prompts.min(FEW);
    let mut over_time = options.asks(Arm::Time).then(|| Score::new(Arm::Time));
    for arm in Arm::ALL.into_iter().skip(1).filter(|arm| *arm != Arm::Time) {
        if !options.asks(arm) {
            outcomes.push(Score::refused(arm, NOT_ASKED));
            continue;
        }
        stage(bench, arm);
        outcomes.push(one(bench, arm, &references));
        // The middle of a run is where its crowds have been.
        if let (Arm::ConcurrentWarm, Some(score)) = (arm, &mut over_time) {
            time::probe(bench, score, &references, few);
        }
    }
    outcomes.push(match over_time {
        None => Score::refused(Arm::Time, NOT_ASKED),
        Some(mut score) => {
            stage(bench, Arm::Time);
            time::probe(bench, &mut score, &references, few);
            score.conclude()
        }
    });
    Ok((outcomes, positive))
}

fn one(bench: &mut Bench<'_, '_>, arm: Arm, references: &References) -> Outcome {
    match arm {
        Arm::ConcurrentCold => concurrent::cold(bench),
        Arm::ConcurrentWarm => concurrent::warm(bench, references),
        Arm::Order => order::run(bench),
        Arm::Prefix => prefix::run(bench),
        Arm::Seed => seed::run(bench),
        Arm::Stream => stream::run(bench),
        Arm::Score => scored::run(bench, references),
        Arm::Repeat | Arm::Time => unreachable!("asked around the others"),
    }
}

fn not_asked(why: String) -> Control {
    let what = "not asked".to_owned();
    Control { what, passed: None, differing: 0, of: 0, requests: 0, note: Some(why) }
}

/// The negative control is the sequential arm.
fn negative(records: &[ArmRecord]) -> Control {
    let record = &records[0];
    Control {
        what: "the same requests one at a time, after identical traffic".into(),
        passed: (record.of > 0).then_some(record.differing == 0),
        differing: record.differing,
        of: record.of,
        requests: record.scored,
        note: record.reason.clone(),
    }
}

fn witnessed_by(session: &Session<'_>) -> String {
    match (session.by, &session.gauge) {
        (By::Gauge, Some(gauge)) => gauge.name.into(),
        (By::Overlap, _) => "overlap of first and last tokens".into(),
        _ => "none".into(),
    }
}

/// What the verdict is about, in one paragraph.
fn scope(facts: &Facts, witness: &Witness, records: &[ArmRecord], plan: &Plan) -> String {
    let server = &facts.server;
    let mut parts = Vec::new();
    let identity = match server.identity.as_slice() {
        [] => "a server that says nothing of itself".to_owned(),
        names => names.join(", "),
    };
    parts.push(format!("model {} at {} ({identity})", server.model, server.url));
    parts.push(format!(
        "up to {} requests in flight, seen by {}",
        witness.max_in_flight, witness.by
    ));
    match witness.load_when_idle {
        Some(0) => parts.push("no other load was seen before".into()),
        Some(n) => parts.push(format!("under {n} requests of others")),
        None => parts.push("under unknown load of others".into()),
    }
    let skipped = records.iter().filter(|record| record.of == 0);
    for record in skipped {
        let why = record.reason.as_deref().unwrap_or("nothing was compared");
        parts.push(format!("{} not scored: {why}", record.arm));
    }
    parts.extend(facts.notes.iter().cloned());
    parts.extend(plan.left_out.iter().map(|what| format!("left out to fit the budget: {what}")));
    parts.push("the server's own settings are not seen".into());
    parts.push(
        "says nothing of another device, version, setting or load, nor of the cause of what it found".into(),
    );
    parts.join("; ")
}

fn settings(options: &Options) -> Settings {
    Settings {
        seed: options.seed,
        concurrency: options.concurrency.clone(),
        prompts: options.prompts,
        repeats: options.repeats,
        rounds: options.rounds,
        answer_tokens: options.answer_tokens,
        max_requests: options.requests_max,
        max_tokens: options.tokens_max,
        timeout_s: options.timeout.as_secs_f64(),
        seconds_max: options.time_max.as_secs_f64(),
    }
}
