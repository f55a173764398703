//! Models as they are named by users: a preset, a GGUF file, or a folder.

use std::path::Path;

use crate::contract::Dtype;

use super::{Model, Preset, WeightsError};

/// Seed of the presets' synthetic weights.
pub const WEIGHT_SEED: u64 = 1;
/// Dtype of the presets unless asked otherwise.
pub const PRESET_DTYPE: Dtype = Dtype::Bf16;

/// Opens a preset by name, or loads a path. `dtype` overrides what the preset or the file says.
pub fn open(name: &str, dtype: Option<Dtype>) -> Result<Model, WeightsError> {
    match Preset::from_name(name) {
        Some(preset) => Ok(Model::synthetic(preset, dtype.unwrap_or(PRESET_DTYPE), WEIGHT_SEED)),
        None => Model::load(Path::new(name), dtype),
    }
}
