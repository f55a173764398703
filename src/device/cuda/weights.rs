//! Synthetic weights, made in place (docs/contract.md section 12).

use super::compile::Source;
use super::context::{Arg, Buffer, NULL, Shape};
use super::{Cuda, require};
use crate::device::DeviceError;
use crate::weights::Recipe;

impl Cuda {
    /// A recipe's rows, each `k_padded` elements, and +0 up to `n_padded` rows.
    pub(super) fn make_rows(
        &self,
        recipe: &Recipe,
        n_padded: usize,
        k_padded: usize,
    ) -> Result<Buffer<u16>, DeviceError> {
        let (n, k) = (recipe.n(), recipe.k());
        let whole = recipe.parts.iter().all(|p| p.k == k)
            && recipe.rows.as_ref().is_none_or(|r| r.len() == n && recipe.parts.len() == 1);
        require(whole && n > 0 && k > 0 && n <= n_padded && k <= k_padded, || {
            format!("weights: {n} x {k} in {n_padded} x {k_padded}")
        })?;
        require(recipe.dtype == self.contract.dtype, || {
            format!("weights: {} under a contract of another dtype", recipe.dtype.name())
        })?;
        let out = self.context.alloc_filled::<u16>(n_padded * k_padded, 0)?;
        let rows = recipe.rows.as_ref().map(|rows| self.context.upload(rows)).transpose()?;
        let mut first = 0;
        for part in &recipe.parts {
            let args = [
                out.at(first * k_padded),
                Arg::U32(part.n as u32),
                Arg::U32(k as u32),
                Arg::U32(k_padded as u32),
                Arg::U32(part.t),
                Arg::F32(part.scale),
                Arg::U32(u32::from(part.norm)),
                Arg::U32(recipe.key[0]),
                Arg::U32(recipe.key[1]),
                rows.as_ref().map_or(NULL, Buffer::arg),
            ];
            let shape = Shape::new((part.n, 1, 1), 256);
            // SAFETY: weights' parameters; the buffer holds the part's rows from `first` on, and `rows`, if there,
            // has an entry for each.
            unsafe { self.launch(Source::WEIGHTS, "weights", shape, &args) }?;
            first += part.n;
        }
        Ok(out)
    }
}
