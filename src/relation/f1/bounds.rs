//! The bounds of F1, fixed beforehand: one entry a model, in `bounds.json`. The file says how each was found, and
//! `cargo test --test fidelity -- --ignored` measures again; nothing ever rewrites it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::contract::Dtype;
use crate::record::sites::Site;
use crate::weights::ModelConfig;

use super::Measure;

/// One bound.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// What the model of rounding errors says, before anything was measured.
    pub estimate: f64,
    /// The largest error of the calibration.
    pub measured: f64,
    /// The largest error allowed.
    pub bound: f64,
}

/// The bounds of one model: these weights in this dtype, whatever the device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Name of the preset.
    pub model: String,
    /// Storage dtype.
    pub dtype: Dtype,
    /// Digest of configuration and weights.
    pub digest: String,
    /// Computed positions of the calibration.
    pub positions: u64,
    /// Those in which operators were measured.
    pub operator_positions: u64,
    /// By [`Measure`] as it is printed.
    bounds: BTreeMap<String, Bound>,
}

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundsFile {
    /// Why the bounds are what they are, a line each.
    pub reasons: Vec<String>,
    /// A bound over the largest error that was measured.
    pub safety: Safety,
    /// By model.
    pub models: Vec<Bounds>,
}

/// Factors of bounds over measured errors.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Safety {
    /// Whole pass, residual stream and logits.
    pub whole_pass: f64,
    /// Whole pass, the distance of the two best logits.
    pub margin: f64,
    /// Operators.
    pub operators: f64,
}

impl Safety {
    /// The factor of a measure.
    pub fn of(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Residual(_) | Measure::Logits => self.whole_pass,
            Measure::Margin => self.margin,
            Measure::Operator(_) | Measure::Head => self.operators,
        }
    }
}

/// What is in the file.
pub static BOUNDS: LazyLock<BoundsFile> = LazyLock::new(|| {
    serde_json::from_str(include_str!("bounds.json")).expect("bounds.json is checked by a test")
});

/// The bounds of the model with this digest, if any are fixed.
pub fn of(digest: &str) -> Option<&'static Bounds> {
    BOUNDS.models.iter().find(|m| m.digest == digest)
}

impl Bounds {
    /// The bound of a measure.
    ///
    /// # Panics
    /// If the model has no such measure.
    pub fn get(&self, measure: Measure) -> Bound {
        let found = self.bounds.get(&measure.to_string());
        *found.unwrap_or_else(|| panic!("{} has no bound of {measure}", self.model))
    }
}

/// All measures of a model.
pub fn measures(config: &ModelConfig) -> Vec<Measure> {
    let residual = (0..=config.layers).map(Measure::Residual);
    // The stages of a model of one layer are those of any.
    let sites = Site::count(1);
    let operators = (0..sites).map(|i| Measure::Operator(Site::nth(i, sites).stage));
    let whole = residual.chain([Measure::Logits, Measure::Margin]);
    whole.chain(operators).chain([Measure::Head]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::{Preset, open};

    /// Goal: the file is about the presets as they are, whole, and keeps its own rule. Method: digests are made anew; a bound
    /// is the measured error times the safety factor, to the two digits that the file has.
    #[test]
    fn the_file_covers_each_measure_of_the_presets_and_keeps_its_rule() {
        assert!(!BOUNDS.reasons.is_empty());
        for bounds in &BOUNDS.models {
            let preset = Preset::from_name(&bounds.model).expect("a preset's name");
            let measures = measures(&preset.config());
            assert_eq!(bounds.bounds.len(), measures.len(), "{}", bounds.model);
            for measure in measures {
                let Bound { estimate, measured, bound } = bounds.get(measure);
                let rule = measured * BOUNDS.safety.of(measure);
                let kept = bound >= rule * (1.0 - 1e-9) && bound <= rule * 1.1;
                assert!(kept, "{} {measure}: {bound} for {measured}", bounds.model);
                // The estimate of the whole pass is of single positions, so it may be too small; that of an operator is a
                // worst case.
                let explained = if measure.is_of_an_operator() { 1.0 } else { 2.0 };
                assert!(measured <= estimate * explained, "{} {measure}", bounds.model);
            }
            if !preset.is_large() {
                let model = open(&bounds.model, Some(bounds.dtype)).unwrap();
                assert_eq!(model.digest, bounds.digest, "{}", bounds.model);
            }
        }
    }
}
