//! [`Model::load`]: which format a path is in.

use std::path::Path;

use super::{Model, Origin, WeightsError, gguf_model, gguf_split, hf};
use crate::contract::Dtype;

impl Model {
    /// Loads a GGUF file, or a folder with `config.json` and safetensors.
    ///
    /// Without `dtype`, GGUF is stored as f16 and safetensors as the configuration's dtype (f32 as bf16).
    pub fn load(path: &Path, dtype: Option<Dtype>) -> Result<Model, WeightsError> {
        let origin = Origin::new(path);
        let kind = std::fs::metadata(path).map_err(|e| origin.io(e))?;
        // A path such as `.` has no name of its own.
        let full = path.canonicalize().map_err(|e| origin.io(e))?;
        let name = full.file_name().unwrap_or(full.as_os_str()).to_string_lossy().into_owned();
        if kind.is_dir() {
            return hf::load(path, name, dtype);
        }
        // A pipe or a device has no length to check against.
        if !kind.is_file() {
            return Err(origin.unsupported("neither a file nor a folder"));
        }
        gguf_model::load(gguf_split::open(path)?, name, dtype)
    }
}
