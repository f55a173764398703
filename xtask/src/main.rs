//! Tasks of this repository. Run as `cargo xtask TASK`.

mod model;

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
    /// Fetch a small model for tests into `target/models` and print its path.
    Model { name: model::Name },
}

fn main() -> anyhow::Result<ExitCode> {
    let root = repository_root();
    match Cli::parse().task {
        Task::Model { name } => model::run(&root, name),
    }
}

/// The folder that holds the workspace's `Cargo.toml`. Cargo says at run time where this package is, so a binary
/// from a shared target folder still works on the tree it was started in.
fn repository_root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or_else(|| package.clone(), Path::to_path_buf)
}
