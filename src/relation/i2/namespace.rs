//! I2, namespaces of the prefix cache.

use std::collections::BTreeSet;

use crate::record::Sentinel;
use crate::relation::compare::Place;
use crate::relation::{Divergence, Executions, Judgement, Observable, Relation, Spread, Standard};
use crate::strategy::Feature;
use crate::subject::{Capabilities, SubjectError};
use crate::workload::SampleId;

use super::equal_to_canonical;

/// Requests with equal prefixes in different namespaces.
pub(in crate::relation) static NAMESPACE: Relation = Relation {
    id: "I2.namespace",
    path: "i2::namespace",
    statement: "a request attaches only what requests of its own namespace wrote, and its bits do not depend on the others",
    varies: "namespaces of requests with common prefixes",
    // An engine that mixes namespaces up keeps nothing apart, but serves hits.
    gates: &[Sentinel::NamespaceKeptApart, Sentinel::HitTokensSaved],
    spreads: &[
        Spread::Fired(Sentinel::NamespaceKeptApart),
        Spread::Fired(Sentinel::HitTokensSaved),
    ],
    focus: &[Feature::Namespace, Feature::Shared, Feature::Arrive],
    every: 1,
    applies,
    judge,
};

fn applies(capabilities: &Capabilities) -> Result<(), &'static str> {
    if !capabilities.logits || !capabilities.kv {
        return Err("the subject reports no logits, or no K and V");
    }
    if capabilities.sentinels.contains(&Sentinel::NamespaceKeptApart) {
        Ok(())
    } else {
        Err("the subject has no namespaces")
    }
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    let workload = &executions.case().workload;
    let namespace = |id: &SampleId| workload.get(id.uid).map(|r| r.namespace);
    for (id, output) in &executions.run().outputs {
        let own = namespace(id);
        if let Some(other) = output.writers.iter().find(|w| Some(**w) != own) {
            return Ok(Judgement::Broken(Box::new(Divergence {
                observable: Observable::Writers,
                all: BTreeSet::from([Observable::Writers]),
                place: Place { id: Some(*id), ..Place::default() },
                origin: None,
                standard: Standard::Canonical,
                detail: format!("of namespace {}, written in {other}", own.unwrap_or_default()),
            })));
        }
    }
    let all: BTreeSet<u32> = workload.requests.iter().map(|r| r.namespace).collect();
    if all.len() < 2 || executions.run().sentinels.get(Sentinel::NamespaceKeptApart) == 0 {
        return Ok(Judgement::Inapplicable("no lookup met another namespace"));
    }
    let ids: Vec<SampleId> = executions.run().outputs.keys().copied().collect();
    equal_to_canonical(executions, &ids, "there is no request")
}
