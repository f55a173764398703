//! Lockstep: property testing for batch-invariant LLM inference.

pub mod contract;
pub mod device;
pub mod text;
pub mod weights;
