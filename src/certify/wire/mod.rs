//! The only part that speaks HTTP: requests as a server wants them, answers as it sent them.
//!
//! Everything read has a limit in size and in time. Nothing is sent twice, no redirect is followed, and what went wrong is
//! said in one line that never holds the key.

pub(crate) mod answer;
pub(crate) mod client;
pub(super) mod decimal;
mod error;
mod read;
pub(crate) mod request;

pub(crate) use answer::{Answer, Key, Token};
pub(crate) use client::{Client, Exchange};
pub(crate) use error::WireError;
pub(crate) use request::{Call, Cold, Dialect, Prompt, Route, Sampling};
