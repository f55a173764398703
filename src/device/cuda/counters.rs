//! Sentinels inside kernels: one u32 a counter, added to in the branch that does the work.

use super::context::{Arg, Buffer, Context};
use crate::device::{DeviceError, VariantCounts};

/// Number of counters: `enum Counter` of the prelude.
const LEN: usize = 11;

/// Counters of one instance. On the device only once something was launched.
#[derive(Debug, Default)]
pub(super) struct Counters(Option<Buffer<u32>>);

impl Counters {
    /// As a kernel argument.
    pub(super) fn arg(&mut self, context: &Context) -> Result<Arg, DeviceError> {
        if self.0.is_none() {
            self.0 = Some(context.alloc_filled(LEN, 0)?);
        }
        Ok(self.0.as_ref().expect("just made").arg())
    }

    /// What was counted so far, in the order of the prelude.
    pub(super) fn read(&self, context: &Context) -> Result<VariantCounts, DeviceError> {
        let Some(buffer) = &self.0 else { return Ok(VariantCounts::default()) };
        let n = context.download(buffer, LEN)?;
        let n = |i: usize| u64::from(n[i]);
        Ok(VariantCounts {
            gemm_skinny_walk: n(0),
            gemm_skinny_parallel: n(1),
            gemm_tiled_walk: n(2),
            gemm_tiled_parallel: n(3),
            attention_walk: n(4),
            attention_parallel: n(5),
            norm_fused: n(6),
            norm_plain: n(7),
            gemm_folds: n(8),
            attention_folds: n(9),
            attention_tile_before_chunk: n(10),
        })
    }
}
