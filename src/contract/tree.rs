//! Orders of summation (docs/contract.md section 0): LANES and TREE.

/// Most accumulator lanes of any reduction.
pub const LANES_MAX: usize = 1024;

/// Lanes of a norm over `n` elements: `min(1024, 2^floor(log2 n))`.
///
/// # Panics
/// If `n` is zero.
pub fn norm_lanes(n: usize) -> u32 {
    assert!(n > 0, "a norm over no elements");
    1 << n.ilog2().min(LANES_MAX.ilog2())
}

/// TREE: neighbours are added until one value is left. The length is a power of two; `x` is used up.
#[inline(always)]
pub fn tree(x: &mut [f32]) -> f32 {
    let mut len = x.len();
    assert!(len.is_power_of_two(), "a tree over {len} lanes");
    while len > 1 {
        len /= 2;
        for i in 0..len {
            x[i] = x[2 * i] + x[2 * i + 1];
        }
    }
    x[0]
}

/// TREE over eight lanes.
#[inline(always)]
pub fn tree8(l: &[f32; 8]) -> f32 {
    ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]))
}

/// TREE over LANES(n, `lanes`) of `x`: `add(sum, x_i)` replaces the sum of lane `i mod lanes`, ascending `i`.
///
/// # Panics
/// If `lanes` is not a power of two up to [`LANES_MAX`].
#[inline(always)]
pub fn lane_sum(lanes: usize, x: &[f32], add: impl Fn(f32, f32) -> f32) -> f32 {
    assert!(lanes.is_power_of_two() && lanes <= LANES_MAX, "no {lanes} lanes");
    // Clearing all lanes would cost more than a short row.
    if lanes <= 64 {
        sum_in(&mut [0.0; 64][..lanes], x, add)
    } else {
        sum_in(&mut [0.0; LANES_MAX][..lanes], x, add)
    }
}

#[inline(always)]
fn sum_in(sums: &mut [f32], x: &[f32], add: impl Fn(f32, f32) -> f32) -> f32 {
    for chunk in x.chunks(sums.len()) {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum = add(*sum, *x);
        }
    }
    tree(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_lanes_are_the_largest_power_of_two_up_to_1024() {
        for (n, lanes) in [(1, 1), (16, 16), (64, 64), (96, 64), (576, 512), (1024, 1024)] {
            assert_eq!(norm_lanes(n), lanes, "{n}");
        }
        assert_eq!(norm_lanes(4096), 1024);
    }

    /// A sum that depends on the order: half against half would lose the small values.
    #[test]
    fn the_tree_pairs_neighbours() {
        let mut x = [1e8, -1e8, 3.0, -2.0];
        assert_eq!(tree(&mut x), 1.0);
        let mut x = [1e8, 3.0, -1e8, -2.0];
        assert_eq!(tree(&mut x), 0.0);
        let l = [1.5, 2.5, 1e8, 3.0, -7.25, 1e-3, 4.0, 0.5];
        assert_eq!(tree(&mut l.clone()).to_bits(), tree8(&l).to_bits());
    }
}
