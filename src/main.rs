//! The `lockstep` command: wiring between arguments, the fixture and the harness.
//!
//! Exit codes: 0 held, 1 broken, 2 usage or bad input, 3 could not decide.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
