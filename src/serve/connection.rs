//! Connections: as many as are allowed, each held to its times, until the server is told to stop.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};

use super::limits::Limits;

/// Wait after an error of `accept`: the process has no file descriptor left, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Open connections.
pub(super) struct Connections {
    tasks: JoinSet<()>,
    /// Panics of handlers.
    panics: Vec<String>,
}

impl Connections {
    /// Accepts connections until `stop` turns true.
    pub(super) async fn accept(
        listener: TcpListener,
        router: Router,
        limits: &Limits,
        mut stop: watch::Receiver<bool>,
    ) -> Connections {
        let places = Arc::new(Semaphore::new(limits.connections_max));
        let mut all = Connections { tasks: JoinSet::new(), panics: Vec::new() };
        loop {
            let place = tokio::select! {
                place = Arc::clone(&places).acquire_owned() => place.expect("it is never closed"),
                _ = stopped(&mut stop) => return all,
            };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stopped(&mut stop) => return all,
            };
            while let Some(done) = all.tasks.try_join_next() {
                all.note(done);
            }
            let Ok((stream, _)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (router, limits, stop) = (router.clone(), limits.clone(), stop.clone());
            all.tasks.spawn(async move {
                serve(stream, router, &limits, stop).await;
                drop(place);
            });
        }
    }

    /// Waits until all are closed.
    pub(super) async fn drain(&mut self) {
        while let Some(done) = self.tasks.join_next().await {
            self.note(done);
        }
    }

    /// Closes what is left. Returns the panics of all.
    pub(super) async fn close(mut self) -> Vec<String> {
        self.tasks.abort_all();
        self.drain().await;
        self.panics
    }

    fn note(&mut self, done: Result<(), tokio::task::JoinError>) {
        if let Err(error) = done
            && error.is_panic()
        {
            self.panics.push(error.to_string());
        }
    }
}

/// Waits until `stop` is true, or can't become true any more.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender is gone: nobody is left to serve for.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Serves one connection to its end. Told to stop, it finishes the request that it is at.
async fn serve(
    stream: TcpStream,
    router: Router,
    limits: &Limits,
    mut stop: watch::Receiver<bool>,
) {
    // Pieces of a stream are small, and each is awaited.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(Impatient::new(stream, limits.write_timeout));
    let service = TowerToHyperService::new(router);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    let mut connection = pin!(builder.serve_connection(io, service));
    // What goes wrong here is the client's: it is gone, too slow, or speaks no HTTP.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped(&mut stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// A stream that fails when the other side takes nothing of what is written for too long.
struct Impatient {
    stream: TcpStream,
    limit: Duration,
    /// Runs while a write is waiting.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn new(stream: TcpStream, limit: Duration) -> Impatient {
        Impatient { stream, limit, waiting: None }
    }

    /// Passes on what a write came to, unless it has been waiting for too long.
    fn waited<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.waiting = None;
            return outcome;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.waited(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.waited(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
