//! `cargo xtask mutants`: whether the harness catches the faults that real engines had.
//!
//! Each file below `mutants/` replaces a text of the source. One copy of the tree is built in which every mutant is a
//! choice at run time; then a process a mutant runs cases in a fixed order until an expected observer sees a difference.
//! Production has nothing of it: the choice exists in the copy alone.

mod campaign;
mod format;
mod kernels;
mod matrix;
mod process;
mod programs;
mod schemata;
mod table;
mod tree;
mod verdict;
mod watchers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use campaign::{Campaign, Clean, Device, Settings, Unclean};
use format::Target;
use matrix::Table;
use programs::{JUDGE, Programs};
use schemata::Numbered;
use verdict::{Exit, Row, Verdict};

/// Seed of every campaign's cases.
const SEED: u64 = 0;
/// Cases a stage.
const CASES: u64 = 400;
/// Cases a row of the matrix.
const MATRIX_CASES: u64 = 150;
/// Cases a stage of the quick subset.
const QUICK_CASES: u64 = 120;
/// The quick subset: one mutant or two of each part of the engine, each seen by another observer.
const QUICK: [&str; 9] = [
    "blocks_come_back_rotated",
    "copy_missing",
    "draw_keyed_on_the_row",
    "last_token_of_a_block_ignored",
    "leaked_shared_reference",
    "resume_starts_at_one",
    "seed_ignored",
    "splits_of_head_follow_the_rows",
    "tail_of_the_last_chunk_unseen",
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Mutants by name; all by default.
    ids: Vec<String>,
    /// Print the mutants and stop.
    #[arg(long)]
    list: bool,
    /// Parse, apply and build all, compile the kernels and compare their CUBINs; judge nothing. Needs no GPU.
    #[arg(long)]
    check: bool,
    /// With --check, parse and apply all, and build nothing: seconds.
    #[arg(long, requires = "check", conflicts_with_all = ["bundle", "from"])]
    no_build: bool,
    /// Ask each relation of each mutant too, up to the first case that breaks it.
    #[arg(long)]
    matrix: bool,
    /// A few mutants and few cases, for CI.
    #[arg(long, conflicts_with_all = ["ids", "shard", "bundle"])]
    quick: bool,
    /// The k-th of n parts of the list, as `k/n`, from 1.
    #[arg(long, value_parser = shard)]
    shard: Option<(usize, usize)>,
    /// Write the rows and scores as JSON (lockstep.mutants/1.0).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Judge Rust and harness mutants on the host, or kernel mutants on a GPU.
    #[arg(long, value_enum, default_value = "host")]
    device: Device,
    /// Cases a stage [default: 400, and 150 of the matrix].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    cases: Option<u64>,
    /// Switch the engine's audits off, to see what the relations see alone.
    #[arg(long)]
    no_audits: bool,
    /// Forget results of earlier runs.
    #[arg(long)]
    fresh: bool,
    /// Children at once [default: all cores].
    #[arg(long)]
    jobs: Option<usize>,
    /// Make a folder with the programs of a campaign, for a machine with no Rust toolchain, and stop.
    #[arg(long, value_name = "FOLDER", conflicts_with = "from")]
    bundle: Option<PathBuf>,
    /// Run the campaign of such a folder.
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,
}

fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    match parts {
        Some((k, n)) if 1 <= k && k <= n => Ok((k, n)),
        _ => Err("expected k/n with 1 <= k <= n".into()),
    }
}

/// Runs the task. Its exit codes are those of [`Exit`].
pub(crate) fn run(root: &Path, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let exit = match task(root, arguments) {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("mutants: {error:#}");
            Exit::Usage
        }
    };
    Ok(ExitCode::from(exit as u8))
}

fn task(root: &Path, arguments: &Arguments) -> anyhow::Result<Exit> {
    let home = arguments.from.as_deref().unwrap_or(root);
    let mutants = format::read_all(&home.join("mutants"))?;
    let numbered: Vec<Numbered<'_>> =
        mutants.iter().zip(1..).map(|(mutant, number)| Numbered { number, mutant }).collect();
    let chosen = choose(&numbered, arguments)?;
    if arguments.list {
        for Numbered { mutant, .. } in &chosen {
            println!(
                "{:<40} {:<4} {:<8} {}",
                mutant.id,
                mutant.kind,
                mutant.target.name(),
                mutant.file
            );
        }
        return Ok(Exit::Killed);
    }
    if let Some(folder) = &arguments.from {
        return from_bundle(folder, &chosen, arguments);
    }
    let stale = format::stale(&mutants, root)?;
    for (id, what) in &stale {
        println!("stale: {id}: {what}");
    }
    let is_fine = |n: &&Numbered<'_>| stale.iter().all(|(id, _)| *id != n.mutant.id);
    let fine: Vec<_> = numbered.iter().filter(is_fine).copied().collect();
    let folder = root.join("target").join("mutants");
    let copy = tree::copy(root, &folder.join("tree"), &fine)?;
    if arguments.no_build {
        println!("{} mutants parse and apply", fine.len());
        return Ok(if stale.is_empty() { Exit::Killed } else { Exit::Stale });
    }
    let target = programs::target_folder(root)?;
    let needed = targets(&chosen, arguments);
    let needed: Vec<&str> = needed.iter().map(String::as_str).collect();
    let (programs, refused) = programs::build(&copy, &target, &fine, &needed)?;
    for (id, error) in &refused {
        println!("does not compile: {id}\n{error}");
    }
    ensure!(refused.is_empty(), "{} mutants do not compile", refused.len());
    if let Some(to) = &arguments.bundle {
        bundle(root, to, &programs, copy.digest)?;
        return Ok(if stale.is_empty() { Exit::Killed } else { Exit::Stale });
    }
    if arguments.check {
        let kernels = chosen.iter().filter(|n| n.mutant.target == Target::Kernel).copied();
        let kernels: Vec<_> = kernels.filter(|n| is_fine(&n)).collect();
        let same = kernels::check(root, &programs[JUDGE], &folder, &kernels)?;
        println!("{} mutants parse, apply and compile", fine.len());
        return Ok(match (stale.is_empty(), same) {
            (false, _) => Exit::Stale,
            (true, false) => Exit::Undecided,
            (true, true) => Exit::Killed,
        });
    }
    let plain = match arguments.device {
        Device::Host => Some(programs::build_plain(root)?),
        Device::Cuda => None,
    };
    let campaign = campaign(&folder, arguments, programs, copy.digest);
    let stale_rows = |n: &Numbered<'_>| {
        let found = stale.iter().find(|(id, _)| *id == n.mutant.id);
        found.map(|(_, what)| Row::new(n.mutant, Verdict::Stale, what.clone()))
    };
    judge(&campaign, &chosen, &stale_rows, plain.as_deref(), arguments)
}

/// The mutants that were asked for.
fn choose<'m>(
    numbered: &[Numbered<'m>],
    arguments: &Arguments,
) -> anyhow::Result<Vec<Numbered<'m>>> {
    for id in &arguments.ids {
        ensure!(numbered.iter().any(|n| n.mutant.id == *id), "no mutant is called {id}");
    }
    let named = |n: &&Numbered<'_>| match arguments.quick {
        true => QUICK.contains(&n.mutant.id.as_str()),
        false => arguments.ids.is_empty() || arguments.ids.contains(&n.mutant.id),
    };
    let (k, n) = arguments.shard.unwrap_or((1, 1));
    let chosen = numbered.iter().filter(named).enumerate();
    Ok(chosen.filter(|(at, _)| at % n == k - 1).map(|(_, numbered)| *numbered).collect())
}

/// Test targets that judge the chosen mutants.
fn targets(chosen: &[Numbered<'_>], arguments: &Arguments) -> Vec<String> {
    let mut targets = vec![JUDGE.to_owned()];
    let device = arguments.device;
    let is_judged = !arguments.check && arguments.bundle.is_none();
    let judged = chosen.iter().filter(|n| is_judged && device.judges(n.mutant.target));
    for test in judged.flat_map(|n| watchers::tests_of(n.mutant, device)) {
        let target = test.split('/').next().unwrap_or(test).to_owned();
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    targets
}

fn campaign<'c>(
    folder: &'c Path,
    arguments: &Arguments,
    programs: Programs,
    digest: u64,
) -> Campaign<'c> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // A GPU is shared by as many contexts as there are children.
    let usual = if arguments.device == Device::Cuda { cores.min(4) } else { cores };
    let usual_cases = if arguments.quick { QUICK_CASES } else { CASES };
    Campaign {
        device: arguments.device,
        settings: Settings {
            cases: arguments.cases.unwrap_or(usual_cases),
            audits: !arguments.no_audits,
            seed: SEED,
        },
        programs,
        digest,
        folder,
        jobs: arguments.jobs.unwrap_or(usual),
        variables: vec![("LOCKSTEP_CUBIN_CACHE".into(), folder.join("cubin"))],
    }
}

/// Clean control, rows, table, file.
fn judge(
    campaign: &Campaign<'_>,
    chosen: &[Numbered<'_>],
    stale: &dyn Fn(&Numbered<'_>) -> Option<Row>,
    plain: Option<&Path>,
    arguments: &Arguments,
) -> anyhow::Result<Exit> {
    let device = arguments.device;
    if arguments.fresh {
        let _ = fs::remove_dir_all(campaign.folder.join("results"));
    }
    let here: Vec<_> = chosen.iter().filter(|n| device.judges(n.mutant.target)).copied().collect();
    let mut rows: Vec<Row> = here.iter().filter_map(stale).collect();
    let fine: Vec<_> = here.iter().filter(|n| stale(n).is_none()).copied().collect();
    let clean = match campaign.clean(&fine, plain)? {
        Ok(clean) => clean,
        Err(Unclean::Red(why)) => {
            println!("the clean control is red, nothing is scored: {why}");
            return Ok(Exit::Baseline);
        }
        Err(Unclean::Undecided(why)) => {
            println!("could not decide: {}", why.trim());
            return Ok(Exit::Undecided);
        }
    };
    println!("clean control: held; {} mutants", here.len());
    let done = |row: &Row| println!("{}", table::line(row));
    rows.extend(campaign.run(&fine, &clean, true, &done)?);
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    let matrix = match arguments.matrix {
        true => Some(matrix(campaign, &fine, &clean, &rows, arguments)?),
        false => None,
    };
    print!("{}", table::summary(device.name(), &rows));
    let elsewhere = chosen.len() - here.len();
    if elsewhere > 0 {
        println!("{elsewhere} mutants are judged on another device");
    }
    if let Some(path) = &arguments.json {
        let mut document = verdict::document(device.name(), &rows);
        if let Some(matrix) = matrix {
            document["matrix"] = matrix;
        }
        let text = serde_json::to_string_pretty(&document)? + "\n";
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(verdict::exit(&rows))
}

/// Every relation on every mutant of the engine: printed, and as JSON.
fn matrix(
    campaign: &Campaign<'_>,
    mutants: &[Numbered<'_>],
    clean: &Clean,
    rows: &[Row],
    arguments: &Arguments,
) -> anyhow::Result<Value> {
    let engine = mutants.iter().filter(|n| n.mutant.target != Target::Harness);
    let engine: Vec<_> = engine.copied().collect();
    let cases = arguments.cases.unwrap_or(MATRIX_CASES);
    let started = Instant::now();
    let done = AtomicUsize::new(0);
    let progress = |id: &str| {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        println!("matrix {done}/{} {id}", engine.len());
    };
    let broken = campaign.matrix(&engine, clean, cases, &progress)?;
    let table = Table {
        columns: clean.held.iter().map(String::as_str).chain(["panic", "liveness"]).collect(),
        rows: engine.iter().map(|n| n.mutant).zip(broken).collect(),
    };
    print!("{}", table.text(rows));
    println!("matrix of {cases} cases a device in {} s", started.elapsed().as_secs());
    Ok(json!({"cases": cases, "columns": table.columns, "rows": table.json()}))
}

/// Programs, mutants and the digest of the tree, in a folder.
fn bundle(root: &Path, to: &Path, programs: &Programs, digest: u64) -> anyhow::Result<()> {
    let mutants = to.join("mutants");
    fs::create_dir_all(&mutants).with_context(|| format!("creating {}", mutants.display()))?;
    for mutant in format::read_all(&root.join("mutants"))? {
        fs::write(mutants.join(format!("{}.mutant", mutant.id)), mutant.text)?;
    }
    fs::write(to.join("digest.txt"), format!("{digest}\n"))?;
    let judge = to.join("judge");
    fs::copy(&programs[JUDGE], &judge).with_context(|| format!("copying {}", judge.display()))?;
    crate::bundle::strip(&judge);
    let task = std::env::current_exe().context("this program has a path")?;
    let own = to.join("xtask");
    fs::copy(&task, &own).with_context(|| format!("copying {}", own.display()))?;
    crate::bundle::strip(&own);
    println!("{}", to.display());
    Ok(())
}

/// Runs the campaign of a folder that [`bundle`] made.
fn from_bundle(
    folder: &Path,
    chosen: &[Numbered<'_>],
    arguments: &Arguments,
) -> anyhow::Result<Exit> {
    if arguments.check {
        bail!("a bundle has no source: --check needs the repository");
    }
    let digest = fs::read_to_string(folder.join("digest.txt"));
    let digest = digest.with_context(|| format!("{} is no bundle", folder.display()))?;
    let folder = fs::canonicalize(folder)?;
    let programs = Programs::from([(JUDGE.to_owned(), folder.join("judge"))]);
    let engine: Vec<_> =
        chosen.iter().filter(|n| n.mutant.target != Target::Harness).copied().collect();
    let work = folder.join("work");
    let campaign = campaign(&work, arguments, programs, digest.trim().parse()?);
    judge(&campaign, &engine, &|_| None, None, arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_list_are_read() {
        assert_eq!(shard("1/3"), Ok((1, 3)));
        assert_eq!(shard("3/3"), Ok((3, 3)));
        for text in ["0/3", "4/3", "1", "a/b", "1/0"] {
            assert!(shard(text).is_err(), "{text}");
        }
    }

    /// Goal: the quick subset asks for mutants that there are.
    #[test]
    fn the_quick_subset_names_mutants_of_the_host() {
        let mutants = format::read_all(&crate::repository_root().join("mutants")).unwrap();
        for id in QUICK {
            let mutant = mutants.iter().find(|m| m.id == id);
            assert!(mutant.is_some_and(|m| Device::Host.judges(m.target)), "{id}");
        }
    }

    /// The tree's own mutants are sound: this runs with `cargo test`, so that a change of the source that makes one stale
    /// is seen before CI.
    #[test]
    fn every_mutant_of_the_tree_parses_and_applies() {
        let root = crate::repository_root();
        let mutants = format::read_all(&root.join("mutants")).unwrap();
        assert!(!mutants.is_empty());
        assert_eq!(format::stale(&mutants, &root).unwrap(), []);
        let files: std::collections::BTreeSet<&str> =
            mutants.iter().map(|m| m.file.as_str()).filter(|f| f.ends_with(".rs")).collect();
        for file in files {
            let text = fs::read_to_string(root.join(file)).unwrap();
            let of_file = mutants.iter().zip(1..).filter(|(m, _)| m.file == file);
            let numbered: Vec<_> =
                of_file.map(|(mutant, number)| Numbered { number, mutant }).collect();
            schemata::build(&text, &numbered).unwrap();
        }
    }
}
