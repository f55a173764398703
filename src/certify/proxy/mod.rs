//! A proxy on this machine that plants a fault: some answers to requests that were in flight together have one digit, or one
//! letter, changed. What comes alone passes through as it is.

mod alter;
mod http;

use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::error::CertifyError;
use super::random::Random;
use super::wire::Address;
use super::wire::agent::Agent;

/// Longest pause of a client's connection.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// Largest piece passed on at once, in bytes.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// A running proxy. It ends when dropped.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// Path and query.
    tail: String,
}

struct Shared {
    /// Scheme and host of the server.
    upstream: String,
    agent: Agent,
    timeout: Duration,
    /// Share of the requests of crowds whose answers are changed.
    rate: f64,
    seed: u64,
    decided: AtomicU64,
    altered: AtomicU64,
    stop: AtomicBool,
    /// For each completion in flight, whether it met another.
    active: Mutex<Vec<Arc<AtomicBool>>>,
}

impl Proxy {
    /// Listens, and passes on to the server of `url`.
    pub(crate) fn start(
        url: &str,
        rate: f64,
        seed: u64,
        timeout: Duration,
    ) -> Result<Proxy, CertifyError> {
        let unusable = |e: io::Error| CertifyError::Unusable(format!("the control's proxy: {e}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let server = Address::parse(url)?;
        let shared = Arc::new(Shared {
            upstream: server.origin(),
            agent: Agent::new(&server, timeout)?,
            timeout,
            rate,
            seed,
            decided: AtomicU64::new(0),
            altered: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            active: Mutex::new(Vec::new()),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accepting.accept(&listener));
        Ok(Proxy { shared, address, tail: server.tail() })
    }

    /// Its address, in place of the server's.
    pub(crate) fn url(&self) -> String {
        format!("http://{}{}", self.address, self.tail)
    }

    /// Answers that were changed.
    pub(crate) fn altered(&self) -> u64 {
        self.shared.altered.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wakes the listener up.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

impl Shared {
    fn accept(self: Arc<Shared>, listener: &TcpListener) {
        while let Ok((stream, _)) = listener.accept() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let shared = Arc::clone(&self);
            // A connection that fails ends alone; its client sees that.
            std::thread::spawn(move || shared.serve(stream));
        }
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(IDLE_MAX))?;
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let agent = self.agent.another(self.timeout);
        while !self.stop.load(Ordering::Relaxed) {
            let Some(request) = http::read(&mut reader)? else { return Ok(()) };
            let path = request.path.split('?').next().unwrap_or_default();
            let is_completion = request.method == "POST" && path.ends_with("completions");
            let met = is_completion.then(|| self.enter());
            let done = self.pass_on(&agent, &request, &mut stream, met.as_ref());
            self.leave(met.as_ref());
            done?;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<AtomicBool>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A completion comes in: if there are others, all of them have met.
    fn enter(&self) -> Arc<AtomicBool> {
        let mut active = self.lock();
        active.push(Arc::new(AtomicBool::new(false)));
        if active.len() > 1 {
            active.iter().for_each(|met| met.store(true, Ordering::Relaxed));
        }
        Arc::clone(&active[active.len() - 1])
    }

    /// It is in flight no longer.
    fn leave(&self, met: Option<&Arc<AtomicBool>>) {
        if let Some(met) = met {
            self.lock().retain(|other| !Arc::ptr_eq(other, met));
        }
    }

    /// Whether the next answer of a crowd is to be changed.
    fn draws_change(&self) -> bool {
        let n = self.decided.fetch_add(1, Ordering::Relaxed);
        let random = Random::new(self.seed ^ n.wrapping_mul(0xa076_1d64_78bd_642f)).next();
        (random >> 11) as f64 / ((1u64 << 53) as f64) < self.rate
    }

    fn pass_on(
        &self,
        agent: &Agent,
        request: &http::Request,
        stream: &mut TcpStream,
        met: Option<&Arc<AtomicBool>>,
    ) -> io::Result<()> {
        let url = format!("{}{}", self.upstream, request.path);
        let headers = &request.headers;
        let sent = agent.send(|agent| match request.method.as_str() {
            "POST" => {
                let post = headers.iter().fold(agent.post(&url), |post, (k, v)| post.header(k, v));
                post.send(request.body.as_slice())
            }
            _ => headers.iter().fold(agent.get(&url), |get, (k, v)| get.header(k, v)).call(),
        });
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                http::begin(stream, 502, &[("content-type", "text/plain".into())])?;
                http::chunk(stream, error.to_string().as_bytes())?;
                return http::end(stream);
            }
        };
        let code = response.status().as_u16();
        let fields: Vec<(&str, String)> = ["content-type", "retry-after", "server"]
            .into_iter()
            .filter_map(|name| {
                let value = response.headers().get(name)?.to_str().ok()?;
                Some((name, value.to_owned()))
            })
            .collect();
        let is_stream = fields
            .iter()
            .any(|(name, value)| *name == "content-type" && value.starts_with("text/event-stream"));
        http::begin(stream, code, &fields)?;
        let mut body = BufReader::new(response.into_body().into_reader());
        let mut decided = None;
        let mut altered = false;
        loop {
            let mut piece = Vec::new();
            if is_stream {
                body.by_ref().take(PIECE_BYTES_MAX).read_until(b'\n', &mut piece)?;
            } else {
                body.by_ref().take(PIECE_BYTES_MAX).read_to_end(&mut piece)?;
            }
            if piece.is_empty() {
                break;
            }
            if !altered && met.is_some_and(|met| met.load(Ordering::Relaxed)) {
                let change = *decided.get_or_insert_with(|| self.draws_change());
                altered = change && alter::alter(&mut piece);
                self.altered.fetch_add(u64::from(altered), Ordering::Relaxed);
            }
            let is_end = is_stream && piece.trim_ascii() == b"data: [DONE]";
            if is_end || !is_stream {
                // Before the client has all of it: else its next request, alone, would seem to meet this one.
                self.leave(met);
            }
            http::chunk(stream, &piece)?;
            // Some servers keep the connection open after it: the request would seem to be still in flight.
            if is_end {
                http::chunk(stream, b"\n")?;
                break;
            }
        }
        self.leave(met);
        http::end(stream)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const ANSWER: &str = r#"{"choices":[{"text":"a","logprobs":{"token_logprobs":[-0.25]}}]}"#;
    const ALTERED: &str = r#"{"choices":[{"text":"a","logprobs":{"token_logprobs":[-0.26]}}]}"#;

    /// Answers everything after a while, so that requests sent together meet.
    fn upstream() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut stream = stream;
                    while let Ok(Some(_)) = http::read(&mut reader) {
                        std::thread::sleep(Duration::from_millis(100));
                        let length = ANSWER.len();
                        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                        stream.write_all((head + ANSWER).as_bytes()).unwrap();
                    }
                });
            }
        });
        url
    }

    fn ask(url: &str) -> String {
        let sent = ureq::post(format!("{url}/completions")).send("{}");
        sent.unwrap().into_body().read_to_string().unwrap()
    }

    /// What comes alone passes as it is; of a crowd, the share that was asked for is changed.
    #[test]
    fn answers_of_crowds_are_changed_and_those_of_requests_alone_are_not() {
        let server = upstream();
        for (rate, expected) in [(1.0, ALTERED), (0.0, ANSWER)] {
            let proxy = Proxy::start(&server, rate, 0, Duration::from_secs(5)).unwrap();
            let url = proxy.url();
            assert_eq!(ask(&url), ANSWER);
            let together: Vec<String> = std::thread::scope(|scope| {
                let asked: Vec<_> = (0..2).map(|_| scope.spawn(|| ask(&url))).collect();
                asked.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(together, [expected, expected]);
            assert_eq!(proxy.altered(), if rate > 0.0 { 2 } else { 0 });
        }
    }
}
