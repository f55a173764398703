//! How a server ends.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lockstep::record::Held;
use lockstep::serve::{Limits, Options};
use serde_json::json;

use crate::client::{connect, get, message, post, read};
use crate::limits::{long, wait_for};
use crate::start;

const PATH: &str = "/v1/completions";
const RUNNING: &str = "vllm:num_requests_running";

/// Sends a request, and waits until the engine is at it.
fn under_way(address: SocketAddr, is_stream: bool, tokens: u32) -> TcpStream {
    let mut body = long();
    body["stream"] = is_stream.into();
    body["max_tokens"] = tokens.into();
    let mut stream = connect(address);
    stream.write_all(message("POST", PATH, &body.to_string()).as_bytes()).unwrap();
    wait_for(address, RUNNING, 1.0);
    stream
}

/// Told to stop, a server finishes what it is at, and accepts nothing more.
pub(crate) fn graceful() {
    for is_stream in [false, true] {
        let running = start(Options::default());
        let address = running.address();
        let mut stream = under_way(address, is_stream, 900);
        // A connection that is kept alive holds nothing up.
        let mut idle = connect(address);
        idle.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let reader = std::thread::spawn(move || read(&mut stream).unwrap());
        let begun = Instant::now();
        let ended = running.shutdown().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
        assert_eq!((ended.held, ended.panics), (Held::default(), Vec::new()));
        let answer = reader.join().unwrap();
        if is_stream {
            assert_eq!(answer.pieces().len(), 900);
        } else {
            assert_eq!(answer.ok()["usage"]["completion_tokens"], 900);
        }
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    }
}

/// What is not finished within the grace period ends with an error, and holds nothing.
pub(crate) fn ungraceful() {
    for is_stream in [false, true] {
        let limits = Limits { grace: Duration::ZERO, ..Limits::default() };
        let running = start(Options { limits, ..Options::default() });
        let mut stream = under_way(running.address(), is_stream, 1000);
        let reader = std::thread::spawn(move || read(&mut stream).unwrap());
        let ended = running.shutdown().unwrap();
        assert_eq!((ended.held, ended.panics), (Held::default(), Vec::new()));
        let answer = reader.join().unwrap();
        if is_stream {
            let last = answer.events().pop().unwrap();
            assert!(last.contains("\"code\":\"shutting_down\""), "{last}");
        } else {
            answer.error(503);
            assert!(answer.header("retry-after").is_some());
        }
    }
    // Dropped, it is as if it had never been.
    let running = start(Options::default());
    let address = running.address();
    let _stream = under_way(address, false, 1000);
    drop(running);
    assert!(TcpStream::connect(address).is_err());
}

/// The program says where it is, serves, and ends with exit code 0 when it is told to.
pub(crate) fn signal() {
    let bad: [&[&str]; 5] = [
        &["--port", "70000"],
        &["--device", "hash"],
        &["--mode", "sideways"],
        &["--pool-blocks", "0"],
        &["--max-waiting", "-1"],
    ];
    for arguments in bad {
        let output = program().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(err.starts_with("lockstep: ") && err.lines().count() == 1, "{err}");
    }
    for name in ["INT", "TERM"] {
        let mut child =
            program().args(["--port", "0"]).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let url = line.strip_prefix("lockstep: serving tiny on host, invariant, at http://");
        let address = url.and_then(|url| url.strip_suffix("/v1")).and_then(|a| a.parse().ok());
        let address: SocketAddr = address.unwrap_or_else(|| panic!("no address in {line}"));
        assert!(address.ip().is_loopback());
        assert_eq!(get(address, "/health").status, 200);
        post(address, PATH, &json!({ "prompt": "x" })).ok();
        let kill = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
        assert!(kill.expect("a shell's tool").success());
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(lines.next().map(Result::unwrap), None, "nothing else is said");
    }
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.arg("serve").env_remove("LOCKSTEP_DEVICE").stdin(Stdio::null());
    command
}
