//! The harness: campaigns over generated cases, shrinking, case files, and trials for `cargo test`.

pub mod campaign;
pub mod ledger;
pub mod localise;
pub mod persist;
pub mod policy;
pub mod shrink;
pub mod stored;
pub mod tally;
pub mod trials;
mod turns;

pub use campaign::{Campaign, Failure, Progress, Report, Verdict};
pub use shrink::{ShrinkBudget, Shrunk};
pub use tally::Tally;
pub use trials::Suite;
