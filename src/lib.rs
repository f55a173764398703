//! Lockstep: property testing for batch-invariant LLM inference.

pub mod case;
pub mod contract;
pub mod device;
pub mod engine;
pub mod env;
pub mod fixture;
pub mod harness;
pub mod record;
pub mod relation;
pub mod schedule;
pub mod schema;
pub mod strategy;
pub mod subject;
pub mod text;
pub mod weights;
pub mod workload;
pub mod world;
