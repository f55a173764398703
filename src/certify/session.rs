//! Requests within a budget: one at a time, or many at once and watched.
//!
//! Nothing is sent twice on its own account. A refusal for load is waited out and given back as what it is, so that who asked
//! leaves out the whole case.

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
use super::witness::{self, By, Span};

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

/// Tokens of a request where the server does not count them: a token is at least a byte.
fn tokens_at_most(call: &Call) -> u64 {
    let prompt = match &call.prompt {
        Prompt::Text(text) => text.len(),
        Prompt::Ids(ids) => ids.len(),
    };
    prompt as u64 + u64::from(call.answer_tokens)
}

/// An answer, and how many requests were in flight with it.
pub(crate) struct Met {
    pub(crate) answer: Answer,
    pub(crate) in_flight: u32,
}

/// What became of requests that were sent together.
pub(crate) struct Crowd {
    pub(crate) members: Vec<Met>,
    /// Most in flight.
    pub(crate) in_flight: u32,
}

/// Where a run's salts begin: a server that is judged twice still caches what the first run sent. The plan does not depend on it.
fn first_salt() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let process = u64::from(std::process::id());
    (now.as_nanos() as u64 ^ process.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
    /// What answers came, by prompt and by size of crowd.
    pub(crate) samples: Collected,
}

impl<'a> Session<'a> {
    pub(crate) fn new(ledger: &'a Ledger<'a>, client: Client, dialect: Dialect) -> Session<'a> {
        Session {
            ledger,
            dialect,
            client,
            gauge: None,
            lanes: Vec::new(),
            timeout: ledger.options.timeout,
            salts: first_salt(),
            turns: 0,
            failures: 0,
            resolution: None,
            by: By::Nothing,
            max_in_flight: 0,
            witnessed: 0,
            unwitnessed: 0,
            samples: Collected::default(),
        }
    }

    /// Another session with the same server, with salts and counts of its own.
    pub(crate) fn beside(&self) -> Session<'a> {
        let client = self.client.another(self.timeout);
        let mut other = Session::new(self.ledger, client, self.dialect.clone());
        other.salts = self.salts.wrapping_add(1 << 32);
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
        self.check_failures()?;
        self.ledger.take(1, std::slice::from_ref(call))?;
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

    /// Many prompts in one request.
    pub(crate) fn many(&mut self, calls: &[Call]) -> Result<Vec<Answer>, WireError> {
        self.check_failures()?;
        self.ledger.take(1, calls)?;
        let terms = self.dialect.terms(&calls[0]);
        let (path, body) = (self.dialect.route.path(), self.dialect.body_of_many(calls));
        let result = self.next_client().complete_many(path, &body, calls.len(), &terms);
        for (i, call) in calls.iter().enumerate() {
            self.ledger.count(call, result.as_ref().ok().map(|answers| &answers[i]));
        }
        match &result {
            Ok(answers) => {
                self.failures = 0;
                answers.iter().for_each(|answer| self.look_at(answer));
            }
            Err(error) => self.failed(error),
        }
        result
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
        self.back_off(error);
    }

    /// Requests at once, or one every `stagger`. One that fails makes the whole of it an error.
    pub(crate) fn crowd(&mut self, calls: &[Call], stagger: Duration) -> Result<Crowd, WireError> {
        self.check_failures()?;
        self.ledger.take(calls.len() as u64, calls)?;
        let (results, samples) = self.send_together(calls, stagger);
        for (call, result) in calls.iter().zip(&results) {
            self.ledger.count(call, result.as_ref().ok().map(|exchange| &exchange.answer));
        }
        let mut exchanges = Vec::with_capacity(results.len());
        for result in results {
            match result {
                Ok(exchange) => exchanges.push(exchange),
                Err(error) => {
                    self.failed(&error);
                    return Err(error);
                }
            }
        }
        self.failures = 0;
        let spans: Vec<Span<'_>> = exchanges
            .iter()
            .map(|e| Span { sent: e.sent, arrivals: &e.arrivals, done: e.done })
            .collect();
        let (counts, by) = witness::in_flight(&spans, samples.as_deref());
        let sent = calls.len() as u32;
        // The gauge counts others' requests too; of ours there were no more than were sent.
        let counts: Vec<u32> = counts.into_iter().map(|count| count.min(sent)).collect();
        let in_flight = counts.iter().copied().max().unwrap_or(0);
        self.by = by;
        self.max_in_flight = self.max_in_flight.max(in_flight);
        match in_flight > 1 {
            true => self.witnessed += 1,
            false => self.unwitnessed += 1,
        }
        let members = exchanges.into_iter().zip(counts);
        let members: Vec<Met> = members
            .map(|(exchange, in_flight)| Met { answer: exchange.answer, in_flight })
            .collect();
        for (call, member) in calls.iter().zip(&members) {
            self.look_at(&member.answer);
            self.samples.take(call, sent, &member.answer);
        }
        Ok(Crowd { members, in_flight })
    }

    /// Opens every connection first, then lets all requests go at once.
    fn send_together(
        &mut self,
        calls: &[Call],
        stagger: Duration,
    ) -> (Vec<Result<Exchange, WireError>>, Option<Vec<Sample>>) {
        self.open_lanes(calls.len());
        let sent: Vec<(Sent, Terms)> =
            calls.iter().map(|call| (self.sent(call), self.dialect.terms(call))).collect();
        let barrier = Barrier::new(calls.len());
        let stop = AtomicBool::new(false);
        let gauge = self.gauge.as_ref();
        let lanes = self.lanes.iter_mut().zip(&sent).enumerate();
        std::thread::scope(|scope| {
            let watcher = gauge.map(|gauge| scope.spawn(|| gauge.watch(&stop)));
            let handles: Vec<_> = lanes
                .map(|(i, (lane, (sent, terms)))| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        lane.open();
                        barrier.wait();
                        std::thread::sleep(stagger * i as u32);
                        let result = lane.client.complete(&sent.path, &sent.body, terms);
                        lane.used = Some(Instant::now());
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
