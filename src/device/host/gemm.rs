//! GEMM (docs/contract.md section 2): the cuts come with the launch and are honoured or refused.
//!
//! Skinny: a block of panels is decoded a few groups of K at a time (or taken decoded from a small matrix), and
//! every row advances over it.
//! Tiled: a panel is decoded once for the whole of K, and each row walks all of it. Either way a job is one
//! row's chain over eight columns, and many jobs run side by side.

use super::round::round;
use super::{DeviceError, GemmOutput, Host, HostMatrix, check_cuts, require_len};
use crate::contract::matrix_unit::{COLUMNS, Decoded, GROUP, Job, PANEL_GROUP};
use crate::device::{GemmLaunch, RowTile, Splits};

/// Panels that a skinny launch advances together.
const SKINNY_PANELS: usize = 4;
/// Groups of K that a skinny launch decodes at a time.
const SKINNY_GROUPS: usize = 4;

/// Buffers of a GEMM, reused from launch to launch.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// x, decoded, rows padded to 16.
    rows: Decoded,
    /// Weights, decoded.
    panels: Decoded,
    /// One row of x with its padding.
    padded: Vec<u16>,
    jobs: Vec<Job>,
    /// Chain accumulators, one per job.
    partial: Vec<[f32; COLUMNS]>,
    /// Running sums of a walk, one per job.
    sums: Vec<[f32; COLUMNS]>,
    /// Partials of parallel splits, `[split][m][panels * 8]`.
    workspace: Vec<f32>,
    /// y of an output that is rounded.
    y: Vec<f32>,
}

/// Destination of y: `[m][n]` f32, added to or overwritten.
struct Sink<'a> {
    y: &'a mut [f32],
    n: usize,
    add: bool,
}

impl Sink<'_> {
    /// Stores up to eight columns of a row from `column` on.
    #[inline]
    fn put(&mut self, row: usize, column: usize, values: &[f32]) {
        let width = values.len().min(self.n - column);
        let y = &mut self.y[row * self.n + column..][..width];
        if self.add {
            for (y, v) in y.iter_mut().zip(values) {
                *y += *v;
            }
        } else {
            y.copy_from_slice(&values[..width]);
        }
    }
}

impl Host {
    /// See [`super::Device::gemm`].
    pub(super) fn gemm_rows(
        &mut self,
        launch: &GemmLaunch,
        m: usize,
        x: &[u16],
        w: &HostMatrix,
        out: GemmOutput<'_, Host>,
    ) -> Result<(), DeviceError> {
        let n = w.n();
        check_cuts(&launch.cuts, w.n(), w.k(), w.k_padded(), usize::MAX)?;
        require_len("gemm", "x", x.len(), m * w.k())?;
        let have = match &out {
            GemmOutput::Round(y) => y.len(),
            GemmOutput::Residual(y) | GemmOutput::Store(y) => y.len(),
        };
        require_len("gemm", "output", have, m * n)?;
        self.decode_x(m, x, w);
        let mut y = std::mem::take(&mut self.gemm.y);
        match out {
            GemmOutput::Residual(h) => {
                self.multiply(launch, m, w, Sink { y: h, n, add: true });
                self.log.rows(self.simd, n, &h[..m * n]);
            }
            GemmOutput::Store(out) => {
                self.multiply(launch, m, w, Sink { y: out, n, add: false });
            }
            GemmOutput::Round(out) => {
                if y.len() < m * n {
                    y.resize(m * n, f32::NAN);
                }
                self.multiply(launch, m, w, Sink { y: &mut y, n, add: false });
                self.log.rows(self.simd, n, &y[..m * n]);
                round(self.simd, self.contract.dtype, &y[..m * n], &mut out[..m * n]);
            }
        }
        self.gemm.y = y;
        Ok(())
    }

    /// See [`super::Device::gemm_split`].
    pub(super) fn gemm_split_rows(
        &mut self,
        launch: &GemmLaunch,
        split: usize,
        m: usize,
        x: &[u16],
        w: &HostMatrix,
        y: &mut [f32],
    ) -> Result<(), DeviceError> {
        let n = w.n();
        check_cuts(&launch.cuts, n, w.k(), w.k_padded(), usize::MAX)?;
        require_len("gemm_split", "x", x.len(), m * w.k())?;
        require_len("gemm_split", "y", y.len(), m * n)?;
        self.decode_x(m, x, w);
        self.multiply(&launch.only(split)?, m, w, Sink { y, n, add: false });
        Ok(())
    }

    /// Decodes x to rows of the padded K.
    fn decode_x(&mut self, m: usize, x: &[u16], w: &HostMatrix) {
        let (k, k_padded) = (w.k(), w.k_padded());
        let Scratch { rows, padded, .. } = &mut self.gemm;
        rows.reserve(m * k_padded);
        if k == k_padded {
            let (values, exponents) = rows.slots(0..m * k);
            self.unit.decode_rows(&x[..m * k], values, exponents);
            return;
        }
        padded.clear();
        padded.resize(k_padded, 0);
        for (r, x) in x[..m * k].chunks_exact(k).enumerate() {
            padded[..k].copy_from_slice(x);
            let (values, exponents) = rows.slots(r * k_padded..(r + 1) * k_padded);
            self.unit.decode_rows(padded, values, exponents);
        }
    }

    fn multiply(&mut self, launch: &GemmLaunch, m: usize, w: &HostMatrix, mut sink: Sink<'_>) {
        let splits = launch.cuts.len() - 1;
        let width = w.panels() * COLUMNS;
        if launch.splits == Splits::Parallel {
            let len = splits * m * width;
            if self.gemm.workspace.len() < len {
                self.gemm.workspace.resize(len, f32::NAN);
            }
        }
        match launch.rows {
            RowTile::Skinny => self.skinny(launch, m, w, &mut sink),
            RowTile::Tiled => self.tiled(launch, m, w, &mut sink),
        }
        if launch.splits == Splits::Parallel {
            fold(&self.gemm.workspace, splits, m, width, &mut sink);
        }
        if splits > 1 {
            self.counts.gemm_folds += 1;
        }
    }

    fn skinny(&mut self, launch: &GemmLaunch, m: usize, w: &HostMatrix, sink: &mut Sink<'_>) {
        let walk = launch.splits == Splits::Walk;
        match launch.splits {
            Splits::Walk => self.counts.gemm_skinny_walk += 1,
            Splits::Parallel => self.counts.gemm_skinny_parallel += 1,
        }
        let Scratch { rows, panels, jobs, partial, sums, workspace, .. } = &mut self.gemm;
        let width = w.panels() * COLUMNS;
        panels.reserve(SKINNY_PANELS * SKINNY_GROUPS * PANEL_GROUP);
        for first in (0..w.panels()).step_by(SKINNY_PANELS) {
            let block = SKINNY_PANELS.min(w.panels() - first);
            sums.clear();
            sums.resize(m * block, [0.0; COLUMNS]);
            for (split, cut) in launch.cuts.windows(2).enumerate() {
                let (from, to) = (cut[0] as usize, cut[1] as usize);
                partial.clear();
                partial.resize(m * block, [0.0; COLUMNS]);
                let mut advance =
                    |k: usize, len: usize, panels: &Decoded, at: &dyn Fn(usize) -> usize| {
                        jobs.clear();
                        for r in 0..m {
                            jobs.extend((0..block).map(|p| Job {
                                row: (r * w.k_padded() + k) as u32,
                                panel: at(p) as u32,
                            }));
                        }
                        let (rows, panels) = (rows.operand(), panels.operand());
                        self.unit.chains(len / GROUP, rows, panels, jobs, partial);
                    };
                if let Some(resident) = w.resident() {
                    let at = |p| ((first + p) * w.k_padded() + from) * COLUMNS;
                    advance(from, to - from, resident, &at);
                } else {
                    let stride = SKINNY_GROUPS * PANEL_GROUP;
                    for k in (from..to).step_by(SKINNY_GROUPS * GROUP) {
                        let len = (SKINNY_GROUPS * GROUP).min(to - k);
                        for p in 0..block {
                            let range = p * stride..p * stride + len * COLUMNS;
                            let (values, exponents) = panels.slots(range);
                            self.unit.decode_panel(
                                w.panel(first + p, k..k + len),
                                values,
                                exponents,
                            );
                        }
                        advance(k, len, panels, &|p| p * stride);
                    }
                }
                if walk {
                    accumulate(sums, partial);
                } else {
                    for (r, p) in partial.chunks_exact(block).enumerate() {
                        let at = (split * m + r) * width + first * COLUMNS;
                        workspace[at..at + block * COLUMNS].copy_from_slice(p.as_flattened());
                    }
                }
            }
            if walk {
                for (r, s) in sums.chunks_exact(block).enumerate() {
                    sink.put(r, first * COLUMNS, s.as_flattened());
                }
            }
        }
    }

    fn tiled(&mut self, launch: &GemmLaunch, m: usize, w: &HostMatrix, sink: &mut Sink<'_>) {
        let walk = launch.splits == Splits::Walk;
        match launch.splits {
            Splits::Walk => self.counts.gemm_tiled_walk += 1,
            Splits::Parallel => self.counts.gemm_tiled_parallel += 1,
        }
        let Scratch { rows, panels, jobs, partial, sums, workspace, .. } = &mut self.gemm;
        let k_padded = w.k_padded();
        let width = w.panels() * COLUMNS;
        panels.reserve(COLUMNS * k_padded);
        for panel in 0..w.panels() {
            let (values, exponents) = panels.slots(0..COLUMNS * k_padded);
            self.unit.decode_panel(w.panel(panel, 0..k_padded), values, exponents);
            sums.clear();
            sums.resize(m, [0.0; COLUMNS]);
            for (split, cut) in launch.cuts.windows(2).enumerate() {
                let (from, to) = (cut[0] as usize, cut[1] as usize);
                jobs.clear();
                jobs.extend((0..m).map(|r| Job {
                    row: (r * k_padded + from) as u32,
                    panel: (from * COLUMNS) as u32,
                }));
                partial.clear();
                partial.resize(m, [0.0; COLUMNS]);
                let (rows, panels) = (rows.operand(), panels.operand());
                self.unit.chains((to - from) / GROUP, rows, panels, jobs, partial);
                if walk {
                    accumulate(sums, partial);
                } else {
                    for (r, p) in partial.iter().enumerate() {
                        let at = (split * m + r) * width + panel * COLUMNS;
                        workspace[at..at + COLUMNS].copy_from_slice(p);
                    }
                }
            }
            if walk {
                for (r, s) in sums.iter().enumerate() {
                    sink.put(r, panel * COLUMNS, s);
                }
            }
        }
    }
}

/// `s = s + p`, lane by lane.
#[inline]
fn accumulate(sums: &mut [[f32; COLUMNS]], partial: &[[f32; COLUMNS]]) {
    for (s, p) in sums.as_flattened_mut().iter_mut().zip(partial.as_flattened()) {
        *s += *p;
    }
}

/// The second pass over parallel partials: from +0, ascending splits.
fn fold(workspace: &[f32], splits: usize, m: usize, width: usize, sink: &mut Sink<'_>) {
    for r in 0..m {
        for column in (0..width).step_by(COLUMNS) {
            let mut sum = [0.0_f32; COLUMNS];
            for split in 0..splits {
                let p = &workspace[(split * m + r) * width + column..][..COLUMNS];
                for (s, p) in sum.iter_mut().zip(p) {
                    *s += *p;
                }
            }
            sink.put(r, column, &sum);
        }
    }
}
