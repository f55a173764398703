//! The positive control: at each number of requests at once, a difference that is known to be there must be seen by the very code
//! that judges the server.

use super::arms::{Bench, against, alone};
use super::certificate::{Control, ControlLevel};
use super::error::CertifyError;
use super::options::{Options, Target};
use super::plan::{CONTROL_PROMPTS, groups};
use super::proxy::Proxy;
use super::session::{Member, Session};
use super::wire::{Call, Client};

/// Tokens of an answer that only fills a crowd.
const FILLER_TOKENS: u32 = 8;
/// Crowds of a level at most: another for one that did not meet, or that showed nothing.
const TRIES: u32 = 2;

/// Asks the control that there is: a server known to depend on the batch, or a proxy in front of the one under test.
pub(crate) fn positive(
    bench: &mut Bench<'_, '_>,
    target: &Target,
) -> Result<Control, CertifyError> {
    let before = bench.session.ledger.requests();
    let mut control = match &target.control {
        Some(url) => batch_dependent(bench, target, url)?,
        None => altered(bench, target)?,
    };
    control.requests = bench.session.ledger.requests() - before;
    Ok(control)
}

fn session<'a>(
    bench: &Bench<'_, 'a>,
    target: &Target,
    url: &str,
    is_other: bool,
) -> Result<Session<'a>, CertifyError> {
    // Metrics elsewhere are those of the server under test.
    let metrics_url = if is_other { None } else { target.metrics_url.clone() };
    let target = Target { url: url.into(), metrics_url, ..target.clone() };
    let client = Client::new(&target, bench.options.timeout)?;
    let mut session = bench.session.beside();
    session.gauge = bench.session.gauge.as_ref().map(|gauge| gauge.at(client.clone()));
    session.client = client;
    Ok(session)
}

/// A few repeats, which must be clean, and crowds of each size until one shows a difference.
fn batch_dependent(
    bench: &mut Bench<'_, '_>,
    target: &Target,
    url: &str,
) -> Result<Control, CertifyError> {
    let mut session = session(bench, target, url, true)?;
    let prompts = bench.options.prompts.min(CONTROL_PROMPTS);
    let options = Options { prompts, ..bench.options.clone() };
    let mut inner = Bench {
        session: &mut session,
        facts: bench.facts,
        options: &options,
        prompts: &mut *bench.prompts,
        known: Vec::new(),
        cached_matters: false,
        first_hits: false,
        seen: Vec::new(),
    };
    let [_, repeat] = alone::begin(&mut inner);
    let clean = repeat.record.differing == 0 && repeat.record.of > 0;
    let levels = crowds(&mut inner, None);
    let seen = levels.iter().all(|level| level.passed == Some(true));
    let note = match (clean, seen) {
        (true, true) => None,
        (false, _) => Some("requests one at a time differ already".to_owned()),
        (true, false) => Some(missed(&levels)),
    };
    let what = "the same server in its batch-dependent mode";
    Ok(control(what, clean.then_some(seen), levels, note))
}

/// Crowds of each size through a proxy that alters a digit or a letter of each answer that met another.
fn altered(bench: &mut Bench<'_, '_>, target: &Target) -> Result<Control, CertifyError> {
    let timeout = bench.options.timeout;
    let proxy = Proxy::start(&target.url, 1.0, bench.options.seed, timeout)?;
    let mut session = session(bench, target, &proxy.url(), false)?;
    let mut inner = Bench {
        session: &mut session,
        facts: bench.facts,
        options: bench.options,
        prompts: &mut *bench.prompts,
        known: bench.known.clone(),
        cached_matters: false,
        first_hits: false,
        seen: Vec::new(),
    };
    let levels = crowds(&mut inner, Some(&proxy));
    let asked: Vec<bool> = levels.iter().filter_map(|level| level.passed).collect();
    let passed = match asked.is_empty() {
        true => None,
        false => Some(asked.iter().all(|passed| *passed)),
    };
    let note = (passed != Some(true) || asked.len() < levels.len()).then(|| missed(&levels));
    let what = "a proxy that alters one digit or letter of answers in a crowd";
    Ok(control(what, passed, levels, note))
}

fn control(
    what: &str,
    passed: Option<bool>,
    levels: Vec<ControlLevel>,
    note: Option<String>,
) -> Control {
    Control {
        what: what.into(),
        passed,
        differing: levels.iter().map(|level| level.differing).sum(),
        of: levels.iter().map(|level| level.of).sum(),
        requests: 0,
        levels,
        note,
    }
}

fn missed(levels: &[ControlLevel]) -> String {
    let missed = levels.iter().filter(|level| level.passed != Some(true));
    let words = missed.map(|level| match level.passed {
        Some(_) => format!("none of {} answers was seen to differ at {}", level.of, level.sent),
        None => format!("no two requests met at {}", level.sent),
    });
    words.collect::<Vec<_>>().join("; ")
}

/// A warm crowd of each size; of those beside the judged prompts, short answers.
fn crowds(bench: &mut Bench<'_, '_>, proxy: Option<&Proxy>) -> Vec<ControlLevel> {
    let options = bench.options;
    let mut levels = Vec::new();
    for &level in &options.concurrency {
        if bench.session.refuses(level).is_some() {
            continue;
        }
        let mut counted = ControlLevel { sent: level, passed: None, differing: 0, of: 0 };
        for round in 0..TRIES {
            let before = proxy.map_or(0, Proxy::altered);
            let judged = level.min(options.prompts);
            let group = groups(options.prompts, judged, round, options.seed).swap_remove(0);
            crowd(bench, &group, &mut counted);
            let planted = proxy.is_none_or(|proxy| proxy.altered() > before);
            if counted.of > 0 && planted {
                counted.passed = Some(counted.differing > 0);
            }
            if counted.passed == Some(true) {
                break;
            }
        }
        levels.push(counted);
    }
    levels
}

fn crowd(bench: &mut Bench<'_, '_>, group: &[u32], counted: &mut ControlLevel) {
    let known = group.iter().map(|number| &bench.known[*number as usize]);
    let mut members: Vec<Member> =
        known.map(|known| Member::at_once(known.call.clone(), Some(known.took))).collect();
    for number in 0..counted.sent - group.len() as u32 {
        let call = Call { answer_tokens: FILLER_TOKENS, ..bench.filler(number) };
        members.push(Member::at_once(call, None));
    }
    let Ok(crowd) = bench.session.crowd(&members) else { return };
    for (number, met) in group.iter().zip(&crowd.members) {
        let Ok(got) = &met.answer else { continue };
        let Some((_, comparison)) = against(&bench.known[*number as usize].warm, got) else {
            continue;
        };
        counted.of += 1;
        counted.differing += u64::from(comparison.difference.is_some());
    }
}
