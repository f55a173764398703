//! What a server was asked: tests of what the client sends read it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    /// Null where it was no JSON.
    pub(crate) body: Value,
    /// When the connection was opened, and when the request had been read.
    pub(crate) opened: Instant,
    pub(crate) read: Instant,
    /// The client's address, without its port.
    pub(crate) client: String,
    /// Counts the connections.
    pub(crate) connection: u64,
}

impl Asked {
    pub(crate) fn is_completion(&self) -> bool {
        self.path.split('?').next().is_some_and(|path| path.ends_with("/completions"))
    }
}

#[derive(Default)]
pub(crate) struct Log(Mutex<Vec<Asked>>);

impl Log {
    pub(crate) fn add(&self, asked: Asked) {
        self.0.lock().expect("no thread panics with the log").push(asked);
    }

    pub(crate) fn all(&self) -> Vec<Asked> {
        self.0.lock().expect("no thread panics with the log").clone()
    }
}
