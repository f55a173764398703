//! What shows the difference again without Lockstep: `curl` lines, and a file for pytest.
//!
//! Both ask the request alone, then in its crowd until the answers differ, and fail if they do; on a server without the fault
//! they pass. Bodies are written as the JSON that was sent, where no character of it can end its quotes; a key is read from
//! the environment of whoever runs them, and never written.

mod curl;
mod pytest;

use super::certificate::{Certificate, Divergence, Sent};
use super::stats;
use super::text::{clean, seen};

/// Name of the script with `curl` lines.
pub const SHELL_FILE: &str = "reproduce.sh";
/// Name of the file for pytest.
pub const PYTHON_FILE: &str = "test_reproduce.py";
/// Crowds that a reproducer asks, at least and at most.
const TRIES: (u64, u64) = (20, 200);

/// Two files that each fail while the difference is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reproducer {
    /// Contents of [`SHELL_FILE`].
    pub shell: String,
    /// Contents of [`PYTHON_FILE`].
    pub python: String,
}

/// Of the difference that was shrunk, or else of the first in a crowd. `Err` says why there is none.
pub fn reproducer(certificate: &Certificate) -> Result<Reproducer, String> {
    let all = &certificate.divergences;
    if all.is_empty() {
        return Err("nothing differed".into());
    }
    let shrunk = all.iter().find(|divergence| divergence.shrunk.is_some());
    let Some(divergence) = shrunk.or_else(|| all.iter().find(|d| d.sent > 1)) else {
        return Err(
            "nothing differed in a crowd: the requests of other arms are in the certificate".into(),
        );
    };
    let case = Case::new(certificate, divergence);
    Ok(Reproducer { shell: curl::script(&case), python: pytest::file(&case) })
}

/// What both are made of.
struct Case<'a> {
    url: &'a str,
    request: &'a Sent,
    neighbours: &'a [Sent],
    place: usize,
    delays_ms: &'a [u64],
    tries: u64,
    /// Lines of a comment, each without a character that could end it.
    header: Vec<String>,
}

impl<'a> Case<'a> {
    fn new(certificate: &'a Certificate, divergence: &'a Divergence) -> Case<'a> {
        let difference =
            divergence.shrunk.as_ref().map_or(&divergence.difference, |s| &s.difference);
        let place = difference.position.map_or("answer".into(), |at| format!("position {at}"));
        let server = &certificate.server;
        let mut header = vec![
            format!(
                "lockstep {}: model {} at {}",
                certificate.tool.version, server.model, server.url
            ),
            format!("arm {}: {}", divergence.arm, divergence.arm.statement()),
            format!(
                "{place}, {}: alone {}, in a crowd {}",
                difference.observable.words(),
                seen(&difference.expected),
                seen(&difference.got)
            ),
        ];
        let (request, neighbours, place, delays_ms, [n, of]) = match &divergence.shrunk {
            Some(s) => (&s.request, &s.neighbours, s.place, &s.delays_ms, s.seen),
            None => (
                &divergence.request,
                &divergence.neighbours,
                divergence.place,
                &divergence.delays_ms,
                divergence.seen,
            ),
        };
        header.extend(divergence.shrunk.as_ref().map(|shrunk| shrunk.words()));
        // Others time their requests otherwise, so a share that was seen is no promise: a tenth of it is enough.
        let rate = (n as f64 / of.max(1) as f64 / 10.0).clamp(0.01, 0.5);
        Case {
            url: &server.url,
            request,
            neighbours,
            place: place as usize,
            delays_ms,
            tries: stats::trials_for(rate, 0.99).clamp(TRIES.0, TRIES.1),
            header: header.iter().map(|line| format!("# {}", clean(line))).collect(),
        }
    }
}

/// A template with each line `#@ name` replaced by the lines of that name.
fn fill(template: &str, lines_of: impl Fn(&str) -> Vec<String>) -> String {
    let mut out = String::new();
    for line in template.lines() {
        match line.trim_start().strip_prefix("#@ ") {
            None => {
                out.push_str(line);
                out.push('\n');
            }
            Some(name) => {
                for line in lines_of(name) {
                    out.push_str(&line);
                    out.push('\n');
                }
            }
        }
    }
    out
}

/// A body without what asks for a stream: both read whole answers.
fn plain(sent: &Sent) -> String {
    let mut body = sent.body.clone();
    if let Some(body) = body.as_object_mut() {
        body.remove("stream");
        body.remove("stream_options");
    }
    body.to_string()
}
