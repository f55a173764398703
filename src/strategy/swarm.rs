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
    /// Blocks other than the first free one.
    Place,
    /// Own cached blocks evicted before a lookup.
    Evict,
    /// Padding buckets.
    Bucket,
    /// Chunks that land late.
    Land,
    /// A pool that surely runs out, and a victim that is not the youngest.
    Pressure,
    /// Memory that nobody may read is full of NaN.
    Poison,
    /// Stop tokens and stop strings.
    Stops,
    /// Log-probabilities of generated and of prompt tokens.
    Scored,
    /// A few short sequences with deviations at nearly every boundary.
    Storm,
}

/// All features with the names that reports show.
pub const FEATURES: [(Feature, &str); 28] = {
    use Feature::*;
    [
        (Cut, "cut"),
        (Preempt, "preempt"),
        (Hold, "hold"),
        (Stall, "stall"),
        (Rank, "rank"),
        (Arrive, "arrive"),
        (Hit, "hit"),
        (Tight, "tight"),
        (Shared, "shared"),
        (Siblings, "siblings"),
        (Sampled, "sampled"),
        (Budget, "budget"),
        (Odd, "odd"),
        (Crowd, "crowd"),
        (Samples, "samples"),
        (Swap, "swap"),
        (Abort, "abort"),
        (Namespace, "namespace"),
        (Follow, "follow"),
        (Place, "place"),
        (Evict, "evict"),
        (Bucket, "bucket"),
        (Land, "land"),
        (Pressure, "pressure"),
        (Poison, "poison"),
        (Stops, "stops"),
        (Scored, "scored"),
        (Storm, "storm"),
    ]
};

impl Feature {
    /// Name in reports and JSON.
    pub fn name(self) -> &'static str {
        FEATURES[self as usize].1
    }
}

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// Adds a feature.
    pub fn insert(&mut self, feature: Feature) {
        self.0 |= 1 << feature as usize;
    }

    /// Whether the feature is in the set.
    pub fn contains(self, feature: Feature) -> bool {
        self.0 >> (feature as usize) & 1 == 1
    }

    /// The set's features, in the order of [`FEATURES`].
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        FEATURES.iter().map(|(feature, _)| *feature).filter(move |f| self.contains(*f))
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Features {
        let mut set = Features::default();
        features.into_iter().for_each(|feature| set.insert(feature));
        set
    }
}

/// How much of each feature a case has, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Swarm([usize; FEATURES.len()]);

impl Swarm {
    /// A random configuration.
    pub(super) fn draw(draw: &mut Draw<'_>) -> Swarm {
        let mut levels = [0; FEATURES.len()];
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
        rare(&mut levels[Feature::Bucket as usize], draw.percent(50));
        rare(&mut levels[Feature::Pressure as usize], draw.percent(35));
        rare(&mut levels[Feature::Poison as usize], draw.percent(60));
        rare(&mut levels[Feature::Stops as usize], draw.percent(40));
        rare(&mut levels[Feature::Scored as usize], draw.percent(40));
        rare(&mut levels[Feature::Storm as usize], draw.percent(28));
        Swarm(levels)
    }

    /// A configuration with these features turned up and all others off.
    pub(super) fn directed(features: &[Feature]) -> Swarm {
        let mut levels = [0; FEATURES.len()];
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

    /// The features that the case has any of.
    pub(super) fn features(&self) -> Features {
        FEATURES.iter().map(|(feature, _)| *feature).filter(|f| self.level(*f) > 0).collect()
    }

    /// Percent of the feature.
    pub(super) fn level(&self, feature: Feature) -> usize {
        self.0[feature as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_stands_at_its_own_index() {
        for (i, (feature, name)) in FEATURES.iter().enumerate() {
            assert_eq!((*feature as usize, feature.name()), (i, *name));
        }
        let set: Features = [Feature::Crowd, Feature::Cut].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Feature::Cut, Feature::Crowd]);
    }
}
