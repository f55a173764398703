//! The server in this program, for `certify` without an address: one in the mode under test, and one that depends on the batch
//! as its control.

use lockstep::contract::Mode;
use lockstep::device::Device;
use lockstep::engine::DeviceModel;
use lockstep::fixture::Fixture;
use lockstep::serve::{Options, Running, Server};
use lockstep::weights;

use super::CliError;
use super::open::{DeviceArgument, Work};
use super::serve::of_server;

/// Both servers. They end when dropped.
pub(super) struct Embedded {
    judged: Running,
    control: Running,
}

impl Embedded {
    /// Starts both on free ports of this machine.
    pub(super) fn start(
        model: &str,
        mode: &Mode,
        device: &DeviceArgument,
    ) -> Result<Embedded, CliError> {
        let start = |mode: Mode| {
            let source = weights::source(model, None).map_err(CliError::usage)?;
            device.fixture_for(model, source, mode, Start)
        };
        Ok(Embedded { judged: start(mode.clone())?, control: start(Mode::batch_dependent())? })
    }

    /// Address of the one under test.
    pub(super) fn url(&self) -> String {
        format!("{}/v1", self.judged.url())
    }

    /// Address of its control.
    pub(super) fn control(&self) -> String {
        format!("{}/v1", self.control.url())
    }
}

struct Start;

impl Work for Start {
    type Out = Running;
    fn with<D>(self, fixture: Fixture<D>) -> Result<Running, CliError>
    where
        D: Device + Send + Sync + 'static,
        DeviceModel<D>: Send + Sync,
    {
        Server::start(fixture, Options::default()).map_err(of_server)
    }
}
