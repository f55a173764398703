//! A server with chosen faults, in the test's own process. It speaks as much of the OpenAI
//! protocol as servers of language models do, runs requests together in steps, and remembers what
//! it was asked.

mod completions;
mod engine;
mod faults;
mod front;
mod hostile;
mod http;
mod log;
mod model;
mod params;
mod render;
mod routes;

use std::io::BufReader;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

pub(crate) use faults::*;
pub(crate) use log::Asked;

use engine::Engine;
use front::Gateway;
use log::Log;

/// A running server; it stops when this is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    inside: Arc<Inside>,
}

/// What the threads of a server share.
struct Inside {
    faults: Faults,
    engines: Vec<Arc<Engine>>,
    gateway: Gateway,
    log: Log,
    completions: AtomicU64,
    in_flight: AtomicUsize,
    stopped: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl Server {
    pub(crate) fn start(faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback");
        let address = listener.local_addr().expect("a bound address");
        let mut engines = vec![Engine::start(faults.clone())];
        if matches!(faults.front, Front::ReplicasByTurns | Front::ReplicasByConnection) {
            let mut other = faults.clone();
            let (when, how) = (When::Always, How::Drift(1e-4));
            other.disturbances.push(Disturbance { when, how, rate: 1.0 });
            engines.push(Engine::start(other));
        }
        let inside = Arc::new(Inside {
            faults,
            engines,
            gateway: Gateway::default(),
            log: Log::default(),
            completions: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let accepting = Arc::clone(&inside);
        thread::spawn(move || accepting.accept(&listener));
        Self { address, inside }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All that the server was asked, in the order in which it was read.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.inside.log.all()
    }

    /// The requests for completions alone.
    pub(crate) fn completions(&self) -> Vec<Asked> {
        self.asked().into_iter().filter(Asked::is_completion).collect()
    }

    /// The most sequences that ever ran together.
    pub(crate) fn running_max(&self) -> usize {
        self.inside.engines.iter().map(|engine| engine.running_max()).max().unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.inside.stopped.store(true, Ordering::SeqCst);
        self.inside.engines.iter().for_each(|engine| engine.stop());
        // Wakes the thread that accepts, and those that read or write.
        let _ = TcpStream::connect(self.address);
        for connection in self.inside.connections.lock().expect("no thread panics").iter() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Inside {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut count = 0;
        while let Ok((stream, _)) = listener.accept() {
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            let opened = Instant::now();
            let Ok(copy) = stream.try_clone() else { continue };
            self.connections.lock().expect("no thread panics with the list").push(copy);
            count += 1;
            let (inside, connection) = (Arc::clone(self), count);
            thread::spawn(move || inside.talk(stream, opened, connection));
        }
    }

    fn talk(&self, mut output: TcpStream, opened: Instant, connection: u64) {
        let _ = output.set_nodelay(true);
        let Ok(copy) = output.try_clone() else { return };
        let mut input = BufReader::new(copy);
        while let Ok(Some(request)) = http::read(&mut input) {
            let body = serde_json::from_slice(&request.body).unwrap_or_default();
            let read = Instant::now();
            let asked = Asked {
                path: request.path.clone(),
                headers: request.headers.clone(),
                body,
                opened,
                read,
                connection,
            };
            self.log.add(asked.clone());
            let goes_on = routes::answer(self, &request.method, &asked, &request.body, &mut output);
            if !matches!(goes_on, Ok(true)) {
                break;
            }
        }
        let _ = output.shutdown(Shutdown::Both);
    }
}
