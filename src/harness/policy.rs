//! Device policy: which devices a run uses, decided once, before any trial exists.

use std::ffi::OsStr;
use std::fmt;
#[cfg(feature = "cuda")]
use std::sync::Arc;

#[cfg(feature = "cuda")]
use crate::device::cuda;

/// What `--device` or `LOCKSTEP_DEVICE` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The host, and a GPU where there is one.
    #[default]
    Auto,
    /// The host only.
    Host,
    /// The hash device: no arithmetic, state faults only.
    Hash,
    /// A GPU, by its ordinal.
    Cuda(usize),
}

/// Environment variable with the choice.
pub const DEVICE: &str = "LOCKSTEP_DEVICE";
/// Environment variable that makes a missing GPU a failure.
pub const REQUIRE_GPU: &str = "LOCKSTEP_REQUIRE_GPU";

/// What the names of Lockstep's environment variables begin with.
const PREFIX: &str = "LOCKSTEP_";
/// The rest of the names that something reads.
const KNOWN: [&str; 15] = [
    "CUBIN_CACHE",
    "CUDA_WAIT",
    "DATA",
    "DEVICE",
    "GOLDEN",
    "NVRTC",
    "REGRESSIONS",
    "REPEAT_CASE",
    "REQUIRE_GPU",
    "REV",
    "RUSTC",
    "SELFTEST",
    "SELFTEST_FOLDER",
    "SMOLLM2",
    "SOAK_SECONDS",
];
/// The test of devices against each other has variables of its own.
const X1: &str = "X1_";

/// Refuses variables that nobody reads, and values of [`REQUIRE_GPU`] that mean nothing: what is misspelt must not be
/// ignored in silence. The error is one line.
pub fn check_environment() -> Result<(), String> {
    required(std::env::var_os(REQUIRE_GPU).as_deref())?;
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    match unknown(names) {
        None => Ok(()),
        Some(name) => Err(format!(
            "unknown environment variable {name}, expected {PREFIX} and one of {}",
            KNOWN.join(", ")
        )),
    }
}

/// Whether a value of [`REQUIRE_GPU`] asks for a GPU. Set but empty is how some shells unset a variable.
fn required(value: Option<&OsStr>) -> Result<bool, String> {
    match value.map(OsStr::to_string_lossy).as_deref() {
        None | Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(format!("{REQUIRE_GPU}: expected 0 or 1, found {other:?}")),
    }
}

/// The first name, in their order, that is ours and read by nobody.
fn unknown(names: impl Iterator<Item = String>) -> Option<String> {
    let is_unknown = |name: &String| {
        let Some(rest) = name.strip_prefix(PREFIX) else { return false };
        !KNOWN.contains(&rest) && !rest.starts_with(X1)
    };
    names.filter(is_unknown).min()
}

/// A GPU ready to run on; nothing can be one in a build without the feature `cuda`.
#[cfg(feature = "cuda")]
pub type Gpu = Arc<cuda::Context>;
/// A GPU ready to run on; nothing can be one in a build without the feature `cuda`.
#[cfg(not(feature = "cuda"))]
pub type Gpu = std::convert::Infallible;

impl Choice {
    /// Parses a choice; the error is one line.
    pub fn parse(text: &str) -> Result<Choice, String> {
        match text {
            // Set but empty is how some shells unset a variable.
            "auto" | "" => Ok(Choice::Auto),
            "host" => Ok(Choice::Host),
            "cuda" => Ok(Choice::Cuda(0)),
            "hash" => Ok(Choice::Hash),
            _ => match text.strip_prefix("cuda:").map(str::parse) {
                Some(Ok(ordinal)) => Ok(Choice::Cuda(ordinal)),
                _ => Err(format!(
                    "unknown device {text:?}, expected host, cuda, cuda:N, hash or auto"
                )),
            },
        }
    }

    /// The choice of `LOCKSTEP_DEVICE`; an error too if another of our variables is [unknown](check_environment).
    pub fn from_env() -> Result<Choice, String> {
        check_environment()?;
        match std::env::var(DEVICE) {
            Ok(text) => Choice::parse(&text).map_err(|why| format!("{DEVICE}: {why}")),
            Err(_) => Ok(Choice::Auto),
        }
    }

    /// The GPU, or why there is none.
    pub fn gpu(self) -> Result<Gpu, String> {
        match self {
            Choice::Host | Choice::Hash => Err(format!("{DEVICE} is {self}")),
            Choice::Auto => open(0),
            Choice::Cuda(ordinal) => open(ordinal),
        }
    }

    /// Whether a missing GPU is a failure: it was asked for, or `LOCKSTEP_REQUIRE_GPU` is 1. A value that
    /// [`check_environment`] refuses is not taken for a no.
    pub fn requires_gpu(self) -> bool {
        let required = required(std::env::var_os(REQUIRE_GPU).as_deref()) != Ok(false);
        required || matches!(self, Choice::Cuda(_))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Auto => f.write_str("auto"),
            Choice::Host => f.write_str("host"),
            Choice::Hash => f.write_str("hash"),
            Choice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

#[cfg(feature = "cuda")]
fn open(ordinal: usize) -> Result<Gpu, String> {
    let gpu = cuda::probe(ordinal).map_err(|absent| absent.to_string())?;
    cuda::Context::new(gpu).map(Arc::new).map_err(|error| error.to_string())
}

#[cfg(not(feature = "cuda"))]
fn open(_: usize) -> Result<Gpu, String> {
    Err("this build has no feature cuda".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_named() {
        let found = |names: &[&str]| unknown(names.iter().map(|n| (*n).to_owned()));
        assert_eq!(found(&["PATH", "LOCKSTEP_DEVICE", "LOCKSTEP_X1_ROWS", "XLOCKSTEP_A"]), None);
        assert_eq!(found(&["LOCKSTEP_DEVICES"]), Some("LOCKSTEP_DEVICES".into()));
        assert_eq!(found(&["LOCKSTEP_"]), Some("LOCKSTEP_".into()));
        let two = ["LOCKSTEP_device", "LOCKSTEP_A", "LOCKSTEP_REV"];
        assert_eq!(found(&two), Some("LOCKSTEP_A".into()));
    }

    #[test]
    fn a_gpu_is_required_by_one_and_by_nothing_that_is_unclear() {
        let asks = |value: &str| required(Some(OsStr::new(value)));
        assert_eq!((required(None), asks(""), asks("0"), asks("1")), {
            (Ok(false), Ok(false), Ok(false), Ok(true))
        });
        for value in ["maybe", "true", "01", " "] {
            assert!(asks(value).unwrap_err().contains(&format!("{value:?}")), "{value}");
        }
    }

    #[test]
    fn choices_are_parsed_and_others_refused() {
        assert_eq!(Choice::parse("auto"), Ok(Choice::Auto));
        assert_eq!(Choice::parse("cuda"), Ok(Choice::Cuda(0)));
        assert_eq!(Choice::parse("cuda:3"), Ok(Choice::Cuda(3)));
        assert_eq!(Choice::parse(""), Ok(Choice::Auto));
        assert_eq!(Choice::parse("hash"), Ok(Choice::Hash));
        for text in ["hash:0", "cuda:", "cuda:x", "gpu"] {
            assert!(Choice::parse(text).is_err(), "{text}");
        }
        assert!(Choice::Host.gpu().is_err());
        assert_eq!(Choice::Hash.gpu().err(), Some("LOCKSTEP_DEVICE is hash".into()));
    }
}
