//! I2, padding buckets.

use crate::record::Sentinel;
use crate::relation::{Relation, Spread};
use crate::schedule::ActKind;
use crate::strategy::Feature;
use crate::workload::SampleId;

use super::{can, equal_to_canonical};

/// Steps that are padded to more rows than they have.
pub(in crate::relation) static BUCKET: Relation = Relation {
    id: "I2.bucket",
    path: "i2::bucket",
    statement: "a request's bits do not depend on how many padding rows its steps have",
    varies: "the bucket that a step is padded to",
    gates: &[Sentinel::BucketChanged],
    spreads: &[Spread::Fired(Sentinel::PaddedStep), Spread::Fired(Sentinel::BucketChanged)],
    focus: &[Feature::Bucket],
    every: 1,
    applies: |c| can(c, ActKind::Bucket, "the subject has no padding buckets"),
    judge: |executions| {
        // A step is padded for all that are in it.
        let all: Vec<SampleId> = executions.run().outputs.keys().copied().collect();
        equal_to_canonical(executions, &all, "there is no request")
    },
};
