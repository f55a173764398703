//! Arguments and shapes of launches.

use cudarc::driver::DeviceRepr;

/// A value of a kernel's argument list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arg {
    Pointer(u64),
    U32(u32),
    F32(f32),
    Cuts(Cuts),
    Pool(Pool),
}

/// `struct Cuts` of gemm.cu.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Cuts {
    pub(super) splits: u32,
    pub(super) at: [u32; 9],
}

/// `struct Pool` of attention.cu.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Pool {
    pub(super) k: u64,
    pub(super) v: u64,
    pub(super) tables: u64,
    pub(super) size: u32,
    pub(super) heads: u32,
}

// SAFETY: plain integers in C layout, the same as in the kernel.
unsafe impl DeviceRepr for Cuts {}
// SAFETY: as above; pointers are passed as integers of their size.
unsafe impl DeviceRepr for Pool {}

impl Arg {
    /// The pointer's address.
    ///
    /// # Panics
    /// If it is no pointer.
    pub(super) fn address(self) -> u64 {
        match self {
            Arg::Pointer(p) => p,
            other => panic!("{other:?} is no pointer"),
        }
    }
}

/// A null pointer.
pub(super) const NULL: Arg = Arg::Pointer(0);

/// Grid and block of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) grid: (u32, u32, u32),
    pub(super) block: u32,
}

impl Shape {
    pub(super) fn new(grid: (usize, usize, usize), block: u32) -> Shape {
        let axis = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Shape { grid: (axis(grid.0), axis(grid.1), axis(grid.2)), block }
    }

    /// One thread an element.
    pub(super) fn elements(n: usize) -> Shape {
        Shape::new((n.div_ceil(256), 1, 1), 256)
    }

    pub(super) fn fits(&self) -> bool {
        let (x, y, z) = self.grid;
        (1..=i32::MAX as u32).contains(&x)
            && (1..=65535).contains(&y)
            && (1..=65535).contains(&z)
            && (1..=1024).contains(&self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_past_the_grid_limits_does_not_fit() {
        assert!(Shape::new((1, 1, 1), 32).fits());
        assert!(!Shape::new((0, 1, 1), 32).fits());
        assert!(!Shape::new((1, 65536, 1), 32).fits());
        assert!(!Shape::new((1 << 40, 1, 1), 32).fits());
    }
}
