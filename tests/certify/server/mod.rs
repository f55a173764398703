//! A server with chosen faults, in the test's own process. It speaks as much of the OpenAI
//! protocol as servers of language models do, runs requests together in steps, and remembers what
//! it was asked.

mod cache;
mod completions;
mod decode;
mod disturbances;
mod engine;
mod faults;
mod front;
mod hostile;
mod http;
mod kinds;
mod log;
mod metrics;
mod model;
mod params;
mod render;
mod replicas;
mod routes;
mod step;
mod stream;

use std::io::{self, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use disturbances::*;
pub(crate) use faults::*;
pub(crate) use kinds::*;
pub(crate) use log::Asked;

use front::Gateway;
use http::After;
use log::Log;
use replicas::Replicas;

/// How often an answer without an end looks whether anybody still listens.
const LOOK: Duration = Duration::from_millis(20);

/// A running server; it stops when this is dropped.
pub(crate) struct Server {
    inside: Arc<Inside>,
}

/// What the threads of a server share.
struct Inside {
    faults: Faults,
    /// The address of the API, and that of the metrics where they have one.
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    replicas: Replicas,
    gateway: Gateway,
    log: Log,
    completions: AtomicU64,
    in_flight: AtomicUsize,
    stopped: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

/// Where a request came in.
#[derive(Clone, Copy, PartialEq)]
enum Door {
    Api,
    Metrics,
}

impl Server {
    pub(crate) fn start(faults: Faults) -> Self {
        let listen = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback");
            let address = listener.local_addr().expect("a bound address");
            (listener, address)
        };
        let (listener, address) = listen();
        let second = faults.metrics_elsewhere.then(listen);
        let inside = Arc::new(Inside {
            address,
            metrics: second.as_ref().map(|second| second.1),
            replicas: Replicas::start(&faults),
            faults,
            gateway: Gateway::default(),
            log: Log::default(),
            completions: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let second = second.map(|second| (second.0, Door::Metrics));
        for (listener, door) in [Some((listener, Door::Api)), second].into_iter().flatten() {
            let accepting = Arc::clone(&inside);
            thread::spawn(move || accepting.accept(&listener, door));
        }
        Self { inside }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.inside.address)
    }

    /// Where the metrics are.
    pub(crate) fn metrics_url(&self) -> String {
        format!("http://{}/metrics", self.inside.metrics.unwrap_or(self.inside.address))
    }

    /// All that the server was asked, in the order in which it was read.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.inside.log.all()
    }

    /// The requests for completions alone.
    pub(crate) fn completions(&self) -> Vec<Asked> {
        self.asked().into_iter().filter(Asked::is_completion).collect()
    }

    /// Sequences that run now.
    pub(crate) fn running(&self) -> usize {
        self.inside.replicas.engines().iter().map(|engine| engine.load().0).sum()
    }

    /// The most sequences that ever ran together.
    pub(crate) fn running_max(&self) -> usize {
        let engines = self.inside.replicas.engines().iter();
        engines.map(|engine| engine.running_max()).max().unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.inside.die();
    }
}

impl Inside {
    /// Closes every connection, and listens no more. What was in flight is not answered: sockets are
    /// closed before the engines let their requests go.
    fn die(&self) {
        if self.stopped.swap(true, Ordering::SeqCst) {
            return;
        }
        for connection in self.connections.lock().expect("no thread panics").iter() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        self.replicas.engines().iter().for_each(|engine| engine.stop());
        // Wakes the threads that accept; their listeners close.
        for address in [Some(self.address), self.metrics].into_iter().flatten() {
            let _ = TcpStream::connect(address);
        }
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener, door: Door) {
        let mut count = 0;
        while let Ok((stream, from)) = listener.accept() {
            let opened = Instant::now();
            let Ok(copy) = stream.try_clone() else { continue };
            self.connections.lock().expect("no thread panics with the list").push(copy);
            // Looked at after the connection is in the list: one of both closes it.
            if self.stopped.load(Ordering::SeqCst) {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            count += 1;
            let (inside, connection) = (Arc::clone(self), count);
            let of = Connection { door, client: from.ip().to_string(), opened, connection };
            thread::spawn(move || inside.talk(stream, &of));
        }
    }

    fn talk(self: &Arc<Self>, mut output: TcpStream, of: &Connection) {
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
                opened: of.opened,
                read,
                client: of.client.clone(),
                connection: of.connection,
            };
            self.log.add(asked.clone());
            let (method, body) = (&request.method, &request.body);
            match routes::answer(self, of.door, method, &asked, body, &mut output) {
                Ok(After::GoesOn) => continue,
                Ok(After::Lingers) => self.linger(&output),
                Ok(After::Closes) | Err(_) => {}
            }
            break;
        }
        let _ = output.shutdown(Shutdown::Both);
    }

    /// Waits until the client is gone, or says more.
    fn linger(&self, output: &TcpStream) {
        use io::ErrorKind::{TimedOut, WouldBlock};
        let _ = output.set_read_timeout(Some(LOOK));
        while !self.stopped.load(Ordering::SeqCst) {
            match output.peek(&mut [0]) {
                Err(error) if matches!(error.kind(), TimedOut | WouldBlock) => {}
                _ => return,
            }
        }
    }
}

/// What is known of a connection before the first request.
struct Connection {
    door: Door,
    client: String,
    opened: Instant,
    /// Counts the connections of a door.
    connection: u64,
}
