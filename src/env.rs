//! The environment tuple: where a result was made. Recorded beside results, never compared as part of them.

use serde::{Deserialize, Serialize};

use crate::contract::simd::{Simd, SimdPath};

/// Machine, toolchain and build of a result. What could not be found out is `None` and reads "not recorded".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// `host` (the CPU twin) or a GPU.
    pub device: String,
    /// Operating system and architecture.
    pub target: String,
    /// SIMD path of the host twin.
    pub simd: String,
    /// `{terms,fraction bits}` of the matrix unit.
    pub matrix_unit: String,
    /// Compiler of this build.
    pub rustc: Option<String>,
    /// Cargo features of this build.
    pub features: Vec<String>,
    /// sha256 of the contract in force.
    pub contract: Option<String>,
    /// sha256 of the model in use.
    pub model: Option<String>,
}

/// The tool that made a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Crate version.
    pub version: String,
    /// Revision, if the build was told (`LOCKSTEP_REV`).
    pub rev: Option<String>,
}

impl Tool {
    /// This build.
    pub fn current() -> Tool {
        Tool {
            version: env!("CARGO_PKG_VERSION").into(),
            rev: option_env!("LOCKSTEP_REV").map(Into::into),
        }
    }
}

/// Instructions that the host twin uses on this machine.
fn simd_name() -> &'static str {
    match Simd::new(SimdPath::Auto).map(Simd::path) {
        Some(SimdPath::Avx2) => "avx2+fma+f16c",
        _ => "portable",
    }
}

impl Environment {
    /// This machine and build, for results made on `device`.
    pub fn current(device: &str, contract: Option<String>, model: Option<String>) -> Environment {
        let unit = crate::contract::MatrixUnit::SM90;
        Environment {
            device: device.into(),
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            simd: simd_name().into(),
            matrix_unit: format!("{{{},{}}}", unit.terms, unit.fraction_bits),
            rustc: Some(env!("LOCKSTEP_RUSTC")).filter(|v| !v.is_empty()).map(Into::into),
            features: if cfg!(feature = "cli") { vec!["cli".into()] } else { Vec::new() },
            contract,
            model,
        }
    }

    /// (field, value) lines for printing.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let or = |v: &Option<String>| v.clone().unwrap_or_else(|| "not recorded".into());
        let mut lines = vec![
            ("device", self.device.clone()),
            ("target", self.target.clone()),
            ("simd", self.simd.clone()),
            ("matrix unit", self.matrix_unit.clone()),
            ("rustc", or(&self.rustc)),
            ("features", self.features.join(",")),
        ];
        // Without a model there is no contract to record.
        if self.model.is_some() {
            lines.extend([("contract", or(&self.contract)), ("model", or(&self.model))]);
        }
        lines
    }
}
