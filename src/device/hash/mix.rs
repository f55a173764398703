//! The mixing function, and the value that spoils whatever it enters.

/// What a buffer or a KV slot holds until it is written, and after it was poisoned. As a NaN would, it turns everything
/// computed from it into itself.
pub(super) const POISON: u64 = u64::MAX;

/// Both halves of a product: changes of either operand, and their exchange, show in every bit.
#[inline(always)]
fn blend(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    product as u64 ^ (product >> 64) as u64
}

/// `a` then `b`, in this order. [`POISON`] in either gives [`POISON`].
#[inline(always)]
pub(super) fn mix(a: u64, b: u64) -> u64 {
    if a == POISON || b == POISON { POISON } else { blend(a, b) }
}

/// A list of values as one.
pub(super) fn fold(seed: u64, values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(seed, mix)
}

/// Constants that tell the operators apart.
pub(super) mod operator {
    pub(in super::super) const EMBED: u64 = 0x6c62_272e_07bb_0142;
    pub(in super::super) const NORM: u64 = 0x27d4_eb2f_1656_67c5;
    pub(in super::super) const GEMM: u64 = 0x85eb_ca6b_c2b2_ae35;
    pub(in super::super) const RESIDUAL: u64 = 0x1656_67b1_9e37_79f9;
    pub(in super::super) const QUERY: u64 = 0x60be_e2be_e120_fc15;
    pub(in super::super) const KEY: u64 = 0xa3b1_9535_4a39_b70d;
    pub(in super::super) const VALUE: u64 = 0x1b03_7387_12fa_d5c9;
    pub(in super::super) const ATTENTION: u64 = 0x2127_599b_f432_5c37;
    pub(in super::super) const SWIGLU: u64 = 0x8803_55f2_1e6d_1965;
    pub(in super::super) const DIGEST: u64 = 0x5851_f42d_4c95_7f2d;
    pub(in super::super) const LAUNCH: u64 = 0x1405_7b7e_f767_814f;
    pub(in super::super) const WEIGHT: u64 = 0x9fb2_1c65_1e98_df25;
}
