//! SmolLM2's logits, against a runtime from outside.
//!
//! The reference is candle's Llama in f32, on the weights that the engine has after their rounding to f16; how it was
//! made is in `tests/data/text/candle_reference`. Absent: the bits, which no other runtime has.

use libtest_mimic::Failed;
use lockstep::contract::Mode;
use lockstep::engine::Rows;
use lockstep::fixture::Fixture;
use lockstep::reference::exact::{self, Storage};
use lockstep::weights::Model;
use serde_json::Value;

/// Most that a logit of the engine may be from candle's. Measured: 0.132, at one position where candle's own logits move
/// as far (root mean square 0.117) when each weight is changed by up to 2^-11, half a unit of f16; elsewhere 0.045.
const ENGINE_MOST: f64 = 0.2;
/// The same for the root mean square over a sequence. Measured: 0.0085 to 0.0131. Such a change of its weights, one
/// rounding each, moves candle by 0.010 to 0.024; the engine rounds the activations too, eight times a layer.
const ENGINE_RMS: f64 = 0.02;
/// Most that a logit of the pass in f64 may be from candle's. Measured: 7.6e-5; candle's own f32 logits, token by token
/// and in one pass, are up to 8.4e-5 apart.
const EXACT_MOST: f64 = 1.5e-4;
/// Step between the ids whose logits are stored at each position.
const STRIDE: usize = 769;
/// Logits stored at those ids, and best ids stored with theirs, at each position.
const STORED: (usize, usize) = (64, 8);

/// How far the logits of sequences are from candle's.
#[derive(Default)]
struct Distance {
    positions: usize,
    logits: usize,
    most: f64,
    /// Position and id of it.
    at: (usize, usize),
    squares: f64,
    /// Positions whose two best tokens are further apart for candle than twice `ENGINE_MOST`.
    decided: usize,
    /// Positions with another best token, and the largest margin that candle had at one.
    other_best: (usize, f64),
}

impl Distance {
    fn rms(&self) -> f64 {
        (self.squares / self.logits as f64).sqrt()
    }

    /// The first bound that is not kept, in words.
    fn fault(&self) -> Option<String> {
        let (other, margin) = self.other_best;
        let (position, id) = self.at;
        if self.most > ENGINE_MOST {
            Some(format!("position {position}, id {id}: {} from candle's logit", self.most))
        } else if self.rms() > ENGINE_RMS {
            Some(format!("root mean square of the distance: {}", self.rms()))
        } else if margin > 2.0 * ENGINE_MOST {
            Some(format!("{other} other best tokens, one where candle's margin is {margin}"))
        } else {
            None
        }
    }
}

/// Goal: the forward pass is the model's, at every position. Method: four sequences, the longest past an attention
/// split, against candle's logits. By their digests, the logits compared are those that an ordinary execution computes.
pub(crate) fn engine() -> Result<(), Failed> {
    let fixture = Fixture::host("smollm2", &Model::load(&super::file(), None)?, Mode::Invariant)?;
    let split = fixture.model().config().constants.split as usize;
    let (mut positions, mut logits, mut decided, mut past_split) = (0, 0, 0, 0);
    for case in cases()? {
        let ids = super::ids_of(&case["ids"])?;
        let mut rows = Rows::new(fixture.model(), ids.len())?;
        let tokens: Vec<(u32, u32)> = (0..).zip(ids.iter().copied()).collect();
        let digests = rows.compute(&tokens)?;
        let distance = compare(&case, |row| Ok(widen(&rows.logits(row)?)))?;
        past_split += ids.len().saturating_sub(split);
        let run = super::continuation(&fixture, ids, 1, true)?;
        let served = run.outputs.into_values().next().ok_or("no output")?.positions;
        if !served.iter().map(|p| p.logits).eq(digests.iter().map(|d| d.logits)) {
            return Err("an execution has other logits than the rows compared".into());
        }
        print("engine", &distance);
        if let Some(fault) = distance.fault() {
            return Err(format!("{}: {fault}", case["prompt"]).into());
        }
        positions += distance.positions;
        logits += distance.logits;
        decided += distance.decided;
    }
    eprintln!(
        "smollm2: {logits} logits at {positions} positions, {past_split} past a split, {decided} decided"
    );
    if logits != 312 * (STORED.0 + STORED.1) || past_split < 16 || decided < 200 {
        return Err(format!("{logits} logits, {past_split} past a split, {decided} decided").into());
    }
    Ok(())
}

/// Goal: each bound can be missed. Method: engines with a wrong constant, then single wrong logits, on one sequence.
pub(crate) fn control() -> Result<(), Failed> {
    let model = Model::load(&super::file(), None)?;
    let case = cases()?.swap_remove(0);
    let ids = super::ids_of(&case["ids"])?;
    let tokens: Vec<(u32, u32)> = (0..).zip(ids.iter().copied()).collect();
    for (what, eps, base) in [("base 9e4", 1e-5, 9e4), ("epsilon 1e-4", 1e-4, 1e5)] {
        let mut other = model.clone();
        (other.config.norm_eps, other.config.rope_base) = (eps, base);
        let fixture = Fixture::host(what, &other, Mode::Invariant)?;
        let mut rows = Rows::new(fixture.model(), ids.len())?;
        rows.compute(&tokens)?;
        let distance = compare(&case, |row| Ok(widen(&rows.logits(row)?)))?;
        print(&format!("engine with {what}"), &distance);
        // The measured ratios are 1.9 and 1.4.
        if distance.rms() <= ENGINE_RMS {
            return Err(format!("{what} is not seen").into());
        }
    }
    let fixture = Fixture::host("smollm2", &model, Mode::Invariant)?;
    let mut rows = Rows::new(fixture.model(), ids.len())?;
    rows.compute(&tokens)?;
    // Ids 0 and 769 are stored, id 1 is not: it can only show as another best token.
    for (what, id, x) in [("a NaN", 769, f64::NAN), ("1.0", 0, 1.0), ("a new best", 1, 1e3)] {
        let distance = compare(&case, |row| {
            let mut logits = widen(&rows.logits(row)?);
            if row == 7 {
                logits[id] += x;
            }
            Ok(logits)
        })?;
        if distance.fault().is_none() {
            return Err(format!("{what} at one id of one position is not seen").into());
        }
    }
    Ok(())
}

/// Goal: the pass in f64 that the engine is measured with is the model's. Method: the sequence with the position at
/// which logits move most, against candle's; nothing but f32 arithmetic lies between them.
pub(crate) fn exact() -> Result<(), Failed> {
    let model = Model::load(&super::file(), None)?;
    let case = cases()?.swap_remove(2);
    let exact = exact::pass(&model, &super::ids_of(&case["ids"])?, Storage::Exact);
    let logits = |row| exact.get(row).map(|p: &exact::Position| p.logits.clone());
    let distance = compare(&case, |row| logits(row).ok_or_else(|| "no more tokens".into()))?;
    print("pass in f64", &distance);
    if distance.most > EXACT_MOST || distance.other_best.0 > 0 {
        let (position, id) = distance.at;
        return Err(format!("position {position}, id {id}: {} apart", distance.most).into());
    }
    match distance.logits {
        4176 => Ok(()),
        n => Err(format!("{n} logits compared, not 4176").into()),
    }
}

fn cases() -> Result<Vec<Value>, Failed> {
    let json = std::fs::read(super::data().join("text/smollm2-candle.json"))?;
    let json: Value = serde_json::from_slice(&json)?;
    match json["cases"].as_array() {
        Some(cases) if cases.len() == 4 => Ok(cases.clone()),
        _ => Err("not four cases".into()),
    }
}

fn widen(logits: &[f32]) -> Vec<f64> {
    logits.iter().map(|x| f64::from(*x)).collect()
}

fn print(what: &str, d: &Distance) {
    eprintln!(
        "smollm2: {what}: {} logits at most {:.6} from candle's, root mean square {:.6}; {} of {} best tokens differ",
        d.logits,
        d.most,
        d.rms(),
        d.other_best.0,
        d.positions
    );
}

/// Compares the logits of each position of a case with those stored; `row` is asked for them in order.
fn compare(
    case: &Value,
    mut row: impl FnMut(usize) -> Result<Vec<f64>, Failed>,
) -> Result<Distance, Failed> {
    let mut d = Distance::default();
    let positions = case["positions"].as_array().ok_or("no positions")?;
    if positions.len() != super::ids_of(&case["ids"])?.len() {
        return Err("not one position an id".into());
    }
    for (position, expected) in positions.iter().enumerate() {
        let logits = row(position)?;
        let fixed: Vec<f64> = serde_json::from_value(expected["logits"].clone())?;
        let top: Vec<(usize, f64)> = serde_json::from_value(expected["top"].clone())?;
        if (fixed.len(), top.len()) != STORED || top[0].0 as u64 != expected["argmax"] {
            return Err(format!("position {position}: not what the file should store").into());
        }
        let fixed = fixed.iter().enumerate().map(|(i, x)| (i * STRIDE % logits.len(), *x));
        for (id, theirs) in fixed.chain(top.iter().copied()) {
            let ours = logits.get(id).ok_or("an id outside of the vocabulary")?;
            let apart = (ours - theirs).abs();
            let apart = if apart.is_nan() { f64::INFINITY } else { apart };
            if apart > d.most {
                (d.most, d.at) = (apart, (position, id));
            }
            d.squares += apart * apart;
            d.logits += 1;
        }
        let best = (0..logits.len()).fold(0, |b, i| if logits[i] > logits[b] { i } else { b });
        let margin = top[0].1 - top[1].1;
        d.decided += usize::from(margin > 2.0 * ENGINE_MOST);
        if best != top[0].0 {
            d.other_best = (d.other_best.0 + 1, d.other_best.1.max(margin));
        }
        d.positions += 1;
    }
    Ok(d)
}
