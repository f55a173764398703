//! The engine's thread: it owns the engine, and everyone else writes to it.
//!
//! A request is accepted before it is sent, so the letters that wait are bounded. A client that goes away drops its
//! ticket, which aborts what is left of its request; so does one for which too much news waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::sync::mpsc;

use crate::device::Device;
use crate::engine::EngineError;
use crate::engine::live::{Live, Progress};
use crate::record::Held;
use crate::workload::Request;

use super::error::ApiError;

/// News that may wait for a client: far more than a client that reads at all lets wait, and not without bound.
const NEWS_MAX: usize = 1 << 16;

/// What is written to the engine's thread.
pub(super) enum Letter {
    Submit {
        requests: Vec<Request>,
        news: mpsc::Sender<Progress>,
    },
    Abort(Vec<u64>),
    /// Abort everything, and end.
    Stop,
}

/// Numbers that both sides look at.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    /// Sequences that were accepted and are not done.
    accepted: AtomicUsize,
    /// Sequences that are resident.
    running: AtomicUsize,
    pub(super) blocks_used: AtomicUsize,
    pub(super) blocks: AtomicUsize,
    /// Prompt tokens of sequences that began: those looked up in the prefix cache, and those found there.
    pub(super) prompt_tokens: AtomicU64,
    pub(super) cached_tokens: AtomicU64,
    pub(super) generated_tokens: AtomicU64,
    /// Requests that were accepted, sequences that came to an end of their own, and that were aborted.
    pub(super) requests: AtomicU64,
    pub(super) finished: AtomicU64,
    pub(super) aborted: AtomicU64,
    /// Requests that were sent away because too many were waiting.
    pub(super) refused: AtomicU64,
    /// Whether nothing is accepted any more.
    closed: AtomicBool,
    /// Why the engine ended, if it failed.
    failure: OnceLock<String>,
    /// Told then.
    failed: Notify,
}

impl Gauges {
    /// Sequences that are resident, and that wait for it.
    pub(super) fn load(&self) -> (usize, usize) {
        let running = self.running.load(Relaxed);
        (running, self.accepted.load(Relaxed).saturating_sub(running))
    }

    /// The engine has failed: nothing is accepted any more.
    pub(super) fn fail(&self, why: String) {
        self.closed.store(true, Relaxed);
        let _ = self.failure.set(why);
        self.failed.notify_waiters();
    }

    /// Waits until the engine fails.
    pub(super) async fn failed(&self) {
        let failed = self.failed.notified();
        if self.failure.get().is_none() {
            failed.await;
        }
    }

    /// Accepts sequences, unless too many are waiting already.
    fn accept(&self, sequences: usize, waiting_max: usize) -> bool {
        let add = |accepted: usize| {
            let waiting = accepted.saturating_sub(self.running.load(Relaxed));
            (waiting < waiting_max).then_some(accepted + sequences)
        };
        self.accepted.fetch_update(Relaxed, Relaxed, add).is_ok()
    }
}

/// The engine as the handlers see it.
pub(super) struct Desk {
    letters: Sender<Letter>,
    pub(super) gauges: Arc<Gauges>,
    waiting_max: usize,
    uid: AtomicU64,
}

impl Desk {
    pub(super) fn new(letters: Sender<Letter>, gauges: Arc<Gauges>, waiting_max: usize) -> Desk {
        Desk { letters, gauges, waiting_max, uid: AtomicU64::new(1) }
    }

    /// Uids for this many requests.
    pub(super) fn uids(&self, count: usize) -> u64 {
        self.uid.fetch_add(count as u64, Relaxed)
    }

    /// Hands requests over, which were checked.
    pub(super) fn submit(&self, requests: Vec<Request>) -> Result<Ticket, ApiError> {
        if self.gauges.closed.load(Relaxed) {
            return Err(self.gone());
        }
        let sequences = requests.iter().map(|r| r.samples as usize).sum();
        if !self.gauges.accept(sequences, self.waiting_max) {
            self.gauges.refused.fetch_add(1, Relaxed);
            return Err(ApiError::busy());
        }
        self.gauges.requests.fetch_add(1, Relaxed);
        let uids = requests.iter().map(|r| r.uid).collect();
        let (news, inbox) = mpsc::channel(NEWS_MAX);
        // A thread that has ended reads no letter; the ticket's news end at once then.
        let _ = self.letters.send(Letter::Submit { requests, news });
        Ok(Ticket { uids, inbox, letters: self.letters.clone(), left: sequences })
    }

    /// Why there is no more news.
    pub(super) fn gone(&self) -> ApiError {
        match self.gauges.failure.get() {
            Some(why) => ApiError::failed(format!("the engine failed: {why}")),
            None if self.is_open() => ApiError::too_slow(),
            None => ApiError::stopping(),
        }
    }

    /// Whether the engine takes requests.
    pub(super) fn is_open(&self) -> bool {
        !self.gauges.closed.load(Relaxed)
    }

    /// Accepts nothing from now on.
    pub(super) fn close(&self) {
        self.gauges.closed.store(true, Relaxed);
    }

    /// Ends the thread, and with it everything that was accepted.
    pub(super) fn stop(&self) {
        self.close();
        let _ = self.letters.send(Letter::Stop);
    }
}

/// What was handed over, for as long as somebody waits for it.
pub(super) struct Ticket {
    uids: Vec<u64>,
    inbox: mpsc::Receiver<Progress>,
    letters: Sender<Letter>,
    /// Sequences that are not done.
    left: usize,
}

impl Ticket {
    /// The next news; `None` once all is done, or the engine is gone.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Progress>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let news = self.inbox.poll_recv(context);
        if let Poll::Ready(Some(Progress { end: Some(_), .. })) = &news {
            self.left -= 1;
        }
        news
    }

    /// [`poll_next`](Ticket::poll_next), awaited.
    pub(super) async fn next(&mut self) -> Option<Progress> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Whether every sequence came to an end.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.left > 0 {
            let _ = self.letters.send(Letter::Abort(std::mem::take(&mut self.uids)));
        }
    }
}

/// A request of which something is left to be done.
struct Client {
    news: mpsc::Sender<Progress>,
    left: usize,
    prompt_len: usize,
}

/// The thread's side.
pub(super) struct Worker<'m, D: Device> {
    live: Live<'m, D>,
    gauges: Arc<Gauges>,
    running_max: usize,
    /// Accepted, and not given to the engine yet.
    queue: VecDeque<Request>,
    clients: BTreeMap<u64, Client>,
}

impl<'m, D: Device> Worker<'m, D> {
    pub(super) fn new(live: Live<'m, D>, gauges: Arc<Gauges>, running_max: usize) -> Self {
        gauges.blocks.store(live.load().blocks, Relaxed);
        Worker { live, gauges, running_max, queue: VecDeque::new(), clients: BTreeMap::new() }
    }

    /// Works until it is told to stop, and returns what the engine holds then.
    pub(super) fn run(mut self, letters: &Receiver<Letter>) -> Result<Held, EngineError> {
        loop {
            // Idle, it waits for a letter; busy, it looks whether one has come.
            loop {
                let letter = match self.is_idle() {
                    true => letters.recv().ok(),
                    false => letters.try_recv().ok(),
                };
                match letter {
                    Some(letter) => {
                        if !self.read(letter)? {
                            return self.end();
                        }
                    }
                    // Nobody is left to write one.
                    None if self.is_idle() => return self.end(),
                    None => break,
                }
            }
            self.fill()?;
            self.step()?;
        }
    }

    fn is_idle(&self) -> bool {
        self.live.is_idle() && self.queue.is_empty()
    }

    /// Does what a letter asks for. Returns false if that is to stop.
    fn read(&mut self, letter: Letter) -> Result<bool, EngineError> {
        match letter {
            Letter::Submit { requests, news } => {
                for request in requests {
                    let left = request.samples as usize;
                    let prompt_len = request.prompt.own_tokens().len();
                    let client = Client { news: news.clone(), left, prompt_len };
                    self.clients.insert(request.uid, client);
                    self.queue.push_back(request);
                }
            }
            Letter::Abort(uids) => {
                for uid in uids {
                    self.abort(uid)?;
                }
            }
            Letter::Stop => return Ok(false),
        }
        self.publish();
        Ok(true)
    }

    /// Gives the engine as much as it may have.
    fn fill(&mut self) -> Result<(), EngineError> {
        let load = self.live.load();
        let mut sequences = load.running + load.waiting;
        while sequences < self.running_max
            && let Some(request) = self.queue.pop_front()
        {
            let (uid, samples) = (request.uid, request.samples as usize);
            match self.live.submit(request) {
                Ok(()) => sequences += samples,
                // It was checked before; were it wrong all the same, it is the only one that ends.
                Err(EngineError::BadInput(_)) => self.abort(uid)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), EngineError> {
        let all = self.live.step()?;
        self.publish();
        let mut gone = Vec::new();
        for progress in all {
            let uid = progress.id.uid;
            let Some(client) = self.clients.get_mut(&uid) else { continue };
            if let Some(cached) = progress.cached {
                self.gauges.prompt_tokens.fetch_add(client.prompt_len as u64, Relaxed);
                self.gauges.cached_tokens.fetch_add(cached as u64, Relaxed);
            }
            self.gauges.generated_tokens.fetch_add(u64::from(progress.token.is_some()), Relaxed);
            let is_end = progress.end.is_some();
            if is_end {
                client.left -= 1;
                self.gauges.accepted.fetch_sub(1, Relaxed);
                self.gauges.finished.fetch_add(1, Relaxed);
            }
            let is_last = client.left == 0;
            if client.news.try_send(progress).is_err() && !is_last {
                gone.push(uid);
            }
            if is_last {
                self.clients.remove(&uid);
            }
        }
        for uid in gone {
            self.abort(uid)?;
        }
        Ok(())
    }

    /// Ends what is left of a request.
    fn abort(&mut self, uid: u64) -> Result<(), EngineError> {
        let Some(client) = self.clients.remove(&uid) else { return Ok(()) };
        self.gauges.accepted.fetch_sub(client.left, Relaxed);
        self.gauges.aborted.fetch_add(client.left as u64, Relaxed);
        match self.queue.iter().position(|r| r.uid == uid) {
            Some(at) => _ = self.queue.remove(at),
            None => self.live.abort(uid)?,
        }
        self.publish();
        Ok(())
    }

    fn publish(&self) {
        let load = self.live.load();
        self.gauges.running.store(load.running, Relaxed);
        self.gauges.blocks_used.store(load.blocks_used, Relaxed);
    }

    fn end(mut self) -> Result<Held, EngineError> {
        let uids: Vec<u64> = self.clients.keys().copied().collect();
        for uid in uids {
            self.abort(uid)?;
        }
        self.live.held()
    }
}
