//! A whole model at full depth, also where the host is too slow to compute every position.
//!
//! First the host computes a prefix by itself: logits, and K and V of every layer, equal the device's. Then, for
//! positions sampled from a long sequence, it computes the whole row, every layer and the logits, from the device's K
//! and V of the positions before it.

use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Failed, Trial};
use lockstep::contract::{Dtype, MatrixUnit, SimdPath};
use lockstep::device::host::Host;
use lockstep::device::{Device, DeviceError};
use lockstep::engine::{DeviceModel, RowDigests, Rows, contract_of};
use lockstep::record::KvDigest;
use lockstep::record::sites::Site;
use lockstep::relation::x1::Rng;
use lockstep::weights::{Preset, Synthetic};
use serde::Serialize;

/// Positions that the host computes by itself.
pub(crate) const PREFIX: u32 = 64;
/// Rows of the host's steps over sampled positions.
const BATCH: usize = 8;
/// Sizes of the device's chunks, over and over: every launch variant takes part.
const CHUNKS: [usize; 8] = [33, 1, 5, 64, 2, 9, 128, 17];

/// What was compared, and what differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Depth {
    /// Model.
    pub(crate) model: String,
    /// Storage dtype.
    pub(crate) dtype: String,
    /// Length of the sequence on the device.
    pub(crate) length: u32,
    /// Positions of the prefix.
    pub(crate) prefix: u64,
    /// Sampled positions past it.
    pub(crate) positions: u64,
    /// (position, layer) pairs whose K and V were compared.
    pub(crate) kv: u64,
    /// Layer digests that were compared: one an operator and position.
    pub(crate) layers: u64,
    /// Positions at which something differs.
    pub(crate) different: u64,
    /// The first difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<String>,
}

/// Bits of one position.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bits {
    position: u32,
    row: RowDigests,
    kv: Vec<KvDigest>,
}

impl Depth {
    /// Whether all was compared and nothing differs.
    pub(crate) fn held(&self, positions: u64, layers: usize) -> bool {
        self.different == 0
            && self.prefix == u64::from(PREFIX)
            && self.positions == positions
            && self.kv == (self.prefix + self.positions) * layers as u64
            && self.layers == (self.prefix + self.positions) * Site::count(layers) as u64
    }

    fn note(&mut self, here: &Bits, there: &Bits) {
        self.kv += here.kv.len() as u64;
        self.layers += here.row.sites.len() as u64;
        if here == there {
            return;
        }
        self.different += 1;
        if self.first.is_none() {
            let sites = (&here.row.sites, &there.row.sites);
            let site = sites.0.iter().zip(sites.1).position(|(x, y)| x != y);
            let layer = here.kv.iter().zip(&there.kv).position(|(x, y)| x != y);
            let what = match (site, layer) {
                (Some(i), _) => Site::nth(i, sites.0.len()).to_string(),
                (None, Some(l)) => format!("layer {l}: {:x?} is {:x?}", here.kv[l], there.kv[l]),
                _ => format!("logits {:016x} are {:016x}", here.row.logits, there.row.logits),
            };
            self.first = Some(format!("position {}, {what}", here.position));
        }
    }
}

/// Length of a sequence in which to sample `positions`.
pub(crate) fn length(positions: usize) -> usize {
    (PREFIX as usize + positions).next_multiple_of(512) + 512
}

/// Compares `positions` sampled positions and the prefix.
pub(crate) fn compare<D: Device>(
    name: &str,
    host: &DeviceModel<Host>,
    device: &DeviceModel<D>,
    positions: usize,
    jobs: usize,
    seed: u32,
) -> Result<Depth, DeviceError> {
    let length = length(positions);
    if length > host.positions_max().min(device.positions_max()) {
        let why = format!("{positions} positions need a sequence of {length}: too long");
        return Err(DeviceError::Launch(why));
    }
    let vocab = host.config().vocab;
    let mut rng = Rng::new(seed, 95);
    let sequence: Vec<(u32, u32)> =
        (0..length as u32).map(|p| (p, rng.below(vocab) as u32)).collect();
    let dtype: Dtype = host.contract().dtype;
    let mut depth = Depth {
        model: name.into(),
        dtype: dtype.name().into(),
        length: length as u32,
        ..Depth::default()
    };

    let mut there = Rows::new(device, length)?;
    let bits = all(&mut there, &sequence, &CHUNKS)?;
    let mut here = Rows::new(host, PREFIX as usize)?;
    let prefix = all(&mut here, &sequence[..PREFIX as usize], &[32])?;
    for (here, there) in prefix.iter().zip(&bits) {
        depth.prefix += 1;
        depth.note(here, there);
    }

    let layers = host.config().layers;
    let kv: Vec<[Vec<u16>; 2]> =
        (0..layers).map(|l| there.read_kv(l, 0, length as u32)).collect::<Result<_, _>>()?;
    let span = length - PREFIX as usize;
    // One position in each of `positions` equal parts.
    let sampled: Vec<usize> = (0..positions)
        .map(|i| {
            let (from, to) = (i * span / positions, (i + 1) * span / positions);
            PREFIX as usize + from + rng.below(to - from)
        })
        .collect();
    let batches: Vec<&[usize]> = sampled.chunks(BATCH).collect();
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<Bits>, DeviceError> {
        let mut rows = Rows::new(host, length)?;
        for (layer, values) in kv.iter().enumerate() {
            rows.write_kv(layer, 0, values)?;
        }
        let mut found = Vec::new();
        while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
            let asked: Vec<(u32, u32)> = batch.iter().map(|p| sequence[*p]).collect();
            found.extend(step(&mut rows, &asked)?);
        }
        Ok(found)
    };
    let mut found = std::thread::scope(|scope| {
        let jobs = jobs.clamp(1, batches.len().max(1));
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let mut found = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(part) => found.extend(part?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<_, DeviceError>(found)
    })?;
    found.sort_by_key(|bits| bits.position);
    for here in &found {
        depth.positions += 1;
        depth.note(here, &bits[here.position as usize]);
    }
    Ok(depth)
}

/// Computes a whole sequence in chunks of these sizes.
fn all<D: Device>(
    rows: &mut Rows<'_, D>,
    sequence: &[(u32, u32)],
    chunks: &[usize],
) -> Result<Vec<Bits>, DeviceError> {
    let (mut rest, mut bits) = (sequence, Vec::new());
    for size in chunks.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, after) = rest.split_at((*size).min(rest.len()));
        bits.extend(step(rows, chunk)?);
        rest = after;
    }
    Ok(bits)
}

/// Computes rows in one step, and reads back their bits.
fn step<D: Device>(rows: &mut Rows<'_, D>, asked: &[(u32, u32)]) -> Result<Vec<Bits>, DeviceError> {
    let digests = rows.compute(asked)?;
    let mut bits = Vec::with_capacity(asked.len());
    for ((position, _), row) in asked.iter().zip(digests) {
        let kv = rows.digest_kv(*position, position + 1)?.pop().unwrap_or_default();
        bits.push(Bits { position: *position, row, kv });
    }
    Ok(bits)
}

/// Goal: the comparison takes equal devices for equal, and finds a model that is not the same. Method: `tiny` on the
/// host's two paths, then against weights of another seed. Needs no GPU.
pub(crate) fn trial() -> Trial {
    Trial::test("x1::full_depth_on_the_host", || {
        let model = |seed, path| -> Result<DeviceModel<Host>, Failed> {
            let synthetic = Synthetic { preset: Preset::Tiny, dtype: Dtype::Bf16, seed };
            let config = synthetic.config();
            let unit = MatrixUnit::SM90;
            let (contract, rope) = contract_of(&config, synthetic.dtype, unit, length(24));
            let device = Host::with_path(contract, path);
            DeviceModel::make(&synthetic, device, &rope).map_err(super::undecided)
        };
        let host = model(1, SimdPath::Auto)?;
        let layers = host.config().layers;
        let same = model(1, SimdPath::Portable)?;
        let depth = compare("tiny", &host, &same, 24, 2, 1).map_err(super::undecided)?;
        if !depth.held(24, layers) {
            return Err(format!("{depth:?}").into());
        }
        let other = model(2, SimdPath::Auto)?;
        let depth = compare("tiny", &host, &other, 24, 2, 1).map_err(super::undecided)?;
        if depth.held(24, layers) || depth.different < 24 || depth.first.is_none() {
            return Err(format!("other weights were not found: {depth:?}").into());
        }
        Ok(())
    })
}
