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
        let theta: Vec<f64> = (0..half)
            .map(|i| scaled(libm::pow(base, -2.0 * i as f64 / head_dim as f64), scaling))
            .collect();
        let mut cos = Vec::with_capacity(positions * half);
        let mut sin = Vec::with_capacity(positions * half);
        for position in 0..positions {
            for t in &theta {
                let angle = position as f64 * t;
                cos.push(libm::cos(angle) as f32);
                sin.push(libm::sin(angle) as f32);
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

/// The scaling rules, as in the reference configurations of the Llama family.
fn scaled(theta: f64, scaling: RopeScaling) -> f64 {
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
    }
}
