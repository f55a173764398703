//! RoPE, the optional q/k norm before it, and the write of K and V to their slots (docs/contract.md section 5).

use std::marker::PhantomData;

use super::norm::Scale;
use super::round::round;
use super::{DeviceError, Heads, Host, HostKv, Layout, QkNorm, require, require_len};
use crate::contract::dtype::{Format, with_format};
use crate::contract::rope::RopeTable;
use crate::contract::scalar::score_scale;
use crate::contract::simd::Kernel;
use crate::contract::tree::norm_lanes;
use crate::device::Sequence;

/// Operands of [`super::Device::rope_and_store`].
pub(super) struct Task<'a> {
    pub(super) layer: usize,
    pub(super) heads: Heads,
    pub(super) layout: &'a Layout,
    pub(super) qkv: &'a [u16],
    pub(super) norm: Option<QkNorm<'a, Host>>,
    pub(super) rope: &'a RopeTable,
}

impl Host {
    /// See [`super::Device::rope_and_store`].
    pub(super) fn rope_rows(
        &mut self,
        task: Task<'_>,
        q: &mut [u16],
        kv: &mut HostKv,
    ) -> Result<(), DeviceError> {
        check(&task, q, kv)?;
        let Heads { q: q_heads, kv: kv_heads, dim } = task.heads;
        let (layer, layout) = (task.layer, task.layout);
        let (q_len, k_len) = (layout.rows() * q_heads * dim, layout.rows() * kv_heads * dim);
        let y = &mut self.rows;
        y.resize(q_len + k_len, f32::NAN);
        let (q_rows, k_rows) = y.split_at_mut(q_len);
        let (q_out, k_out) = (&mut *q_rows, &mut *k_rows);
        with_format!(self.contract.dtype, F => {
            let format = PhantomData::<F>;
            self.simd.run(Rotate { task, q: q_out, k: k_out, kv: &mut *kv, format });
        });
        let (simd, dtype) = (self.simd, self.contract.dtype);
        self.log.rows(simd, q_heads * dim, q_rows);
        self.log.rows(simd, kv_heads * dim, k_rows);
        round(simd, dtype, q_rows, &mut q[..q_len]);
        for (position, k) in positions(layout).zip(k_rows.chunks_exact(kv_heads * dim)) {
            let slot = kv.row(layer, &position.0.blocks, position.1);
            round(simd, dtype, k, &mut kv.k_v_mut().0[slot]);
        }
        Ok(())
    }
}

/// Sequence and position of each row.
fn positions(layout: &Layout) -> impl Iterator<Item = (&Sequence, usize)> {
    layout.sequences.iter().flat_map(|s| (0..s.len).map(move |i| (s, (s.start + i) as usize)))
}

/// Refuses heads or a layout that do not fit the pool.
pub(super) fn check_layout(
    operator: &str,
    layer: usize,
    heads: Heads,
    layout: &Layout,
    kv: &HostKv,
) -> Result<(), DeviceError> {
    let takes_dim = heads.dim > 0 && heads.dim.is_multiple_of(16);
    kv.shape().check_layout(operator, layer, heads, layout, takes_dim)
}

fn check(task: &Task<'_>, q: &[u16], kv: &HostKv) -> Result<(), DeviceError> {
    let Task { layer, heads, layout, qkv, norm, rope } = task;
    check_layout("rope_and_store", *layer, *heads, layout, kv)?;
    let rows = layout.rows();
    require_len("rope_and_store", "qkv", qkv.len(), rows * heads.qkv_columns())?;
    require_len("rope_and_store", "q", q.len(), rows * heads.q * heads.dim)?;
    let end = layout.sequences.iter().map(|s| s.start as usize + s.len as usize).max();
    require(rope.head_dim == heads.dim && end.unwrap_or(0) <= rope.positions, || {
        let RopeTable { head_dim, positions, .. } = rope;
        format!("rope_and_store: a table of {positions} x {head_dim} for {end:?} x {}", heads.dim)
    })?;
    if let Some(norm) = norm {
        require_len("rope_and_store", "q norm weight", norm.q.len(), heads.dim)?;
        require_len("rope_and_store", "k norm weight", norm.k.len(), heads.dim)?;
    }
    Ok(())
}

/// What a rotation reads and writes: q' and K unrounded, `[row][head][dim]`; V to its slots.
struct Rotate<'a, F> {
    task: Task<'a>,
    q: &'a mut [f32],
    k: &'a mut [f32],
    kv: &'a mut HostKv,
    format: PhantomData<F>,
}

impl<F: Format> Kernel for Rotate<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Task { layer, heads, layout, qkv, norm, rope } = self.task;
        let d = heads.dim;
        let half = d / 2;
        let scale = score_scale(d);
        let eps = norm.as_ref().map_or(0.0, |norm| norm.eps);
        let (q_norm, k_norm) = (norm.as_ref().map(|n| &n.q[..d]), norm.as_ref().map(|n| &n.k[..d]));
        let (q_len, k_len) = (heads.q * d, heads.kv * d);
        let rows = qkv.chunks_exact(heads.qkv_columns());
        let outputs = self.q.chunks_exact_mut(q_len).zip(self.k.chunks_exact_mut(k_len));
        for ((row, (q, k)), (sequence, position)) in rows.zip(outputs).zip(positions(layout)) {
            let cos = &rope.cos[position * half..(position + 1) * half];
            let sin = &rope.sin[position * half..(position + 1) * half];
            let (q_row, rest) = row.split_at(q_len);
            let (k_row, v_row) = rest.split_at(k_len);
            for (x, q) in q_row.chunks_exact(d).zip(q.chunks_exact_mut(d)) {
                head::<F>(x, q_norm, eps, cos, sin, q);
                q.iter_mut().for_each(|y| *y *= scale);
            }
            for (x, k) in k_row.chunks_exact(d).zip(k.chunks_exact_mut(d)) {
                head::<F>(x, k_norm, eps, cos, sin, k);
            }
            let slot = self.kv.row(layer, &sequence.blocks, position);
            self.kv.k_v_mut().1[slot].copy_from_slice(v_row);
        }
    }
}

/// Widens, norms (if asked) and rotates one head's row into `y`.
#[inline(always)]
fn head<F: Format>(
    x: &[u16],
    norm: Option<&[u16]>,
    eps: f32,
    cos: &[f32],
    sin: &[f32],
    y: &mut [f32],
) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = F::widen(*x);
    }
    if let Some(weight) = norm {
        let lanes = norm_lanes(y.len()) as usize;
        let r = Scale { x: y, lanes, eps }.run();
        for (y, w) in y.iter_mut().zip(weight) {
            *y = (*y * r) * F::widen(*w);
        }
    }
    let (low, high) = y.split_at_mut(x.len() / 2);
    for (((a, b), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
        let (x, y) = (*a, *b);
        *a = x.mul_add(*cos, -(y * sin));
        *b = y.mul_add(*cos, x * sin);
    }
}
