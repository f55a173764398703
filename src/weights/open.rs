//! Models as they are named by users: a preset, a GGUF file, or a folder.

use std::path::Path;

use crate::contract::Dtype;

use super::{Model, Preset, Source, Synthetic, WeightsError};

/// Seed of the presets' synthetic weights.
pub const WEIGHT_SEED: u64 = 1;
/// Dtype of the presets unless asked otherwise.
pub const PRESET_DTYPE: Dtype = Dtype::Bf16;

/// Finds a preset by name, or loads a path. `dtype` overrides what the preset or the file says.
pub fn source(name: &str, dtype: Option<Dtype>) -> Result<Source<'static>, WeightsError> {
    match Preset::from_name(name) {
        Some(preset) => {
            let dtype = dtype.unwrap_or(PRESET_DTYPE);
            Ok(Source::Synthetic(Synthetic { preset, dtype, seed: WEIGHT_SEED }))
        }
        None if !Path::new(name).exists() => Err(WeightsError::Missing { name: name.into() }),
        None => Ok(Source::Loaded(Box::new(Model::load(Path::new(name), dtype)?))),
    }
}

/// [`source`] in host memory.
pub fn open(name: &str, dtype: Option<Dtype>) -> Result<Model, WeightsError> {
    Ok(match source(name, dtype)? {
        Source::Synthetic(synthetic) => synthetic.model(),
        Source::Loaded(model) => *model,
        Source::Borrowed(model) => model.clone(),
    })
}
