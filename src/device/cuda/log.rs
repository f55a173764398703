//! The log of a device that watches: digests of f32 results before they are rounded.
//!
//! An operator that rounds writes its f32 results to a tap as well; a digest kernel then leaves one digest a row in a
//! buffer that is read back when the log is taken, once for many operators.

use std::collections::BTreeSet;

use super::compile::Source;
use super::context::{Arg, Buffer, NULL, Shape};
use super::{Cuda, DeviceError, LoggedRows};

/// Digests in a buffer of the log, at least.
const CHUNK: usize = 4096;

/// The log; off at first.
#[derive(Debug, Default)]
pub(super) struct Log {
    on: bool,
    kept: BTreeSet<usize>,
    /// Values of kept entries, in order; read back at once.
    values: Vec<Vec<f32>>,
    /// Entries so far.
    entries: usize,
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
    /// First element in the tap's buffer.
    first: usize,
    rows: usize,
    width: usize,
}

impl Tap {
    /// Nowhere.
    pub(super) const NONE: Tap = Tap { at: NULL, first: 0, rows: 0, width: 0 };

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

    /// See [`crate::device::Device::keep`].
    pub(super) fn keep_entries(&mut self, entries: &BTreeSet<usize>) {
        self.log.kept = entries.clone();
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
            Tap { at: tap.at(0), first: 0, rows, width: first },
            Tap { at: tap.at(rows * first), first: rows * first, rows, width: second },
        ])
    }

    /// Logs what an operator left in a tap.
    pub(super) fn log_tap(&mut self, tap: Tap) -> Result<(), DeviceError> {
        let Some(buffer) = self.log.tap.take() else { return Ok(()) };
        let logged = self.log_at(tap.rows, tap.width, &buffer, tap.first);
        self.log.tap = Some(buffer);
        logged
    }

    /// Logs `x[rows][width]`.
    pub(super) fn log_rows(
        &mut self,
        rows: usize,
        width: usize,
        x: &Buffer<f32>,
    ) -> Result<(), DeviceError> {
        self.log_at(rows, width, x, 0)
    }

    /// Logs `[rows][width]` from element `first` of `x` on.
    fn log_at(
        &mut self,
        rows: usize,
        width: usize,
        x: &Buffer<f32>,
        first: usize,
    ) -> Result<(), DeviceError> {
        if !self.log.on {
            return Ok(());
        }
        if self.log.kept.contains(&self.log.entries) {
            let values = self.context.download_from(x, first, rows * width)?;
            self.log.values.push(values);
        }
        self.log.entries += 1;
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
        let args = [x.at(first), Arg::U32(width as u32), to];
        // SAFETY: digest_rows' parameters; x has rows*width elements, the chunk has room for a digest a row.
        unsafe { self.launch(Source::DIGEST, "digest_rows", Shape::new((rows, 1, 1), 256), &args) }
    }

    /// See [`crate::device::Device::take_log`].
    pub(super) fn read_log(&mut self) -> Result<Vec<LoggedRows>, DeviceError> {
        let mut log = Vec::new();
        let mut values = std::mem::take(&mut self.log.values).into_iter();
        self.log.entries = 0;
        for chunk in std::mem::take(&mut self.log.chunks) {
            let digests = self.context.download(&chunk.digests, chunk.used)?;
            let mut rest = digests.as_slice();
            for (width, rows) in chunk.entries {
                let (entry, after) = rest.split_at(rows);
                let is_kept = self.log.kept.contains(&log.len());
                let values = if is_kept { values.next() } else { None };
                log.push(LoggedRows { width, digests: entry.to_vec(), values });
                rest = after;
            }
        }
        Ok(log)
    }
}
