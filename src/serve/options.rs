//! What a server is started with.

use crate::device::Device;
use crate::engine::DeviceModel;
use crate::fixture::Fixture;
use crate::subject::Subject;
use crate::world::{POOL_BLOCKS_MAX, World};

use super::error::ServeError;
use super::limits::Limits;

/// Most bytes of K and V in a pool whose size nobody chose.
const POOL_BYTES: u64 = 1 << 30;
/// Longest sequences that such a pool holds at a time.
const LONGEST_SEQUENCES: u64 = 16;

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name or address to bind to.
    pub host: String,
    /// Port; 0 takes one that is free.
    pub port: u16,
    /// Name of the model for clients, if it is not the fixture's.
    pub name: Option<String>,
    /// KV blocks; enough for several of the longest sequences by default.
    pub pool_blocks: Option<u32>,
    /// Whether equal prefixes share blocks.
    pub prefix_cache: bool,
    /// Run seed: draws of requests without a seed depend on it.
    pub seed: u64,
    /// Whether the engine is audited at every step.
    pub audits: bool,
    /// Whether SIGINT and SIGTERM tell the server to stop.
    pub on_signals: bool,
    /// What clients are held to.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            host: "127.0.0.1".into(),
            port: 0,
            name: None,
            pool_blocks: None,
            prefix_cache: true,
            seed: 0,
            audits: cfg!(debug_assertions),
            on_signals: false,
            limits: Limits::default(),
        }
    }
}

impl Options {
    /// The world of the engine.
    pub(super) fn world<D>(&self, fixture: &Fixture<D>) -> Result<World, ServeError>
    where
        D: Device + Send + Sync,
        DeviceModel<D>: Send + Sync,
    {
        let model = fixture.model();
        if model.device_name() == "hash" {
            let why = "the hash device has no arithmetic, so there is nothing to serve";
            return Err(ServeError::BadInput(why.into()));
        }
        let mut world = fixture.default_world();
        world.prefix_cache = self.prefix_cache;
        world.token_budget = Some(self.limits.step_rows_max);
        world.pool_blocks = self.pool_blocks.unwrap_or_else(|| {
            let config = model.config();
            let values = (2 * config.layers * config.kv_heads * config.head_dim) as u64;
            let block = u64::from(world.block_size);
            let wanted = LONGEST_SEQUENCES * (model.positions_max() as u64).div_ceil(block);
            let affordable = POOL_BYTES / (2 * values * block).max(1);
            wanted.min(affordable).clamp(1, u64::from(POOL_BLOCKS_MAX)) as u32
        });
        Ok(world)
    }
}
