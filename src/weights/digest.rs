//! The digest that names a model in every artifact.

use sha2::{Digest as _, Sha256};

use super::{Model, ModelConfig, Recipe};
use crate::contract::{Dtype, hex};

/// sha256 (hex) over configuration, dtype and tensors. The configuration's name is left out: it is what a
/// file happens to be called, and a model that moves must keep its digest.
pub(super) fn of(model: &Model) -> String {
    let mut hasher = begin(b"lockstep.model/1\0", &model.config, model.dtype);
    let mut bytes = Vec::with_capacity(2 * CHUNK);
    for (name, values) in model.tensors() {
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update((values.len() as u64).to_le_bytes());
        for chunk in values.chunks(CHUNK) {
            bytes.clear();
            bytes.extend(chunk.iter().flat_map(|v| v.to_le_bytes()));
            hasher.update(&bytes);
        }
    }
    hex(&hasher.finalize())
}

/// sha256 (hex) over configuration, dtype and recipes: the version in the first bytes stands for the formula.
pub(super) fn of_recipes(
    config: &ModelConfig,
    dtype: Dtype,
    recipes: &[(String, Recipe)],
) -> String {
    let mut hasher = begin(b"lockstep.model.synthetic/1\0", config, dtype);
    for (name, recipe) in recipes {
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        let mut words = vec![recipe.key[0], recipe.key[1], recipe.parts.len() as u32];
        for part in &recipe.parts {
            let [n, k] = [part.n, part.k].map(|n| n as u32);
            words.extend([part.t, n, k, part.scale.to_bits(), u32::from(part.norm)]);
        }
        words.extend(recipe.rows.iter().flatten());
        hasher.update((words.len() as u64).to_le_bytes());
        for word in words {
            hasher.update(word.to_le_bytes());
        }
    }
    hex(&hasher.finalize())
}

fn begin(version: &[u8], config: &ModelConfig, dtype: Dtype) -> Sha256 {
    let config = ModelConfig { name: String::new(), ..config.clone() };
    let json = serde_json::to_vec(&config).expect("a configuration serialises");
    let mut hasher = Sha256::new();
    hasher.update(version);
    hasher.update((json.len() as u64).to_le_bytes());
    hasher.update(&json);
    hasher.update(dtype.name());
    hasher
}

/// Elements converted at a time.
const CHUNK: usize = 4096;
