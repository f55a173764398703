//! Launches in words, for reports.

use crate::record::Order;

use super::{AttentionLaunch, GemmLaunch, NormLaunch, RowTile, Splits};

impl GemmLaunch {
    /// The variant, and what decides bits.
    pub fn note(&self) -> (&'static str, Order) {
        let variant = match (self.rows, self.splits) {
            (RowTile::Skinny, Splits::Walk) => "skinny rows, splits walked",
            (RowTile::Skinny, Splits::Parallel) => "skinny rows, splits in parallel",
            (RowTile::Tiled, Splits::Walk) => "tiled rows, splits walked",
            (RowTile::Tiled, Splits::Parallel) => "tiled rows, splits in parallel",
        };
        (variant, Order::Cuts(self.cuts.to_vec()))
    }
}

impl NormLaunch {
    /// The variant, and what decides bits.
    pub fn note(&self) -> (&'static str, Order) {
        let variant = if self.fused { "fused with the residual before it" } else { "on its own" };
        (variant, Order::Lanes(self.lanes))
    }
}

impl AttentionLaunch {
    /// The variant, and what decides bits.
    pub fn note(&self) -> (&'static str, Order) {
        let variant = match self.splits {
            Splits::Walk => "splits walked",
            Splits::Parallel => "splits in parallel",
        };
        (variant, Order::Split(self.split))
    }
}
