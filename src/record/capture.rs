//! What an execution keeps in full when it is asked to: values for reports and for references, besides the digests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Serialize;

use crate::workload::SampleId;

/// What to keep in full. It changes no bit of an execution, and no digest of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Sample of a request; `None` for all.
    pub id: Option<SampleId>,
    /// Positions, of those that are computed.
    pub positions: Range<u32>,
    /// [Sites](super::sites::Site), by their numbers in the order of computation.
    pub sites: BTreeSet<usize>,
    /// Whether f32 logits are kept.
    pub logits: bool,
    /// Whether the launches at those sites are kept too, and the partial results of those that split a reduction: each is
    /// computed once more for it.
    pub parts: bool,
}

impl Capture {
    /// The logits of one position of a sample.
    pub fn logits_at(id: SampleId, position: u32) -> Capture {
        Capture {
            id: Some(id),
            positions: position..position + 1,
            logits: true,
            ..Capture::default()
        }
    }

    /// Whether a row is asked for.
    pub fn wants(&self, id: SampleId, position: u32) -> bool {
        self.id.is_none_or(|asked| asked == id) && self.positions.contains(&position)
    }
}

/// A computed position that a [`Capture`] asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapturedRow {
    /// Residency in which it was computed, from 1.
    pub residency: u32,
    /// Position in the sequence.
    pub position: u32,
    /// The f32 logits, `[vocab]`; empty if they were not asked for.
    pub logits: Vec<f32>,
    /// What was kept of each site; nothing where the device holds no numbers.
    pub sites: BTreeMap<usize, CapturedSite>,
}

/// What was kept of a site, of one row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapturedSite {
    /// The f32 results before they are rounded, in logical column order.
    pub values: Vec<f32>,
    /// How the operator was launched, if that was asked for and the engine knows.
    pub launch: Option<LaunchNote>,
    /// Partial results of a split reduction, ascending, each as wide as the values: the chain of a split for a GEMM, the
    /// normalised result of a split alone for attention. Empty if they were not asked for, or can't be read.
    pub parts: Vec<Vec<f32>>,
}

/// How an operator was launched for a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LaunchNote {
    /// The row in its step, from 0.
    pub row: u32,
    /// Rows of the step, padding included.
    pub rows: u32,
    /// Padding rows among them.
    pub padding: u32,
    /// Sequences of the step.
    pub sequences: u32,
    /// What the launch chose that may not change a bit, in words; empty for an operator with one variant.
    pub variant: &'static str,
    /// What it was given that decides bits.
    pub order: Order,
}

/// The order of a reduction, as far as a launch says it (docs/contract.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The operator has only one.
    #[default]
    Fixed,
    /// Cuts of K in elements, from 0 to K.
    Cuts(Vec<u32>),
    /// Positions per split of an attention.
    Split(u32),
    /// Accumulator lanes of a norm.
    Lanes(u32),
}
