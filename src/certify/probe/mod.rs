//! What a server can do, found out by asking. Each ability is known, known to be missing, or unknown, with the evidence.

mod cache;
mod format;
mod identity;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::certificate::{Ability, Server};
use super::error::CertifyError;
use super::gauge::Gauge;
use super::options::Target;
use super::session::Session;
use super::wire::{Call, Exchange, Prompt, WireError};

pub(crate) use format::tokenize;
pub(crate) use identity::{Identity, identify};

/// Tries of a probe that is refused for load. Probes are not scored, so another try hides nothing.
const TRIES: u32 = 3;

/// What was found out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) server: Server,
    /// Takes token ids as a prompt.
    pub(crate) takes_ids: bool,
    /// How text becomes ids.
    pub(crate) tokenize: Option<Tokenize>,
    /// Streams.
    pub(crate) streams: bool,
    /// The stream has what the plain answer has.
    pub(crate) stream_is_whole: bool,
    /// Scores prompts; with how many tokens of an answer at least.
    pub(crate) echo: Option<u32>,
    /// Log-probabilities do not depend on the temperature; absent is unknown.
    pub(crate) raw_logprobs: Option<bool>,
    /// Counts cached tokens.
    pub(crate) counts_cached: bool,
    /// Answers are handed out a second time by something in front of the model: why that is believed.
    pub(crate) replayed: Option<String>,
    /// Answers many prompts in one request.
    pub(crate) many_prompts: bool,
    /// Requests in crowds are streamed, because there is no other witness.
    pub(crate) stream_crowds: bool,
    /// Requests of others while nothing of ours was in flight; absent without a gauge.
    pub(crate) load_when_idle: Option<u64>,
    /// Something worth a line in the scope.
    pub(crate) notes: Vec<String>,
}

/// How text becomes ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tokenize {
    /// `/tokenize` with a field `prompt`.
    Prompt,
    /// `/tokenize` with a field `content`.
    Content,
    /// From answers that give the prompt's ids back.
    Answers,
}

impl Facts {
    fn ability(&mut self, name: &str, known: impl Into<Option<bool>>, evidence: impl Into<String>) {
        let (known, evidence) = (known.into(), evidence.into());
        self.server.abilities.push(Ability { name: name.into(), known, evidence });
    }

    /// A greedy request as the arms send it.
    pub(crate) fn call(&self, prompt: &Prompt, answer_tokens: u32) -> Call {
        Call { stream: self.stream_crowds, ..Call::greedy(prompt.clone(), answer_tokens) }
    }
}

/// Finds out. `session` speaks the plain dialect at first, and the server's own at the end.
pub(crate) fn probe(
    session: &mut Session<'_>,
    target: &Target,
    identity: Identity,
    answer_tokens: u32,
) -> Result<Facts, CertifyError> {
    let mut facts = Facts::default();
    facts.server.url = session.client.address().shown();
    facts.server.model = identity.model;
    facts.server.identity = identity.names;
    facts.server.context_max = identity.context_max;
    facts.notes = identity.notes;
    format::find_out(session, &mut facts, target.api)?;
    cache::find_out(session, &mut facts);
    find_gauge(session, &mut facts, answer_tokens);
    Ok(facts)
}

/// Asks; waits out refusals for load.
fn ask(session: &mut Session<'_>, call: &Call) -> Result<Exchange, WireError> {
    let mut tries = 1;
    loop {
        match session.one(call) {
            Err(WireError::Busy { .. }) if tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

/// Looks for a gauge, and whether it moves with one request of ours and back.
fn find_gauge(session: &mut Session<'_>, facts: &mut Facts, answer_tokens: u32) {
    let name = "gauge of running requests";
    let gauge = Gauge::find(session.client.another(Duration::from_secs(5)));
    let idle = gauge.as_ref().and_then(lowest);
    let live = match &gauge {
        None => {
            facts.ability(name, false, "no known name in /metrics");
            false
        }
        Some(gauge) => {
            let during = highest_during(session, gauge, facts, answer_tokens);
            let after = lowest(gauge);
            let live =
                matches!((idle, during, after), (Some(i), Some(d), Some(a)) if d > i && a <= i);
            let shown = |count: Option<u32>| count.map_or("?".into(), |count| count.to_string());
            let (idle, during, after) = (shown(idle), shown(during), shown(after));
            let what = gauge.name;
            let evidence =
                format!("{what}: {idle} when idle, {during} during a request, {after} after");
            facts.ability(name, live, evidence);
            live
        }
    };
    facts.load_when_idle = idle.filter(|_| live).map(u64::from);
    session.gauge = gauge.filter(|_| live).map(|gauge| gauge.beyond(idle.unwrap_or(0)));
    facts.stream_crowds = !live && facts.stream_is_whole;
}

/// Lowest of a few looks: others' requests come and go, a lasting load stays.
fn lowest(gauge: &Gauge) -> Option<u32> {
    const LOOKS: u32 = 5;
    const BETWEEN: Duration = Duration::from_millis(10);
    let looks = (0..LOOKS).filter_map(|_| {
        std::thread::sleep(BETWEEN);
        gauge.now()
    });
    looks.map(|sample| sample.running).min()
}

fn highest_during(
    session: &mut Session<'_>,
    gauge: &Gauge,
    facts: &Facts,
    answer_tokens: u32,
) -> Option<u32> {
    let call =
        facts.call(&Prompt::Text("Count the running requests: one, two, ".into()), answer_tokens);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| gauge.watch(&stop));
        let asked = ask(session, &call);
        stop.store(true, Ordering::Relaxed);
        let samples = watcher.join().expect("the watcher does not panic");
        asked.ok()?;
        samples.iter().map(|sample| sample.running).max()
    })
}
