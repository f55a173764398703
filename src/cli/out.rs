//! Standard output. A reader that went away (`| head -1`) is no error, and never changes the verdict's exit code; output
//! that was lost otherwise is one, so that nobody takes exit code 0 for a verdict that was never written.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static LOST: AtomicBool = AtomicBool::new(false);
static DIVERTED: AtomicBool = AtomicBool::new(false);

/// Whether something could not be written.
pub(super) fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Sends what is [written](write) from now on to standard error: standard output is for a [document] alone.
pub(super) fn divert() {
    DIVERTED.store(true, Ordering::Relaxed);
}

/// Writes text for people to standard output. What cannot be written is said once on standard error, unless the reader just
/// left.
pub(super) fn write(text: Arguments<'_>) {
    if DIVERTED.load(Ordering::Relaxed) {
        // The document is what must not be lost; there is nowhere to say that this was.
        let _ = std::io::stderr().lock().write_fmt(text);
    } else {
        write_out(text);
    }
}

/// Writes a document for programs to standard output.
pub(super) fn document(text: &str) {
    write_out(format_args!("{text}\n"));
}

fn write_out(text: Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        // Said once, not for each line.
        if !LOST.swap(true, Ordering::Relaxed) {
            let _ = writeln!(std::io::stderr(), "lockstep: standard output: {error}");
        }
    }
}

/// `println!` that does not panic.
macro_rules! say {
    ($($text:tt)*) => {
        crate::cli::out::write(format_args!("{}\n", format_args!($($text)*)))
    };
}

pub(super) use say;
