//! The sampler (CONTRACT.md section 11): integers wherever a sum could depend on its order.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

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
