//! The comparer: a request's output against its canonical one or another standard, bit for bit, counting what it compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::sites::Site;
use crate::record::{Finish, KvBits, KvMoment, Output};
use crate::workload::SampleId;

use super::{Compared, Standard, scores};

/// What can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observable {
    /// f32 logits of a computed position.
    Logits,
    /// Stored K or V of a position.
    Kv,
    /// f32 results of an operator before they are rounded, at a computed position (layer digests).
    Sites,
    /// Distance of a value from that of a pass in f64.
    Fidelity,
    /// Generated tokens or the finish reason.
    Tokens,
    /// Log-probabilities of tokens.
    Logprobs,
    /// The key, position or token of a draw, from equal logits.
    Draws,
    /// Whose K and V were attached.
    Writers,
    /// What is held when every request has left.
    Held,
    /// State of the engine at a step boundary.
    Trajectory,
    /// Fewer or more positions were observed than the ledger says.
    Coverage,
    /// The engine crashed, leaked or did not finish.
    Crash,
}

impl Observable {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Observable::Logits => "logits",
            Observable::Kv => "kv",
            Observable::Sites => "layer digests",
            Observable::Fidelity => "fidelity",
            Observable::Tokens => "tokens",
            Observable::Logprobs => "log-probabilities",
            Observable::Draws => "draws",
            Observable::Writers => "writers",
            Observable::Held => "held memory",
            Observable::Trajectory => "trajectory",
            Observable::Coverage => "coverage",
            Observable::Crash => "crash",
        }
    }
}

/// Where a difference stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Sample of a request, if it belongs to one.
    pub id: Option<SampleId>,
    /// Residency, from 1.
    pub residency: Option<u32>,
    /// Position in the sequence, or step boundary of a trajectory.
    pub position: Option<u32>,
    /// Layer, for K and V.
    pub layer: Option<usize>,
}

/// A broken relation.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// Of the observables that differ the first in the order of [`Observable`], or the tokens, if one was drawn otherwise
    /// from equal logits. Its difference at the smallest position is described here.
    pub observable: Observable,
    /// All observables that differ.
    pub all: BTreeSet<Observable>,
    /// Where.
    pub place: Place,
    /// What was expected and what was found, in words.
    pub detail: String,
    /// The first operator that differs, at the smallest position at which one does; `None` if a draw came before it.
    pub origin: Option<Origin>,
    /// What the output was compared with.
    pub standard: Standard,
}

/// The first operator that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Position in the sequence.
    pub position: u32,
    /// Residency, from 1.
    pub residency: u32,
    /// Operator.
    pub site: Site,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.observable {
            Observable::Crash => return write!(f, "the engine failed: {}", self.detail),
            Observable::Coverage => write!(f, "not everything was observed")?,
            Observable::Fidelity => write!(f, "too far from a pass in f64")?,
            Observable::Writers => write!(f, "K and V were attached across namespaces")?,
            Observable::Held => return f.write_str(&self.detail),
            Observable::Trajectory => return write!(f, "the trajectories differ: {}", self.detail),
            other => write!(f, "{} differ", other.name())?,
        }
        let Place { id, residency, position, layer } = self.place;
        if let Some(id) = id {
            write!(f, ": {id}")?;
        }
        if let Some(position) = position {
            write!(f, ", position {position}")?;
        }
        if let Some(residency) = residency {
            write!(f, ", residency {residency}")?;
        }
        if let Some(layer) = layer {
            write!(f, ", layer {layer}")?;
        }
        write!(f, ": {}", self.detail)?;
        match self.origin {
            Some(Origin { position, site, .. }) => {
                write!(f, "; first operator that differs: {site}, at position {position}")
            }
            None => Ok(()),
        }
    }
}

/// A failed execution as a divergence.
pub fn crash(detail: String) -> Divergence {
    Divergence {
        observable: Observable::Crash,
        all: BTreeSet::from([Observable::Crash]),
        place: Place::default(),
        detail,
        origin: None,
        standard: Standard::Canonical,
    }
}

/// What is known of a run beside its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Whether the subject reports K and V of stored positions.
    pub kv: bool,
    /// Whether the subject reports layer digests of computed positions.
    pub sites: bool,
    /// Tokens whose log-probabilities the whole output has.
    pub scores: usize,
    /// Whether the schedule ended the sample: then what it did until then is a part of its whole output.
    pub aborted: bool,
}

/// Compares what was observed of a sample with a whole output of it, which is that of `standard`.
pub fn outputs(
    id: SampleId,
    got: &Output,
    expected: &Output,
    known: Known,
    standard: &Standard,
) -> Result<Compared, Box<Divergence>> {
    let mut found = Differences::of(standard);
    let mut compared = Compared::default();
    let origin = compare_positions(id, got, expected, &mut compared, &mut found);
    compare_kv(id, got, expected, &mut compared, &mut found);
    compare_tokens(id, got, expected, known.aborted, &mut found);
    scores::compare(id, got, expected, &mut compared, &mut found);
    // No difference, but less seen than there was to see: the comparer was blind.
    if found.by_observable.is_empty()
        && let Some(detail) = blindness(got, expected, compared, known)
    {
        let place = Place { id: Some(id), ..Place::default() };
        found.note_first(Observable::Coverage, place, detail);
    }
    found.conclude(got, expected, origin).map_or(Ok(compared), Err)
}

/// Whether the first differing token was drawn before any position whose logits, K or V differ.
fn differs_only_after_a_draw(got: &Output, expected: &Output, found: &ByObservable) -> bool {
    if !found.contains_key(&Observable::Tokens) {
        return false;
    }
    let common = got.tokens.iter().zip(&expected.tokens).take_while(|(a, b)| a == b).count();
    // The last token drawn is never computed: positions + 1 = prompt + tokens.
    let last = expected.positions.iter().map(|p| p.position as usize).max();
    let prompt = (last.map_or(0, |p| p + 1) + 1).saturating_sub(expected.tokens.len());
    let first = |o| found.get(&o).and_then(|(place, _): &(Place, String)| place.position);
    let computed = [first(Observable::Logits), first(Observable::Kv)];
    computed.into_iter().flatten().all(|p| p as usize >= prompt + common)
}

/// What was not compared although it should have been. The engine's ledger is one witness; the other is independent of it:
/// in the last residency every position of the sequence was computed or attached, and read back at the end.
fn blindness(got: &Output, expected: &Output, compared: Compared, known: Known) -> Option<String> {
    let kv = known.kv;
    if known.sites && compared.sites != got.rows_computed {
        return Some(format!(
            "compared layer digests of {} of {} computed positions",
            compared.sites, got.rows_computed
        ));
    }
    if let Some(why) = scores::blindness(got, expected, known) {
        return Some(why);
    }
    let due = (got.rows_computed, got.kv_due);
    if due != (compared.positions, compared.kv) {
        return Some(format!(
            "compared {} of {} computed and {} of {} stored positions",
            compared.positions, due.0, compared.kv, due.1
        ));
    }
    let residencies = got.kv.iter().map(|kv| kv.residency);
    let last = got.positions.iter().map(|p| p.residency).chain(residencies).max();
    let Some(last) = last else {
        let started = !known.aborted || !got.tokens.is_empty();
        return started.then(|| "no position was observed".into());
    };
    let computed = got.positions.iter().filter(|p| p.residency == last).map(|p| p.position);
    let read = |moment| {
        let mine = move |kv: &&KvBits| kv.residency == last && kv.moment == moment;
        got.kv.iter().filter(mine).map(|kv| kv.position)
    };
    let released = distinct(read(KvMoment::Released));
    let attached = [KvMoment::Attached, KvMoment::Forked, KvMoment::SwappedIn];
    let attached = attached.into_iter().filter(|_| kv).flat_map(read);
    let present = distinct(computed.chain(attached));
    // An aborted sample came to some position, but left none out before it.
    let end = if known.aborted { present.len() } else { expected.positions.len() };
    let all: Vec<u32> = (0..end as u32).collect();
    if kv && present != all {
        return Some(format!(
            "{} of {} positions were computed or attached in residency {last}",
            present.len(),
            all.len()
        ));
    }
    if kv && released != all {
        return Some(format!(
            "K and V of {} of {} positions were read back at the end",
            released.len(),
            all.len()
        ));
    }
    None
}

/// Compares two samples of one run, or of two runs neither of which is canonical, at the positions that both computed.
/// `ended` if both came to their ends: then their tokens are equal too, else those that both have.
pub(super) fn twins(
    id: SampleId,
    got: &Output,
    other: &Output,
    ended: bool,
    standard: &Standard,
) -> Result<Compared, Box<Divergence>> {
    let mut found = Differences::of(standard);
    let mut compared = Compared::default();
    let origin = compare_positions(id, got, other, &mut compared, &mut found);
    compare_kv(id, got, other, &mut compared, &mut found);
    scores::compare(id, got, other, &mut compared, &mut found);
    if ended {
        compare_tokens(id, got, other, false, &mut found);
    } else {
        let common = got.tokens.len().min(other.tokens.len());
        let cut = |output: &Output| Output {
            tokens: output.tokens[..common].to_vec(),
            ..Output::default()
        };
        compare_tokens(id, &cut(got), &cut(other), false, &mut found);
    }
    if found.by_observable.is_empty() && ended && compared.positions == 0 {
        let place = Place { id: Some(id), ..Place::default() };
        let detail = "no position was computed by both".into();
        found.note_first(Observable::Coverage, place, detail);
    }
    found.conclude(got, other, origin).map_or(Ok(compared), Err)
}

type ByObservable = BTreeMap<Observable, (Place, String)>;

/// The differences from a standard that were found so far: of each observable the first.
pub(super) struct Differences<'s> {
    standard: &'s Standard,
    /// What the standard is called.
    pub(super) name: String,
    by_observable: ByObservable,
}

impl<'s> Differences<'s> {
    fn of(standard: &'s Standard) -> Differences<'s> {
        Differences { standard, name: standard.name(), by_observable: ByObservable::new() }
    }

    /// Keeps the difference at the smallest position; of several there, the one computed first.
    pub(super) fn note_first(&mut self, what: Observable, place: Place, detail: String) {
        match self.by_observable.get(&what) {
            Some((earlier, _)) if earlier.position <= place.position => {}
            _ => {
                self.by_observable.insert(what, (place, detail));
            }
        }
    }

    /// What is reported of them, if there are any.
    fn conclude(
        mut self,
        got: &Output,
        expected: &Output,
        origin: Option<Origin>,
    ) -> Option<Box<Divergence>> {
        let all: BTreeSet<Observable> = self.by_observable.keys().copied().collect();
        let strongest = *all.first()?;
        // Where another token was drawn from equal logits, all that was computed from it is a consequence.
        let drawn = differs_only_after_a_draw(got, expected, &self.by_observable);
        let (observable, origin) =
            if drawn { (Observable::Tokens, None) } else { (strongest, origin) };
        let (place, detail) = self.by_observable.remove(&observable).expect("it is one of them");
        let standard = self.standard.clone();
        Some(Box::new(Divergence { observable, all, place, detail, origin, standard }))
    }
}

/// What was observed at each position, the last of several.
pub(super) enum ByPosition<'o, T> {
    /// Entry i is position i, as in an execution that computes everything once.
    Dense(&'o [T]),
    Sparse(BTreeMap<u32, &'o T>),
}

impl<'o, T> ByPosition<'o, T> {
    pub(super) fn new(all: &'o [T], position: impl Fn(&T) -> u32) -> ByPosition<'o, T> {
        if all.iter().zip(0..).all(|(x, i)| position(x) == i) {
            ByPosition::Dense(all)
        } else {
            ByPosition::Sparse(all.iter().map(|x| (position(x), x)).collect())
        }
    }

    pub(super) fn get(&self, position: u32) -> Option<&'o T> {
        match self {
            ByPosition::Dense(all) => all.get(position as usize),
            ByPosition::Sparse(all) => all.get(&position).copied(),
        }
    }
}

/// Positions in order, each once.
pub(super) fn distinct(positions: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut all: Vec<u32> = positions.collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Logits and layer digests; returns the first operator that differs.
fn compare_positions(
    id: SampleId,
    got: &Output,
    expected: &Output,
    compared: &mut Compared,
    found: &mut Differences<'_>,
) -> Option<Origin> {
    let expected = ByPosition::new(&expected.positions, |p| p.position);
    let mut origin: Option<Origin> = None;
    for bits in &got.positions {
        let Some(reference) = expected.get(bits.position) else { continue };
        compared.positions += 1;
        let place = Place {
            id: Some(id),
            residency: Some(bits.residency),
            position: Some(bits.position),
            layer: None,
        };
        if reference.logits != bits.logits {
            let detail =
                format!("digest {:016x}, {} {:016x}", bits.logits, found.name, reference.logits);
            found.note_first(Observable::Logits, place, detail);
        }
        let count = reference.sites.len();
        if count == 0 || bits.sites.len() != count {
            continue;
        }
        compared.sites += 1;
        let differs = |i: &usize| bits.sites[*i] != reference.sites[*i];
        if let Some(index) = (0..count).find(differs) {
            let site = Site::nth(index, count);
            let detail = format!(
                "{site}: {:016x}, {} {:016x}",
                bits.sites[index], found.name, reference.sites[index]
            );
            let place = Place { layer: site.layer, ..place };
            found.note_first(Observable::Sites, place, detail);
            if origin.is_none_or(|o| bits.position < o.position) {
                origin = Some(Origin { position: bits.position, residency: bits.residency, site });
            }
        }
    }
    origin
}

fn compare_kv(
    id: SampleId,
    got: &Output,
    expected: &Output,
    compared: &mut Compared,
    found: &mut Differences<'_>,
) {
    let expected = ByPosition::new(&expected.kv, |kv| kv.position);
    for kv in &got.kv {
        let Some(reference) = expected.get(kv.position) else { continue };
        if reference.layers.len() != kv.layers.len() {
            continue;
        }
        compared.kv += 1;
        let pairs = kv.layers.iter().zip(&reference.layers).enumerate();
        for (layer, (a, b)) in pairs.filter(|(_, (a, b))| a != b) {
            let place = Place {
                id: Some(id),
                residency: Some(kv.residency),
                position: Some(kv.position),
                layer: Some(layer),
            };
            let which = if a.k != b.k { "K" } else { "V" };
            let detail = format!("{which} as {:?}", kv.moment).to_lowercase();
            found.note_first(Observable::Kv, place, detail);
        }
    }
}

/// Whether the text is the expected one, or a beginning of it if the sample was aborted.
fn is_text(got: &Output, expected: &Output, aborted: bool) -> bool {
    // A text that goes on may have more than one that a stop string ended.
    let beginning = || {
        let shared = got.text.len().min(expected.text.len());
        got.text[..shared] == expected.text[..shared]
    };
    got.text == expected.text || aborted && beginning()
}

fn compare_tokens(
    id: SampleId,
    got: &Output,
    expected: &Output,
    aborted: bool,
    found: &mut Differences<'_>,
) {
    let name = &found.name;
    let place = Place { id: Some(id), ..Place::default() };
    let due = if aborted {
        &expected.tokens[..got.tokens.len().min(expected.tokens.len())]
    } else {
        &expected.tokens[..]
    };
    let finish = if aborted { Some(Finish::Aborted) } else { expected.finish };
    if got.tokens != due {
        let common = got.tokens.iter().zip(&expected.tokens).take_while(|(a, b)| a == b).count();
        let token = |output: &Output| match output.tokens.get(common) {
            Some(token) => token.to_string(),
            None => "missing".to_owned(),
        };
        let (drawn, wanted) = (token(got), token(expected));
        let detail = format!("generated token {common} is {drawn}, {name} {wanted}");
        found.note_first(Observable::Tokens, place, detail);
    } else if !is_text(got, expected, aborted) {
        let text = |output: &Output| String::from_utf8_lossy(&output.text).into_owned();
        let detail = format!("text {:?}, {name} {:?}", text(got), text(expected));
        found.note_first(Observable::Tokens, place, detail);
    } else if got.finish != finish {
        let detail = format!("finished as {:?}, expected {finish:?}", got.finish);
        found.note_first(Observable::Tokens, place, detail);
    }
}

#[cfg(test)]
mod tests;
