//! What can be executed at all: the limits of world, workload and schedule on a model.

use crate::device::Device;
use crate::schedule::Schedule;
use crate::workload::Workload;
use crate::world::World;

use super::{DeviceModel, EngineError};

/// Most bytes of K and V in a pool.
pub const POOL_BYTES_MAX: u64 = 4 << 30;

/// Checks that `workload` can run in `world` on this model; the error is one line.
pub fn check<D: Device>(
    model: &DeviceModel<D>,
    world: &World,
    workload: &Workload,
    schedule: &Schedule,
) -> Result<(), EngineError> {
    schedule.validate().map_err(EngineError::BadInput)?;
    check_world(model, world)?;
    check_requests(model, world, workload)
}

/// Checks that an engine of this model can be made in `world`; the error is one line.
pub fn check_world<D: Device>(model: &DeviceModel<D>, world: &World) -> Result<(), EngineError> {
    let bad = |why: String| Err(EngineError::BadInput(why));
    world.validate().map_err(EngineError::BadInput)?;
    if world.model_digest != model.digest {
        return bad(format!(
            "the world names a model with digest {}, the loaded one has {}",
            world.model_digest, model.digest
        ));
    }
    if world.dtype != model.dtype {
        return bad(format!(
            "the world asks for {}, the model was loaded as {}",
            world.dtype.name(),
            model.dtype.name()
        ));
    }
    let config = &model.config;
    let values = 2 * config.layers * config.kv_heads * config.head_dim;
    let bytes = u64::from(world.pool_blocks) * u64::from(world.block_size) * 2 * values as u64;
    if bytes > POOL_BYTES_MAX {
        return bad(format!(
            "a pool of {} blocks of {} takes {bytes} bytes, at most {POOL_BYTES_MAX} are allowed",
            world.pool_blocks, world.block_size
        ));
    }
    let swap_bytes = u64::from(world.swap_blocks) * u64::from(world.block_size) * 2 * values as u64;
    if swap_bytes > POOL_BYTES_MAX {
        return bad(format!(
            "{} blocks of {} to swap to take {swap_bytes} bytes, at most {POOL_BYTES_MAX} are allowed",
            world.swap_blocks, world.block_size
        ));
    }
    let rows = world.buckets.last().map_or(0, |rows| u64::from(*rows));
    let bytes = rows * 4 * config.vocab as u64;
    if bytes > POOL_BYTES_MAX {
        return bad(format!(
            "the logits of a bucket of {rows} rows take {bytes} bytes, at most {POOL_BYTES_MAX} are allowed"
        ));
    }
    Ok(())
}

/// Checks that these requests can run in `world`, which is one of this model; the error is one line.
pub fn check_requests<D: Device>(
    model: &DeviceModel<D>,
    world: &World,
    workload: &Workload,
) -> Result<(), EngineError> {
    let bad = |why: String| Err(EngineError::BadInput(why));
    workload.validate().map_err(EngineError::BadInput)?;
    for (r, lengths) in workload.requests.iter().zip(workload.lengths()) {
        if let Some(c) = r.prompt.continuation() {
            return bad(format!(
                "request {} continues request {}, and its prompt is not resolved",
                r.uid, c.of
            ));
        }
        if let Some(token) =
            r.prompt.own_tokens().iter().find(|t| **t as usize >= model.config.vocab)
        {
            return bad(format!(
                "request {}: token {token} is outside the vocabulary of {}",
                r.uid, model.config.vocab
            ));
        }
        if let Some(token) = r.stop_token_ids.iter().find(|t| **t as usize >= model.config.vocab) {
            return bad(format!(
                "request {}: stop token {token} is outside the vocabulary of {}",
                r.uid, model.config.vocab
            ));
        }
        if !r.stop.is_empty() && model.text.is_none() {
            return bad(format!(
                "request {} has stop strings, but the model's tokens have no bytes of their own",
                r.uid
            ));
        }
        let positions = lengths.positions;
        if positions > model.positions_max() {
            return bad(format!(
                "request {}: {positions} positions are more than the model's {}",
                r.uid,
                model.positions_max()
            ));
        }
        let blocks = lengths.blocks(world.block_size);
        if blocks > world.pool_blocks as usize {
            return bad(format!(
                "request {} needs {blocks} blocks, the pool has {}: it can never fit",
                r.uid, world.pool_blocks
            ));
        }
    }
    Ok(())
}
