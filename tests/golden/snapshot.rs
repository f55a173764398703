//! A snapshot in `golden/`: what is compared with it, and how a new one is proposed.

use std::cell::Cell;
use std::fmt::Write as _;
use std::panic::{self, AssertUnwindSafe};

use libtest_mimic::Failed;
use lockstep::contract::{Dtype, MatrixUnit};
use lockstep::relation::g1::Table;

use super::golden;

/// The snapshot of a preset, a dtype and a matrix unit.
pub(crate) struct Snapshot {
    name: String,
    description: String,
}

impl Snapshot {
    pub(crate) fn new(preset: &str, dtype: Dtype, unit: MatrixUnit) -> Snapshot {
        let MatrixUnit { terms, fraction_bits } = unit;
        let source = match unit {
            MatrixUnit::SM90 => {
                "of sm_90, as measured on an H200; the same on the host and on a GPU"
            }
            _ => "of sm_80; derived on the host, not verified on hardware",
        };
        let of = dtype.name();
        Snapshot {
            name: golden::name(preset, dtype, unit),
            description: format!(
                "{preset}, {of}, matrix unit {{{terms},{fraction_bits}}} {source}"
            ),
        }
    }

    /// Both paths against the snapshot. Where the prompts alone came to something else, that is proposed as a new one.
    pub(crate) fn judge(&self, alone: &Table, served: &Table) -> Result<(), Failed> {
        let mut report = String::new();
        let between = alone.differences(served);
        match golden::committed(&self.name) {
            Err(why) => report = format!("{why}\n"),
            Ok(committed) => {
                list(&mut report, "alone", &committed.differences(alone));
                list(&mut report, "served", &committed.differences(served));
            }
        }
        if report.is_empty() {
            return Ok(());
        }
        if between.is_empty() {
            self.propose(alone, &mut report);
        } else {
            list(&mut report, "served, against alone", &between);
            report += "no snapshot is proposed: the two paths differ\n";
        }
        Err(report.into())
    }

    /// Some prompts alone against the snapshot's lines of the same prompts.
    pub(crate) fn holds_part(&self, alone: &Table) -> Result<(), Failed> {
        let mut committed = golden::committed(&self.name)?;
        committed.lines.truncate(alone.lines.len());
        let mut report = String::new();
        list(&mut report, "alone", &committed.differences(alone));
        if report.is_empty() { Ok(()) } else { Err(report.into()) }
    }

    /// Lets insta write the table beside the snapshot, for review.
    fn propose(&self, table: &Table, report: &mut String) {
        if let Some(update) = overwriting() {
            let _ = writeln!(
                report,
                "INSTA_UPDATE={update} is refused: snapshots change by review alone"
            );
            return;
        }
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(golden::folder());
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.set_description(&self.description);
        let text = table.to_string();
        let assert = || settings.bind(|| insta::assert_snapshot!(self.name.as_str(), text));
        QUIET.set(true);
        // It has been decided already; this is for what insta writes.
        let _ = panic::catch_unwind(AssertUnwindSafe(assert));
        QUIET.set(false);
        let pending = golden::path(&self.name).with_extension("snap.new");
        if pending.exists() {
            let _ = writeln!(
                report,
                "proposed: {}; read golden/README.md, then `cargo insta review`",
                pending.display()
            );
        }
    }
}

/// The setting of insta by which a run would overwrite snapshots that nobody has looked at.
fn overwriting() -> Option<String> {
    let update = std::env::var("INSTA_UPDATE").ok()?;
    ["always", "1", "force", "unseen"].contains(&update.as_str()).then_some(update)
}

fn list(report: &mut String, path: &str, differences: &[String]) {
    const SHOWN: usize = 8;
    for difference in differences.iter().take(SHOWN) {
        let _ = writeln!(report, "{path}: {difference}");
    }
    if differences.len() > SHOWN {
        let _ = writeln!(report, "{path}: and {} more", differences.len() - SHOWN);
    }
}

thread_local! {
    /// Whether a panic of this thread is insta's way to end.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Keeps insta's panics, which are caught, off stderr.
pub(crate) fn silence_insta() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !QUIET.get() {
            before(info);
        }
    }));
}
