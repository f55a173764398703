//! The positive control: a difference that is known to be there must be seen by the very code that judges the server.

use std::time::Duration;

use super::arms::{Bench, References, concurrent, repeat};
use super::certificate::{Arm, Control, Verdict};
use super::error::CertifyError;
use super::options::Target;
use super::plan::{CONTROL_CROWDS, FEW, PROXY_CROWDS, groups};
use super::probe::Facts;
use super::proxy::Proxy;
use super::score::Score;
use super::session::Session;
use super::wire::{Call, Client};

/// Asks the control that there is: a server known to depend on the batch, or a proxy in front of the one under test.
pub(crate) fn positive(
    bench: &mut Bench<'_, '_>,
    target: &Target,
    references: &References,
) -> Result<Control, CertifyError> {
    let before = bench.session.ledger.requests();
    let mut control = match &target.control {
        Some(url) => batch_dependent(bench, target, url)?,
        None => altered(bench, target, references)?,
    };
    control.requests = bench.session.ledger.requests() - before;
    Ok(control)
}

fn session<'a>(bench: &Bench<'_, 'a>, target: &Target) -> Result<Session<'a>, CertifyError> {
    let timeout = bench.options.timeout;
    let client = Client::new(target, timeout)?;
    let gauge = bench.session.gauge.as_ref().map(|gauge| gauge.at(client.another(timeout)));
    let mut session = Session::new(bench.session.ledger, client, bench.session.dialect.clone());
    session.gauge = gauge;
    Ok(session)
}

/// A few repeats, which must be clean, and crowds until one shows a difference.
fn batch_dependent(
    bench: &mut Bench<'_, '_>,
    target: &Target,
    url: &str,
) -> Result<Control, CertifyError> {
    // Metrics elsewhere are those of the other server.
    let mut session =
        session(bench, &Target { url: url.into(), metrics_url: None, ..target.clone() })?;
    let facts: &Facts = bench.facts;
    let mut inner = Bench {
        session: &mut session,
        facts,
        options: bench.options,
        prompts: &mut *bench.prompts,
    };
    let few = inner.options.prompts.min(FEW);
    let (sequential, references) = repeat::run(&mut inner, few, 2);
    let mut score = Score::new(Arm::ConcurrentWarm);
    let level = largest_level(&inner);
    let mut crowds = 0;
    'rounds: for round in 0..CONTROL_CROWDS as u32 {
        for group in groups(inner.options.prompts, level, round, inner.options.seed) {
            let calls: Vec<Call> = group.iter().map(|number| inner.call(*number)).collect();
            judge(&mut inner, &mut score, &references, &group, &calls);
            crowds += 1;
            if score.differing() > 0 || crowds >= CONTROL_CROWDS {
                break 'rounds;
            }
        }
    }
    let outcome = score.conclude();
    let clean = sequential.record.differing == 0;
    let passed = match (clean, outcome.record.verdict) {
        (true, Verdict::Broken) => Some(true),
        (true, _) if outcome.record.of == 0 => None,
        _ => Some(false),
    };
    let note = match (clean, passed) {
        (false, _) => Some("the control differs already one request at a time".into()),
        (true, Some(true)) => None,
        (true, _) => outcome.record.reason.or(Some("the known fault was not seen".into())),
    };
    Ok(Control {
        what: "the same server in its batch-dependent mode".into(),
        passed,
        differing: outcome.record.differing,
        of: outcome.record.of,
        requests: 0,
        note,
    })
}

/// A crowd through a proxy that alters a digit or a letter of each answer that met another; a second one if the first did not
/// meet.
fn altered(
    bench: &mut Bench<'_, '_>,
    target: &Target,
    references: &References,
) -> Result<Control, CertifyError> {
    let timeout = bench.options.timeout;
    let proxy = Proxy::start(&target.url, 1.0, bench.options.seed, timeout)?;
    let mut session = session(bench, &Target { url: proxy.url(), ..target.clone() })?;
    let facts: &Facts = bench.facts;
    let mut inner = Bench {
        session: &mut session,
        facts,
        options: bench.options,
        prompts: &mut *bench.prompts,
    };
    let level = largest_level(&inner);
    let group = groups(inner.options.prompts, level, 0, inner.options.seed).swap_remove(0);
    let calls: Vec<Call> = group.iter().map(|number| inner.call(*number)).collect();
    let mut score = Score::new(Arm::ConcurrentWarm);
    for _ in 0..PROXY_CROWDS {
        judge(&mut inner, &mut score, references, &group, &calls);
        if score.differing() > 0 {
            break;
        }
    }
    let record = score.conclude().record;
    let altered = proxy.altered();
    let passed = match (record.of, altered) {
        (0, _) | (_, 0) => None,
        _ => Some(record.differing > 0),
    };
    let note = match passed {
        Some(true) => None,
        Some(false) => Some(format!("{altered} answers were altered, and none was seen to differ")),
        None if altered == 0 => Some("no two requests met in the proxy".into()),
        None => record.reason,
    };
    Ok(Control {
        what: "a proxy that alters one digit or letter of answers in a crowd".into(),
        passed,
        differing: record.differing,
        of: record.of,
        requests: 0,
        note,
    })
}

/// As many at once as the run has, of prompts that are judged.
fn largest_level(bench: &Bench<'_, '_>) -> u32 {
    let largest = bench.options.concurrency.iter().copied().max().unwrap_or(2);
    largest.min(bench.options.prompts)
}

fn judge(
    bench: &mut Bench<'_, '_>,
    score: &mut Score,
    references: &References,
    group: &[u32],
    calls: &[Call],
) {
    match bench.session.crowd(calls, Duration::ZERO) {
        Err(error) => score.void(&error),
        Ok(crowd) if crowd.in_flight <= 1 => score.unwitnessed(),
        Ok(crowd) => {
            score.case();
            concurrent::judge(bench.session, score, references, group, calls, &crowd, 0);
        }
    }
}
