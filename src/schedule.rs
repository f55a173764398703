//! The schedule: a set of deviations from the default policy.
//!
//! The empty schedule is the default run. An intent names a request, a mark in that request's own progress, and an
//! act. Nothing refers to wall time, to a physical block or to another request, so a schedule is *total* (anything
//! can be executed; what cannot happen is recorded as inert) and *deletion-stable* (removing a request or an intent
//! never changes what the others mean).

use serde::{Deserialize, Serialize};

use crate::workload::SampleId;

/// One deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// The request.
    pub uid: u64,
    /// Its sample.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sample: u32,
    /// When.
    pub mark: Mark,
    /// What.
    pub act: Act,
}

impl Intent {
    /// The sample that it is about.
    pub fn id(&self) -> SampleId {
        SampleId { uid: self.uid, sample: self.sample }
    }
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A point in a request's own progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Mark {
    /// Before the run.
    Start,
    /// The n-th time (from 1) that the engine is about to admit it.
    Offer {
        /// Which offer.
        n: u32,
    },
    /// The first step boundary with at least `tokens` of its tokens computed (cached ones count) in its
    /// `residency`-th residency (from 1).
    Computed {
        /// Which residency.
        residency: u32,
        /// Tokens computed.
        tokens: u32,
    },
}

/// How a preempted request gets its KV back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptKind {
    /// Its blocks are released and its tokens computed again.
    Recompute,
    /// Its K and V go to host memory and come back to other blocks: nothing is computed again. Without room there, it
    /// stays.
    Swap,
}

/// What the engine does differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// At `Start`: arrives this many boundaries into the run.
    Arrive {
        /// Boundaries.
        steps: u32,
    },
    /// At an `Offer`: is refused admission, and not offered again for this many boundaries.
    Hold {
        /// Boundaries.
        steps: u32,
    },
    /// At an `Offer`: the prefix cache serves at most this many blocks; 0 refuses the hit.
    Hit {
        /// Blocks.
        at_most: u32,
    },
    /// At a `Computed`: takes no part in this many steps.
    Stall {
        /// Boundaries.
        steps: u32,
    },
    /// At a `Computed`: from now on its rows stand at this place among the sequences of a step.
    Rank {
        /// Place, from 0.
        to: u32,
    },
    /// At a `Computed`: the chunk computed in this step has at most this many tokens.
    Cut {
        /// Tokens, at least one.
        tokens: u32,
    },
    /// At a `Computed`: loses its residency, and is not offered again for this many boundaries.
    Preempt {
        /// How it comes back.
        kind: PreemptKind,
        /// Boundaries.
        away: u32,
    },
    /// From a `Computed` on: the next time that a victim has to make room, it is this request.
    Victim,
    /// At an `Offer` of a sample past the first: instead of a prefix lookup it attaches the blocks of the resident
    /// sample before it that has computed most, the last, partial one included.
    Fork,
    /// At a `Computed` or an `Offer`: ends there, and gives back what it holds.
    Abort,
    /// From a `Computed` or an `Offer` on: the next block allocated to it is this one of the free blocks (of the cached
    /// ones, if none is free) instead of the first; the last one, if there are fewer.
    Place {
        /// Place in the pool's order, from 0.
        nth: u32,
    },
    /// At an `Offer`: before the prefix lookup, the cached block that holds its own block of this index is evicted, if
    /// nobody uses it.
    Evict {
        /// Index among the request's own blocks, from 0.
        block: u32,
    },
    /// At a `Computed`: the step that it takes part in is padded to this many buckets above the one that holds it.
    Bucket {
        /// Buckets.
        extra: u32,
    },
    /// At a `Computed`: what is launched next for the request lands only this many boundaries later: a chunk, with the copy
    /// of a shared block that it writes to, or a swap to host memory. At an `Offer`: so does a swap back from there. Until
    /// then the request is in no other step and is not swapped in; for marks, its tokens count as computed.
    Land {
        /// Boundaries.
        late: u32,
    },
}

/// Names of the acts, in a fixed order, for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActKind {
    /// [`Act::Arrive`]
    Arrive,
    /// [`Act::Hold`]
    Hold,
    /// [`Act::Hit`]
    Hit,
    /// [`Act::Stall`]
    Stall,
    /// [`Act::Rank`]
    Rank,
    /// [`Act::Cut`]
    Cut,
    /// [`Act::Preempt`] with [`PreemptKind::Recompute`]
    Preempt,
    /// [`Act::Victim`]
    Victim,
    /// [`Act::Preempt`] with [`PreemptKind::Swap`]
    Swap,
    /// [`Act::Fork`]
    Fork,
    /// [`Act::Abort`]
    Abort,
    /// [`Act::Place`]
    Place,
    /// [`Act::Evict`]
    Evict,
    /// [`Act::Bucket`]
    Bucket,
    /// [`Act::Land`]
    Land,
}

impl ActKind {
    /// All kinds.
    pub const ALL: [ActKind; 15] = [
        ActKind::Arrive,
        ActKind::Hold,
        ActKind::Hit,
        ActKind::Stall,
        ActKind::Rank,
        ActKind::Cut,
        ActKind::Preempt,
        ActKind::Victim,
        ActKind::Swap,
        ActKind::Fork,
        ActKind::Abort,
        ActKind::Place,
        ActKind::Evict,
        ActKind::Bucket,
        ActKind::Land,
    ];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            ActKind::Arrive => "arrive",
            ActKind::Hold => "hold",
            ActKind::Hit => "hit",
            ActKind::Stall => "stall",
            ActKind::Rank => "rank",
            ActKind::Cut => "cut",
            ActKind::Preempt => "preempt",
            ActKind::Victim => "victim",
            ActKind::Swap => "swap",
            ActKind::Fork => "fork",
            ActKind::Abort => "abort",
            ActKind::Place => "place",
            ActKind::Evict => "evict",
            ActKind::Bucket => "bucket",
            ActKind::Land => "land",
        }
    }

    /// Whether it counts for the fired share: arrivals, ranks and stalls always can be carried out.
    pub fn is_disruptive(self) -> bool {
        !matches!(self, ActKind::Arrive | ActKind::Stall | ActKind::Rank)
    }
}

impl Act {
    /// Its kind.
    pub fn kind(self) -> ActKind {
        match self {
            Act::Arrive { .. } => ActKind::Arrive,
            Act::Hold { .. } => ActKind::Hold,
            Act::Hit { .. } => ActKind::Hit,
            Act::Stall { .. } => ActKind::Stall,
            Act::Rank { .. } => ActKind::Rank,
            Act::Cut { .. } => ActKind::Cut,
            Act::Preempt { kind: PreemptKind::Recompute, .. } => ActKind::Preempt,
            Act::Preempt { kind: PreemptKind::Swap, .. } => ActKind::Swap,
            Act::Victim => ActKind::Victim,
            Act::Fork => ActKind::Fork,
            Act::Abort => ActKind::Abort,
            Act::Place { .. } => ActKind::Place,
            Act::Evict { .. } => ActKind::Evict,
            Act::Bucket { .. } => ActKind::Bucket,
            Act::Land { .. } => ActKind::Land,
        }
    }

    /// Boundaries by which the act may delay the run.
    pub fn delay(self) -> u64 {
        match self {
            Act::Arrive { steps } | Act::Hold { steps } | Act::Stall { steps } => steps.into(),
            Act::Preempt { away, .. } => away.into(),
            Act::Land { late } => late.into(),
            Act::Hit { .. }
            | Act::Rank { .. }
            | Act::Cut { .. }
            | Act::Victim
            | Act::Fork
            | Act::Abort
            | Act::Place { .. }
            | Act::Evict { .. }
            | Act::Bucket { .. } => 0,
        }
    }
}

/// Most intents of a schedule.
pub const INTENTS_MAX: usize = 65_536;
/// Longest delay of all acts together, in boundaries.
pub const DELAY_MAX: u64 = 100_000;

/// The deviations of an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schedule {
    /// The intents; where several are due at one decision, the first in this order is taken.
    pub intents: Vec<Intent>,
}

impl Schedule {
    /// Whether it deviates nowhere.
    pub fn is_empty(&self) -> bool {
        self.intents.is_empty()
    }

    /// Checks limits; the error is one line.
    pub fn validate(&self) -> Result<(), String> {
        if self.intents.len() > INTENTS_MAX {
            return Err(format!(
                "the schedule has {} intents, at most {INTENTS_MAX} are allowed",
                self.intents.len()
            ));
        }
        let delay: u64 = self.intents.iter().map(|intent| intent.act.delay()).sum();
        if delay > DELAY_MAX {
            return Err(format!(
                "the schedule delays by {delay} boundaries, at most {DELAY_MAX} are allowed"
            ));
        }
        for (i, intent) in self.intents.iter().enumerate() {
            if matches!(intent.act, Act::Cut { tokens: 0 }) {
                return Err(format!("schedule[{i}] cuts a chunk to 0 tokens"));
            }
        }
        Ok(())
    }
}
