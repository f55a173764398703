//! Embedding rows.

use super::{DeviceError, HostMatrix, require, require_len};
use crate::contract::Dtype;

/// See [`super::Device::embed`].
pub(super) fn embed(
    dtype: Dtype,
    embedding: &HostMatrix,
    tokens: &[u32],
    h: &mut [f32],
) -> Result<(), DeviceError> {
    let hidden = embedding.k();
    require_len("embed", "h", h.len(), tokens.len() * hidden)?;
    for (&token, h) in tokens.iter().zip(h.chunks_exact_mut(hidden)) {
        require((token as usize) < embedding.n(), || {
            format!("embed: token {token} in a vocabulary of {}", embedding.n())
        })?;
        for (h, bits) in h.iter_mut().zip(embedding.row(token as usize)) {
            *h = dtype.widen(bits);
        }
    }
    Ok(())
}
