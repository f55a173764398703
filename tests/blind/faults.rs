//! The faults that need no description of their own, each in an operator of the host or in what a subject is asked for.

use lockstep::contract::Dtype;
use lockstep::contract::rope::RopeTable;
use lockstep::device::host::{Host, HostMatrix};
use lockstep::device::{Device, DeviceError, GemmLaunch, GemmOutput, SampleRow};

use super::altered::Alteration;
use super::fold::{only, put};

type Done = Result<(), DeviceError>;

/// Every position is rotated as the next one. Scores depend on differences of positions, so they hardly change.
#[derive(Clone)]
pub(crate) struct RopeOffset;

impl Alteration<Host> for RopeOffset {
    fn upload_rope(&self, device: &Host, table: &RopeTable) -> Result<RopeTable, DeviceError> {
        let mut shifted = table.clone();
        let half = table.head_dim / 2;
        for values in [&mut shifted.cos, &mut shifted.sin] {
            values.drain(..half);
            values.extend_from_within(values.len() - half..);
        }
        device.upload_rope(&shifted)
    }
}

/// GEMMs add up in f16: rounded after each sixteen products.
#[derive(Clone)]
pub(crate) struct HalfAccumulation;

impl Alteration<Host> for HalfAccumulation {
    fn gemm(
        &mut self,
        device: &mut Host,
        launch: &GemmLaunch,
        m: usize,
        x: &Vec<u16>,
        w: &HostMatrix,
        out: GemmOutput<'_, Host>,
    ) -> Done {
        let half = |x: f32| Dtype::F16.widen(Dtype::F16.round(x));
        let mut y = vec![0.0_f32; m * w.n()];
        let mut group = y.clone();
        for from in (0..w.k()).step_by(16) {
            let part = only(x, m, w.k(), from, from + 16);
            device.fresh().gemm(launch, m, &part, w, GemmOutput::Store(&mut group))?;
            y.iter_mut().zip(&group).for_each(|(y, g)| *y = half(*y + half(*g)));
        }
        put(device, launch, m, w, y, out)
    }
}

/// What is drawn otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    /// Of equal largest logits the last one wins.
    LastOfTies,
    /// The temperature is applied twice.
    TemperatureSquared,
    /// Every request has the same key.
    SeedIgnored,
    /// The same token, whatever the logits are.
    Frozen,
}

impl Alteration<Host> for Draw {
    fn sample(
        &mut self,
        device: &mut Host,
        vocab: usize,
        logits: &Vec<f32>,
        rows: &[SampleRow],
    ) -> Result<Vec<Option<u32>>, DeviceError> {
        let mut rows = rows.to_vec();
        match self {
            Draw::TemperatureSquared => {
                rows.iter_mut().for_each(|r| r.params.temperature *= r.params.temperature);
            }
            Draw::SeedIgnored => rows.iter_mut().for_each(|r| r.key = [0; 2]),
            Draw::LastOfTies | Draw::Frozen => {}
        }
        let mut drawn = device.sample(vocab, logits, &rows)?;
        for (token, row) in drawn.iter_mut().zip(&rows) {
            let Some(first) = token else { continue };
            let x = &logits[row.row as usize * vocab..][..vocab];
            match self {
                Draw::LastOfTies if row.params.is_greedy() && row.seen.is_empty() => {
                    let best = x[*first as usize];
                    let last = x.iter().rposition(|x| *x == best);
                    *token = last.map(|id| id as u32);
                }
                Draw::Frozen => *token = Some(7),
                _ => {}
            }
        }
        Ok(drawn)
    }
}

/// Digests of an empty slice instead of the rows'.
#[derive(Clone)]
pub(crate) struct BlindObserver;

impl Alteration<Host> for BlindObserver {
    fn digest_rows(
        &mut self,
        device: &mut Host,
        m: usize,
        _: usize,
        x: &Vec<f32>,
    ) -> Result<Vec<u64>, DeviceError> {
        device.digest_rows(m, 0, x)
    }
}
