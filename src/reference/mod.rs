//! What the engine is judged by, and shares no code with: the forward pass in f64, and a plain engine for one request.

pub mod exact;
pub mod plain;
pub mod sampler;

pub use exact::Exact;
pub use plain::Plain;
