//! The first touch: whether there is a driver, an NVRTC and a device. cudarc panics where a library is missing, so
//! every call to it comes after this.

use std::fmt;

use cudarc::driver::{result, sys};

use super::arch::Arch;
use super::compile::{CompileError, Compiler};

/// Why there is no CUDA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// No driver library.
    Driver,
    /// The driver refused to start.
    Init(String),
    /// NVRTC is missing or failed.
    Nvrtc(CompileError),
    /// The driver sees no device.
    NoDevice,
    /// There are devices, but not this one.
    Ordinal {
        /// What was asked for.
        asked: usize,
        /// How many there are.
        count: usize,
    },
    /// The device lacks the instructions that the kernels use.
    TooOld {
        /// What it is.
        arch: String,
    },
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absent::Driver => write!(f, "no CUDA driver (libcuda.so)"),
            Absent::Init(why) => write!(f, "the CUDA driver does not start: {why}"),
            Absent::Nvrtc(error) => write!(f, "{error}"),
            Absent::NoDevice => write!(f, "no CUDA device"),
            Absent::Ordinal { asked, count } => {
                write!(f, "no CUDA device {asked}: there are {count}")
            }
            Absent::TooOld { arch } => {
                write!(
                    f,
                    "the CUDA device is {arch}, the kernels need sm_{} or newer",
                    Arch::OLDEST
                )
            }
        }
    }
}

impl std::error::Error for Absent {}

/// A device that can be used.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Ordinal.
    pub ordinal: usize,
    /// Name that the driver gives.
    pub name: String,
    /// Architecture.
    pub arch: Arch,
    /// Version of the driver's interface, as `13.0`.
    pub driver: String,
    /// NVRTC.
    pub compiler: Compiler,
}

/// Where CUBINs are kept, below the working folder.
const CACHE: &str = "target/lockstep/cubin";

/// Looks for device `ordinal`, from the outside in. Creates no context.
pub fn probe(ordinal: usize) -> Result<Gpu, Absent> {
    // SAFETY: only tries to open the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(Absent::Driver);
    }
    let init = |e: result::DriverError| Absent::Init(format!("{:?}", e.0));
    result::init().map_err(init)?;
    let count = result::device::get_count().map_err(init)?.max(0) as usize;
    if count == 0 {
        return Err(Absent::NoDevice);
    }
    if ordinal >= count {
        return Err(Absent::Ordinal { asked: ordinal, count });
    }
    let device = result::device::get(ordinal as i32).map_err(init)?;
    let attribute = |attribute| {
        // SAFETY: the device handle is the driver's own.
        unsafe { result::device::get_attribute(device, attribute) }.map_err(init)
    };
    let major = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let arch = Arch::new(major, minor);
    if arch.sm < Arch::OLDEST {
        return Err(Absent::TooOld { arch: arch.to_string() });
    }
    let name = result::device::get_name(device).map_err(init)?;
    let mut version = 0;
    // SAFETY: the driver is there, and the pointer is to a live integer.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(init)?;
    let driver = format!("{}.{}", version / 1000, version % 1000 / 10);
    let cache = std::env::var_os("LOCKSTEP_CUBIN_CACHE").map_or_else(|| CACHE.into(), Into::into);
    let compiler = Compiler::new(Some(cache)).map_err(Absent::Nvrtc)?;
    Ok(Gpu { ordinal, name, arch, driver, compiler })
}
