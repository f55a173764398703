//! Which instructions the host may use, chosen once. No choice changes a bit.
//!
//! A [`Kernel`] is plain Rust whose loops the compiler vectorises; [`Simd::run`] compiles it a second time
//! with AVX2, FMA and F16C. Rust neither contracts nor reassociates floating point, so both compilations
//! give the same bits. Only the matrix unit has intrinsics of its own.

/// A way to execute, for tests and measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimdPath {
    /// The fastest that this machine has.
    #[default]
    Auto,
    /// The exact-integer oracle for every matrix-unit step. Slow.
    Scalar,
    /// Plain Rust, for any machine.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
}

/// A resolved path: proof that the instructions exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simd {
    level: Level,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Scalar,
    Portable,
    Avx2,
}

impl Simd {
    /// Resolves a path; `None` where the machine lacks its instructions.
    pub fn new(path: SimdPath) -> Option<Simd> {
        let level = match path {
            SimdPath::Scalar => Level::Scalar,
            SimdPath::Portable => Level::Portable,
            SimdPath::Auto if has_avx2() => Level::Avx2,
            SimdPath::Auto => Level::Portable,
            SimdPath::Avx2 if has_avx2() => Level::Avx2,
            SimdPath::Avx2 => return None,
        };
        Some(Simd { level })
    }

    /// Every distinct path of this machine.
    pub fn all() -> Vec<Simd> {
        [SimdPath::Scalar, SimdPath::Portable, SimdPath::Avx2]
            .into_iter()
            .filter_map(Simd::new)
            .collect()
    }

    /// The path in force; never [`SimdPath::Auto`].
    pub fn path(self) -> SimdPath {
        match self.level {
            Level::Scalar => SimdPath::Scalar,
            Level::Portable => SimdPath::Portable,
            Level::Avx2 => SimdPath::Avx2,
        }
    }

    pub(super) fn level(self) -> Level {
        self.level
    }

    /// Runs a kernel, compiled for the path.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[cfg(target_arch = "x86_64")]
        if self.level == Level::Avx2 {
            // SAFETY: `Level::Avx2` is only made where `has_avx2` saw the features.
            return unsafe { run_avx2(kernel) };
        }
        kernel.run()
    }
}

/// A loop that is compiled once per path. `run` must be `#[inline(always)]`, as must what it calls per
/// element.
pub trait Kernel {
    /// What the loop returns.
    type Out;
    /// The loop.
    fn run(self) -> Self::Out;
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Out {
    kernel.run()
}
