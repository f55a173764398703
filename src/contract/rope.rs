//! RoPE tables (docs/contract.md section 5): made on the host in f64 with the pinned `libm`, rounded once to f32.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::hex;

/// How the angles are scaled with position.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RopeScaling {
    /// Plain angles.
    None,
    /// Angles divided by `factor`.
    Linear {
        /// Divisor of the position.
        factor: f64,
    },
    /// Llama 3's smoothed frequency scaling.
    Llama3 {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context length of pretraining, in positions.
        original_context: f64,
    },
    /// YaRN: pairs that turn rarely over the original context are slowed down, and all are lengthened.
    Yarn {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Pairs that turn more often than this over the original context are kept.
        beta_fast: f64,
        /// Pairs that turn less often are divided.
        beta_slow: f64,
        /// Context length of pretraining, in positions.
        original_context: f64,
        /// Multiplies cos and sin.
        attention_factor: f64,
        /// Whether the two bounds between pairs are rounded outwards to whole pairs.
        truncate: bool,
    },
}

impl RopeScaling {
    /// YaRN's factor of cos and sin, for `scale` 1 as its paper recommends: `0.1 scale ln(factor) + 1`.
    pub fn yarn_attention(factor: f64, scale: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { 0.1 * scale * libm::log(factor) + 1.0 }
    }

    /// Longest sequence of a model whose file says `context`: YaRN's is that of its original context times its factor, if that is
    /// longer. Positions in between need no more than the table.
    pub fn context(self, context: usize) -> usize {
        match self {
            RopeScaling::Yarn { factor, original_context, .. } => {
                // A product outside of the integers saturates, and is over every limit on contexts.
                context.max((factor * original_context).floor() as usize)
            }
            _ => context,
        }
    }

    /// What cos and sin are multiplied by.
    fn amplitude(self) -> f64 {
        match self {
            RopeScaling::Yarn { attention_factor, .. } => attention_factor,
            _ => 1.0,
        }
    }
}

/// The pairs between which YaRN goes from kept to divided frequencies. Bounds that do not ascend belong to no model: an original
/// context too short for its base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YarnRange {
    /// Pairs up to this one are kept.
    pub low: f64,
    /// Pairs from this one on are divided.
    pub high: f64,
}

impl YarnRange {
    /// The bounds of a scaling that is YaRN.
    pub fn new(scaling: RopeScaling, head_dim: usize, base: f64) -> Option<YarnRange> {
        let RopeScaling::Yarn { beta_fast, beta_slow, original_context, truncate, .. } = scaling
        else {
            return None;
        };
        let dim = head_dim as f64;
        let pair = |turns: f64| {
            dim * libm::log(original_context / (turns * 2.0 * std::f64::consts::PI))
                / (2.0 * libm::log(base))
        };
        let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
        if truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(dim - 1.0));
        if low == high {
            high += 0.001;
        }
        Some(YarnRange { low, high })
    }

    /// How far pair `i` is on the way from kept to divided, 0 to 1.
    fn ramp(self, i: usize) -> f64 {
        ((i as f64 - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// cos and sin of every (position, pair).
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// Elements per head; pairs are (i, i + head_dim/2).
    pub head_dim: usize,
    /// Positions covered.
    pub positions: usize,
    /// `cos[position][head_dim/2]`.
    pub cos: Vec<f32>,
    /// `sin[position][head_dim/2]`.
    pub sin: Vec<f32>,
}

impl RopeTable {
    /// Table for `positions` positions of heads of `head_dim` elements.
    pub fn new(head_dim: usize, base: f64, scaling: RopeScaling, positions: usize) -> RopeTable {
        let half = head_dim / 2;
        let range = YarnRange::new(scaling, head_dim, base);
        let theta: Vec<f64> = (0..half)
            .map(|i| {
                let theta = libm::pow(base, -2.0 * i as f64 / head_dim as f64);
                scaled(theta, scaling, range.map_or(0.0, |range| range.ramp(i)))
            })
            .collect();
        let amplitude = scaling.amplitude();
        let mut cos = Vec::with_capacity(positions * half);
        let mut sin = Vec::with_capacity(positions * half);
        for position in 0..positions {
            for t in &theta {
                let angle = position as f64 * t;
                cos.push((libm::cos(angle) * amplitude) as f32);
                sin.push((libm::sin(angle) * amplitude) as f32);
            }
        }
        RopeTable { head_dim, positions, cos, sin }
    }

    /// sha256 (hex) of the table's bits, cos then sin, little-endian.
    pub fn sha256(&self) -> String {
        let mut hasher = Sha256::new();
        for x in self.cos.iter().chain(&self.sin) {
            hasher.update(x.to_bits().to_le_bytes());
        }
        hex(&hasher.finalize())
    }
}

/// The scaling rules, as in the reference configurations of the two families. `ramp` is YaRN's alone.
fn scaled(theta: f64, scaling: RopeScaling, ramp: f64) -> f64 {
    match scaling {
        RopeScaling::None => theta,
        RopeScaling::Linear { factor } => theta / factor,
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            let wavelength = 2.0 * std::f64::consts::PI / theta;
            if wavelength < original_context / high_freq_factor {
                theta
            } else if wavelength > original_context / low_freq_factor {
                theta / factor
            } else {
                let smooth = (original_context / wavelength - low_freq_factor)
                    / (high_freq_factor - low_freq_factor);
                (1.0 - smooth) * theta / factor + smooth * theta
            }
        }
        RopeScaling::Yarn { factor, .. } => (theta / factor) * ramp + theta * (1.0 - ramp),
    }
}
