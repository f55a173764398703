//! The log of a device that watches: digests of f32 results before they are rounded.
//!
//! An operator that rounds writes its f32 results to a tap as well; a digest kernel then leaves one digest a row in a
//! buffer that is read back when the log is taken, once for many operators.

use super::compile::Source;
use super::context::{Arg, Buffer, NULL, Shape};
use super::{Cuda, DeviceError, LoggedRows};

/// Digests in a buffer of the log, at least.
const CHUNK: usize = 4096;

/// The log; off at first.
#[derive(Debug, Default)]
pub(super) struct Log {
    on: bool,
    /// Where the next operator leaves its f32 results.
    tap: Option<Buffer<f32>>,
    chunks: Vec<Chunk>,
}

/// Digests that are read back together.
#[derive(Debug)]
struct Chunk {
    digests: Buffer<u64>,
    /// (width, rows) of each entry.
    entries: Vec<(usize, usize)>,
    used: usize,
}

/// Where an operator is to leave f32 results `[rows][width]`, if anywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap {
    at: Arg,
    rows: usize,
    width: usize,
}

impl Tap {
    /// Nowhere.
    pub(super) const NONE: Tap = Tap { at: NULL, rows: 0, width: 0 };

    /// The tap as a kernel argument: null, if nothing is to be left.
    pub(super) fn arg(&self) -> Arg {
        self.at
    }
}

impl Cuda {
    /// See [`crate::device::Device::watch`].
    pub(super) fn switch_log(&mut self, on: bool) {
        self.log.on = on;
    }

    /// A tap for `rows` rows of `width`; nowhere while the log is off.
    pub(super) fn tap(&mut self, rows: usize, width: usize) -> Result<Tap, DeviceError> {
        let [tap, _] = self.taps(rows, [width, 0])?;
        Ok(tap)
    }

    /// Two taps for `rows` rows.
    pub(super) fn taps(
        &mut self,
        rows: usize,
        widths: [usize; 2],
    ) -> Result<[Tap; 2], DeviceError> {
        let Log { on: true, tap, .. } = &mut self.log else { return Ok([Tap::NONE; 2]) };
        let len = rows * (widths[0] + widths[1]);
        if tap.as_ref().is_none_or(|tap| tap.len() < len) {
            *tap = Some(self.context.alloc(len.next_power_of_two())?);
        }
        let tap = tap.as_ref().expect("just made");
        let [first, second] = widths;
        Ok([
            Tap { at: tap.at(0), rows, width: first },
            Tap { at: tap.at(rows * first), rows, width: second },
        ])
    }

    /// Logs what an operator left in a tap.
    pub(super) fn log_tap(&mut self, tap: Tap) -> Result<(), DeviceError> {
        self.log_rows(tap.rows, tap.width, tap.at)
    }

    /// Logs `x[rows][width]`.
    pub(super) fn log_rows(
        &mut self,
        rows: usize,
        width: usize,
        x: Arg,
    ) -> Result<(), DeviceError> {
        if !self.log.on {
            return Ok(());
        }
        let fits = |chunk: &Chunk| chunk.used + rows <= chunk.digests.len();
        if !self.log.chunks.last().is_some_and(fits) {
            let digests = self.context.alloc(CHUNK.max(rows))?;
            self.log.chunks.push(Chunk { digests, entries: Vec::new(), used: 0 });
        }
        let chunk = self.log.chunks.last_mut().expect("just made");
        let to = chunk.digests.at(chunk.used);
        chunk.entries.push((width, rows));
        chunk.used += rows;
        if rows == 0 {
            return Ok(());
        }
        let args = [x, Arg::U32(width as u32), to];
        // SAFETY: digest_rows' parameters; x has rows*width elements, the chunk has room for a digest a row.
        unsafe { self.launch(Source::DIGEST, "digest_rows", Shape::new((rows, 1, 1), 256), &args) }
    }

    /// See [`crate::device::Device::take_log`].
    pub(super) fn read_log(&mut self) -> Result<Vec<LoggedRows>, DeviceError> {
        let mut log = Vec::new();
        for chunk in std::mem::take(&mut self.log.chunks) {
            let digests = self.context.download(&chunk.digests, chunk.used)?;
            let mut rest = digests.as_slice();
            for (width, rows) in chunk.entries {
                let (entry, after) = rest.split_at(rows);
                log.push(LoggedRows { width, digests: entry.to_vec() });
                rest = after;
            }
        }
        Ok(log)
    }
}
