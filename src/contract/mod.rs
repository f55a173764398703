//! The arithmetic contract: what fixes every bit, as a value.
//!
//! Each reduction's blocking and order are functions of compile-time constants and of a request's own
//! position and length only. This room holds those constants, the matrix unit, the scalar functions and the
//! orders of summation; `device` executes operators under them. Nothing here knows about batches.

pub mod digest;
pub mod dtype;
pub mod matrix_unit;
pub mod philox;
pub mod rope;
pub mod sampler;
pub mod scalar;
pub mod simd;
pub mod tree;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

pub use dtype::Dtype;
pub use simd::SimdPath;

/// Version of the contract page. A change of any rule is a new version.
pub const VERSION: u32 = 1;

/// A matrix unit: `terms` products and the accumulator are cut to `fraction_bits` below the largest exponent,
/// added exactly, and cut to f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixUnit {
    /// Products per fused step.
    pub terms: u32,
    /// Fraction bits kept below the largest exponent.
    pub fraction_bits: u32,
}

impl MatrixUnit {
    /// sm_90, measured on an H200.
    pub const SM90: MatrixUnit = MatrixUnit { terms: 16, fraction_bits: 25 };
    /// sm_80, sm_86 and sm_89 according to the literature; not verified on hardware.
    pub const SM80: MatrixUnit = MatrixUnit { terms: 8, fraction_bits: 24 };
}

/// Constants that decide where reductions are cut (docs/contract.md sections 2, 6, 10, 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// Granule of a GEMM cut where it divides K, else 16.
    pub unit: u32,
    /// Wanted number of 64-column tiles times splits.
    pub want: u32,
    /// Fewest K elements per split.
    pub min_k: u32,
    /// Attention tile in positions, a multiple of 16.
    pub tile: u32,
    /// Attention split in positions, a multiple of the tile.
    pub split: u32,
    /// Ids per block of the log-softmax.
    pub vocab_block: u32,
}

impl Constants {
    /// Preset `tiny`.
    pub const TINY: Constants =
        Constants { unit: 16, want: 8, min_k: 16, tile: 16, split: 32, vocab_block: 64 };
    /// Preset `small`, and SmolLM2-135M.
    pub const SMALL: Constants =
        Constants { unit: 16, want: 16, min_k: 64, tile: 32, split: 128, vocab_block: 1024 };
    /// Real models.
    pub const REAL: Constants =
        Constants { unit: 64, want: 96, min_k: 1024, tile: 64, split: 512, vocab_block: 4096 };

    /// Number of K splits of a fused weight `[n][k]`: a function of the weight's shape only.
    pub fn splits(&self, n: usize, k: usize) -> usize {
        let tiles = n.div_ceil(64);
        let want = self.want as usize;
        let mut s = [1, 2, 4, 8].into_iter().find(|s| s * tiles >= want).unwrap_or(8);
        // K/S < min_k, without losing the fraction.
        while s > 1 && k < self.min_k as usize * s {
            s /= 2;
        }
        s
    }

    /// Cuts of K into `splits` chains, in elements; the last cut is K rounded up to 16.
    pub fn cuts(&self, k: usize, splits: usize) -> Vec<u32> {
        let unit = if self.unit == 64 && k.is_multiple_of(64) { 64 } else { 16 };
        let units = k.div_ceil(unit);
        (0..=splits).map(|i| (unit * (i * units / splits)) as u32).collect()
    }
}

/// Operators that the batch-dependent mode can spoil.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// The number of K splits follows the number of rows.
    Gemm,
    /// The attention split length follows the number of sequences.
    Attention,
    /// The norm's lane count follows the number of rows.
    Norm,
    /// The granule of the cuts of K follows the number of rows, their number does not.
    GemmTile,
    /// The key of a draw follows the sequence's place in the step.
    Sampler,
}

impl Operator {
    /// All of them.
    pub const ALL: [Operator; 5] = [
        Operator::Gemm,
        Operator::Attention,
        Operator::Norm,
        Operator::GemmTile,
        Operator::Sampler,
    ];

    /// Name in case files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Operator::Gemm => "gemm",
            Operator::Attention => "attention",
            Operator::Norm => "norm",
            Operator::GemmTile => "gemm_tile",
            Operator::Sampler => "sampler",
        }
    }
}

/// Whether launches that change bits may follow the batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Mode {
    /// Never: the engine under test.
    #[default]
    Invariant,
    /// In these operators, as ordinary engines do: the positive control.
    BatchDependent {
        /// Operators whose numerics follow the batch.
        operators: BTreeSet<Operator>,
    },
}

impl Mode {
    /// Every operator follows the batch.
    pub fn batch_dependent() -> Mode {
        Mode::BatchDependent { operators: Operator::ALL.into_iter().collect() }
    }

    /// One operator follows the batch.
    pub fn ablation(operator: Operator) -> Mode {
        Mode::BatchDependent { operators: BTreeSet::from([operator]) }
    }

    /// Whether `operator` follows the batch.
    pub fn spoils(&self, operator: Operator) -> bool {
        matches!(self, Mode::BatchDependent { operators } if operators.contains(&operator))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Invariant => f.write_str("invariant"),
            mode if *mode == Mode::batch_dependent() => f.write_str("batch-dependent"),
            Mode::BatchDependent { operators } => {
                let names: Vec<&str> = operators.iter().map(|o| o.name()).collect();
                write!(f, "batch-dependent:{}", names.join(","))
            }
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    /// Reads what is displayed; the error is one line.
    fn from_str(text: &str) -> Result<Mode, String> {
        let names = match text.split_once(':') {
            None if text == "invariant" => return Ok(Mode::Invariant),
            None if text == "batch-dependent" => return Ok(Mode::batch_dependent()),
            Some(("batch-dependent", names)) => names,
            _ => {
                return Err(
                    "expected invariant, batch-dependent or batch-dependent:OPERATORS".into()
                );
            }
        };
        let operator = |name: &str| {
            Operator::ALL.into_iter().find(|o| o.name() == name).ok_or_else(|| {
                let all = Operator::ALL.map(Operator::name).join(", ");
                format!("unknown operator {name:?}, expected some of {all}")
            })
        };
        let operators = names.split(',').map(operator).collect::<Result<BTreeSet<_>, _>>()?;
        Ok(Mode::BatchDependent { operators })
    }
}

/// Everything that fixes the bits of a model's forward pass, apart from its weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// [`VERSION`] of the rules.
    pub version: u32,
    /// Storage dtype.
    pub dtype: Dtype,
    /// Matrix unit.
    pub matrix_unit: MatrixUnit,
    /// Cut constants.
    pub constants: Constants,
    /// sha256 (hex) of the RoPE table in use.
    pub rope_sha256: String,
}

impl Contract {
    /// sha256 (hex) over the canonical JSON of the contract.
    pub fn hash(&self) -> String {
        let json = serde_json::to_vec(self).expect("a contract serialises");
        hex(&Sha256::digest(&json))
    }
}

/// Lower-case hex of bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case files hold these names.
    #[test]
    fn operators_are_written_under_their_names() {
        for operator in Operator::ALL {
            let json = serde_json::to_string(&operator).unwrap();
            assert_eq!(json, format!("{:?}", operator.name()));
        }
        let old = r#"{"batch_dependent":{"operators":["gemm","attention","norm"]}}"#;
        let mode: Mode = serde_json::from_str(old).unwrap();
        assert!(mode.spoils(Operator::Gemm) && !mode.spoils(Operator::GemmTile));
        assert_eq!(serde_json::to_string(&mode).unwrap(), old);
    }

    #[test]
    fn modes_are_read_as_they_are_displayed() {
        let some = BTreeSet::from([Operator::Norm, Operator::Gemm]);
        let some = Mode::BatchDependent { operators: some };
        assert_eq!(some.to_string(), "batch-dependent:gemm,norm");
        for mode in [Mode::Invariant, Mode::batch_dependent(), some] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!("batch-dependent:sampler".parse(), Ok(Mode::ablation(Operator::Sampler)));
        for text in ["", "batch", "invariant:gemm", "batch-dependent:", "batch-dependent:gem"] {
            assert!(text.parse::<Mode>().is_err_and(|why| !why.contains('\n')), "{text}");
        }
    }

    /// The figures of docs/contract.md section 12.
    #[test]
    fn split_counts_are_those_of_the_presets() {
        let tiny = Constants::TINY;
        assert_eq!(tiny.splits(128, 64), 4);
        assert_eq!(tiny.splits(64, 64), 4);
        assert_eq!(tiny.splits(352, 64), 2);
        assert_eq!(tiny.splits(64, 176), 8);
        assert_eq!(tiny.splits(264, 64), 2);
        let units: Vec<u32> = tiny.cuts(176, 8).iter().map(|c| c / 16).collect();
        assert_eq!(units, [0, 1, 2, 4, 5, 6, 8, 9, 11]);
        let small = Constants::SMALL;
        let shapes = [(512, 256, 2), (256, 256, 4), (1408, 256, 1), (256, 704, 4), (264, 256, 4)];
        for (n, k, s) in shapes {
            assert_eq!(small.splits(n, k), s, "{n}x{k}");
        }
        assert_eq!(Constants::REAL.splits(4096, 14336), 2);
    }
}
