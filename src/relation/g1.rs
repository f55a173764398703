//! G1, golden: the bits of a fixed set of prompts are those of a reviewed snapshot.
//!
//! Two hashes a prompt: over the logits of every position computed for it, and over its layer digests. A fault that is the
//! same under every schedule leaves all other relations green; this one asks whether the bits are still those that
//! people looked at. The prompts stand on both sides of every boundary of the subject, and are executed twice: each alone, and
//! [all together](served) under a fixed schedule with cuts, hits, preemptions, swaps, late landings and padding.
//! Both must give the one snapshot.
//!
//! A snapshot is text: [`Table`] writes it and reads it. Where it is kept, and how people review it, is the
//! caller's business.

mod prompts;
mod served;

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::contract::hex;
use crate::record::{PositionBits, Run};
use crate::schedule::Schedule;
use crate::subject::{Capabilities, Subject, SubjectError, guard};
use crate::workload::{Request, SampleId, Workload};
use crate::world::World;

pub use prompts::{PROMPTS_MIN, Prompt, prompts};
pub use served::{REQUIRED, served};

/// Identity in reports.
pub const ID: &str = "G1";
/// What must hold.
pub const STATEMENT: &str = "logits and layer digests of fixed prompts are those of the reviewed snapshot, each prompt alone and all \
     of them served together";

/// Tokens that each prompt generates, greedily: positions that were decoded belong to the snapshot too.
const OUTPUT: u32 = 3;

/// Whether a subject can be judged by G1; otherwise why not.
pub fn applies(capabilities: &Capabilities) -> Result<(), &'static str> {
    if !capabilities.logits {
        return Err("the subject reports no logits");
    }
    if !capabilities.sites {
        return Err("the subject reports no layer digests");
    }
    Ok(())
}

/// What one prompt came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Length of the prompt, in tokens.
    pub length: usize,
    /// Attention splits that its last computed position sees.
    pub splits: usize,
    /// Boundaries that the length stands at, as `split*2-1`.
    pub place: String,
    /// sha256 (hex) over the digests of the f32 logits of its positions, in order.
    pub logits: String,
    /// sha256 (hex) over the layer digests of its positions, in order.
    pub layers: String,
}

/// What all prompts came to: the text of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// sha256 (hex) of the arithmetic contract in force.
    pub contract: String,
    /// sha256 (hex) of configuration and weights.
    pub model: String,
    /// One line a prompt.
    pub lines: Vec<Line>,
}

const HEADING: &str = "length splits stands at";

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "contract {}", self.contract)?;
        writeln!(f, "model    {}", self.model)?;
        let width = self.lines.iter().map(|l| l.place.len()).max().unwrap_or(0);
        let width = width.max("stands at".len());
        writeln!(
            f,
            "{:<pad$} {:<64} sha256 of layer digests",
            HEADING,
            "sha256 of logits",
            pad = 14 + width
        )?;
        for Line { length, splits, place, logits, layers } in &self.lines {
            writeln!(f, "{length:>6} {splits:>6} {place:<width$} {logits} {layers}")?;
        }
        Ok(())
    }
}

impl Table {
    /// Reads what [`Table`] writes; the error is one line.
    pub fn parse(text: &str) -> Result<Table, String> {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let mut value = |name: &str| {
            let line = lines.next().unwrap_or_default();
            let value = line.strip_prefix(name).map(|rest| rest.trim().to_owned());
            value.ok_or_else(|| format!("expected a line with {name:?}, found {line:?}"))
        };
        let (contract, model) = (value("contract ")?, value("model ")?);
        value(HEADING)?;
        let line = |text: &str| {
            let fields: Vec<&str> = text.split_whitespace().collect();
            let [length, splits, place, logits, layers] = fields[..] else {
                return Err(format!("expected five fields, found {text:?}"));
            };
            let number =
                |text: &str| text.parse().map_err(|_| format!("expected a number, found {text:?}"));
            Ok(Line {
                length: number(length)?,
                splits: number(splits)?,
                place: place.into(),
                logits: logits.into(),
                layers: layers.into(),
            })
        };
        let lines = lines.map(line).collect::<Result<_, _>>()?;
        Ok(Table { contract, model, lines })
    }

    /// In what `found` differs from this table, one line each.
    pub fn differences(&self, found: &Table) -> Vec<String> {
        let mut all = Vec::new();
        for (what, mine, others) in
            [("contract", &self.contract, &found.contract), ("model", &self.model, &found.model)]
        {
            if mine != others {
                all.push(format!("the {what} changed: {mine} is now {others}"));
            }
        }
        if self.lines.len() != found.lines.len() {
            all.push(format!("{} prompts are now {}", self.lines.len(), found.lines.len()));
        }
        for (number, (mine, others)) in self.lines.iter().zip(&found.lines).enumerate() {
            let (logits, layers) = (mine.logits != others.logits, mine.layers != others.layers);
            let Line { length, place, .. } = mine;
            let what = match (logits, layers) {
                (true, true) => "logits and layer digests",
                (true, false) => "logits",
                (false, true) => "layer digests",
                (false, false) if mine != others => "another prompt",
                (false, false) => continue,
            };
            all.push(format!("prompt {number} of {length} tokens ({place}): {what}"));
        }
        all
    }
}

/// The prompts as requests, in order; uids from 1.
fn requests(prompts: &[Prompt]) -> Vec<Request> {
    let request = |(prompt, uid): (&Prompt, u64)| Request {
        ignore_eos: true,
        ..Request::new(uid, prompt.tokens.clone(), OUTPUT)
    };
    prompts.iter().zip(1..).map(request).collect()
}

/// Blocks that a request needs.
fn blocks(request: &Request, world: &World) -> u32 {
    let positions = request.prompt.own_tokens().len() as u32 + OUTPUT - 1;
    positions.div_ceil(world.block_size)
}

/// Executes each prompt alone, in an instance of its own.
pub fn alone(subject: &dyn Subject, prompts: &[Prompt]) -> Result<Table, SubjectError> {
    let mut lines = Vec::new();
    for (prompt, request) in prompts.iter().zip(requests(prompts)) {
        let world = subject.default_world();
        let world = World { pool_blocks: blocks(&request, &world), ..world };
        let workload = Workload { requests: vec![request] };
        let run = guard::execute(subject, &world, &workload, &Schedule::default(), 0, None)?;
        lines.extend(Bits::new(&workload, &run)?.lines(subject, std::slice::from_ref(prompt))?);
    }
    Ok(table(subject, lines))
}

fn table(subject: &dyn Subject, lines: Vec<Line>) -> Table {
    let environment = subject.environment();
    let known = |hash: Option<String>| hash.unwrap_or_else(|| "not recorded".into());
    Table { contract: known(environment.contract), model: known(environment.model), lines }
}

/// The bits of a run's computed positions.
struct Bits<'r> {
    /// In the order of the workload.
    sequences: Vec<Sequence<'r>>,
}

/// A request's prompt and output, and what was computed for it.
struct Sequence<'r> {
    tokens: Vec<u32>,
    /// By position: each different value once.
    computed: BTreeMap<u32, Vec<&'r PositionBits>>,
}

impl<'r> Bits<'r> {
    fn new(workload: &Workload, run: &'r Run) -> Result<Bits<'r>, SubjectError> {
        let sequence = |request: &Request| {
            let id = SampleId::first(request.uid);
            let output = run.outputs.get(&id).ok_or_else(|| missing(format!("{id}: no output")))?;
            if output.tokens.len() != OUTPUT as usize {
                let (got, finish) = (output.tokens.len(), output.finish);
                return Err(missing(format!("{id}: {got} tokens of {OUTPUT}, {finish:?}")));
            }
            let mut tokens = request.prompt.own_tokens().to_vec();
            tokens.extend(&output.tokens);
            let mut computed: BTreeMap<u32, Vec<&PositionBits>> = BTreeMap::new();
            for bits in &output.positions {
                let values = computed.entry(bits.position).or_default();
                // A position computed again must come to the same.
                if !values.iter().any(|v| v.logits == bits.logits && v.sites == bits.sites) {
                    values.push(bits);
                }
            }
            Ok(Sequence { tokens, computed })
        };
        let sequences = workload.requests.iter().map(sequence).collect::<Result<_, _>>()?;
        Ok(Bits { sequences })
    }

    /// What was computed for a position of a sequence: by itself, or, where it was attached from the cache, by a sequence
    /// with the same tokens up to there.
    fn at(&self, index: usize, position: u32) -> Option<&[&'r PositionBits]> {
        let Sequence { tokens, computed } = &self.sequences[index];
        if let Some(values) = computed.get(&position) {
            return Some(values);
        }
        let prefix = &tokens[..=position as usize];
        let mut others = self.sequences.iter().filter(|s| s.tokens.starts_with(prefix));
        others.find_map(|s| s.computed.get(&position)).map(Vec::as_slice)
    }

    /// The lines of the table, of prompts in the order of the workload.
    fn lines(&self, subject: &dyn Subject, prompts: &[Prompt]) -> Result<Vec<Line>, SubjectError> {
        let split = subject.edges().split.max(1) as usize;
        let line = |(index, prompt): (usize, &Prompt)| {
            let (mut logits, mut layers) = (Sha256::new(), Sha256::new());
            let end = prompt.tokens.len() as u32 + OUTPUT - 1;
            for position in 0..end {
                let values = self.at(index, position).ok_or_else(|| {
                    missing(format!("prompt {index}: nobody computed position {position}"))
                })?;
                for bits in values {
                    if bits.sites.is_empty() {
                        let why = format!("prompt {index}: no layer digests at {position}");
                        return Err(missing(why));
                    }
                    logits.update(bits.logits.to_le_bytes());
                    bits.sites.iter().for_each(|site| layers.update(site.to_le_bytes()));
                }
            }
            Ok(Line {
                length: prompt.tokens.len(),
                splits: (end as usize).div_ceil(split),
                place: prompt.place.clone(),
                logits: hex(&logits.finalize()),
                layers: hex(&layers.finalize()),
            })
        };
        prompts.iter().enumerate().map(line).collect()
    }
}

fn missing(why: String) -> SubjectError {
    SubjectError::Failed(format!("golden: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(length: usize, logits: &str, layers: &str) -> Line {
        let (logits, layers) = (logits.into(), layers.into());
        Line { length, splits: 1, place: "tile-1,rows+1".into(), logits, layers }
    }

    fn sample() -> Table {
        let lines = vec![line(3, "a1", "b1"), line(15, "a2", "b2")];
        Table { contract: "c0".into(), model: "d0".into(), lines }
    }

    #[test]
    fn a_table_reads_what_it_writes() {
        let table = sample();
        assert_eq!(Table::parse(&table.to_string()).unwrap(), table);
        assert!(Table::parse("").is_err());
        let cut = table.to_string().replace(" b2", "");
        assert!(Table::parse(&cut).unwrap_err().contains("five fields"));
    }

    #[test]
    fn differences_name_the_prompts_and_what_moved() {
        let (old, mut new) = (sample(), sample());
        assert!(old.differences(&new).is_empty());
        new.lines[1].layers = "b3".into();
        new.contract = "c1".into();
        let all = old.differences(&new);
        assert_eq!(
            all,
            [
                "the contract changed: c0 is now c1",
                "prompt 1 of 15 tokens (tile-1,rows+1): layer digests"
            ]
        );
        new.lines.pop();
        assert!(old.differences(&new).iter().any(|d| d == "2 prompts are now 1"));
    }
}
