//! Layer digests and values of the plain engine, for reports: where a run parts from it.

use std::collections::{BTreeMap, BTreeSet};

use crate::device::{Device, DeviceError};
use crate::record::sites::{Site, Stage};
use crate::record::{Capture, CapturedRow, CapturedSite, LaunchNote, Order};
use crate::workload::SampleId;

use super::{Launches, Logits, Plain};

/// What is reported of a position beside its logits.
#[derive(Clone, Debug, PartialEq)]
pub struct Watched {
    /// A digest of each operator's f32 results before they are rounded.
    pub sites: Vec<u64>,
    /// What was asked for in full.
    pub captured: Option<CapturedRow>,
}

/// Looks at positions while they are computed.
pub(super) struct Watch<'c> {
    capture: &'c Capture,
    id: SampleId,
}

impl<'c> Watch<'c> {
    /// A device that keeps a log, for a sample.
    pub(super) fn begin<D: Device>(
        device: &mut D,
        capture: &'c Capture,
        id: SampleId,
    ) -> Result<Watch<'c>, DeviceError> {
        device.watch(true);
        Ok(Watch { capture, id })
    }

    /// Says what is kept of the position that is computed next.
    pub(super) fn before<D: Device>(&self, device: &mut D, position: u32) {
        let wanted = self.capture.wants(self.id, position);
        device.keep(if wanted { &self.capture.sites } else { const { &BTreeSet::new() } });
    }

    /// What was kept of it.
    pub(super) fn after<D: Device>(
        &self,
        plain: &mut Plain<D>,
        position: u32,
        logits: &Logits,
    ) -> Result<Watched, DeviceError> {
        let log = plain.device.take_log()?;
        let count = log.len();
        let sites = log.iter().filter_map(|entry| entry.digests.first().copied()).collect();
        let launches = Launches::new(&plain.model.config);
        let wanted = self.capture.wants(self.id, position);
        let captured = wanted.then(|| {
            let kept = log.into_iter().enumerate().filter_map(|(site, entry)| {
                let launch = self.capture.parts.then(|| launches.at(Site::nth(site, count)));
                Some((site, CapturedSite { values: entry.values?, launch, parts: Vec::new() }))
            });
            let logits = if self.capture.logits { logits.values.clone() } else { Vec::new() };
            let sites: BTreeMap<usize, CapturedSite> = kept.collect();
            CapturedRow { residency: 1, position, logits, sites }
        });
        Ok(Watched { sites, captured })
    }

    /// Ends the log.
    pub(super) fn end<D: Device>(device: &mut D) {
        device.keep(&BTreeSet::new());
        device.watch(false);
    }
}

impl Launches {
    /// How the operator at a site is launched.
    fn at(&self, site: Site) -> LaunchNote {
        let (variant, order) = match site.stage {
            Stage::AttentionNorm | Stage::FfnNorm | Stage::FinalNorm => self.norm.note(),
            Stage::Qkv => self.qkv.note(),
            Stage::Output => self.o.note(),
            Stage::GateUp => self.gate_up.note(),
            Stage::Down => self.down.note(),
            Stage::Attention => self.attention.note(),
            Stage::Embed | Stage::Q | Stage::K | Stage::Swiglu => ("", Order::Fixed),
        };
        LaunchNote { rows: 1, sequences: 1, variant, order, ..LaunchNote::default() }
    }
}
