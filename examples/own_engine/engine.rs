//! A toy engine, and what it takes to show it to the harness: an implementation of [`Subject`].
//!
//! There is no arithmetic: the logits of a position are a hash of the tokens up to it. Every request that has arrived
//! computes one chunk a step, and decodes one token a step after that. It can deviate from its default policy in two
//! ways, late arrivals and cut prefills, and says so in its capabilities. On request it has a [`Fault`].

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use lockstep::contract::{Dtype, Mode};
use lockstep::record::{
    Capture, Finish, Inert, IntentOutcome, KvBits, KvDigest, KvMoment, Output, PositionBits, Run,
    Sentinel, StepShape, TrajectoryHasher,
};
use lockstep::schedule::{Act, ActKind, Mark, Schedule};
use lockstep::subject::{Capabilities, Edges, Subject, SubjectError};
use lockstep::workload::{Request, SampleId, Workload};
use lockstep::world::World;

/// What is wrong with the toy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Logits depend on the number of requests in the step.
    Leak,
    /// Requests never share a step, so that nothing is exercised.
    Sequential,
    /// Once a logit differs, whatever the inputs.
    Unrepeatable,
    /// Reports no observation at all.
    Blind,
    /// Fails as soon as two requests meet.
    Crash,
    /// Panics as soon as two requests meet.
    Panic,
    /// Says that it counts cuts inside a block, and never does.
    Boastful,
}

/// The engine.
pub(crate) struct Toy {
    fault: Fault,
    executions: AtomicU64,
}

impl Fault {
    /// The fault with this name.
    pub(crate) fn from_name(name: &str) -> Option<Fault> {
        Some(match name {
            "none" => Fault::None,
            "leak" => Fault::Leak,
            "sequential" => Fault::Sequential,
            "unrepeatable" => Fault::Unrepeatable,
            "blind" => Fault::Blind,
            "crash" => Fault::Crash,
            "panic" => Fault::Panic,
            "boastful" => Fault::Boastful,
            _ => return None,
        })
    }
}

impl Toy {
    pub(crate) fn new(fault: Fault) -> Toy {
        Toy { fault, executions: AtomicU64::new(0) }
    }
}

struct InFlight<'w> {
    id: SampleId,
    request: &'w Request,
    tokens: Vec<u32>,
    computed: usize,
    arrival: u32,
}

const VOCAB: u64 = 50;

fn hash(tokens: &[u32]) -> u64 {
    tokens.iter().fold(7, |h: u64, t| {
        let x = (h ^ u64::from(*t)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^ (x >> 29)
    })
}

impl Subject for Toy {
    fn name(&self) -> &str {
        "toy"
    }

    fn device(&self) -> &str {
        "toy"
    }

    fn capabilities(&self) -> Capabilities {
        let mut sentinels =
            BTreeSet::from([Sentinel::SharedStep, Sentinel::RowNotFirst, Sentinel::Cut]);
        if self.fault == Fault::Boastful {
            sentinels.insert(Sentinel::CutMidBlock);
        }
        Capabilities {
            acts: BTreeSet::from([ActKind::Arrive, ActKind::Cut]),
            logits: true,
            kv: true,
            sites: false,
            plain: false,
            exact: None,
            ties: false,
            logprobs: false,
            draws: false,
            ledger: false,
            trajectory: true,
            fresh_process: false,
            sentinels,
            events: BTreeSet::new(),
        }
    }

    fn edges(&self) -> Edges {
        Edges { rows: vec![2], tile: 16, split: 32, vocab: VOCAB as u32, positions_max: 256 }
    }

    fn default_world(&self) -> World {
        World {
            model: "toy".into(),
            model_digest: String::new(),
            dtype: Dtype::Bf16,
            mode: Mode::Invariant,
            block_size: 4,
            pool_blocks: 64,
            token_budget: None,
            prefix_cache: false,
            hash_bits: 64,
            swap_blocks: 0,
            buckets: Vec::new(),
            poison: false,
        }
    }

    fn execute(
        &self,
        _world: &World,
        workload: &Workload,
        schedule: &Schedule,
        _seed: u64,
        _capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        let execution = self.executions.fetch_add(1, Ordering::Relaxed);
        let mut run = Run::default();
        let mut outcomes: Vec<IntentOutcome> = schedule
            .intents
            .iter()
            .map(|&intent| IntentOutcome { intent, inert: Some(Inert::MarkNotReached) })
            .collect();
        let mut flying: Vec<InFlight<'_>> = Vec::new();
        let samples = workload.requests.iter().flat_map(|r| r.sample_ids().map(move |id| (r, id)));
        for (request, id) in samples {
            let mut arrival = 0;
            for outcome in outcomes.iter_mut().filter(|o| o.intent.id() == id) {
                if let (Act::Arrive { steps }, Mark::Start) =
                    (outcome.intent.act, outcome.intent.mark)
                {
                    arrival += steps;
                    outcome.inert = None;
                }
            }
            // The harness resolves continuations before it calls an engine.
            let prompt = request.prompt.tokens();
            let prompt = prompt.ok_or(SubjectError::BadInput("an unresolved prompt".into()))?;
            let tokens = prompt.to_vec();
            flying.push(InFlight { id, request, tokens, computed: 0, arrival });
            run.outputs.insert(id, Output::default());
        }
        let mut hasher = TrajectoryHasher::new(b"toy");
        let mut step = 0;
        while !flying.is_empty() {
            let mut present: Vec<usize> =
                (0..flying.len()).filter(|i| flying[*i].arrival <= step).collect();
            if self.fault == Fault::Sequential {
                present.truncate(1);
            }
            assert!(self.fault != Fault::Panic || present.len() < 2, "two requests met");
            if self.fault == Fault::Crash && present.len() > 1 {
                return Err(SubjectError::Failed("two requests met".into()));
            }
            let mut rows = 0;
            for &i in &present {
                let it = &mut flying[i];
                let len = chunk(it, &mut outcomes, &mut run);
                rows += len as u32;
                let output = run.outputs.get_mut(&it.id).expect("inserted above");
                output.shared_steps += u64::from(present.len() > 1);
                for position in it.computed..it.computed + len {
                    let mut logits = hash(&it.tokens[..=position]);
                    if self.fault == Fault::Leak && present.len() > 1 {
                        logits ^= present.len() as u64;
                    }
                    if self.fault == Fault::Unrepeatable && execution == 2 {
                        logits ^= 1;
                    }
                    output.positions.push(PositionBits {
                        residency: 1,
                        position: position as u32,
                        logits,
                        sites: Vec::new(),
                    });
                    output.kv.push(KvBits {
                        residency: 1,
                        position: position as u32,
                        moment: KvMoment::Released,
                        layers: vec![KvDigest { k: hash(&it.tokens[position..=position]), v: 1 }],
                    });
                    hasher.list([it.id.uid, it.id.sample.into(), logits].into_iter());
                }
                output.rows_computed += len as u64;
                output.kv_due += len as u64;
                it.computed += len;
                if it.computed == it.tokens.len() {
                    let token = hash(&it.tokens) % VOCAB;
                    it.tokens.push(token as u32);
                    output.tokens.push(token as u32);
                }
            }
            if present.len() > 1 {
                run.sentinels.hit(Sentinel::SharedStep);
                run.sentinels.hit(Sentinel::RowNotFirst);
            }
            if rows > 0 {
                run.steps.push(StepShape { rows, sequences: present.len() as u32 });
            }
            hasher.close();
            flying.retain(|it| {
                let output = run.outputs.get_mut(&it.id).expect("inserted above");
                let done = output.tokens.len() == it.request.max_tokens as usize;
                if done {
                    output.finish = Some(Finish::Length);
                }
                !done
            });
            step += 1;
        }
        if self.fault == Fault::Blind {
            for output in run.outputs.values_mut() {
                output.positions.clear();
                output.kv.clear();
            }
        }
        run.intents = outcomes;
        run.trajectory = hasher.finish();
        Ok(run)
    }
}

/// Length of the next chunk, cut if the schedule says so.
fn chunk(it: &InFlight<'_>, outcomes: &mut [IntentOutcome], run: &mut Run) -> usize {
    let default = it.tokens.len() - it.computed;
    for outcome in outcomes.iter_mut() {
        let due = outcome.inert == Some(Inert::MarkNotReached)
            && outcome.intent.id() == it.id
            && matches!(outcome.intent.mark, Mark::Computed { residency: 1, tokens }
                if it.computed >= tokens as usize);
        let Act::Cut { tokens } = outcome.intent.act else { continue };
        if due {
            let len = default.min(tokens as usize);
            outcome.inert = (len == default).then_some(Inert::SameAsDefault);
            if len < default {
                run.sentinels.hit(Sentinel::Cut);
            }
            return len;
        }
    }
    default
}
