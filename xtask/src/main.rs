//! Tasks of this repository. Run as `cargo xtask TASK`.
//!
//! One file (or folder) a task. A new task is a `mod` line, a variant of [`Task`] and an arm of [`main`]. A task
//! reports what it found on stdout and returns exit code 1 for it; an error (exit code 1, on stderr) means that
//! the task itself could not run. Nothing here is part of the published crate, and nothing in `src/` may need
//! a task to have run: `cargo build` and `cargo test` alone suffice on a fresh machine.

mod bundle;
mod kernels;
mod model;
mod msrv;
mod mutants;
mod openai;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of the Lockstep repository")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the house rules that neither rustc nor clippy checks, the import rule first.
    Tidy,
    /// Fetch a model for tests and examples, and check its digest.
    Model {
        /// Which one.
        name: model::Name,
    },
    /// Fetch OpenAI's client for Python, for the test that asks our server through it.
    Openai,
    /// Compile every kernel without a GPU: registers, spills, digests.
    Kernels {
        /// Fail on a GEMM or attention without matrix instructions, and on inexact instructions.
        #[arg(long)]
        check: bool,
    },
    /// Make a folder of programs and data that runs on a GPU machine with no Rust toolchain.
    Bundle {
        /// Build with optimisation and without assertions.
        #[arg(long)]
        release: bool,
    },
    /// Judge the harness by faults that real engines had, each put into a copy of the tree: the kill score. Exit codes: 0 all
    /// killed, 1 survivors, 2 usage, 3 undecided, 4 the untouched tree is red, 5 stale.
    Mutants(mutants::Arguments),
    /// Check that `rust-version` is at least what every dependency in the lock file asks for.
    Msrv,
}

fn main() -> anyhow::Result<ExitCode> {
    let root = repository_root();
    match Cli::parse().task {
        Task::Tidy => tidy::run(&root),
        Task::Model { name } => model::run(&root, name),
        Task::Openai => openai::run(&root),
        Task::Kernels { check } => kernels::run(&root, check),
        Task::Bundle { release } => bundle::run(&root, release),
        Task::Mutants(arguments) => mutants::run(&root, &arguments),
        Task::Msrv => msrv::run(&root),
    }
}

/// The folder that holds the workspace's `Cargo.toml`. Cargo says at run time where this package is, so a binary
/// from a shared target folder still works on the tree it was started in.
fn repository_root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or_else(|| package.clone(), Path::to_path_buf)
}
