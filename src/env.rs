//! The environment tuple: where a result was made. Recorded beside results, never compared as part of them.

use serde::{Deserialize, Serialize};

use crate::contract::MatrixUnit;
use crate::contract::simd::{Simd, SimdPath};
use crate::device::GpuFacts;

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
    /// The GPU, if one was in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuFacts>,
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

fn unit_name(unit: MatrixUnit) -> String {
    format!("{{{},{}}}", unit.terms, unit.fraction_bits)
}

fn features() -> Vec<String> {
    let all = [("cli", cfg!(feature = "cli")), ("cuda", cfg!(feature = "cuda"))];
    all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.into()).collect()
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
        Environment {
            device: device.into(),
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            simd: simd_name().into(),
            matrix_unit: unit_name(MatrixUnit::SM90),
            rustc: Some(env!("LOCKSTEP_RUSTC")).filter(|v| !v.is_empty()).map(Into::into),
            features: features(),
            contract,
            model,
            gpu: None,
        }
    }

    /// The same, on a device with this matrix unit, and this GPU if it is one.
    pub fn with_unit(mut self, unit: MatrixUnit, gpu: Option<GpuFacts>) -> Environment {
        self.matrix_unit = unit_name(unit);
        self.gpu = gpu;
        self
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
        let Some(gpu) = &self.gpu else { return lines };
        let verified = match gpu.matrix_unit_verified {
            true => "yes",
            false => "no: its values come from the literature",
        };
        lines.extend([
            ("gpu", gpu.name.clone()),
            ("sm", gpu.sm.clone()),
            ("driver", gpu.driver.clone()),
            ("nvrtc", gpu.nvrtc.clone()),
            ("verified on hardware", verified.into()),
        ]);
        for (program, sha256) in &gpu.cubins {
            lines.push(("cubin", format!("{sha256} {program}")));
        }
        lines
    }
}
