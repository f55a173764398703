//! Subjects by name, and the fresh process in which a case is repeated.

use std::process::ExitCode;

use lockstep::case::CaseFile;
use lockstep::contract::{Dtype, Mode};
use lockstep::fixture::{Fixture, FreshProcess};
#[cfg(feature = "cuda")]
use lockstep::harness::policy::{Choice, Gpu};
use lockstep::subject::Subject;
use lockstep::weights;

/// Names the device of a fresh process that repeats one case: it prints the trajectory hash.
pub(crate) const REPEAT: &str = "MUTANT_REPEAT";

/// Stands before the device if the fresh process is not to be audited.
const UNAUDITED: &str = "unaudited ";

pub(crate) type Opened = Box<dyn Subject + Send>;

/// Opens devices; the GPU once.
#[derive(Default)]
pub(crate) struct Opener {
    #[cfg(feature = "cuda")]
    gpu: Option<Gpu>,
}

impl Opener {
    /// The fixture with a preset on a device, audited or not.
    pub(crate) fn open(
        &mut self,
        on: &str,
        model: &str,
        dtype: Dtype,
        mode: Mode,
        audits: bool,
    ) -> Result<Opened, String> {
        let source = weights::source(model, Some(dtype)).map_err(|e| e.to_string())?;
        let opened: Result<Opened, _> = match on {
            "hash" => {
                Fixture::hash(model, source, mode).map(|fixture| settled(fixture, on, audits))
            }
            "host" => {
                Fixture::host(model, source, mode).map(|fixture| settled(fixture, on, audits))
            }
            #[cfg(feature = "cuda")]
            "cuda" => {
                let gpu = self.gpu()?;
                Fixture::cuda(model, source, mode, gpu).map(|fixture| settled(fixture, on, audits))
            }
            other => return Err(format!("no device {other:?}")),
        };
        opened.map_err(|e| e.to_string())
    }

    #[cfg(feature = "cuda")]
    fn gpu(&mut self) -> Result<&Gpu, String> {
        if self.gpu.is_none() {
            self.gpu = Some(Choice::Cuda(0).gpu()?);
        }
        Ok(self.gpu.as_ref().expect("opened just now"))
    }
}

fn settled<D>(fixture: Fixture<D>, on: &str, audits: bool) -> Opened
where
    D: lockstep::device::Device + Send + Sync + 'static,
    Fixture<D>: Subject + Send,
{
    let fixture = fixture.with_fresh_process(FreshProcess {
        program: std::env::current_exe().expect("this program has a path"),
        arguments: Vec::new(),
        variables: vec![(
            REPEAT.into(),
            if audits { on.into() } else { format!("{UNAUDITED}{on}") },
        )],
    });
    Box::new(if audits { fixture } else { fixture.without_audits() })
}

/// `bf16` or `f16`.
pub(crate) fn dtype(name: &str) -> Result<Dtype, String> {
    let known = [Dtype::Bf16, Dtype::F16].into_iter().find(|d| d.name() == name);
    known.ok_or_else(|| format!("no dtype {name:?}"))
}

/// The fresh process: reads the case named by the last argument and prints its trajectory hash.
pub(crate) fn repeat() -> ExitCode {
    let path = std::env::args_os().next_back().unwrap_or_default();
    let asked = std::env::var(REPEAT).unwrap_or_default();
    let (on, audits) = match asked.strip_prefix(UNAUDITED) {
        Some(on) => (on, false),
        None => (asked.as_str(), true),
    };
    let hash = CaseFile::read(path.as_ref()).map_err(|e| e.to_string()).and_then(|file| {
        let world = &file.world;
        let mode = world.mode.clone();
        let subject = Opener::default().open(on, &world.model, world.dtype, mode, audits)?;
        let run = subject.execute(world, &file.workload, &file.schedule, file.seed, None);
        Ok(run.map_err(|e| e.to_string())?.trajectory.hash())
    });
    match hash {
        Ok(hash) => {
            println!("{hash}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
