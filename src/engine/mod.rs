//! The fixture engine: continuous batching over a paged KV cache, with every free choice open to the schedule.
//!
//! An execution is a pure function of (model, world, workload, schedule, seed). Nothing here reads a clock, a thread
//! id or an address; an engine instance lives for one execution.

mod abort;
mod admission;
mod audit;
mod blocks;
mod check;
mod deeds;
mod deviations;
mod draws;
mod flights;
mod fork;
mod forward;
mod life;
pub mod live;
mod model;
mod padding;
mod parts;
pub mod plan;
mod prefix;
mod room;
mod rows;
mod scheduler;
mod scores;
mod sequence;
mod state;
mod stop;
mod swap;

use std::fmt;

use crate::device::{Device, DeviceError, Layout, Sequence as SequenceRows};
use crate::record::{
    Boundary, Capture, CapturedRow, Draw, Output, PositionBits, Run, Sentinel, StepShape,
    TokenScore, TrajectoryHasher,
};
use crate::schedule::Schedule;
use crate::workload::{SampleId, Workload};
use crate::world::World;

use audit::{Auditor, Launch};
use blocks::BlockId;
pub use check::{POOL_BYTES_MAX, check, check_requests, check_world};
use deeds::Writers;
pub use forward::RowDigests;
use forward::{Computed, Forward};
pub use model::{DeviceModel, contract_of};
use parts::Keep;
use plan::Planner;
pub use rows::Rows;
use scheduler::{Granules, Scheduler, Slice};
use sequence::State;

/// An execution could not be carried out, or broke an invariant of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// World, workload or schedule are not executable; one line for the user.
    BadInput(String),
    /// The device failed.
    Device(DeviceError),
    /// Not everything finished within the bound.
    NotLive {
        /// Boundaries that were allowed.
        bound: u64,
        /// Samples that had not finished.
        unfinished: Vec<SampleId>,
    },
    /// Blocks were leaked or counted twice.
    Ledger(String),
    /// An audit found a broken rule; the text names it.
    Audit(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::BadInput(why) => write!(f, "{why}"),
            EngineError::Device(error) => write!(f, "{error}"),
            EngineError::NotLive { bound, unfinished } => {
                let names: Vec<String> = unfinished.iter().map(ToString::to_string).collect();
                write!(f, "{} did not finish within {bound} step boundaries", names.join("; "))
            }
            EngineError::Ledger(why) | EngineError::Audit(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for EngineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            EngineError::Device(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DeviceError> for EngineError {
    fn from(error: DeviceError) -> EngineError {
        EngineError::Device(error)
    }
}

/// Boundaries within which any schedule must finish: each request runs alone at worst, starts over once for each
/// intent, and waits out every delay.
pub fn boundary_bound(workload: &Workload, schedule: &Schedule) -> u64 {
    let requests = workload.requests.iter().zip(workload.lengths());
    let tokens =
        requests.map(|(r, l)| u64::from(r.samples) * (l.positions as u64 + 2)).sum::<u64>() + 8;
    let delays: u64 = schedule.intents.iter().map(|i| i.act.delay() + 1).sum();
    tokens * (schedule.intents.len() as u64 + 1) + delays
}

/// Carries out a schedule on a fresh engine instance, which is audited at every step.
pub fn execute<D: Device>(
    model: &DeviceModel<D>,
    world: &World,
    workload: &Workload,
    schedule: &Schedule,
    seed: u64,
    capture: Option<&Capture>,
) -> Result<Run, EngineError> {
    execute_with(model, world, workload, schedule, seed, capture, true)
}

/// [`execute`], with audits or without. They change no result of a sound engine.
pub fn execute_with<D: Device>(
    model: &DeviceModel<D>,
    world: &World,
    workload: &Workload,
    schedule: &Schedule,
    seed: u64,
    capture: Option<&Capture>,
    audits: bool,
) -> Result<Run, EngineError> {
    check(model, world, workload, schedule)?;
    let mut engine = Engine::new(model, world, workload, schedule, seed, audits)?;
    if !audits {
        engine.scheduler.pool.trust();
    }
    for (request, lengths) in workload.requests.iter().zip(workload.lengths()) {
        let empty = |id| (id, room_for(lengths.positions));
        engine.run.outputs.extend(request.sample_ids().map(empty));
    }
    engine.hasher = Some(TrajectoryHasher::new(model.contract_hash().as_bytes()));
    engine.forward.watch(true);
    engine.capture = capture;
    engine.run_to_end(boundary_bound(workload, schedule))
}

/// Most positions that room is made for before anything is observed.
const ROOM_MAX: usize = 4096;

/// An empty output with room for an execution that computes every position once.
fn room_for(positions: usize) -> Output {
    let positions = positions.min(ROOM_MAX);
    Output {
        positions: Vec::with_capacity(positions),
        kv: Vec::with_capacity(positions),
        ..Output::default()
    }
}

struct Engine<'m, D: Device> {
    scheduler: Scheduler,
    forward: Forward<'m, D>,
    writers: Writers,
    planner: Planner,
    block_size: u32,
    /// `None` for an engine that runs on and on: it keeps what requests asked for and counters, and observes nothing else.
    hasher: Option<TrajectoryHasher>,
    capture: Option<&'m Capture>,
    /// Log-probabilities of the last launch.
    scores: Vec<(SampleId, TokenScore)>,
    /// Draws of the last launch.
    drawn: Vec<(SampleId, Draw)>,
    /// `None` if the run is not audited.
    auditor: Option<Auditor>,
    run: Run,
}

impl<'m, D: Device> Engine<'m, D> {
    /// A fresh instance, which observes nothing.
    fn new(
        model: &'m DeviceModel<D>,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        audits: bool,
    ) -> Result<Engine<'m, D>, EngineError> {
        let constants = model.config.constants;
        let granules = Granules {
            tile: constants.tile as usize,
            split: constants.split as usize,
            vocab: model.config.vocab,
            positions_max: model.positions_max(),
        };
        let mut scheduler =
            Scheduler::new(world, workload, schedule, seed, granules, &model.config.eos);
        scheduler.text = model.text.clone();
        let [blocks, swap_blocks, size] =
            [world.pool_blocks, world.swap_blocks, world.block_size].map(|n| n as usize);
        Ok(Engine {
            scheduler,
            forward: Forward::new(model, blocks, swap_blocks, size)?.with_poison(world.poison),
            writers: Writers::default(),
            planner: model.planner.in_mode(&world.mode),
            block_size: world.block_size,
            hasher: None,
            capture: None,
            scores: Vec::new(),
            drawn: Vec::new(),
            auditor: audits.then(|| Auditor::new(world.pool_blocks, world.block_size)),
            run: Run::default(),
        })
    }

    fn run_to_end(mut self, bound: u64) -> Result<Run, EngineError> {
        let mut boundaries = 0;
        while !self.scheduler.is_done() {
            if boundaries == bound {
                let unfinished = self.scheduler.sequences.iter().filter(|s| !s.is_finished());
                return Err(EngineError::NotLive {
                    bound,
                    unfinished: unfinished.map(|s| s.id).collect(),
                });
            }
            boundaries += 1;
            self.boundary()?;
        }
        // Without audits it is a relation that asks what is held.
        if self.auditor.is_some() {
            self.scheduler.check_idle().map_err(EngineError::Ledger)?;
        }
        self.run.held = Some(self.scheduler.held());
        for sequence in &self.scheduler.sequences {
            let output = self.run.outputs.get_mut(&sequence.id).expect("one output a sample");
            output.tokens = sequence.output().to_vec();
            output.text.clone_from(&sequence.text);
            if let State::Finished(finish) = sequence.state {
                output.finish = Some(finish);
            }
        }
        self.run.sentinels.merge(&self.scheduler.sentinels);
        self.run.life = std::mem::take(&mut self.scheduler.life);
        self.run.boundaries.merge(&self.scheduler.boundaries);
        count_variants(&mut self.run, &self.forward.device.counts()?);
        self.run.intents = self.scheduler.deviations.outcomes();
        self.run.trajectory = self.hasher.map(TrajectoryHasher::finish).unwrap_or_default();
        Ok(self.run)
    }

    /// Takes the decisions of the next boundary, carries out its step and what lands behind it, and returns the step.
    fn boundary(&mut self) -> Result<Vec<Slice>, EngineError> {
        let step = self.scheduler.boundary();
        self.do_deeds()?;
        if step.is_empty() {
            self.scheduler.skip_idle();
        } else {
            let padding = self.scheduler.pad(&step);
            let tables = step.iter().map(|s| self.scheduler.blocks(s).to_vec()).collect();
            let (computed, drawn) = self.launch(&step, tables, padding, false)?;
            self.take_in(&step, computed, &drawn)?;
        }
        self.land()?;
        if let Some(auditor) = &mut self.auditor {
            auditor.after_step(&self.scheduler).map_err(audited)?;
        }
        if let Some(hasher) = &mut self.hasher {
            self.scheduler.hash_into(hasher);
            hasher.close();
        }
        Ok(step)
    }

    /// Computes the rows of a step with these block tables and draws from them. Returns what was computed,
    /// and the draws. `left` is for flights: whether the sequence has lost its residency since.
    fn launch(
        &mut self,
        step: &[Slice],
        tables: Vec<Vec<BlockId>>,
        padding: usize,
        left: bool,
    ) -> Result<(Computed, Vec<Option<u32>>), EngineError> {
        if let Some(auditor) = &mut self.auditor {
            let launch = Launch { slices: step, tables: &tables, left };
            auditor.before_launch(&self.scheduler, launch).map_err(audited)?;
        }
        let layout = Layout {
            block_size: self.block_size,
            sequences: step
                .iter()
                .zip(tables)
                .map(|(slice, blocks)| SequenceRows {
                    blocks,
                    start: slice.start as u32,
                    len: slice.len as u32,
                })
                .collect(),
        };
        let tokens: Vec<u32> = step
            .iter()
            .flat_map(|s| &self.scheduler.sequences[s.index].tokens[s.start..s.start + s.len])
            .copied()
            .collect();
        let rows = tokens.len() + padding;
        let plan = self.planner.plan(rows, step.len());
        let edges = [
            Boundary::RowsSingle,
            Boundary::RowsSkinny,
            Boundary::RowsParallel,
            Boundary::RowsFused,
        ];
        for (boundary, edge) in edges.into_iter().zip(plan::ROW_EDGES) {
            self.run.boundaries.near(boundary, rows, edge as usize);
        }
        let keep = self.keep(step);
        let computed = self.forward.step(&plan, &layout, &tokens, padding, keep.as_ref())?;
        self.note_writers(step, &layout);
        if padding > 0 {
            self.run.sentinels.hit(Sentinel::PaddedStep);
        }
        // Nobody is left to draw for.
        let drawn = self.draw(if left { &[] } else { step })?;
        self.scores.clear();
        if !left {
            self.score(step, &drawn)?;
        }
        if self.hasher.is_some() {
            self.run.steps.push(StepShape { rows: rows as u32, sequences: step.len() as u32 });
            self.hash_step(step, &layout, padding, &computed.rows);
        }
        Ok((computed, drawn))
    }

    /// Hands the results of a step to the scheduler.
    fn take_in(
        &mut self,
        step: &[Slice],
        computed: Computed,
        drawn: &[Option<u32>],
    ) -> Result<(), EngineError> {
        if self.hasher.is_some() {
            self.observe(step, computed)?;
            for (id, score) in self.scores.drain(..) {
                let output = self.run.outputs.get_mut(&id).expect("one output a sample");
                output.scores.push(score);
            }
            self.record_draws();
        }
        self.scheduler.commit(step, drawn);
        self.do_deeds()
    }

    /// Carries out the flights that land now: copies first, then a launch each, with the block table that the flight was
    /// launched with.
    fn land(&mut self) -> Result<(), EngineError> {
        for flight in self.scheduler.landings() {
            if let Some(auditor) = &self.auditor {
                auditor.before_landing(&self.scheduler, &flight).map_err(audited)?;
            }
            self.scheduler.land_copies(&flight);
            self.do_deeds()?;
            let Some(slice) = flight.chunk() else { continue };
            let step = std::slice::from_ref(slice);
            let padding = self.scheduler.usual_padding(slice.len);
            let (computed, drawn) =
                self.launch(step, vec![flight.blocks.clone()], padding, flight.left)?;
            if self.scheduler.landed(&flight) {
                self.take_in(step, computed, &drawn)?;
            } else {
                self.do_deeds()?;
            }
        }
        Ok(())
    }

    /// What the step is to keep in full: the rows that are captured.
    fn keep(&self, step: &[Slice]) -> Option<Keep<'m>> {
        let capture = self.capture?;
        let all = step.iter().flat_map(|slice| {
            let id = self.scheduler.sequences[slice.index].id;
            (slice.start..slice.start + slice.len).map(move |position| (id, position as u32))
        });
        let wanted = all.enumerate().filter(|(_, (id, position))| capture.wants(*id, *position));
        let rows: Vec<usize> = wanted.map(|(row, _)| row).collect();
        (!rows.is_empty()).then_some(Keep { sites: &capture.sites, parts: capture.parts, rows })
    }

    /// Records the bits of every row.
    fn observe(&mut self, step: &[Slice], computed: Computed) -> Result<(), EngineError> {
        let Computed { rows, mut kept } = computed;
        let mut digests = rows.into_iter().enumerate();
        for slice in step {
            let sequence = &self.scheduler.sequences[slice.index];
            let output = self.run.outputs.get_mut(&sequence.id).expect("one output a sample");
            output.rows_computed += slice.len as u64;
            output.shared_steps += u64::from(step.len() > 1);
            for position in slice.start..slice.start + slice.len {
                let position = position as u32;
                let (row, digests) = digests.next().expect("digests of each row");
                output.positions.push(PositionBits {
                    residency: sequence.residency,
                    position,
                    logits: digests.logits,
                    sites: digests.sites,
                });
                if let Some(sites) = kept.remove(&row) {
                    let logits = self.capture.is_some_and(|c| c.logits);
                    output.captured.push(CapturedRow {
                        residency: sequence.residency,
                        position,
                        logits: if logits { self.forward.logits(row)? } else { Vec::new() },
                        sites,
                    });
                }
            }
        }
        Ok(())
    }

    /// Writes the step's work list and results to the trajectory.
    fn hash_step(
        &mut self,
        step: &[Slice],
        layout: &Layout,
        padding: usize,
        digests: &[RowDigests],
    ) {
        let Some(hasher) = &mut self.hasher else { return };
        hasher.tag("step");
        for (slice, rows) in step.iter().zip(&layout.sequences) {
            let SampleId { uid, sample } = self.scheduler.sequences[slice.index].id;
            let row = [uid, sample.into(), slice.start as u64, slice.len as u64];
            hasher.list(row.into_iter());
            hasher.list(rows.blocks.iter().copied());
        }
        hasher.u64(padding as u64);
        hasher.tag("logits");
        hasher.digests(digests.len(), digests.iter().map(|d| d.logits));
        hasher.tag("sites");
        hasher.tag("scores");
        for (_, score) in &self.scores {
            let TokenScore { residency: _, position, token, logprob, top } = score;
            hasher.list([*position, *token, *logprob].into_iter());
            hasher.list(top.iter().flat_map(|(id, x)| [*id, *x]).collect::<Vec<_>>().into_iter());
        }
        hasher.tag("draws");
        for (_, draw) in &self.drawn {
            let Draw { position, token, key, place } = draw;
            hasher.list([*position, *token, *place].into_iter());
            hasher.list(key.unwrap_or_default().into_iter());
        }
        hasher.tag("rows");
        for row in digests {
            hasher.digests(row.sites.len(), row.sites.iter().copied());
        }
    }
}

fn audited(finding: audit::Finding) -> EngineError {
    EngineError::Audit(finding.to_string())
}

/// Moves the device's counters into the run's sentinels.
fn count_variants(run: &mut Run, counts: &crate::device::VariantCounts) {
    let pairs = [
        (Sentinel::GemmSkinnyWalk, counts.gemm_skinny_walk),
        (Sentinel::GemmSkinnyParallel, counts.gemm_skinny_parallel),
        (Sentinel::GemmTiledWalk, counts.gemm_tiled_walk),
        (Sentinel::GemmTiledParallel, counts.gemm_tiled_parallel),
        (Sentinel::AttentionWalk, counts.attention_walk),
        (Sentinel::AttentionParallel, counts.attention_parallel),
        (Sentinel::NormFused, counts.norm_fused),
        (Sentinel::NormPlain, counts.norm_plain),
        (Sentinel::GemmFold, counts.gemm_folds),
        (Sentinel::MultiSplitRow, counts.attention_folds),
        (Sentinel::TileBeforeChunk, counts.attention_tile_before_chunk),
    ];
    for (sentinel, n) in pairs {
        run.sentinels.add(sentinel, n);
    }
}

#[cfg(test)]
mod explore;
#[cfg(test)]
mod tests;
