//! Swarm configurations: each case switches some features off, some on, and turns some up, so that combinations are
//! met which a uniform mix would hardly produce.

use super::draw::Draw;

/// Something that a generated case may have much or little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Feature {
    /// Prefills cut into chunks.
    Cut,
    /// Preemption by recompute.
    Preempt,
    /// Admission refused for a while.
    Hold,
    /// Left out of steps.
    Stall,
    /// Row order.
    Rank,
    /// Staggered arrivals.
    Arrive,
    /// Prefix hits refused or trimmed.
    Hit,
    /// Pools that are too small for all at once.
    Tight,
    /// Prompts with common prefixes.
    Shared,
    /// Identical requests, and pairs that differ in one token.
    Siblings,
    /// Draws that are not greedy.
    Sampled,
    /// A shared token budget a step.
    Budget,
    /// No prefix cache, few hash bits, other block sizes.
    Odd,
    /// Many requests at once.
    Crowd,
    /// Several samples a request, forked from each other.
    Samples,
    /// Preemption by swap.
    Swap,
    /// Requests that are aborted.
    Abort,
    /// Several namespaces of the prefix cache.
    Namespace,
    /// Prompts that continue another request's output.
    Follow,
}

const FEATURES: usize = Feature::Follow as usize + 1;

/// How much of each feature a case has, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Swarm([usize; FEATURES]);

impl Swarm {
    /// A random configuration.
    pub(super) fn draw(draw: &mut Draw<'_>) -> Swarm {
        let mut levels = [0; FEATURES];
        for level in &mut levels {
            *level = [0, 40, 80][draw.weighted(&[30, 45, 25])];
        }
        let rare = |level: &mut usize, keep: bool| *level = if keep { *level } else { 0 };
        rare(&mut levels[Feature::Budget as usize], draw.percent(15));
        rare(&mut levels[Feature::Odd as usize], draw.percent(40));
        rare(&mut levels[Feature::Tight as usize], draw.percent(50));
        rare(&mut levels[Feature::Crowd as usize], draw.percent(6));
        rare(&mut levels[Feature::Samples as usize], draw.percent(50));
        rare(&mut levels[Feature::Abort as usize], draw.percent(50));
        rare(&mut levels[Feature::Namespace as usize], draw.percent(40));
        rare(&mut levels[Feature::Follow as usize], draw.percent(40));
        Swarm(levels)
    }

    /// A configuration with these features turned up and all others off.
    pub(super) fn directed(features: &[Feature]) -> Swarm {
        let mut levels = [0; FEATURES];
        for feature in features {
            levels[*feature as usize] = 100;
        }
        Swarm(levels)
    }

    /// Turns up features that a focused campaign is about.
    pub(super) fn focus(mut self, features: &[Feature]) -> Swarm {
        for feature in features {
            let level = &mut self.0[*feature as usize];
            *level = (*level).max(80);
        }
        self
    }

    /// Percent of the feature.
    pub(super) fn level(&self, feature: Feature) -> usize {
        self.0[feature as usize]
    }
}
