//! What the engine is judged by, and shares no code with: the forward pass in f64, whole and operator by operator, and a
//! plain engine for one request.

pub mod exact;
mod operators;
pub mod plain;
pub mod sampler;
pub mod stepwise;

pub use plain::Plain;
pub use stepwise::Stepwise;
