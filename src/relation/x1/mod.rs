//! X1, twin: two devices agree bit for bit, per operator, variant and dtype, over random and adversarial inputs.
//!
//! The only relation that sees devices: it is about them. It compares any two, so a plain host run tests the
//! comparison itself, by the two instruction paths of the host and by a planted fault. What only a real GPU can
//! be asked is in [`machine`]. NaN are alike; everything else is compared by its bits.

mod attention;
mod data;
mod gemm;
#[cfg(feature = "cuda")]
pub mod machine;
mod rows;
mod sampling;
pub mod schedules;
pub mod weights;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::contract::{Constants, Contract, Dtype, MatrixUnit, VERSION};
use crate::device::{Device, DeviceError, LoggedRows};

pub use data::Rng;

/// Two devices under one contract: the standard, and the one that is judged by it.
pub struct Pair<A, B> {
    /// The standard.
    pub host: A,
    /// What is judged.
    pub device: B,
}

/// What a count is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// Operator.
    pub op: String,
    /// Launch variant; empty where there is one.
    pub variant: String,
    /// Storage dtype.
    pub dtype: Dtype,
}

impl Key {
    /// A key.
    pub fn new(op: &str, variant: &str, dtype: Dtype) -> Key {
        Key { op: op.into(), variant: variant.into(), dtype }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.variant.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{} {}", self.op, self.variant, self.dtype.name())
    }
}

/// Elements compared under a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// How many were compared.
    pub elements: u64,
    /// How many differ.
    pub different: u64,
    /// The first difference: where, and both values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
}

/// Counts by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger(BTreeMap<Key, Count>);

impl Ledger {
    /// The counts.
    pub fn counts(&self) -> &BTreeMap<Key, Count> {
        &self.0
    }

    /// Whether anything was compared and nothing differs.
    pub fn held(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|c| c.elements > 0 && c.different == 0)
    }

    /// Fewest elements of a key.
    pub fn fewest(&self) -> u64 {
        self.0.values().map(|c| c.elements).min().unwrap_or(0)
    }

    /// Adds what another ledger counted.
    pub fn merge(&mut self, other: Ledger) {
        for (key, count) in other.0 {
            let own = self.0.entry(key).or_default();
            own.elements += count.elements;
            own.different += count.different;
            own.first = own.first.take().or(count.first);
        }
    }

    fn compare<T: PartialEq>(
        &mut self,
        key: &Key,
        a: impl ExactSizeIterator<Item = T>,
        b: impl ExactSizeIterator<Item = T>,
        weight: u64,
        what: impl Fn() -> String,
        show: impl Fn(&T) -> String,
    ) {
        let count = self.0.entry(key.clone()).or_default();
        assert!(a.len() == b.len(), "{key}: {} against {} elements", a.len(), b.len());
        count.elements += a.len() as u64 * weight;
        for (i, (a, b)) in a.zip(b).enumerate() {
            if a != b {
                count.different += weight;
                if count.first.is_none() {
                    let text = format!("{}: element {i}: {} is {}", what(), show(&a), show(&b));
                    count.first = Some(text);
                }
            }
        }
    }

    fn f32(&mut self, key: &Key, a: &[f32], b: &[f32], what: impl Fn() -> String) {
        let bits = |x: &f32| if x.is_nan() { 0x7fff_ffff } else { x.to_bits() };
        let show = |x: &u32| format!("{x:08x}");
        self.compare(key, a.iter().map(bits), b.iter().map(bits), 1, what, show);
    }

    fn t16(&mut self, key: &Key, a: &[u16], b: &[u16], what: impl Fn() -> String) {
        self.compare(key, a.iter(), b.iter(), 1, what, |x| format!("{x:04x}"));
    }

    /// Digests that stand for `width` elements each.
    fn digests(
        &mut self,
        key: &Key,
        a: &[u64],
        b: &[u64],
        width: usize,
        what: impl Fn() -> String,
    ) {
        self.compare(key, a.iter(), b.iter(), width as u64, what, |x| format!("{x:016x}"));
    }

    /// Digests of rows of `width`, and the log of an operator that should have left them.
    fn log(
        &mut self,
        key: &Key,
        a: &[u64],
        b: &[LoggedRows],
        width: usize,
        what: impl Fn() -> String,
    ) {
        assert!(b.len() == 1, "{key}: {} entries of the log", b.len());
        self.digests(key, a, &b[0].digests, width, what);
    }

    /// A token drawn from `vocab` logits.
    fn tokens(
        &mut self,
        key: &Key,
        a: Option<u32>,
        b: Option<u32>,
        vocab: usize,
        what: impl Fn() -> String,
    ) {
        let show = |x: &Option<u32>| format!("{x:?}");
        self.compare(key, [a].into_iter(), [b].into_iter(), vocab as u64, what, show);
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, count) in &self.0 {
            writeln!(f, "{:>14} of {:>14} differ: {key}", count.different, count.elements)?;
            if let Some(first) = &count.first {
                writeln!(f, "    first: {first}")?;
            }
        }
        Ok(())
    }
}

/// Operators that X1 compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Embedding.
    Embed,
    /// RMS norm.
    Norm,
    /// GEMM with its outputs.
    Gemm,
    /// RoPE and the store of K and V.
    Rope,
    /// Attention.
    Attention,
    /// SwiGLU.
    Swiglu,
    /// Log-softmax.
    Logprobs,
    /// Argmax and sampling.
    Sample,
    /// Digests.
    Digests,
}

impl Area {
    /// All, with their names.
    pub const ALL: [(Area, &'static str); 9] = [
        (Area::Embed, "embed"),
        (Area::Norm, "norm"),
        (Area::Gemm, "gemm"),
        (Area::Rope, "rope"),
        (Area::Attention, "attention"),
        (Area::Swiglu, "swiglu"),
        (Area::Logprobs, "logprobs"),
        (Area::Sample, "sample"),
        (Area::Digests, "digests"),
    ];

    fn name(self) -> &'static str {
        Area::ALL[self as usize].1
    }

    /// Whether the contract's constants reach it, so that every preset's must be run.
    fn constants(self) -> &'static [Constants] {
        match self {
            Area::Attention | Area::Logprobs => {
                &[Constants::TINY, Constants::SMALL, Constants::REAL]
            }
            _ => &[Constants::TINY],
        }
    }

    /// Rounds that a search runs at least: one for each shape on its list.
    fn rounds_min(self, effort: &Effort) -> u64 {
        match self {
            Area::Gemm => effort.gemm_rounds,
            _ => 6,
        }
    }
}

/// How much to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Elements for each key, at least.
    pub elements: u64,
    /// Rounds of the GEMM, at least; 26 pass every shape of its list.
    pub gemm_rounds: u64,
    /// Every row count in 1..=130, or a selection.
    pub every_row_count: bool,
    /// Threads.
    pub jobs: usize,
    /// Seed.
    pub seed: u32,
}

/// The contract of a comparison.
pub fn contract(unit: MatrixUnit, dtype: Dtype, constants: Constants) -> Contract {
    Contract { version: VERSION, dtype, matrix_unit: unit, constants, rope_sha256: String::new() }
}

/// Compares one operator until each of its keys has enough elements. `make` gives the pair for a contract; each
/// thread has its own.
pub fn search<A: Device, B: Device>(
    area: Area,
    unit: MatrixUnit,
    dtype: Dtype,
    effort: &Effort,
    make: &(dyn Fn(Contract) -> Result<Pair<A, B>, DeviceError> + Sync),
) -> Result<Ledger, DeviceError> {
    let mut all = Ledger::default();
    for (stream, constants) in area.constants().iter().enumerate() {
        // Constants change no key, so each set of them gets its share of every key.
        let target = effort.elements.div_ceil(area.constants().len() as u64);
        let shared = Mutex::new(Ledger::default());
        let next = AtomicU64::new(0);
        let work = || -> Result<(), DeviceError> {
            let mut pair = make(contract(unit, dtype, *constants))?;
            loop {
                let enough = shared.lock().map_or(0, |ledger| ledger.fewest()) >= target;
                let index = next.fetch_add(1, Ordering::Relaxed);
                if enough && index >= area.rounds_min(effort) {
                    return Ok(());
                }
                let tag =
                    (area as u32) << 8 | (stream as u32) << 4 | u32::from(dtype == Dtype::F16);
                let mut rng = Rng::new(effort.seed ^ index as u32, tag);
                let mut ledger = Ledger::default();
                round(area, &mut pair, &mut rng, index, effort, &mut ledger)?;
                shared.lock().expect("no comparison panics while it holds the lock").merge(ledger);
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..effort.jobs.max(1)).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|t| match t.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        all.merge(shared.into_inner().expect("every thread ended"));
    }
    Ok(all)
}

fn round<A: Device, B: Device>(
    area: Area,
    pair: &mut Pair<A, B>,
    rng: &mut Rng,
    index: u64,
    effort: &Effort,
    ledger: &mut Ledger,
) -> Result<(), DeviceError> {
    pair.host.watch(true);
    pair.device.watch(true);
    let kept = BTreeSet::from([0, 1]);
    pair.host.keep(&kept);
    pair.device.keep(&kept);
    match area {
        Area::Embed => rows::embed(pair, rng, ledger),
        Area::Norm => rows::norm(pair, rng, ledger),
        Area::Gemm => gemm::round(pair, rng, index as usize, effort.every_row_count, ledger),
        Area::Rope => rows::rope(pair, rng, ledger),
        Area::Attention => attention::round(pair, rng, ledger),
        Area::Swiglu => rows::swiglu(pair, rng, ledger),
        Area::Logprobs => sampling::logprobs(pair, rng, ledger),
        Area::Sample => sampling::sample(pair, rng, ledger),
        Area::Digests => rows::digests(pair, rng, ledger),
    }?;
    let key = Key::new(&format!("{}_unrounded", area.name()), "", pair.host.contract().dtype);
    let (a, b) = (pair.host.take_log()?, pair.device.take_log()?);
    assert!(a.len() == b.len(), "{key}: {} against {} entries of the log", a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let what = || format!("entry {i} of the log, rows of {}", a.width);
        assert!(
            a.values.is_some() == b.values.is_some() && a.values.is_some() == kept.contains(&i)
        );
        if let (Some(a), Some(b)) = (&a.values, &b.values) {
            ledger.f32(&key, a, b, what);
        }
        ledger.log(&key, &a.digests, &[b], a.width, what);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::SimdPath;
    use crate::device::host::Host;

    const EFFORT: Effort =
        Effort { elements: 20_000, gemm_rounds: 3, every_row_count: false, jobs: 2, seed: 7 };

    /// Goal: the comparison runs every operator and finds equal devices equal. Method: the host's portable path
    /// against its fastest one.
    #[test]
    fn the_hosts_two_paths_are_equal() {
        for dtype in [Dtype::Bf16, Dtype::F16] {
            for (area, name) in Area::ALL {
                let effort = Effort { elements: 2_000, gemm_rounds: 1, ..EFFORT };
                let make = |contract: Contract| {
                    let host = Host::with_path(contract.clone(), SimdPath::Portable);
                    Ok(Pair { host, device: Host::new(contract) })
                };
                let unit = MatrixUnit::SM90;
                let ledger = search(area, unit, dtype, &effort, &make).unwrap();
                assert!(ledger.held() && ledger.fewest() >= 2_000, "{name}: {ledger}");
            }
        }
    }

    /// A device with another matrix unit is found out by the operators that use it.
    #[test]
    fn another_matrix_unit_is_found() {
        let effort = Effort { elements: 500, gemm_rounds: 1, ..EFFORT };
        for area in [Area::Gemm, Area::Attention] {
            let make = |contract: Contract| {
                let other = Contract { matrix_unit: MatrixUnit::SM80, ..contract.clone() };
                Ok(Pair { host: Host::new(contract), device: Host::new(other) })
            };
            let ledger = search(area, MatrixUnit::SM90, Dtype::Bf16, &effort, &make).unwrap();
            assert!(!ledger.held(), "{ledger}");
            assert!(ledger.counts().values().any(|c| c.first.is_some()), "{ledger}");
        }
    }
}
