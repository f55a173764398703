//! X1 over whole executions: generated schedules on two subjects that differ in nothing but the device.
//!
//! Compared per case: tokens, the digests of the logits and of each operator at every computed position, the digests of K and V of every
//! layer at every position read back, the trajectory, and the sentinels of the launch variants.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::strategy::ValueTree;
use serde::Serialize;

use crate::case::Case;
use crate::record::sites::Site;
use crate::record::{Output, Run};
use crate::relation::localise::{Execution, Localisation, Side, between};
use crate::relation::resolve;
use crate::strategy::{Space, cases};
use crate::subject::{Subject, SubjectError};
use crate::workload::SampleId;

/// What was compared, and what differs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Schedules {
    /// Model.
    pub model: String,
    /// Storage dtype.
    pub dtype: String,
    /// Cases.
    pub cases: u64,
    /// Cases in which something differs.
    pub different: u64,
    /// Positions whose logits were compared.
    pub logits: u64,
    /// (position, layer) pairs whose K and V were compared.
    pub kv: u64,
    /// Layer digests that were compared: one an operator and computed position.
    pub layers: u64,
    /// The first difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// Where the two devices part in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localisation: Option<Localisation>,
}

impl Schedules {
    /// Whether something was compared and nothing differs.
    pub fn held(&self) -> bool {
        self.different == 0 && self.logits > 0 && self.kv > 0 && self.layers > 0
    }

    fn merge(&mut self, other: Schedules) {
        self.cases += other.cases;
        self.different += other.different;
        self.logits += other.logits;
        self.kv += other.kv;
        self.layers += other.layers;
        if self.first.is_none() {
            self.first = other.first;
            self.localisation = other.localisation;
        }
    }
}

impl fmt::Display for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Schedules { model, dtype, cases, different, logits, kv, layers, .. } = self;
        write!(
            f,
            "{different} of {cases} cases of {model} {dtype} differ; compared {logits} logits, {kv} kv, {layers} layer digests"
        )?;
        if let Some(first) = &self.first {
            write!(f, "\nfirst: {first}")?;
        }
        match &self.localisation {
            Some(localisation) => write!(f, "\n{localisation}"),
            None => Ok(()),
        }
    }
}

/// Compares `count` cases of a campaign.
pub fn compare(
    host: &dyn Subject,
    device: &dyn Subject,
    count: u64,
    seed: u64,
    jobs: usize,
) -> Result<Schedules, SubjectError> {
    let cases = cases(Space::new(host.edges(), host.default_world()));
    let next = AtomicU64::new(0);
    let work = || -> Result<Schedules, SubjectError> {
        let mut all = Schedules::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Ok(all);
            }
            let case = resolve(host, &cases.nth(seed, index).current())?;
            let run = |subject: &dyn Subject| {
                subject.execute(&case.world, &case.workload, &case.schedule, case.seed, None)
            };
            let (here, there) = (run(host)?, run(device)?);
            let mut one = judge(&here, &there);
            if let (Some((id, first)), None) = (first_difference(&here, &there), &all.first) {
                one.first = Some(format!("case {index} of seed {seed}: {first}"));
                one.localisation = match id {
                    Some(id) => localise(host, device, &case, id)?,
                    None => None,
                };
            }
            all.merge(one);
        }
    };
    let mut all = Schedules {
        model: host.name().into(),
        dtype: host.default_world().dtype.name().into(),
        ..Schedules::default()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            match thread.join() {
                Ok(part) => all.merge(part?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}

/// Where two subjects that differ in the device part, in the output of a sample of a case that is resolved.
pub fn localise(
    host: &dyn Subject,
    device: &dyn Subject,
    case: &Case,
    id: SampleId,
) -> Result<Option<Localisation>, SubjectError> {
    let name = if device.device() == host.device() { "the other" } else { device.device() };
    let execution = Execution::Case(case);
    let judged = Side { name, subject: device, execution, id };
    let standard = Side { name: host.device(), subject: host, execution, id };
    between(&judged, &standard)
}

fn judge(here: &Run, there: &Run) -> Schedules {
    let mut counts = Schedules { cases: 1, ..Schedules::default() };
    for output in here.outputs.values() {
        counts.logits += output.positions.len() as u64;
        counts.layers += output.positions.iter().map(|p| p.sites.len() as u64).sum::<u64>();
        counts.kv += output.kv.iter().map(|kv| kv.layers.len() as u64).sum::<u64>();
    }
    counts.different = u64::from(first_difference(here, there).is_some());
    counts
}

/// The first difference in words, and in whose output.
fn first_difference(here: &Run, there: &Run) -> Option<(Option<SampleId>, String)> {
    for (id, a) in &here.outputs {
        let difference = match there.outputs.get(id) {
            Some(b) => first_in(a, b),
            None => Some("no output".into()),
        };
        if let Some(difference) = difference {
            return Some((Some(*id), format!("{id}, {difference}")));
        }
    }
    let difference = if here.trajectory != there.trajectory {
        "the trajectory".into()
    } else if here.sentinels != there.sentinels {
        format!("sentinels {:?} are {:?}", here.sentinels.by_name(), there.sentinels.by_name())
    } else if here != there {
        "the run".into()
    } else {
        return None;
    };
    Some((None, difference))
}

/// The first difference of an output.
fn first_in(a: &Output, b: &Output) -> Option<String> {
    for (x, y) in a.positions.iter().zip(&b.positions) {
        let count = x.sites.len();
        let site = x.sites.iter().zip(&y.sites).position(|(x, y)| x != y);
        if let Some(site) = site {
            return Some(format!(
                "position {}, {}: {:016x} is {:016x}",
                x.position,
                Site::nth(site, count),
                x.sites[site],
                y.sites[site]
            ));
        }
        if x != y {
            return Some(format!(
                "position {}: logits {:016x} are {:016x}",
                x.position, x.logits, y.logits
            ));
        }
    }
    for (x, y) in a.kv.iter().zip(&b.kv) {
        let layer = x.layers.iter().zip(&y.layers).position(|(x, y)| x != y);
        if let Some(layer) = layer {
            return Some(format!(
                "position {}, layer {layer}: {:x?} is {:x?}",
                x.position, x.layers[layer], y.layers[layer]
            ));
        }
    }
    if a.tokens != b.tokens {
        return Some(format!("tokens {:?} are {:?}", a.tokens, b.tokens));
    }
    (a != b).then(|| "the outputs differ in shape".into())
}
