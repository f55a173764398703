//! placeholder: being written

/// placeholder
pub fn norm_lanes(n: usize) -> u32 {
    (1u32 << n.ilog2()).min(1024)
}
