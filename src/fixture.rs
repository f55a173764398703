//! The fixture: Lockstep's own engine as a [`Subject`].

mod plain;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::case::{Case, CaseFile};
use crate::contract::{Contract, MatrixUnit, Mode};
use crate::device::Device;
#[cfg(feature = "cuda")]
use crate::device::cuda::{Context, Cuda};
use crate::device::hash::Hash;
use crate::device::host::Host;
use crate::engine::{self, DeviceModel, EngineError, contract_of, plan};
use crate::env::{Environment, Tool};
use crate::record::{Capture, Run};
use crate::schedule::Schedule;
use crate::subject::{Capabilities, Edges, Exact, PlainRun, Subject, SubjectError};
use crate::text::Tokenizer;
use crate::weights::{Model, ModelConfig, Preset, Source};
use crate::workload::{Request, Workload};
use crate::world::World;

use plain::Plains;

/// Longest sequence that a fixture is built for, in positions; models with a shorter context have less.
pub const POSITIONS_MAX: usize = 4096;

/// The engine on one device with one model.
pub struct Fixture<D: Device> {
    name: String,
    model: Arc<DeviceModel<D>>,
    mode: Mode,
    block_size: u32,
    fresh: Option<FreshProcess>,
    audits: bool,
    plains: Arc<Plains<D>>,
}

/// How a fresh process repeats a case: a program that reads the case file named by its last argument and prints the
/// trajectory hash.
#[derive(Clone, Debug)]
pub struct FreshProcess {
    /// Program.
    pub program: PathBuf,
    /// Arguments before the file.
    pub arguments: Vec<String>,
    /// Environment variables.
    pub variables: Vec<(String, String)>,
}

impl Fixture<Host> {
    /// The CPU twin with `model`; `name` is how the model was asked for.
    pub fn host<'m>(
        name: &str,
        model: impl Into<Source<'m>>,
        mode: Mode,
    ) -> Result<Fixture<Host>, SubjectError> {
        Fixture::host_with(name, model, mode, MatrixUnit::SM90)
    }

    /// The CPU twin of a device with this matrix unit.
    pub fn host_with<'m>(
        name: &str,
        model: impl Into<Source<'m>>,
        mode: Mode,
        unit: MatrixUnit,
    ) -> Result<Fixture<Host>, SubjectError> {
        Fixture::on(name, model, mode, unit, Host::new)
    }
}

impl Fixture<Hash> {
    /// The hash device with the shapes of `model`: no arithmetic, for faults of state.
    pub fn hash<'m>(
        name: &str,
        model: impl Into<Source<'m>>,
        mode: Mode,
    ) -> Result<Fixture<Hash>, SubjectError> {
        Fixture::on(name, model, mode, MatrixUnit::SM90, Hash::new)
    }
}

#[cfg(feature = "cuda")]
impl Fixture<Cuda> {
    /// The GPU of `context` with `model`.
    pub fn cuda<'m>(
        name: &str,
        model: impl Into<Source<'m>>,
        mode: Mode,
        context: &Arc<Context>,
    ) -> Result<Fixture<Cuda>, SubjectError> {
        let unit = context.gpu().arch.matrix_unit().unit;
        let device = |contract| Cuda::new(contract, Arc::clone(context));
        Fixture::on(name, model, mode, unit, device)
    }
}

impl<D: Device> Fixture<D> {
    /// The engine on a device of one's own, with this matrix unit.
    pub fn on<'m>(
        name: &str,
        model: impl Into<Source<'m>>,
        mode: Mode,
        unit: MatrixUnit,
        device: impl FnOnce(Contract) -> D,
    ) -> Result<Fixture<D>, SubjectError> {
        let model = model.into();
        let config = model.config();
        let (contract, rope) = contract_of(&config, model.dtype(), unit, POSITIONS_MAX);
        let device = DeviceModel::open(&model, device(contract), &rope)
            .map_err(|error| SubjectError::Unavailable(error.to_string()))?;
        Ok(Fixture {
            name: name.into(),
            model: Arc::new(device),
            mode,
            block_size: config.block_size as u32,
            fresh: None,
            audits: true,
            plains: Arc::new(Plains::new(model, rope)),
        })
    }

    /// Gives the model its tokenizer, so that requests can have stop strings; presets have theirs.
    ///
    /// # Panics
    /// If the model is shared with another fixture already.
    pub fn with_tokenizer(mut self, tokenizer: Tokenizer) -> Fixture<D> {
        let model = Arc::get_mut(&mut self.model).expect("a fixture just made shares nothing");
        model.set_tokenizer(tokenizer);
        self
    }

    /// Lets relations repeat cases in a fresh process.
    pub fn with_fresh_process(mut self, fresh: FreshProcess) -> Fixture<D> {
        self.fresh = Some(fresh);
        self
    }

    /// The same engine in another mode.
    pub fn in_mode(&self, mode: Mode) -> Fixture<D> {
        Fixture {
            name: self.name.clone(),
            model: Arc::clone(&self.model),
            mode,
            block_size: self.block_size,
            fresh: self.fresh.clone(),
            audits: self.audits,
            plains: Arc::clone(&self.plains),
        }
    }

    /// The same engine without its audits, for measurements.
    pub fn without_audits(mut self) -> Fixture<D> {
        self.audits = false;
        self
    }

    /// The mode.
    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// The model.
    pub fn model(&self) -> &DeviceModel<D> {
        &self.model
    }
}

impl<D> Subject for Fixture<D>
where
    D: Device + Send + Sync,
    DeviceModel<D>: Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> &str {
        self.model.device_name()
    }

    fn environment(&self) -> Environment {
        let contract = self.model.contract();
        let digest = self.model.digest().into();
        Environment::current(self.model.device_name(), Some(contract.hash()), Some(digest))
            .with_unit(contract.matrix_unit, self.model.gpu())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fresh_process: self.fresh.is_some(),
            // It reads logits and draws by itself: the hash device has none to read.
            plain: self.model.device_name() != "hash",
            exact: (self.model.device_name() != "hash").then(|| Exact {
                digest: self.model.digest().into(),
                positions: exact_positions(self.model.config()),
            }),
            // Its head has equal rows; another model's hardly has.
            ties: self.model.config().name == Preset::Tiny.name(),
            ..Capabilities::all()
        }
    }

    fn edges(&self) -> Edges {
        let config = self.model.config();
        Edges {
            rows: plan::ROW_EDGES.to_vec(),
            tile: config.constants.tile,
            split: config.constants.split,
            vocab: config.vocab as u32,
            positions_max: self.model.positions_max() as u32,
        }
    }

    fn default_world(&self) -> World {
        World {
            model: self.name.clone(),
            model_digest: self.model.digest().into(),
            dtype: self.model.contract().dtype,
            mode: self.mode.clone(),
            block_size: self.block_size,
            pool_blocks: 1,
            token_budget: None,
            prefix_cache: true,
            hash_bits: 64,
            swap_blocks: 0,
            buckets: Vec::new(),
            poison: false,
        }
    }

    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        let (model, audits) = (&self.model, self.audits);
        let run = engine::execute_with(model, world, workload, schedule, seed, capture, audits);
        run.map_err(|error| match error {
            EngineError::BadInput(why) => SubjectError::BadInput(why),
            EngineError::Device(why) => SubjectError::Unavailable(why.to_string()),
            EngineError::NotLive { .. } | EngineError::Ledger(_) | EngineError::Audit(_) => {
                SubjectError::Failed(error.to_string())
            }
        })
    }

    fn plain(
        &self,
        request: &Request,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<PlainRun, SubjectError> {
        let generated = self.plains.generate(&self.model, request, seed, capture);
        generated.map_err(|error| SubjectError::Unavailable(error.to_string()))
    }

    fn weights(&self) -> Result<Arc<Model>, SubjectError> {
        Ok(self.plains.weights())
    }

    fn replay_in_fresh_process(&self, case: &Case) -> Result<String, SubjectError> {
        let fresh = self.fresh.as_ref().ok_or_else(|| missing("no program was named"))?;
        let file = CaseFile {
            schema: crate::case::CASE_SCHEMA.to_string(),
            world: case.world.clone(),
            workload: case.workload.clone(),
            schedule: case.schedule.clone(),
            seed: case.seed,
            relation: None,
            observed: Default::default(),
            minimal: false,
            checks: 0,
            tool: Tool::current(),
            env: self.environment(),
            sentinels: Default::default(),
            command: String::new(),
        };
        let folder = tempfile::Builder::new()
            .prefix("lockstep-")
            .tempdir()
            .map_err(|e| missing(&e.to_string()))?;
        let path = file.write_into(folder.path()).map_err(|e| missing(&e.to_string()))?;
        let output = Command::new(&fresh.program)
            .args(&fresh.arguments)
            .arg(&path)
            .envs(fresh.variables.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .output()
            .map_err(|e| missing(&format!("{}: {e}", fresh.program.display())))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            let line = format!("it ended with {}: {}", output.status, why.trim());
            // Only "broken" is the engine's doing; a child that was killed, or lacked something, decides nothing.
            return Err(match output.status.code() {
                Some(1) => SubjectError::Failed(format!("in a fresh process: {line}")),
                _ => missing(&line),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Multiply-adds of a pass in f64 over the positions that a case can afford: about a second.
const EXACT_MULTIPLY_ADDS: usize = 1 << 30;
/// Fewest positions, whatever they cost, and most.
const EXACT_POSITIONS: [usize; 2] = [16, 512];

/// Positions a case that a pass in f64 can afford.
fn exact_positions(config: &ModelConfig) -> u32 {
    let multiply_adds = config.multiply_adds().max(1);
    let [least, most] = EXACT_POSITIONS;
    (EXACT_MULTIPLY_ADDS / multiply_adds).clamp(least, most) as u32
}

fn missing(why: &str) -> SubjectError {
    SubjectError::Unavailable(format!("no fresh process: {why}"))
}
