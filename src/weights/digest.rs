//! The digest that names a model in every artifact.

use sha2::{Digest as _, Sha256};

use super::{Model, ModelConfig};
use crate::contract::hex;

/// sha256 (hex) over configuration, dtype and tensors. The configuration's name is left out: it is what a
/// file happens to be called, and a model that moves must keep its digest.
pub(super) fn of(model: &Model) -> String {
    let config = ModelConfig { name: String::new(), ..model.config.clone() };
    let json = serde_json::to_vec(&config).expect("a configuration serialises");
    let mut hasher = Sha256::new();
    hasher.update(b"lockstep.model/1\0");
    hasher.update((json.len() as u64).to_le_bytes());
    hasher.update(&json);
    hasher.update(model.dtype.name());
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

/// Elements converted at a time.
const CHUNK: usize = 4096;
