//! Architectures: what a kernel is compiled for, and which matrix unit it then runs on.

use std::fmt;

use crate::contract::MatrixUnit;

/// A compute capability, and whether the architecture-specific features are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arch {
    /// Compute capability times ten: 80, 89, 90.
    pub sm: u32,
    /// `sm_90a` rather than `sm_90`.
    pub specific: bool,
}

/// A matrix unit, and whether its values were measured on hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitOfArch {
    /// Its numerics.
    pub unit: MatrixUnit,
    /// Whether the values were measured; otherwise they come from the literature.
    pub verified: bool,
}

impl Arch {
    /// Oldest architecture with the instructions that the kernels use.
    pub const OLDEST: u32 = 80;
    /// What `cargo xtask kernels --check` compiles for.
    pub const CHECKED: [Arch; 4] = [
        Arch { sm: 80, specific: false },
        Arch { sm: 89, specific: false },
        Arch { sm: 90, specific: false },
        Arch { sm: 90, specific: true },
    ];

    /// From the driver's two numbers.
    pub fn new(major: i32, minor: i32) -> Arch {
        Arch { sm: (major * 10 + minor).max(0) as u32, specific: false }
    }

    /// The matrix unit of this architecture.
    pub fn matrix_unit(self) -> UnitOfArch {
        match self.sm {
            90 => UnitOfArch { unit: MatrixUnit::SM90, verified: true },
            sm if sm < 90 => UnitOfArch { unit: MatrixUnit::SM80, verified: false },
            _ => UnitOfArch { unit: MatrixUnit::SM90, verified: false },
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.sm, if self.specific { "a" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sm_90_is_verified() {
        for arch in Arch::CHECKED {
            assert_eq!(arch.matrix_unit().verified, arch.sm == 90, "{arch}");
        }
        assert_eq!(Arch::new(9, 0).to_string(), "sm_90");
        assert!(!Arch::new(10, 0).matrix_unit().verified);
        assert_eq!(Arch::new(8, 6).matrix_unit().unit, MatrixUnit::SM80);
    }
}
