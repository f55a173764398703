//! `cargo xtask msrv`: `rust-version` is at least what every dependency asks for.
//!
//! The lock file decides, for all platforms and all features: normal, build and development dependencies of every
//! member. Whether our own code keeps to `rust-version` is clippy's `incompatible_msrv`, which `.ci/run` denies.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// A Rust version; parts that are not written are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u64, u64, u64);

/// What the members promise and what their dependencies ask for.
#[derive(Debug, PartialEq, Eq)]
struct Demand {
    /// The lowest `rust-version` among the members.
    promised: Version,
    /// The highest among the dependencies.
    asked: Version,
    /// The dependencies that ask for it, `name version`.
    by: Vec<String>,
    /// Dependencies looked at.
    dependencies: usize,
    /// How many of them name no version.
    silent: usize,
}

/// Prints the highest demand and who makes it; exit code 1 if the promise is below it.
pub(crate) fn run(root: &Path) -> anyhow::Result<ExitCode> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    let metadata = serde_json::from_slice(&output.stdout).context("parse cargo metadata")?;
    let Demand { promised, asked, by, dependencies, silent } = demand(&metadata)?;
    println!(
        "msrv: rust-version {promised}; {dependencies} dependencies ({silent} name none) ask for {asked}: {}",
        by.join(", ")
    );
    if promised < asked {
        println!("Cargo.toml:1: `rust-version` {promised} is below {asked}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the output of `cargo metadata`.
fn demand(metadata: &Value) -> anyhow::Result<Demand> {
    let list = |key: &str| metadata[key].as_array().with_context(|| format!("no `{key}`"));
    let members: BTreeSet<&str> =
        list("workspace_members")?.iter().filter_map(Value::as_str).collect();
    let (mut promised, mut asked) = (None, Version(0, 0, 0));
    let (mut by, mut dependencies, mut silent) = (Vec::new(), 0, 0);
    for package in list("packages")? {
        let text = |key: &str| package[key].as_str();
        let name = format!("{} {}", text("name").unwrap_or("?"), text("version").unwrap_or("?"));
        let version = text("rust_version").map(Version::parse).transpose().context(name.clone())?;
        if text("id").is_some_and(|id| members.contains(id)) {
            let version = version.with_context(|| format!("{name} has no `rust-version`"))?;
            promised = promised.min(Some(version)).or(Some(version));
            continue;
        }
        dependencies += 1;
        match version {
            None => silent += 1,
            Some(version) if version > asked => (asked, by) = (version, vec![name]),
            Some(version) if version == asked => by.push(name),
            Some(_) => {}
        }
    }
    let promised = promised.context("no members")?;
    Ok(Demand { promised, asked, by, dependencies, silent })
}

impl Version {
    fn parse(text: &str) -> anyhow::Result<Version> {
        let mut parts = [0; 3];
        for (part, digits) in parts.iter_mut().zip(text.split('.')) {
            *part = digits.parse().with_context(|| format!("`{text}` is no Rust version"))?;
        }
        Ok(Version(parts[0], parts[1], parts[2]))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Version(major, minor, 0) => write!(f, "{major}.{minor}"),
            Version(major, minor, patch) => write!(f, "{major}.{minor}.{patch}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, rust_version: Option<&str>) -> Value {
        json!({ "name": name, "version": "1.0.0", "id": name, "rust_version": rust_version })
    }

    #[test]
    fn the_highest_demand_is_named_with_all_who_make_it() {
        let metadata = json!({
            "workspace_members": ["lockstep", "xtask"],
            "packages": [
                package("lockstep", Some("1.88")),
                package("xtask", Some("1.90")),
                package("old", Some("1.9")),
                package("new", Some("1.88.1")),
                package("twin", Some("1.88.1")),
                package("silent", None),
            ],
        });
        let demand = demand(&metadata).unwrap();
        assert_eq!(demand.promised, Version(1, 88, 0), "the lowest member counts");
        assert_eq!(demand.asked, Version(1, 88, 1), "versions compare as numbers");
        assert_eq!(demand.by, ["new 1.0.0", "twin 1.0.0"]);
        assert_eq!((demand.dependencies, demand.silent), (4, 1));
        assert!(demand.promised < demand.asked);
    }

    #[test]
    fn a_member_without_rust_version_is_an_error() {
        let metadata = json!({ "workspace_members": ["a"], "packages": [package("a", None)] });
        assert!(demand(&metadata).unwrap_err().to_string().contains("no `rust-version`"));
    }

    #[test]
    fn versions_print_as_they_are_written() {
        for text in ["1.88", "1.88.1"] {
            assert_eq!(Version::parse(text).unwrap().to_string(), text);
        }
        assert!(Version::parse("nightly").is_err());
    }
}
