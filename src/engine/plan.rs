//! `plan()`: the only place where the batch reaches a launch, and `draw_key()`, where it could reach a draw.
//!
//! In the invariant mode the batch picks *variants*, which never change bits; cut arrays, split lengths and lane
//! counts come from the contract. In the batch-dependent mode (the positive control) they follow the batch in the
//! operators that the mode names, as they do in ordinary engines.

use std::sync::Arc;

use crate::contract::tree::norm_lanes;
use crate::contract::{Constants, Mode, Operator};
use crate::device::{AttentionLaunch, GemmLaunch, NormLaunch, RowTile, Splits};
use crate::record::Order;
use crate::record::sites::{Site, Stage};
use crate::weights::ModelConfig;

/// Most rows of a launch that walks the splits of a single row.
const SINGLE_ROWS_MAX: usize = 1;
/// Most rows for which weights are decoded in registers.
const SKINNY_ROWS_MAX: usize = 4;
/// Most rows for which splits run in parallel.
const PARALLEL_ROWS_MAX: usize = 8;
/// Most rows for which a norm is fused with the residual before it.
const FUSED_NORM_ROWS_MAX: usize = 16;

/// Row counts at which a launch variant changes: the first count of each new variant.
pub const ROW_EDGES: [u32; 4] = [
    SINGLE_ROWS_MAX as u32 + 1,
    SKINNY_ROWS_MAX as u32 + 1,
    PARALLEL_ROWS_MAX as u32 + 1,
    FUSED_NORM_ROWS_MAX as u32 + 1,
];

/// Launches of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPlan {
    /// Fused q, k, v projection.
    pub qkv: GemmLaunch,
    /// Output projection.
    pub o: GemmLaunch,
    /// Fused gate and up projection.
    pub gate_up: GemmLaunch,
    /// Down projection.
    pub down: GemmLaunch,
    /// LM head.
    pub head: GemmLaunch,
    /// Attention.
    pub attention: AttentionLaunch,
    /// Norms over the hidden width.
    pub norm: NormLaunch,
}

impl StepPlan {
    /// How the operator at a site is launched: the variant in words, and what decides bits.
    pub fn launch_at(&self, site: Site) -> (&'static str, Order) {
        match site.stage {
            // The first norm has no residual before it.
            Stage::AttentionNorm if site.layer == Some(0) => {
                NormLaunch { fused: false, ..self.norm }.note()
            }
            Stage::AttentionNorm | Stage::FfnNorm | Stage::FinalNorm => self.norm.note(),
            Stage::Qkv => self.qkv.note(),
            Stage::Output => self.o.note(),
            Stage::GateUp => self.gate_up.note(),
            Stage::Down => self.down.note(),
            Stage::Attention => self.attention.note(),
            Stage::Embed | Stage::Q | Stage::K | Stage::Swiglu => ("", Order::Fixed),
        }
    }
}

/// Makes plans for one model in one mode.
#[derive(Clone, Debug)]
pub struct Planner {
    mode: Mode,
    qkv: Weight,
    o: Weight,
    gate_up: Weight,
    down: Weight,
    head: Weight,
    tile: u32,
    split: u32,
    lanes: u32,
}

/// The cut arrays of one fused weight, by log2 of the split count.
#[derive(Clone, Debug)]
struct Weight {
    cuts: [Arc<[u32]>; 4],
    /// The same on a coarser granule, where the weight leaves that freedom.
    coarse: [Arc<[u32]>; 4],
    splits: usize,
    /// Most splits that leave every chain at least 16 elements.
    splits_max: usize,
}

impl Planner {
    /// A planner for `config` in `mode`.
    pub fn new(config: &ModelConfig, mode: &Mode) -> Planner {
        let constants = config.constants;
        let weight = |n: usize, k: usize| {
            let splits = constants.splits(n, k);
            Weight {
                cuts: [1, 2, 4, 8].map(|s| constants.cuts(k, s).into()),
                coarse: [1, 2, 4, 8].map(|s| coarse_cuts(&constants, k, s).into()),
                splits,
                splits_max: [8, 4, 2].into_iter().find(|s| s * 16 <= k).unwrap_or(1),
            }
        };
        let attention_width = config.heads * config.head_dim;
        Planner {
            mode: mode.clone(),
            qkv: weight((config.heads + 2 * config.kv_heads) * config.head_dim, config.hidden),
            o: weight(config.hidden, attention_width),
            gate_up: weight(2 * config.ffn, config.hidden),
            down: weight(config.hidden, config.ffn),
            head: weight(config.vocab, config.hidden),
            tile: constants.tile,
            split: constants.split,
            lanes: norm_lanes(config.hidden),
        }
    }

    /// The same weights, planned for in another mode.
    pub fn in_mode(&self, mode: &Mode) -> Planner {
        Planner { mode: mode.clone(), ..self.clone() }
    }

    /// Launches for a step of `rows` rows in `sequences` sequences.
    pub fn plan(&self, rows: usize, sequences: usize) -> StepPlan {
        StepPlan {
            qkv: self.gemm(&self.qkv, rows),
            o: self.gemm(&self.o, rows),
            gate_up: self.gemm(&self.gate_up, rows),
            down: self.gemm(&self.down, rows),
            head: self.gemm(&self.head, rows),
            attention: AttentionLaunch {
                splits: if rows <= PARALLEL_ROWS_MAX { Splits::Parallel } else { Splits::Walk },
                split: self.attention_split(sequences),
            },
            norm: NormLaunch { lanes: self.norm_lanes(rows), fused: rows <= FUSED_NORM_ROWS_MAX },
        }
    }

    fn gemm(&self, weight: &Weight, rows: usize) -> GemmLaunch {
        let tile = if rows <= SKINNY_ROWS_MAX { RowTile::Skinny } else { RowTile::Tiled };
        let parallel = (SINGLE_ROWS_MAX + 1..=PARALLEL_ROWS_MAX).contains(&rows);
        let splits = if parallel { Splits::Parallel } else { Splits::Walk };
        let count = if self.mode.spoils(Operator::Gemm) {
            // Fewer splits the more rows there are: enough CTAs exist without them.
            (weight.splits_max / rows.next_power_of_two()).max(1)
        } else {
            weight.splits
        };
        // Ordinary engines take longer steps along K once a tile has several rows.
        let is_coarse = self.mode.spoils(Operator::GemmTile) && rows > SINGLE_ROWS_MAX;
        let cuts = if is_coarse { &weight.coarse } else { &weight.cuts };
        GemmLaunch { rows: tile, splits, cuts: Arc::clone(&cuts[count.trailing_zeros() as usize]) }
    }

    /// The key of a draw, from the sequence's own. Engines had one generator a batch, whose numbers went to the sequences in
    /// the order of their places.
    pub fn draw_key(&self, own: [u32; 2], place: u32) -> [u32; 2] {
        if self.mode.spoils(Operator::Sampler) { [own[0].wrapping_add(place), own[1]] } else { own }
    }

    /// Ordinary engines split a long row more when there are few sequences to fill the machine.
    fn attention_split(&self, sequences: usize) -> u32 {
        if self.mode.spoils(Operator::Attention) && sequences == 1 {
            self.tile.max(self.split / 2)
        } else {
            self.split
        }
    }

    /// Ordinary engines give a single row a wider block than each of many rows.
    fn norm_lanes(&self, rows: usize) -> u32 {
        if self.mode.spoils(Operator::Norm) && rows > 1 {
            (self.lanes / 2).max(1)
        } else {
            self.lanes
        }
    }
}

/// Elements of the coarser granule: not a power of two, so that it moves cuts of the powers of two that widths are.
const COARSE: usize = 48;

/// As many cuts, on a coarser granule; those of the contract where there are too few granules for that.
fn coarse_cuts(constants: &Constants, k: usize, splits: usize) -> Vec<u32> {
    let mut cuts = constants.cuts(k, splits);
    let granules = k.div_ceil(COARSE);
    if granules >= splits {
        for (i, cut) in cuts.iter_mut().enumerate().take(splits).skip(1) {
            *cut = (COARSE * (i * granules / splits)) as u32;
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the coarser granule moves cuts and nothing else. Method: the widths of the presets; as many chains, each of
    /// one group of 16 at least, from 0 to the end, and other cuts wherever there are granules enough.
    #[test]
    fn coarse_cuts_are_as_many_and_elsewhere() {
        let mut kept = Vec::new();
        for (constants, k) in [
            (Constants::TINY, 64),
            (Constants::TINY, 176),
            (Constants::SMALL, 256),
            (Constants::SMALL, 704),
            (Constants::REAL, 1024),
            (Constants::REAL, 14336),
        ] {
            for splits in [1, 2, 4, 8].into_iter().filter(|s| s * 16 <= k) {
                let (fine, coarse) =
                    (constants.cuts(k, splits), coarse_cuts(&constants, k, splits));
                assert_eq!(fine.len(), coarse.len());
                assert_eq!((coarse[0], coarse.last()), (0, fine.last()), "{k} in {splits}");
                assert!(coarse.windows(2).all(|w| w[0] < w[1] && w[1] % 16 == 0), "{coarse:?}");
                if fine == coarse && splits > 1 {
                    kept.push((k, splits));
                }
            }
        }
        // Where there are fewer granules of 48 than splits.
        assert_eq!(kept, [(64, 4), (176, 8), (256, 8)]);
        assert_eq!(coarse_cuts(&Constants::TINY, 64, 2), [0, 48, 64]);
    }
}
