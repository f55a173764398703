//! What a feature of generation stands for: the events of its subsystem, and what shows that a case used it.

use crate::lifecycle::Event;
use crate::record::{Run, Sentinel};
use crate::schedule::ActKind;
use crate::strategy::{Feature, Features};

/// What shows that a feature did something.
pub(super) enum Evidence {
    /// An intent of this kind fired.
    Act(ActKind),
    /// One of these mechanisms ran.
    Ran(&'static [Sentinel]),
    /// The drawn world or workload is itself the feature.
    Drawn,
}

/// What shows in a run that the feature was used: being switched on is not enough.
pub(super) fn evidence(feature: Feature) -> Evidence {
    use Evidence::{Act, Drawn, Ran};
    match feature {
        Feature::Cut => Act(ActKind::Cut),
        Feature::Preempt => Act(ActKind::Preempt),
        Feature::Hold => Act(ActKind::Hold),
        Feature::Stall => Act(ActKind::Stall),
        Feature::Rank => Act(ActKind::Rank),
        Feature::Arrive => Act(ActKind::Arrive),
        Feature::Hit => Act(ActKind::Hit),
        Feature::Shared => Ran(&[Sentinel::HitTokensSaved, Sentinel::HitRefused]),
        Feature::Sampled => Ran(&[Sentinel::DrawNotArgmax]),
        Feature::Samples => Ran(&[Sentinel::Fork]),
        Feature::Swap => Act(ActKind::Swap),
        Feature::Abort => Act(ActKind::Abort),
        Feature::Namespace => Ran(&[Sentinel::NamespaceKeptApart]),
        Feature::Place => Act(ActKind::Place),
        Feature::Evict => Act(ActKind::Evict),
        Feature::Bucket => Ran(&[Sentinel::PaddedStep]),
        Feature::Land => Act(ActKind::Land),
        Feature::Pressure => Act(ActKind::Victim),
        Feature::Poison => Ran(&[Sentinel::Poisoned]),
        Feature::Stops => Ran(&[Sentinel::StopToken, Sentinel::StopString]),
        Feature::Scored => Ran(&[Sentinel::ScoredOutput, Sentinel::ScoredPrompt]),
        Feature::Tight
        | Feature::Siblings
        | Feature::Budget
        | Feature::Odd
        | Feature::Crowd
        | Feature::Storm
        | Feature::Follow => Drawn,
    }
}

/// Pairs of features of which no case can show both: under pressure and in storms the generator lays out workload and
/// schedule as a whole, without these.
const APART: [(Feature, Feature); 10] = {
    use Feature::{
        Arrive, Evict, Hit, Namespace, Place, Pressure, Rank, Samples, Scored, Stall, Storm,
    };
    [
        (Pressure, Arrive),
        (Pressure, Hit),
        (Pressure, Samples),
        (Pressure, Evict),
        (Pressure, Storm),
        (Storm, Stall),
        (Storm, Rank),
        (Storm, Namespace),
        (Storm, Place),
        (Storm, Scored),
    ]
};

/// Whether a case can show all of these features.
pub(super) fn can_meet(features: &[Feature]) -> bool {
    APART.iter().all(|(a, b)| !(features.contains(a) && features.contains(b)))
}

/// Events of the subsystem that a case about this feature targets.
fn events(feature: Feature) -> &'static [Event] {
    use Event::*;
    match feature {
        Feature::Cut => &[Chunk],
        Feature::Preempt => &[PreemptRecompute, Resume],
        Feature::Hold => &[AdmitRefused],
        Feature::Arrive => &[Arrive, Admit],
        Feature::Hit | Feature::Shared | Feature::Siblings => &[CacheHit, CacheRefused, Publish],
        Feature::Tight | Feature::Pressure => &[Evict, PreemptRecompute, Resume],
        Feature::Samples => &[Fork, CowCopy],
        Feature::Swap => &[PreemptSwap, SwapIn],
        Feature::Abort => &[Abort],
        Feature::Evict => &[Evict],
        Feature::Stops => &[FinishStop],
        Feature::Stall
        | Feature::Rank
        | Feature::Sampled
        | Feature::Budget
        | Feature::Odd
        | Feature::Crowd
        | Feature::Namespace
        | Feature::Follow
        | Feature::Place
        | Feature::Bucket
        | Feature::Land
        | Feature::Poison
        | Feature::Scored
        | Feature::Storm => &[],
    }
}

/// The events that a case about these features targets, one bit each.
pub(super) fn targeted(features: Features) -> u32 {
    features.iter().flat_map(events).fold(0, |mask, event| mask | 1 << *event as u32)
}

/// The features of `drawn` that the run shows.
pub(super) fn shown(drawn: Features, run: &Run) -> Features {
    let fired = |kind| run.intents.iter().any(|o| o.inert.is_none() && o.intent.act.kind() == kind);
    drawn
        .iter()
        .filter(|feature| match evidence(*feature) {
            Evidence::Act(kind) => fired(kind),
            Evidence::Ran(sentinels) => sentinels.iter().any(|s| run.sentinels.get(*s) > 0),
            Evidence::Drawn => true,
        })
        .collect()
}
