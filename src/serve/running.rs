//! A server that runs, and how it ends.
//!
//! Told to stop, it accepts nothing more, finishes what it is at within the grace period, and ends the rest with an
//! error. So does a failure of the engine, without grace.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use crate::record::Held;
use crate::unwind::guarded;

use super::connection::{Connections, stopped};
use super::error::ServeError;
use super::model::App;
use super::{Outcome, unavailable};

/// Threads for connections; the engine has one of its own.
const THREADS: usize = 2;
/// Time for clients to read how their requests were ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A server that runs. Dropped, it stops without grace.
pub struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    hurry: watch::Sender<bool>,
    thread: Option<JoinHandle<Result<Ended, ServeError>>>,
}

/// How a server ended that was told to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What the engine still held: of a sound one nothing.
    pub held: Held,
    /// Panics of handlers, of which there are none.
    pub panics: Vec<String>,
}

impl Running {
    pub(super) fn start(
        listener: TcpListener,
        address: SocketAddr,
        router: Router,
        app: Arc<App>,
        engine: JoinHandle<Outcome>,
        on_signals: bool,
    ) -> Result<Running, ServeError> {
        let (stop, is_stopped) = watch::channel(false);
        let (hurry, in_hurry) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("lockstep-serve")
            .enable_all()
            .build()
            .map_err(|error| unavailable("threads for connections", &error))?;
        let (on_signal, on_second) = (stop.clone(), hurry.clone());
        let work = move || {
            let served = guarded(|| {
                runtime.block_on(async {
                    if on_signals {
                        tokio::spawn(signals(on_signal, on_second));
                    }
                    serve(listener, router, &app, is_stopped, in_hurry).await
                })
            });
            app.desk.stop();
            let outcome = engine.join();
            let held = outcome.unwrap_or_else(|_| Err(ServeError::Panicked("panicked".into())))?;
            let panics = served.map_err(ServeError::Panicked)??;
            Ok(Ended { held, panics })
        };
        let thread = std::thread::Builder::new().name("lockstep-serve".into()).spawn(work);
        let thread = thread.map_err(|error| unavailable("a thread for connections", &error))?;
        Ok(Running { address, stop, hurry, thread: Some(thread) })
    }

    /// The address that is bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the server is, without the path `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Tells it to stop, and waits for that.
    pub fn shutdown(mut self) -> Result<Ended, ServeError> {
        self.stop.send_replace(true);
        self.join()
    }

    /// Waits until it stops by itself: on a signal, or because the engine failed.
    pub fn wait(mut self) -> Result<Ended, ServeError> {
        self.join()
    }

    fn join(&mut self) -> Result<Ended, ServeError> {
        let panicked = || ServeError::Panicked("panicked".into());
        let thread = self.thread.take().ok_or_else(panicked)?;
        thread.join().unwrap_or_else(|_| Err(panicked()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.hurry.send_replace(true);
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // How it ended is of interest to nobody any more.
            let _ = thread.join();
        }
    }
}

/// Serves until it is told to stop, and then until nobody is left. Returns the panics of handlers.
async fn serve(
    listener: TcpListener,
    router: Router,
    app: &Arc<App>,
    mut is_stopped: watch::Receiver<bool>,
    mut in_hurry: watch::Receiver<bool>,
) -> Result<Vec<String>, ServeError> {
    let listener = tokio::net::TcpListener::from_std(listener)
        .map_err(|error| unavailable("the address", &error))?;
    let (end, ending) = watch::channel(false);
    let accepting = Connections::accept(listener, router, &app.limits, ending);
    let watching = async {
        tokio::select! {
            _ = stopped(&mut is_stopped) => {}
            _ = app.desk.gauges.failed() => {}
        }
        end.send_replace(true);
        // Held until all is over: connections take a sender that is gone for the end.
        end
    };
    let (mut connections, _end) = tokio::join!(accepting, watching);
    app.desk.close();
    tokio::select! {
        _ = timeout(app.limits.grace, connections.drain()) => {}
        _ = stopped(&mut in_hurry) => {}
        _ = app.desk.gauges.failed() => {}
    }
    app.desk.stop();
    let _ = timeout(LAST_WORDS, connections.drain()).await;
    Ok(connections.close().await)
}

/// The first signal stops the server, the second ends its grace.
async fn signals(stop: watch::Sender<bool>, hurry: watch::Sender<bool>) {
    signal().await;
    stop.send_replace(true);
    signal().await;
    hurry.send_replace(true);
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate)] = kinds else {
        // Without handlers a signal ends the process, as it would anyway.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
