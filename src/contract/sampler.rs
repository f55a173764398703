//! The sampler (docs/contract.md section 11): integers wherever a sum could depend on its order.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::philox::philox4x32_10;
use super::scalar::{LOG2_E, exp2};
use super::simd::{Kernel, Simd};

/// Sampling parameters of a request. The default is greedy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplerParams {
    /// Temperature; below 2^-16 the draw is greedy.
    pub temperature: f32,
    /// Keep the k tokens with the largest keys; 0 keeps all.
    #[serde(default)]
    pub top_k: u32,
    /// Keep the shortest prefix by descending key whose mass reaches this share; 1 keeps all.
    #[serde(default = "one")]
    pub top_p: f32,
    /// Keep tokens whose probability is at least this share of the largest; 0 keeps all.
    #[serde(default)]
    pub min_p: f32,
    /// Repetition penalty; 1 is off.
    #[serde(default = "one")]
    pub repetition_penalty: f32,
}

fn one() -> f32 {
    1.0
}

impl Default for SamplerParams {
    fn default() -> SamplerParams {
        SamplerParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
        }
    }
}

impl SamplerParams {
    /// Checks ranges; the error is one line.
    pub fn validate(&self) -> Result<(), String> {
        let finite = self.temperature.is_finite()
            && self.top_p.is_finite()
            && self.min_p.is_finite()
            && self.repetition_penalty.is_finite();
        if !finite {
            return Err("a sampling parameter is not finite".into());
        }
        if self.temperature < 0.0 {
            return Err(format!("temperature is {}, must be at least 0", self.temperature));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(format!("top_p is {}, must be above 0 and at most 1", self.top_p));
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return Err(format!("min_p is {}, must be 0..=1", self.min_p));
        }
        if self.repetition_penalty <= 0.0 {
            return Err(format!(
                "repetition_penalty is {}, must be above 0",
                self.repetition_penalty
            ));
        }
        Ok(())
    }

    /// Whether draws are greedy.
    pub fn is_greedy(&self) -> bool {
        self.temperature < 1.0 / 65536.0
    }

    /// Smallest integer weight that min-p keeps.
    pub fn weight_floor(&self) -> u64 {
        (f64::from(self.min_p) * 4294967296.0).ceil() as u64
    }

    /// top-p in units of 2^-24, unless everything is kept.
    pub fn mass_share(&self) -> Option<u64> {
        (self.top_p < 1.0).then(|| (f64::from(self.top_p) * 16777216.0).ceil() as u64)
    }
}

/// Philox key of a seeded request's sample.
pub fn seeded_key(seed: u64, sample: u32) -> [u32; 2] {
    let mut hasher = key_hasher(0);
    hasher.update(seed.to_le_bytes());
    hasher.update(sample.to_le_bytes());
    key_words(hasher)
}

/// Philox key of an unseeded request's sample.
pub fn unseeded_key(run_seed: u64, sample: u32, uid: u64) -> [u32; 2] {
    let mut hasher = key_hasher(1);
    hasher.update(run_seed.to_le_bytes());
    hasher.update(sample.to_le_bytes());
    hasher.update(uid.to_le_bytes());
    key_words(hasher)
}

fn key_hasher(tag: u8) -> Sha256 {
    let mut hasher = Sha256::new();
    hasher.update(b"lockstep/1");
    hasher.update([tag]);
    hasher
}

fn key_words(hasher: Sha256) -> [u32; 2] {
    let digest = hasher.finalize();
    let word =
        |i: usize| u32::from_le_bytes([digest[i], digest[i + 1], digest[i + 2], digest[i + 3]]);
    [word(0), word(4)]
}

/// Buffers of [`draw`], reused from row to row.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Logits after the repetition penalty.
    penalised: Vec<f32>,
    /// Integer weights by id.
    weights: Vec<u64>,
    /// Kept (key, weight).
    kept: Vec<(u64, u64)>,
    /// A copy of `kept` to reorder.
    work: Vec<(u64, u64)>,
}

/// The token drawn from a row of logits, or `None` where a logit is not finite (or, with parameters that no
/// request should carry, where no token has any weight).
///
/// `seen` lists the distinct ids of prompt and output; ids past the row's end are ignored. `position` is the
/// absolute index of the token being drawn.
pub fn draw(
    simd: Simd,
    logits: &[f32],
    params: &SamplerParams,
    seen: &[u32],
    key: [u32; 2],
    position: u32,
    scratch: &mut Scratch,
) -> Option<u32> {
    let Scratch { penalised, weights, kept, work } = scratch;
    let penalty = params.repetition_penalty;
    let x = if penalty == 1.0 {
        logits
    } else {
        penalised.clear();
        penalised.extend_from_slice(logits);
        for &id in seen {
            if let Some(x) = penalised.get_mut(id as usize) {
                *x = if *x > 0.0 { *x / penalty } else { *x * penalty };
            }
        }
        penalised
    };
    let largest = simd.run(Largest(x))?;
    if params.is_greedy() {
        return x.iter().position(|x| order(*x) == largest).map(|id| id as u32);
    }
    let max = f32::from_bits(if largest >> 31 == 1 { largest ^ 0x8000_0000 } else { !largest });
    let c = (1.0 / params.temperature) * LOG2_E;
    weights.clear();
    weights.resize(x.len(), 0);
    simd.run(Weights { x, max, c, weights });
    let r = philox4x32_10([position, 0, 0, 0], key);
    let r = u64::from(r[0]) | u64::from(r[1]) << 32;
    if params.min_p <= 0.0 && params.top_k == 0 && params.top_p >= 1.0 {
        let mass = weights.iter().sum();
        return pick(weights.iter().copied().zip(0..), r, mass);
    }
    filter(x, params, weights, kept, work);
    let mass = kept.iter().map(|(_, w)| w).sum();
    pick(kept.iter().map(|(key, w)| (*w, u32::MAX - *key as u32)), r, mass)
}

/// Fills `kept` with what min-p, top-k and top-p leave, in this order; ids ascend.
fn filter(
    x: &[f32],
    params: &SamplerParams,
    weights: &[u64],
    kept: &mut Vec<(u64, u64)>,
    work: &mut Vec<(u64, u64)>,
) {
    let floor = params.weight_floor();
    kept.clear();
    kept.reserve(x.len());
    kept.extend(
        x.iter()
            .zip(weights)
            .enumerate()
            .filter(|(_, (_, w))| **w >= floor)
            .map(|(id, (x, w))| (sort_key(*x, id as u32), *w)),
    );
    let k = params.top_k as usize;
    if k > 0 && k < kept.len() {
        work.clone_from(kept);
        let (_, (last, _), _) = work.select_nth_unstable_by_key(k - 1, |(key, _)| !key);
        kept.retain(|(key, _)| key >= last);
    }
    if let Some(share) = params.mass_share() {
        let mass: u64 = kept.iter().map(|(_, w)| w).sum();
        let low = mass & ((1 << 24) - 1);
        let threshold = ((mass >> 24) * share + ((low * share) >> 24)).max(1);
        if mass >= threshold {
            work.clone_from(kept);
            let last = reaching(work, threshold);
            kept.retain(|(key, _)| *key >= last);
        }
    }
}

/// The key at which the mass, summed by descending key, reaches `threshold`. Halves what is left instead of
/// sorting it. The mass of `work` is at least `threshold`, which is not zero.
fn reaching(mut work: &mut [(u64, u64)], mut threshold: u64) -> u64 {
    while work.len() > 1 {
        let half = work.len() / 2;
        work.select_nth_unstable_by_key(half, |(key, _)| !key);
        let (larger, smaller) = work.split_at_mut(half);
        let mass: u64 = larger.iter().map(|(_, w)| w).sum();
        if mass >= threshold {
            work = larger;
        } else {
            threshold -= mass;
            work = smaller;
        }
    }
    work[0].0
}

/// The first id, in the order given, whose running sum exceeds `mulhi(r, mass)`.
fn pick(weighted: impl Iterator<Item = (u64, u32)>, r: u64, mass: u64) -> Option<u32> {
    let target = ((u128::from(r) * u128::from(mass)) >> 64) as u64;
    let mut sum = 0;
    for (w, id) in weighted {
        sum += w;
        if sum > target {
            return Some(id);
        }
    }
    None
}

/// The `n` ids with the largest keys, largest first; fewer if there are fewer.
pub fn top(logits: &[f32], n: usize) -> Vec<u32> {
    let mut keys: Vec<u64> = logits.iter().zip(0..).map(|(x, id)| sort_key(*x, id)).collect();
    let n = n.min(keys.len());
    if n < keys.len() {
        keys.select_nth_unstable_by_key(n, |key| !key);
    }
    keys[..n].sort_unstable_by_key(|key| !key);
    keys[..n].iter().map(|key| u32::MAX - *key as u32).collect()
}

/// An order-preserving integer of an f32 that is not NaN.
#[inline(always)]
fn order(x: f32) -> u32 {
    let bits = x.to_bits();
    bits ^ if bits >> 31 == 1 { u32::MAX } else { 0x8000_0000 }
}

/// Descending keys order by logit, then by ascending id.
fn sort_key(x: f32, id: u32) -> u64 {
    u64::from(order(x)) << 32 | u64::from(u32::MAX - id)
}

/// The largest [`order`], or `None` where a value is not finite or there is none.
struct Largest<'a>(&'a [f32]);

impl Kernel for Largest<'_> {
    type Out = Option<u32>;
    #[inline(always)]
    fn run(self) -> Option<u32> {
        let (mut largest, mut exponent) = (0, 0);
        for x in self.0 {
            largest = largest.max(order(*x));
            exponent = exponent.max(x.to_bits() & 0x7f80_0000);
        }
        (exponent < 0x7f80_0000 && !self.0.is_empty()).then_some(largest)
    }
}

/// `w = trunc(exp2((x - max) * c) * 2^32)`.
struct Weights<'a> {
    x: &'a [f32],
    max: f32,
    c: f32,
    weights: &'a mut [u64],
}

impl Kernel for Weights<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (w, x) in self.weights.iter_mut().zip(self.x) {
            *w = (exp2((x - self.max) * self.c) * 4294967296.0) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first eight bytes of the hashes, as `sha256sum` prints them for the concatenated bytes.
    #[test]
    fn keys_are_the_first_bytes_of_the_hash() {
        assert_eq!(seeded_key(7, 3), [0x5bec_5694, 0x79e9_e0a7]);
        assert_eq!(unseeded_key(7, 3, 9), [0xbac0_8346, 0x77fc_6907]);
    }
}
