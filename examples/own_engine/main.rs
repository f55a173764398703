//! How to test an engine of your own.
//!
//! `engine.rs` implements `Subject` for a toy engine, `suite.rs` is the test target: put the like of it into
//! `tests/relations.rs` of your crate with `harness = false`. Run `cargo run --example own_engine`, and
//! `cargo run --example own_engine -- leak` to see what a leak between requests looks like.

mod engine;
mod suite;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().collect();
    // A test target has no such word; here the first one may name a fault.
    let mut fault = engine::Fault::None;
    if words.get(1).is_some_and(|word| !word.starts_with('-')) {
        let word = words.remove(1);
        let Some(named) = engine::Fault::from_name(&word) else {
            eprintln!(
                "unknown fault {word:?}, expected none, leak, sequential, unrepeatable, blind, \
                 crash, panic or boastful"
            );
            return ExitCode::from(2);
        };
        fault = named;
    }
    let arguments = Arguments::from_iter(words);
    suite::run(&arguments, fault, "target/lockstep/own_engine".into())
}
