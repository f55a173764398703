//! The sampler's distribution, against exact probabilities, and the independence of its draws.
//!
//! Goal: faults that are the same in every execution, so that no relation sees them: a sampler that ignores its seed, keeps
//! a token too many, squares the temperature. Method: chi-square of many draws of the device's operator, and of the engine,
//! against [`exact`], which has the probabilities in f64 from the definitions alone. Seeds are fixed, so a test passes or
//! fails for good; had they been drawn, a right sampler would fail one of them in about ten thousand runs
//! ([`check::SIGNIFICANCE`]).

#[path = "../support/altered.rs"]
mod altered;
mod check;
mod engine;
mod exact;
mod operator;
