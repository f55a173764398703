//! The certifier: does a server's answer to a request depend on who else is being served?
//!
//! It knows a server by its HTTP answers alone. A run probes what the server can do, asks each [`Arm`] on its own, proves by a
//! planted difference that it would see one, and says what was compared, how often, and what could not be seen. What was not
//! witnessed is not scored; what was not compared is not held.

mod arms;
pub mod certificate;
mod clusters;
mod company;
pub mod compare;
mod control;
mod error;
mod gauge;
pub mod html;
pub mod merge;
pub mod nature;
pub mod options;
pub mod pattern;
pub mod plan;
mod power;
mod probe;
mod prompts;
mod proxy;
mod random;
pub mod repro;
mod run;
pub mod samples;
mod score;
mod session;
pub mod shrink;
mod smallest;
mod stats;
pub mod text;
mod verdict;
mod wire;
mod witness;
mod words;

pub use certificate::{Arm, Certificate, Verdict};
pub use error::CertifyError;
pub use merge::lives;
pub use options::{Api, Options, Progress, Secret, Silent, Target};
pub use plan::Plan;
pub use power::{Measured, measure, small};
pub use run::run;
pub use wire::decimal::Decimal;
