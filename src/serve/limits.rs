//! Limits on everything that clients decide.

use std::time::Duration;

/// What a server takes from its clients, and how long it waits for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body of a request, in bytes; more is answered 413.
    pub body_bytes_max: usize,
    /// Connections at a time; further ones wait to be accepted.
    pub connections_max: usize,
    /// Sequences that the engine is given at a time.
    pub running_max: usize,
    /// Rows of a step, over all sequences: they bound its memory, the logits' above all. Longer prompts are computed in several
    /// steps, which changes no bit.
    pub step_rows_max: u32,
    /// Sequences that are accepted and not resident; while there are as many, further requests are answered 429.
    pub waiting_max: usize,
    /// Time in which the head of a request must have come, also on a connection that is kept alive.
    pub head_timeout: Duration,
    /// Time in which its body must have come; else 408.
    pub body_timeout: Duration,
    /// Time in which a request must have been answered, waiting included; else 504.
    pub request_timeout: Duration,
    /// Time in which a client must have taken something of what is written to it.
    pub write_timeout: Duration,
    /// Time that open requests are given when the server is told to stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes_max: 1 << 20,
            connections_max: 512,
            running_max: 256,
            step_rows_max: 1024,
            waiting_max: 256,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(600),
            write_timeout: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

/// Most prompts of one request.
pub(super) const PROMPTS_MAX: usize = 64;
/// Most choices of one request, over all its prompts.
pub(super) const CHOICES_MAX: usize = 128;
/// Most messages of a conversation.
pub(super) const MESSAGES_MAX: usize = 1024;
/// Longest `cache_salt`, in bytes.
pub(super) const SALT_BYTES_MAX: usize = 256;
/// Most salts that are remembered.
pub(super) const SALTS_MAX: usize = 1024;

impl Limits {
    /// Checks that something can be served within them; the error is one line.
    pub(super) fn validate(&self) -> Result<(), String> {
        let counts = [
            ("body bytes", self.body_bytes_max),
            ("connections", self.connections_max),
            ("running sequences", self.running_max),
            ("rows of a step", self.step_rows_max as usize),
            ("waiting sequences", self.waiting_max),
        ];
        if let Some((what, _)) = counts.iter().find(|(_, most)| *most == 0) {
            return Err(format!("the limit of {what} is 0, must be at least 1"));
        }
        let times = [
            ("head", self.head_timeout),
            ("body", self.body_timeout),
            ("request", self.request_timeout),
            ("write", self.write_timeout),
        ];
        match times.iter().find(|(_, time)| time.is_zero()) {
            Some((what, _)) => Err(format!("the {what} timeout is 0, must be longer")),
            None => Ok(()),
        }
    }
}
