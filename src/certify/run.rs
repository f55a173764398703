//! A whole run: probe, arms, controls, verdict.

use super::arms::concurrent::Kind;
use super::arms::{
    Bench, alone, cold, concurrent, is_equal, many, order, prefix, scored, seed, stream,
};
use super::certificate::{
    Arm, ArmRecord, CERTIFICATE_SCHEMA, Certificate, Control, Controls, Reference, Settings,
    Witness,
};
use super::clusters;
use super::control;
use super::error::CertifyError;
use super::merge::asked;
use super::options::{Options, Progress, Target};
use super::plan::{FEW, Plan};
use super::probe::{self, Facts};
use super::prompts::Prompts;
use super::samples;
use super::score::{Outcome, Score};
use super::session::{Ledger, Session, new_nonce, run_number};
use super::shrink;
use super::smallest;
use super::stats;
use super::verdict::{self, Circumstances};
use super::wire::hidden::Hidden;
use super::wire::{Answer, Client, Dialect};
use super::words;
use crate::env::Tool;

/// Why an arm is not asked although it could be.
const NOT_ASKED: &str = "not asked for, or left out to fit the budget";
const NOT_REPEATABLE: &str = "warm answers one at a time differ already: there is no reference";
const NO_WARM_REFERENCE: &str = "too few answers one at a time: there is no reference";
const NO_COLD_ANSWERS: &str = "too few cold answers one at a time: there is no reference";
const NO_COLD_REFERENCE: &str = "first answers differ from later ones, and no field keeps a prompt cold: there is no cold reference";
const COLD_NOT_REPEATABLE: &str =
    "cold answers one at a time differ already: there is no reference";

/// Judges a server.
pub fn run(
    target: &Target,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Certificate, CertifyError> {
    let client = Client::new(target, options.timeout)?;
    let plan = Plan::new(options, target.control.is_some())?;
    let options = &plan.options;
    let nonce = options.nonce.unwrap_or_else(new_nonce);
    let ledger = Ledger::new(options, progress, plan.requests());
    ledger.stage("probe");
    let identity = probe::identify(&client, target)?;
    let dialect = Dialect::new(&identity.model, target);
    let number = run_number(options.seed, nonce);
    let mut session = Session::new(&ledger, client, dialect, number);
    let facts = probe::probe(&mut session, target, identity, options)?;
    let mut prompts = Prompts::new(options, number, &facts);
    let mut bench = Bench {
        session: &mut session,
        facts: &facts,
        options,
        prompts: &mut prompts,
        known: Vec::new(),
        cached_matters: false,
        first_hits: false,
        seen: Vec::new(),
    };
    let (outcomes, positive) = arms(&mut bench, target)?;
    // What is asked from here on makes what was found smaller, and what it can't pay takes nothing back.
    let broke_off = bench.session.ended_early();
    let mut records = Vec::new();
    let (mut findings, mut firsts, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    for outcome in outcomes {
        records.push(outcome.record);
        findings.extend(outcome.findings);
        firsts.extend(outcome.first.map(|first| (first, outcome.crowd)));
        beside.extend(outcome.beside);
    }
    let clusters = clusters::find(&mut bench, &mut records);
    let mut found = None;
    if options.shrinks {
        ledger.stage("smallest crowd");
        found = smallest::find(&mut bench, &records);
        if let Some((first, calls)) = found.as_mut().and_then(|found| found.first.take()) {
            firsts.retain(|(other, _)| other.arm != first.arm);
            firsts.insert(0, (first, calls));
        }
        shrink::firsts(bench.session, &mut firsts, &records);
    }
    let controls = Controls { positive, negative: negative(&records, bench.warm_differs()) };
    let levels = verdict::levels(&records, options, &controls.positive);
    let around = Circumstances {
        options,
        controls: &controls,
        replayed: facts.replayed.as_deref(),
        broke_off: broke_off.as_deref(),
        clusters: clusters.as_ref(),
        contradicted: bench.session.contradicted,
        prompts: bench.known.iter().filter(|known| known.warm_is_clean).count() as u64,
    };
    let (verdict, reasons) = verdict::decide(&records, &levels, &around);
    let answers = references(&bench);
    let lengths = lengths(&bench);
    let samples =
        bench.session.samples.of(bench.prompts.made(options.prompts).iter(), options.answer_tokens);
    let witness = witness(&session, &facts);
    let mut server = facts.server.clone();
    server.resolution = session.resolution;
    let company = records.iter().filter(|record| Arm::COMPANY.contains(&record.arm));
    let trials = company.map(|record| record.met).sum();
    let certificate = Certificate {
        schema: CERTIFICATE_SCHEMA.to_string(),
        verdict,
        reasons,
        scope: scope(&facts, &witness, &records, &plan, &lengths),
        server,
        witness,
        controls,
        levels,
        arms: records,
        beside,
        clusters,
        smallest: found.map(|found| found.smallest),
        findings,
        divergences: firsts.into_iter().map(|(first, _)| first).collect(),
        samples,
        power: stats::power(trials),
        requests: ledger.requests(),
        tokens: ledger.tokens(),
        seconds: ledger.elapsed().as_secs_f64(),
        answers,
        settings: settings(target, options, nonce),
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

/// Every arm, and the positive control between them.
fn arms(
    bench: &mut Bench<'_, '_>,
    target: &Target,
) -> Result<(Vec<Outcome>, Control), CertifyError> {
    let options = bench.options;
    stage(bench, Arm::First);
    let [first, repeat] = alone::begin(bench);
    let is_first_clean = first.record.differing == 0;
    let first =
        if options.asks(Arm::First) { first } else { Score::refused(Arm::First, NOT_ASKED) };
    let mut outcomes = vec![first, repeat];
    if let Some(why) = &bench.facts.replayed {
        let why = format!("answers come from a cache in front of the model: {why}");
        let rest = Arm::ALL.into_iter().skip(2);
        outcomes.extend(rest.map(|arm| Score::refused(arm, why.as_str())));
        return Ok((outcomes, not_asked(why)));
    }
    let is_repeatable = bench.is_repeatable();
    let no_warm = if bench.warm_differs() { NOT_REPEATABLE } else { NO_WARM_REFERENCE };
    let warm = (!is_repeatable).then_some(no_warm);
    if options.asks(Arm::Prefix) || options.asks(Arm::ConcurrentCold) {
        stage(bench, Arm::Prefix);
        cold::ask_alone(bench);
    }
    outcomes.push(one(bench, Arm::Prefix, None, prefix::run));
    bench.cached_matters = !is_first_clean || is_cached_another(bench);
    outcomes.push(one(bench, Arm::Stream, warm, stream::run));
    outcomes.push(one(bench, Arm::Score, warm, scored::run));
    let mut time = Score::new(Arm::Time);
    let few = options.prompts.min(FEW);
    let asks_time = options.asks(Arm::Time) && is_repeatable;
    if asks_time {
        stage(bench, Arm::Time);
        alone::again(bench, &mut time, few);
    }
    bench.session.ledger.stage("positive control");
    let positive = match is_repeatable {
        true => control::positive(bench, target)?,
        false => not_asked(no_warm.into()),
    };
    let mut after = Score::new(Arm::After);
    let cold = match bench.session.dialect.cold {
        Some(_) if bench.cold_differs() => Err(COLD_NOT_REPEATABLE),
        Some(_) if !bench.is_cold_repeatable() => Err(NO_COLD_ANSWERS),
        Some(_) => Ok(Kind::Cold),
        None if !is_repeatable => Err(no_warm),
        None if !is_first_clean => Err(NO_COLD_REFERENCE),
        None => Ok(Kind::New),
    };
    let kind = cold.unwrap_or(Kind::New);
    outcomes.push(crowds(bench, kind, cold.err(), &mut after));
    outcomes.push(crowds(bench, Kind::Warm, warm, &mut after));
    outcomes.push(crowds(bench, Kind::Mixed, warm, &mut after));
    outcomes.push(one(bench, Arm::Order, warm, order::run));
    outcomes.push(one(bench, Arm::ManyPrompts, warm, many::run));
    let asks_after = options.asks(Arm::After) && is_repeatable;
    if asks_after {
        stage(bench, Arm::After);
        alone::again(bench, &mut after, options.prompts);
    }
    outcomes.push(one(bench, Arm::Seed, warm, seed::run));
    outcomes.push(conclude(after, Arm::After, asks_after, warm));
    if asks_time {
        stage(bench, Arm::Time);
        // What crowds left behind is known by now: only what changes from here on is of time.
        alone::again(bench, &mut time, few);
    }
    outcomes.push(conclude(time, Arm::Time, asks_time, warm));
    Ok((outcomes, positive))
}

/// Whether the cold answer to a prompt is another one than the warm answer to it.
fn is_cached_another(bench: &Bench<'_, '_>) -> bool {
    let pair = |cold: &[Answer], warm: &[Answer]| match (cold.first(), warm.last()) {
        (Some(cold), Some(warm)) => !is_equal(cold, warm),
        _ => false,
    };
    let mut clean = bench.known.iter().filter(|known| known.cold_is_clean && known.warm_is_clean);
    clean.any(|known| pair(&known.cold, &known.warm))
}

fn stage(bench: &Bench<'_, '_>, arm: Arm) {
    bench.session.ledger.stage(arm.name());
}

/// An arm, unless it was not asked for, or can't be asked.
fn one(
    bench: &mut Bench<'_, '_>,
    arm: Arm,
    blocked: Option<&str>,
    ask: impl FnOnce(&mut Bench<'_, '_>) -> Outcome,
) -> Outcome {
    match (bench.options.asks(arm), blocked) {
        (false, _) => Score::refused(arm, NOT_ASKED),
        (true, Some(why)) => Score::refused(arm, why),
        (true, None) => {
            stage(bench, arm);
            ask(bench)
        }
    }
}

fn crowds(
    bench: &mut Bench<'_, '_>,
    kind: Kind,
    blocked: Option<&str>,
    after: &mut Score,
) -> Outcome {
    one(bench, kind.arm(), blocked, |bench| concurrent::run(bench, kind, after))
}

/// An arm that was asked in parts.
fn conclude(score: Score, arm: Arm, asked: bool, blocked: Option<&str>) -> Outcome {
    match asked || score.differing() > 0 {
        true => score.conclude(),
        false => Score::refused(arm, blocked.unwrap_or(NOT_ASKED)),
    }
}

fn not_asked(why: String) -> Control {
    Control {
        what: "not asked".into(),
        passed: None,
        differing: 0,
        of: 0,
        requests: 0,
        levels: Vec::new(),
        note: Some(why),
    }
}

/// The negative control is the sequential arm, and what was asked one at a time after it.
fn negative(records: &[ArmRecord], differs: bool) -> Control {
    let record = records.iter().find(|record| record.arm == Arm::Repeat).expect("always asked");
    Control {
        what: "the same requests one at a time, after a first answer".into(),
        passed: (record.of > 0).then_some(record.differing == 0 && !differs),
        differing: record.differing,
        of: record.of,
        requests: record.scored,
        levels: Vec::new(),
        note: match differs && record.differing == 0 {
            true => Some("such requests differed later on".into()),
            false => record.reason.clone(),
        },
    }
}

fn witness(session: &Session<'_>, facts: &Facts) -> Witness {
    let gauge = session.gauge.as_ref().map_or("gauge", |gauge| gauge.name);
    Witness {
        max_in_flight: session.max_in_flight,
        by: session.by.words(gauge),
        witnessed: session.witnessed,
        unwitnessed: session.unwitnessed,
        contradicted: session.contradicted,
        load_when_idle: facts.load_when_idle,
    }
}

/// Answers alone by digest, for comparing with those of another life or address.
fn references(bench: &Bench<'_, '_>) -> Vec<Reference> {
    let mut references = Vec::new();
    for (number, known) in bench.known.iter().enumerate() {
        let Some(answer) = known.warm.last() else { continue };
        references.push(Reference {
            prompt: number as u32,
            prompt_sha256: asked::digest(&bench.session.sent(&known.call).body),
            prompt_tokens: answer.prompt_tokens,
            text_sha256: samples::sha256(answer.text.as_bytes()),
            values_sha256: samples::values(answer).map(|kind| samples::hex(&kind)),
            // Where an answer changed later, the changed one is the only one left.
            repeatable: known.warm_is_clean && known.warm.len() > 1,
        });
    }
    references
}

/// Lengths of the judged prompts, in tokens as the server counts them, else as they were made.
fn lengths(bench: &Bench<'_, '_>) -> String {
    let known = || bench.known.iter().filter(|known| known.warm_is_clean);
    let counted = known().filter_map(|k| k.warm.last().and_then(|a| a.prompt_tokens));
    let mut lengths: Vec<u64> = counted.collect();
    let unit = match lengths.is_empty() && known().next().is_some() {
        true => {
            lengths.extend(known().map(|k| k.call.prompt.length() as u64));
            "token ids or characters, which the server does not count"
        }
        false => "tokens",
    };
    lengths.sort_unstable();
    lengths.dedup();
    match (lengths.first(), lengths.last()) {
        (Some(least), Some(most)) => format!("prompts of {least} to {most} {unit}"),
        _ => "no prompt answered".into(),
    }
}

/// What the verdict is about, in one paragraph.
fn scope(
    facts: &Facts,
    witness: &Witness,
    records: &[ArmRecord],
    plan: &Plan,
    lengths: &str,
) -> String {
    let server = &facts.server;
    let mut parts = Vec::new();
    let identity = match server.identity.as_slice() {
        [] => "a server that says nothing of itself".to_owned(),
        names => names.join(", "),
    };
    parts.push(format!("model {} at {} ({identity})", server.model, server.url));
    parts.push(format!("{lengths}, answers of {} tokens", plan.options.answer_tokens));
    let sent = if facts.stream_crowds { "streamed" } else { "not streamed" };
    parts.push(format!(
        "up to {} requests in flight, {sent}, seen by {}",
        witness.max_in_flight, witness.by
    ));
    match witness.load_when_idle {
        Some(0) => parts.push("no other load was seen before".into()),
        Some(n) => parts.push(format!("under {n} requests of others")),
        None => parts.push("under unknown load of others".into()),
    }
    parts.extend(words::not_scored(records.iter()));
    parts.extend(facts.notes.iter().cloned());
    parts.extend(plan.left_out.iter().map(|what| format!("left out to fit the budget: {what}")));
    parts.push("the server's own settings are not seen".into());
    parts.push(
        "says nothing of another device, version, setting, length or load, nor of the cause of what it found".into(),
    );
    parts.join("; ")
}

fn settings(target: &Target, options: &Options, nonce: u64) -> Settings {
    Settings {
        seed: options.seed,
        concurrency: options.concurrency.clone(),
        prompts: options.prompts,
        prompt_tokens: match options.own_prompts.is_empty() {
            true => options.prompt_tokens.clone(),
            false => Vec::new(),
        },
        nonce,
        headers: target.headers.iter().map(|(name, _)| name.clone()).collect(),
        arms: options.arms.clone(),
        alternatives: options.alternatives,
        answers_min: options.answers_min,
        repeats: options.repeats,
        rounds: options.rounds(),
        answer_tokens: options.answer_tokens,
        max_requests: options.requests_max,
        max_tokens: options.tokens_max,
        timeout_s: options.timeout.as_secs_f64(),
        seconds_max: options.time_max.as_secs_f64(),
    }
}
