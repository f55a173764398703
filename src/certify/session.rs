//! Requests within a budget: one at a time, or many at once and watched.
//!
//! Nothing is sent twice on its own account. A refusal for load is waited out and given back as what it is, so that who asked
//! leaves that answer out.

use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::certificate::{Resolution, Sent};
use super::gauge::{Gauge, Sample};
use super::options::{Options, Progress};
use super::samples::Collected;
use super::wire::client::Place;
use super::wire::{Answer, Call, Client, Dialect, Exchange, Prompt, Terms, WireError};
use super::witness::{self, By, Seen, Span};

/// Longest wait after a refusal for load.
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Wait where the server names none.
const BACK_OFF: Duration = Duration::from_millis(500);
/// Idle connections older than this are tried before a crowd: many servers close theirs after 5 s.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// Connections that requests one at a time take turns on: replicas may be dealt out by connection, and a crowd has many.
const TURNS_MAX: usize = 8;
/// Failures in a row after which nothing more is sent. Refusals of a field are none.
const FAILURES_MAX: u32 = 8;

/// What was spent, by all sessions of a run together.
pub(crate) struct Ledger<'a> {
    options: &'a Options,
    progress: &'a dyn Progress,
    started: Instant,
    /// Requests that the plan comes to, for the progress bar.
    planned: Cell<u64>,
    requests: Cell<u64>,
    tokens: Cell<u64>,
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(options: &'a Options, progress: &'a dyn Progress, planned: u64) -> Self {
        let (requests, tokens) = (Cell::new(0), Cell::new(0));
        let planned = Cell::new(planned);
        Ledger { options, progress, started: Instant::now(), planned, requests, tokens }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.get()
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.tokens.get()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn stage(&self, name: &str) {
        self.progress.stage(name);
    }

    /// Takes `n` requests from the budget, all or none.
    fn take(&self, n: u64, calls: &[Call]) -> Result<(), WireError> {
        if self.requests() + n > self.options.requests_max {
            return Err(WireError::Budget("requests"));
        }
        let tokens: u64 = calls.iter().map(tokens_at_most).sum();
        if self.tokens() + tokens > self.options.tokens_max {
            return Err(WireError::Budget("tokens"));
        }
        if self.started.elapsed() >= self.options.time_max {
            return Err(WireError::Budget("time"));
        }
        self.requests.set(self.requests() + n);
        Ok(())
    }

    /// Counts what a request came to.
    fn count(&self, call: &Call, answer: Option<&Answer>) {
        let counted = answer.and_then(|a| Some(a.prompt_tokens? + a.completion_tokens?));
        self.tokens.set(self.tokens() + counted.unwrap_or_else(|| tokens_at_most(call)));
        let of = self.planned.get().max(self.requests());
        self.progress.requests(self.requests(), of);
    }
}

/// Bytes of a text that are taken for a token where the server does not count. Tokens of plain words are longer.
const BYTES_A_TOKEN: usize = 3;

/// Tokens of a request where the server does not count them.
fn tokens_at_most(call: &Call) -> u64 {
    let prompt = match &call.prompt {
        Prompt::Text(text) => text.len().div_ceil(BYTES_A_TOKEN),
        Prompt::Ids(ids) => ids.len(),
    };
    prompt as u64 + u64::from(call.answer_tokens)
}

/// A request of a crowd.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) call: Call,
    /// After the first of the crowd.
    pub(crate) delay: Duration,
    /// How long the same request took alone, if that is known.
    pub(crate) alone: Option<Duration>,
}

impl Member {
    /// Sent with the first.
    pub(crate) fn at_once(call: Call, alone: Option<Duration>) -> Member {
        Member { call, delay: Duration::ZERO, alone }
    }
}

/// What became of a request of a crowd.
pub(crate) struct Met {
    pub(crate) answer: Result<Answer, WireError>,
    /// Requests seen in flight with it; at most 1 if it was not seen to meet another.
    pub(crate) in_flight: u32,
}

/// What became of requests that were sent together.
pub(crate) struct Crowd {
    pub(crate) members: Vec<Met>,
    /// Most in flight.
    pub(crate) in_flight: u32,
}

/// What became of one request with many prompts.
pub(crate) struct Many {
    pub(crate) answers: Vec<Answer>,
    /// Requests in flight, as far as the gauge or the time that was saved tells.
    pub(crate) in_flight: u32,
}

/// A number that no other run has: a server that is judged twice still caches what the first run sent.
pub(crate) fn new_nonce() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let process = u64::from(std::process::id());
    (now.as_nanos() as u64 ^ process.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What tells this run's prompts and salts from those of others, with another seed or another nonce.
pub(crate) fn run_number(seed: u64, nonce: u64) -> u64 {
    seed ^ nonce.rotate_left(17)
}

/// A connection of its own, and when it was last used.
struct Lane {
    client: Client,
    used: Option<Instant>,
}

/// A server, as a run talks to it.
pub(crate) struct Session<'a> {
    pub(crate) ledger: &'a Ledger<'a>,
    pub(crate) dialect: Dialect,
    pub(crate) client: Client,
    pub(crate) gauge: Option<Gauge>,
    lanes: Vec<Lane>,
    timeout: Duration,
    salts: u64,
    /// Requests one at a time so far.
    turns: usize,
    /// Requests, or crowds, that failed since the last that did not.
    failures: u32,
    /// Digits seen so far.
    pub(crate) resolution: Option<Resolution>,
    /// How crowds were watched, last.
    pub(crate) by: By,
    pub(crate) max_in_flight: u32,
    pub(crate) witnessed: u64,
    pub(crate) unwitnessed: u64,
    pub(crate) contradicted: u64,
    /// Why the plan was not carried out to its end.
    broke_off: Option<String>,
    last_error: Option<String>,
    /// The smallest crowd of which most were refused for load, and the refusal.
    refused: Option<(u32, String)>,
    /// What answers came, by prompt and by size of crowd.
    pub(crate) samples: Collected,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        ledger: &'a Ledger<'a>,
        client: Client,
        dialect: Dialect,
        run_number: u64,
    ) -> Session<'a> {
        Session {
            ledger,
            dialect,
            client,
            gauge: None,
            lanes: Vec::new(),
            timeout: ledger.options.timeout,
            salts: run_number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            turns: 0,
            failures: 0,
            resolution: None,
            by: By::Nothing,
            max_in_flight: 0,
            witnessed: 0,
            unwitnessed: 0,
            contradicted: 0,
            broke_off: None,
            last_error: None,
            refused: None,
            samples: Collected::default(),
        }
    }

    /// Another session with the same server, with salts and counts of its own.
    pub(crate) fn beside(&self) -> Session<'a> {
        let client = self.client.another(self.timeout);
        let mut other = Session::new(self.ledger, client, self.dialect.clone(), 0);
        other.salts = self.salts.wrapping_add(1 << 32);
        other.gauge.clone_from(&self.gauge);
        other
    }

    /// A salt that no request had, of this run or of another.
    pub(crate) fn salt(&mut self) -> u64 {
        self.salts = self.salts.wrapping_add(1);
        self.salts
    }

    /// The request as it is sent.
    pub(crate) fn sent(&self, call: &Call) -> Sent {
        Sent { path: self.dialect.route.path().into(), body: self.dialect.body(call) }
    }

    /// One request with nothing else of ours in flight.
    pub(crate) fn one(&mut self, call: &Call) -> Result<Exchange, WireError> {
        self.begin(1, std::slice::from_ref(call))?;
        let sent = self.sent(call);
        let terms = self.dialect.terms(call);
        let result = self.next_client().complete(&sent.path, &sent.body, &terms);
        self.ledger.count(call, result.as_ref().ok().map(|exchange| &exchange.answer));
        match result {
            Ok(exchange) => {
                self.failures = 0;
                self.look_at(&exchange.answer);
                self.samples.take(call, 1, &exchange.answer);
                Ok(exchange)
            }
            Err(error) => {
                self.failed(&error);
                Err(error)
            }
        }
    }

    /// Takes the requests from the budget. What it does not hold is not sent, and the run is one that broke off.
    fn begin(&mut self, requests: u64, calls: &[Call]) -> Result<(), WireError> {
        let begun = self.check_failures().and_then(|()| self.ledger.take(requests, calls));
        if let Err(error) = &begun {
            self.broke_off.get_or_insert(error.to_string());
        }
        begun
    }

    /// Why the plan was not carried out to its end, if it was not: a budget, or a server that no longer answers.
    pub(crate) fn ended_early(&self) -> Option<String> {
        let silent = self.last_error.as_ref().filter(|_| self.failures > 0);
        self.broke_off.clone().or(silent.map(|why| format!("the server no longer answers: {why}")))
    }

    /// Alternatives that the run asks for at each position.
    pub(crate) fn alternatives(&self) -> u32 {
        self.ledger.options.alternatives
    }

    /// Why a crowd of this size is not sent again: most of one no larger was refused for load.
    pub(crate) fn refuses(&self, size: u32) -> Option<&str> {
        self.refused.as_ref().filter(|(least, _)| size >= *least).map(|(_, why)| why.as_str())
    }

    /// A connection that was not used last.
    fn next_client(&mut self) -> &Client {
        let at = self.turns % TURNS_MAX;
        self.turns += 1;
        self.open_lanes(at + 1);
        let lane = &mut self.lanes[at];
        if lane.used.is_some_and(|used| used.elapsed() > IDLE_MAX) {
            lane.client = self.client.another(self.timeout);
        }
        lane.used = Some(Instant::now());
        &lane.client
    }

    fn open_lanes(&mut self, count: usize) {
        while self.lanes.len() < count {
            self.lanes.push(Lane { client: self.client.another(self.timeout), used: None });
        }
    }

    fn check_failures(&self) -> Result<(), WireError> {
        match self.failures < FAILURES_MAX {
            true => Ok(()),
            false => Err(WireError::Budget("failures in a row")),
        }
    }

    fn failed(&mut self, error: &WireError) {
        self.failures += u32::from(!error.is_refusal());
        self.last_error = Some(error.to_string());
        self.back_off(error);
    }

    /// Requests together. `Err` if none was sent; what became of each stands in its place.
    pub(crate) fn crowd(&mut self, members: &[Member]) -> Result<Crowd, WireError> {
        let calls: Vec<Call> = members.iter().map(|member| member.call.clone()).collect();
        self.begin(calls.len() as u64, &calls)?;
        let (results, samples) = self.send_together(members);
        for (call, result) in calls.iter().zip(&results) {
            self.ledger.count(call, result.as_ref().ok().map(|exchange| &exchange.answer));
        }
        self.note_failures(&results);
        let seen = self.witness(members, &results, samples.as_deref());
        let sent = calls.len() as u32;
        let in_flight = seen.counts.iter().copied().max().unwrap_or(0);
        let mut counts = seen.counts.into_iter();
        let met = results.into_iter().map(|result| match result {
            Ok(exchange) => {
                let in_flight = counts.next().unwrap_or(1).min(sent);
                Met { answer: Ok(exchange.answer), in_flight }
            }
            Err(error) => Met { answer: Err(error), in_flight: 1 },
        });
        let members: Vec<Met> = met.collect();
        for (call, member) in calls.iter().zip(&members) {
            if let Ok(answer) = &member.answer {
                self.look_at(answer);
                self.samples.take(call, sent, answer);
            }
        }
        Ok(Crowd { members, in_flight: in_flight.min(sent) })
    }

    /// What is known of how the answers met. The gauge counts others' requests too; of ours there were no more than were sent.
    fn witness(
        &mut self,
        members: &[Member],
        results: &[Result<Exchange, WireError>],
        samples: Option<&[Sample]>,
    ) -> Seen {
        let answered = members.iter().zip(results).filter_map(|(member, result)| {
            let exchange = result.as_ref().ok()?;
            let Exchange { sent, arrivals, done, .. } = exchange;
            Some(Span { sent: *sent, arrivals, done: *done, alone: member.alone })
        });
        let spans: Vec<Span<'_>> = answered.collect();
        let seen = witness::in_flight(&spans, samples);
        let in_flight = seen.counts.iter().copied().max().unwrap_or(0).min(members.len() as u32);
        self.by = self.by.max(seen.by);
        self.max_in_flight = self.max_in_flight.max(in_flight);
        self.contradicted += u64::from(seen.contradicted);
        match in_flight > 1 {
            true => self.witnessed += 1,
            false => self.unwitnessed += 1,
        }
        seen
    }

    /// Counts failures in a row, and remembers a size that the server refuses.
    fn note_failures(&mut self, results: &[Result<Exchange, WireError>]) {
        let errors = || results.iter().filter_map(|result| result.as_ref().err());
        let busy = errors().filter(|error| matches!(error, WireError::Busy { .. }));
        let size = results.len() as u32;
        if 2 * busy.clone().count() > results.len()
            && self.refused.as_ref().is_none_or(|(least, _)| size < *least)
        {
            let why = busy.clone().next().map(ToString::to_string).unwrap_or_default();
            self.refused = Some((size, why));
        }
        match errors().next() {
            None => self.failures = 0,
            Some(error) if errors().count() == results.len() => self.failed(error),
            Some(_) => {
                self.failures = 0;
                if let Some(error) = busy.clone().next() {
                    self.back_off(error);
                }
            }
        }
    }

    /// One request with the prompts of all these calls, which are alike but for them.
    pub(crate) fn many(
        &mut self,
        calls: &[Call],
        alone: Option<Duration>,
    ) -> Result<Many, WireError> {
        self.begin(1, calls)?;
        let path = self.dialect.route.path();
        let body = self.dialect.body_of_many(calls);
        let stop = AtomicBool::new(false);
        let gauge = self.gauge.clone();
        let (client, terms) = (self.client.another(self.timeout), self.dialect.terms(&calls[0]));
        let (result, samples, took) = std::thread::scope(|scope| {
            let watcher = gauge.as_ref().map(|gauge| scope.spawn(|| gauge.watch(&stop)));
            let from = Instant::now();
            let result = client.complete_many(path, &body, calls.len(), &terms);
            let took = from.elapsed();
            stop.store(true, Ordering::Relaxed);
            (result, watcher.map(|w| w.join().expect("the watcher does not panic")), took)
        });
        for call in calls {
            self.ledger.count(call, None);
        }
        let answers = result.inspect_err(|error| self.failed(error))?;
        self.failures = 0;
        let gauged = samples.iter().flatten().map(|sample| sample.running).max().unwrap_or(0);
        let saved =
            alone.map_or(0, |alone| (alone.as_secs_f64() / took.as_secs_f64().max(1e-6)) as u32);
        let in_flight = gauged.max(saved).clamp(1, calls.len() as u32);
        for answer in &answers {
            self.look_at(answer);
        }
        Ok(Many { answers, in_flight })
    }

    /// Opens every connection first, then lets all requests go.
    fn send_together(
        &mut self,
        members: &[Member],
    ) -> (Vec<Result<Exchange, WireError>>, Option<Vec<Sample>>) {
        self.open_lanes(members.len());
        let ask = |member: &Member| (self.sent(&member.call), self.dialect.terms(&member.call));
        let sent: Vec<(Sent, Terms)> = members.iter().map(ask).collect();
        let barrier = Barrier::new(members.len());
        let stop = AtomicBool::new(false);
        let gauge = self.gauge.as_ref();
        let lanes = self.lanes.iter_mut().zip(&sent).zip(members);
        std::thread::scope(|scope| {
            let watcher = gauge.map(|gauge| scope.spawn(|| gauge.watch(&stop)));
            let handles: Vec<_> = lanes
                .map(|((lane, (sent, terms)), member)| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        lane.open();
                        barrier.wait();
                        std::thread::sleep(member.delay);
                        let result = lane.client.complete(&sent.path, &sent.body, terms);
                        // A stream lets its connection go at the end marker.
                        lane.used = (!member.call.stream).then(Instant::now);
                        result
                    })
                })
                .collect();
            let results = handles.into_iter().map(|h| h.join().expect("a lane does not panic"));
            let results = results.collect();
            stop.store(true, Ordering::Relaxed);
            (results, watcher.map(|w| w.join().expect("the watcher does not panic")))
        })
    }

    /// Waits after a refusal for load, as long as the server says, within limits.
    fn back_off(&self, error: &WireError) {
        if let WireError::Busy { retry_after, .. } = error {
            let left = self.ledger.options.time_max.saturating_sub(self.ledger.elapsed());
            std::thread::sleep(retry_after.unwrap_or(BACK_OFF).min(BACK_OFF_MAX).min(left));
        }
    }

    /// Notes how many digits values have.
    fn look_at(&mut self, answer: &Answer) {
        for token in &answer.tokens {
            for value in token.logprob.iter().chain(token.top.values()) {
                let (digits, decimals) = value.digits();
                let seen =
                    self.resolution.get_or_insert(Resolution { digits: 0, decimals: 0, values: 0 });
                seen.digits = seen.digits.max(digits);
                seen.decimals = seen.decimals.max(decimals);
                seen.values += 1;
            }
        }
    }
}

impl Lane {
    /// Makes sure that there is a connection. What the server answers does not matter.
    fn open(&self) {
        if self.used.is_none_or(|used| used.elapsed() > IDLE_MAX) {
            let _ = self.client.get(Place::Base, "models");
        }
    }
}
