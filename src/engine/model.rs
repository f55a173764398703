//! A model on a device: made or uploaded once, shared by every engine instance.

use std::sync::Arc;

use crate::contract::rope::RopeTable;
use crate::contract::{Contract, Dtype, MatrixUnit, Mode, VERSION};
use crate::device::{Device, DeviceError, GpuFacts};
use crate::text::Tokenizer;
use crate::weights::{Matrix16, Model, ModelConfig, Preset, Recipe, Source, Synthetic};

use super::plan::Planner;

/// Device buffers of a decoder layer.
pub(super) struct DeviceLayer<D: Device> {
    pub(super) attention_norm: D::T16,
    pub(super) qkv: D::Matrix,
    pub(super) q_norm: Option<D::T16>,
    pub(super) k_norm: Option<D::T16>,
    pub(super) o: D::Matrix,
    pub(super) ffn_norm: D::T16,
    pub(super) gate_up: D::Matrix,
    pub(super) down: D::Matrix,
}

/// Device buffers of a model.
pub struct DeviceModel<D: Device> {
    pub(super) config: ModelConfig,
    pub(super) dtype: Dtype,
    pub(super) digest: String,
    /// Gives the bytes of tokens, where each token has some of its own.
    pub(super) text: Option<Arc<Tokenizer>>,
    /// Launches in the invariant mode.
    pub(super) planner: Planner,
    /// Hash of the device's contract.
    contract_hash: String,
    pub(super) embedding: D::Matrix,
    pub(super) layers: Vec<DeviceLayer<D>>,
    pub(super) final_norm: D::T16,
    /// `None` when tied to the embedding.
    pub(super) head: Option<D::Matrix>,
    pub(super) rope: D::Rope,
    pub(super) positions_max: usize,
    /// The device that holds the buffers; executions run on fresh instances of it.
    pub(super) device: D,
}

/// The contract that a model runs under, and the RoPE table whose digest it carries.
pub fn contract_of(
    config: &ModelConfig,
    dtype: Dtype,
    matrix_unit: MatrixUnit,
    positions: usize,
) -> (Contract, RopeTable) {
    let positions = positions.min(config.context);
    let rope = RopeTable::new(config.head_dim, config.rope_base, config.rope_scaling, positions);
    let contract = Contract {
        version: VERSION,
        dtype,
        matrix_unit,
        constants: config.constants,
        rope_sha256: rope.sha256(),
    };
    (contract, rope)
}

/// The tokenizer of a preset.
fn tokenizer(config: &ModelConfig) -> Option<Arc<Tokenizer>> {
    let preset = Preset::from_name(&config.name)?;
    (preset.config() == *config).then(|| Arc::new(Tokenizer::for_preset(preset)))
}

impl<D: Device> DeviceModel<D> {
    /// Puts a model on `device`, which runs under the model's contract: makes it there, or uploads it.
    pub fn open(
        source: &Source<'_>,
        device: D,
        rope: &RopeTable,
    ) -> Result<DeviceModel<D>, DeviceError> {
        match source {
            Source::Synthetic(synthetic) => DeviceModel::make(synthetic, device, rope),
            Source::Loaded(model) => DeviceModel::upload(model, device, rope),
            Source::Borrowed(model) => DeviceModel::upload(model, device, rope),
        }
    }

    /// Makes a synthetic model in place.
    pub fn make(
        synthetic: &Synthetic,
        device: D,
        rope: &RopeTable,
    ) -> Result<DeviceModel<D>, DeviceError> {
        let config = synthetic.config();
        let optional = |r: &Option<Recipe>| r.as_ref().map(|r| device.make(r)).transpose();
        let layers = (0..config.layers)
            .map(|index| {
                let layer = synthetic.layer(index);
                Ok(DeviceLayer {
                    attention_norm: device.make(&layer.attention_norm)?,
                    qkv: device.make_matrix(&layer.qkv)?,
                    q_norm: optional(&layer.q_norm)?,
                    k_norm: optional(&layer.k_norm)?,
                    o: device.make_matrix(&layer.o)?,
                    ffn_norm: device.make(&layer.ffn_norm)?,
                    gate_up: device.make_matrix(&layer.gate_up)?,
                    down: device.make_matrix(&layer.down)?,
                })
            })
            .collect::<Result<_, DeviceError>>()?;
        let planner = Planner::new(&config, &Mode::Invariant);
        let text = tokenizer(&config);
        Ok(DeviceModel {
            config,
            dtype: synthetic.dtype,
            digest: synthetic.digest(),
            embedding: device.make_matrix(&synthetic.embedding())?,
            layers,
            final_norm: device.make(&synthetic.final_norm())?,
            head: synthetic.head().map(|r| device.make_matrix(&r)).transpose()?,
            rope: device.upload_rope(rope)?,
            positions_max: rope.positions,
            text,
            planner,
            contract_hash: device.contract().hash(),
            device,
        })
    }

    /// Uploads `model` through `device`, which runs under the model's contract.
    pub fn upload(
        model: &Model,
        device: D,
        rope: &RopeTable,
    ) -> Result<DeviceModel<D>, DeviceError> {
        let matrix = |m: &Matrix16| device.upload_matrix(m.n, m.k, &m.data);
        let optional = |v: &Option<Vec<u16>>| v.as_deref().map(|v| device.upload(v)).transpose();
        let layers = model
            .layers
            .iter()
            .map(|layer| {
                Ok(DeviceLayer {
                    attention_norm: device.upload(&layer.attention_norm)?,
                    qkv: matrix(&layer.qkv)?,
                    q_norm: optional(&layer.q_norm)?,
                    k_norm: optional(&layer.k_norm)?,
                    o: matrix(&layer.o)?,
                    ffn_norm: device.upload(&layer.ffn_norm)?,
                    gate_up: matrix(&layer.gate_up)?,
                    down: matrix(&layer.down)?,
                })
            })
            .collect::<Result<_, DeviceError>>()?;
        let planner = Planner::new(&model.config, &Mode::Invariant);
        let text = tokenizer(&model.config);
        Ok(DeviceModel {
            config: model.config.clone(),
            dtype: model.dtype,
            digest: model.digest.clone(),
            embedding: matrix(&model.embedding)?,
            layers,
            final_norm: device.upload(&model.final_norm)?,
            head: model.head.as_ref().map(&matrix).transpose()?,
            rope: device.upload_rope(rope)?,
            positions_max: rope.positions,
            text,
            planner,
            contract_hash: device.contract().hash(),
            device,
        })
    }

    /// An instance of its device.
    pub fn fresh_device(&self) -> D {
        self.device.fresh()
    }

    /// Gives the model a tokenizer, for stop strings; one whose tokens have no bytes of their own is of no use.
    pub fn set_tokenizer(&mut self, tokenizer: Tokenizer) {
        self.text = tokenizer.has_bytes().then(|| Arc::new(tokenizer));
    }

    /// The tokenizer, if its tokens have bytes of their own.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.text.as_deref()
    }

    /// Shapes and constants.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Digest of configuration and weights.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Name of the device: `host`, `cuda`.
    pub fn device_name(&self) -> &'static str {
        self.device.name()
    }

    /// The GPU that holds it, if one does.
    pub fn gpu(&self) -> Option<GpuFacts> {
        self.device.gpu()
    }

    /// The contract in force.
    pub fn contract(&self) -> &Contract {
        self.device.contract()
    }

    /// [`Contract::hash`] of the contract in force.
    pub fn contract_hash(&self) -> &str {
        &self.contract_hash
    }

    /// Longest sequence, in positions, that the model and its RoPE table allow.
    pub fn positions_max(&self) -> usize {
        self.positions_max
    }
}
