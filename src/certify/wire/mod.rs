//! The only part that speaks HTTP: requests as a server wants them, answers as it sent them.
//!
//! Everything read has a limit in size and in time. Nothing is sent twice, no redirect is followed, and what went wrong is
//! said in one line that never holds the key.

pub(crate) mod address;
pub(super) mod agent;
pub(crate) mod answer;
mod assembly;
pub(crate) mod client;
pub(super) mod decimal;
mod document;
pub(crate) mod ending;
mod error;
#[cfg(test)]
pub(super) mod fake;
pub(super) mod hidden;
mod marks;
mod no_proxy;
mod read;
pub(crate) mod request;
mod spelling;
mod trust;

pub(crate) use address::Address;
pub(crate) use answer::{Answer, Key, Records, Token};
pub(crate) use client::{Client, Exchange};
pub(crate) use ending::Endings;
pub(crate) use error::WireError;
pub(crate) use request::{Call, Cold, Dialect, Prompt, Route, Sampling, Terms};
