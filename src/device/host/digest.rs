//! Digests (docs/contract.md section 13).

use std::ops::Range;

use super::{DeviceError, HostKv, require_len};
use crate::contract::simd::Simd;
use crate::contract::{Dtype, digest};
use crate::device::KvDigest;

/// See [`super::Device::digest_rows`].
pub(super) fn digest_rows(
    simd: Simd,
    m: usize,
    n: usize,
    x: &[f32],
) -> Result<Vec<u64>, DeviceError> {
    require_len("digest_rows", "x", x.len(), m * n)?;
    Ok((0..m).map(|r| digest::row(simd, &x[r * n..(r + 1) * n])).collect())
}

/// See [`super::Device::digest_kv`].
pub(super) fn digest_kv(
    simd: Simd,
    dtype: Dtype,
    layer: usize,
    kv: &HostKv,
    blocks: &[u32],
    positions: Range<u32>,
) -> Result<Vec<KvDigest>, DeviceError> {
    kv.shape().check("digest_kv", layer, blocks, positions.end as usize)?;
    Ok(positions
        .map(|position| {
            let row = kv.row(layer, blocks, position as usize);
            KvDigest {
                k: digest::row16(simd, dtype, &kv.k()[row.clone()]),
                v: digest::row16(simd, dtype, &kv.v()[row]),
            }
        })
        .collect())
}
