//! Launches of a GEMM: the cuts come with the launch and are honoured or refused.

use super::compile::{Program, Source};
use super::context::{Arg, Buffer, Cuts, Shape};
use super::log::Tap;
use super::{Cuda, CudaMatrix, check_cuts, require_len};
use crate::device::{DeviceError, GemmLaunch, GemmOutput, RowTile, Splits};

/// Rows of x in a block of a skinny launch.
const SKINNY_ROWS: usize = 8;
/// Rows and columns of a block of a tiled launch; also the columns of a skinny one.
pub(super) const TILE: usize = 64;
/// Most splits of a launch: `SPLITS_MAX` of gemm.cu.
const SPLITS_MAX: usize = 8;

/// `enum Mode` of gemm.cu, and the output.
fn sink(out: &GemmOutput<'_, Cuda>) -> (u32, Arg, usize) {
    match out {
        GemmOutput::Round(y) => (0, y.arg(), y.len()),
        GemmOutput::Residual(h) => (1, h.arg(), h.len()),
        GemmOutput::Store(y) => (2, y.arg(), y.len()),
    }
}

impl Cuda {
    /// See [`crate::device::Device::gemm`].
    pub(super) fn gemm_rows(
        &mut self,
        launch: &GemmLaunch,
        m: usize,
        x: &Buffer<u16>,
        w: &CudaMatrix,
        out: &GemmOutput<'_, Cuda>,
    ) -> Result<(), DeviceError> {
        let cuts = cuts(launch, w)?;
        self.launch_gemm(launch, cuts, m, x, w, out)
    }

    /// See [`crate::device::Device::gemm_split`].
    pub(super) fn gemm_split_rows(
        &mut self,
        launch: &GemmLaunch,
        split: usize,
        m: usize,
        x: &Buffer<u16>,
        w: &CudaMatrix,
        y: &mut Buffer<f32>,
    ) -> Result<(), DeviceError> {
        cuts(launch, w)?;
        let only = launch.only(split)?;
        self.launch_gemm(&only, argument(&only.cuts), m, x, w, &GemmOutput::Store(y))
    }

    /// Launches a GEMM whose cuts were checked.
    fn launch_gemm(
        &mut self,
        launch: &GemmLaunch,
        cuts: Cuts,
        m: usize,
        x: &Buffer<u16>,
        w: &CudaMatrix,
        out: &GemmOutput<'_, Cuda>,
    ) -> Result<(), DeviceError> {
        let (mode, to, have) = sink(out);
        require_len("gemm", "x", x.len(), m * w.k)?;
        require_len("gemm", "output", have, m * w.n)?;
        if m == 0 {
            return Ok(());
        }
        let program = Program::new(Source::GEMM, self.contract.dtype);
        let counts = self.counters.arg(&self.context)?;
        let tiles = w.n.div_ceil(TILE);
        let rows = match launch.rows {
            RowTile::Skinny => m.div_ceil(SKINNY_ROWS),
            RowTile::Tiled => m.div_ceil(TILE),
        };
        let sizes = [m, w.n, w.k, w.k_padded].map(|n| Arg::U32(n as u32));
        let mut args = vec![x.arg(), w.data.arg()];
        args.extend(sizes);
        args.push(Arg::Cuts(cuts));
        let rounds = matches!(out, GemmOutput::Round(_));
        let tap = if rounds { self.tap(m, w.n)? } else { Tap::NONE };
        let parallel = launch.splits == Splits::Parallel;
        let name = match (launch.rows, launch.splits) {
            (RowTile::Skinny, Splits::Walk) => "gemm_skinny_walk",
            (RowTile::Skinny, Splits::Parallel) => "gemm_skinny_parallel",
            (RowTile::Tiled, Splits::Walk) => "gemm_tiled_walk",
            (RowTile::Tiled, Splits::Parallel) => "gemm_tiled_parallel",
        };
        if !parallel {
            args.extend([Arg::U32(mode), to, tap.arg(), counts]);
            let shape = Shape::new((tiles, rows, 1), 128);
            // SAFETY: the parameters of the walk kernels; x has m*k elements, the output and the tap m*n, and the
            // matrix is padded to whole tiles and groups.
            unsafe { self.context.launch(program, name, shape, &args) }?;
            return self.log_gemm(tap, m, w.n, out);
        }
        let splits = cuts.splits as usize;
        let partials = self.context.alloc::<f32>(splits * m * w.n)?;
        args.extend([partials.arg(), counts]);
        let shape = Shape::new((tiles, rows, splits), 128);
        // SAFETY: as above; partials hold splits*m*n elements.
        unsafe { self.context.launch(program, name, shape, &args) }?;
        let fold = [
            partials.arg(),
            Arg::U32(cuts.splits),
            sizes[0],
            sizes[1],
            Arg::U32(mode),
            to,
            tap.arg(),
            counts,
        ];
        // SAFETY: the parameters of the fold; one thread an element of the output.
        unsafe { self.context.launch(program, "gemm_fold", Shape::elements(m * w.n), &fold) }?;
        self.log_gemm(tap, m, w.n, out)
    }

    /// Logs what was rounded, or h.
    fn log_gemm(
        &mut self,
        tap: Tap,
        m: usize,
        n: usize,
        out: &GemmOutput<'_, Cuda>,
    ) -> Result<(), DeviceError> {
        match out {
            GemmOutput::Round(_) => self.log_tap(tap),
            GemmOutput::Residual(h) => self.log_rows(m, n, h),
            GemmOutput::Store(_) => Ok(()),
        }
    }
}

/// The cut array of a launch as an argument, or a refusal.
fn cuts(launch: &GemmLaunch, w: &CudaMatrix) -> Result<Cuts, DeviceError> {
    let cuts = &launch.cuts;
    check_cuts(cuts, w.n, w.k, w.k_padded, SPLITS_MAX)?;
    Ok(argument(cuts))
}

/// Cuts as an argument.
fn argument(cuts: &[u32]) -> Cuts {
    let mut at = [0; SPLITS_MAX + 1];
    at[..cuts.len()].copy_from_slice(cuts);
    Cuts { splits: cuts.len() as u32 - 1, at }
}
