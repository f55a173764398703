//! What an output is compared with, and how it can be had again.

use crate::case::Case;
use crate::workload::SampleId;

/// What a sample's output is compared with. A divergence keeps it, so that both sides can be carried out once more.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Standard {
    /// The canonical execution of the sample.
    #[default]
    Canonical,
    /// A plain engine's output of the sample.
    Plain,
    /// The same case carried out once more.
    Repeated,
    /// Another sample of the same run.
    Sibling(SampleId),
    /// The sample in another execution.
    Other(Box<Other>),
}

/// An execution that is neither the case's own nor canonical.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    /// Name in reports.
    pub name: &'static str,
    /// What is carried out.
    pub case: Case,
    /// What is judged by it, if that is not the case itself.
    pub judged: Option<Case>,
}

impl Standard {
    /// Another execution of the case's samples.
    pub fn other(name: &'static str, case: Case) -> Standard {
        Standard::Other(Box::new(Other { name, case, judged: None }))
    }

    /// Name in reports: it stands before what is expected.
    pub fn name(&self) -> String {
        match self {
            Standard::Canonical => "canonical".into(),
            Standard::Plain => "the plain engine".into(),
            Standard::Repeated => "repeated".into(),
            Standard::Sibling(id) => id.to_string(),
            Standard::Other(other) => other.name.into(),
        }
    }
}
