//! Storms: a few short sequences in a tight pool, with deviations at nearly every boundary.
//!
//! Ordinary courses leave a request in peace most of the time, so that runs of three rare events hardly occur. Here a
//! forecast of the run is followed boundary by boundary, and each sequence may be treated otherwise at each of them: a
//! random walk. Marks are where the forecast stands, so that most intents fire.

use crate::contract::sampler::SamplerParams;
use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use crate::workload::{Request, SampleId, Workload};
use crate::world::World;

use super::Space;
use super::draw::Draw;
use super::forecast::{Deed, Forecast, Stand};
use super::swarm::{Feature, Swarm};
use super::workload::Planned;

/// A storm: its world, requests and deviations.
struct Storm {
    world: World,
    planned: Vec<Planned>,
    schedule: Schedule,
    /// How much of what is rare happens in it.
    weight: u64,
}

/// Storms that are drawn for each that is kept.
const DRAWN: usize = 12;

/// Draws a storm, if the case is to have one: makes the world tight, the requests few and short. Of several it is the
/// one with most of what is rare.
pub(super) fn lay(
    draw: &mut Draw<'_>,
    space: &Space,
    swarm: &Swarm,
    world: &mut World,
    planned: &mut Vec<Planned>,
) -> Option<Schedule> {
    let positions_max = space.edges.positions_max as usize;
    if swarm.level(Feature::Storm) == 0 || space.prompts.is_some() || positions_max < 64 {
        return None;
    }
    let drawn = (0..DRAWN).map(|_| storm(draw, space, world));
    // Of equals the first.
    let storm = drawn.reduce(|a, b| if b.weight > a.weight { b } else { a })?;
    *world = storm.world;
    *planned = storm.planned;
    Some(storm.schedule)
}

/// Draws a storm in a world like this one.
fn storm(draw: &mut Draw<'_>, space: &Space, world: &World) -> Storm {
    let mut world = world.clone();
    world.prefix_cache = true;
    world.token_budget = None;
    let samples = draw.pick(&[1, 2, 2, 2, 3]);
    // A block of one position is never shared in part.
    let blocks: &[u32] = if samples > 1 { &[2, 3, 4, 5, 7] } else { &[1, 2, 3, 4, 5, 7] };
    world.block_size = draw.pick(blocks);
    let block = world.block_size as usize;
    let length = 1 + draw.below(2 * block + 2);
    let vocab = space.edges.vocab as usize;
    let prompt: Vec<u32> = (0..length).map(|_| draw.below(vocab) as u32).collect();
    let kin = samples > 1;
    // Flat draws end some outputs early.
    let temperature = draw.pick(&[0.0, 1.5, 8.0, 8.0]);
    let stops: Vec<u32> = match draw.percent(20) {
        true => (0..24).map(|_| draw.below(vocab) as u32).collect(),
        false => Vec::new(),
    };
    let request = |uid: u64, prompt: Vec<u32>, max_tokens: usize, samples: u32| Planned {
        prompt_len: prompt.len(),
        request: Request {
            samples,
            ignore_eos: false,
            sampling: SamplerParams { temperature, ..SamplerParams::default() },
            stop_token_ids: stops.clone(),
            ..Request::new(uid, prompt, max_tokens as u32)
        },
        shared: 0,
        foreign: 0,
        follows: None,
    };
    let mut all = vec![request(1, prompt.clone(), 0, samples)];
    // What another one leaves in the cache is evicted for the copy of a shared block.
    let leaves = samples == 2 && draw.percent(40);
    if leaves || samples == 1 || samples == 2 && draw.percent(60) {
        all.push(request(2, Vec::new(), 0, 1));
    }
    // Whom others fork from stays long enough to be found.
    all[0].request.max_tokens = match kin && draw.percent(75) {
        true => draw.between(4, 9),
        false => draw.between(1, 8),
    } as u32;
    if let Some(other) = all.get_mut(1) {
        let mut tokens = prompt[..draw.below(length + 1)].to_vec();
        let own =
            if leaves { block + draw.below(2 * block + 1) } else { 1 + draw.below(2 * block) };
        tokens.extend((0..own).map(|_| draw.below(vocab) as u32));
        other.prompt_len = tokens.len();
        other.request.prompt = tokens.into();
        other.request.max_tokens = draw.between(1, if leaves { 2 } else { 5 }) as u32;
        if !kin {
            other.request.samples = 2;
        }
    }
    let blocks = |p: &Planned| p.blocks(world.block_size) / p.request.samples as usize;
    let largest = all.iter().map(blocks).max().unwrap_or(1);
    // Siblings need room next to the one that they fork from.
    let spare = if kin { draw.below(largest / 2 + 2) } else { 0 };
    world.pool_blocks = (largest + spare + draw.below(3)) as u32;
    if leaves {
        let cached = all[1].prompt_len / block;
        let others = if draw.percent(50) { 1 } else { (length + draw.below(3)).div_ceil(block) };
        world.pool_blocks = largest.max(others + cached) as u32;
    }
    if draw.percent(50) {
        all.reverse();
    }
    let workload = Workload { requests: all.iter().map(|p| p.request.clone()).collect() };
    world.swap_blocks = draw.pick(&[0, 2, 4, 8, 16, 16, 16, 16]);
    let forecast = walk(draw, &world, &workload, kin, if leaves { 3 } else { 0 });
    Storm {
        world,
        planned: all,
        schedule: Schedule { intents: forecast.intents().to_vec() },
        weight: weight(&forecast),
    }
}

/// How much of what is rare happens: each run of three deeds of a sequence counts once, by the product of how rare they
/// are.
fn weight(forecast: &Forecast) -> u64 {
    let mut last = vec![[None; 2]; forecast.sequences.len()];
    let mut runs = std::collections::BTreeSet::new();
    for &(i, deed) in &forecast.log {
        let [a, b] = last[i];
        if let (Some(a), Some(b)) = (a, b) {
            runs.insert([a, b, deed]);
        }
        last[i] = [b, Some(deed)];
    }
    runs.iter().map(|run| run.iter().map(|deed| rarity(*deed)).product::<u64>()).sum()
}

fn rarity(deed: Deed) -> u64 {
    match deed {
        Deed::Copy => 6,
        Deed::Abort => 4,
        Deed::Evict | Deed::Fork => 3,
        Deed::Miss | Deed::SwapOut | Deed::SwapIn | Deed::Preempt | Deed::Refuse | Deed::Part => 2,
        Deed::Admit | Deed::Hit | Deed::Chunk | Deed::Decode | Deed::Publish | Deed::Finish => 1,
    }
}

/// Most boundaries at which a storm deviates.
const WALK_MAX: usize = 48;

/// Walks through the run, deviating at random. Request 1 comes `after` boundaries late.
fn walk(
    draw: &mut Draw<'_>,
    world: &World,
    workload: &Workload,
    kin: bool,
    after: usize,
) -> Forecast {
    let mut gust = Gust::new(draw, kin);
    let mut schedule = Schedule::default();
    for id in workload.sample_ids() {
        let late = if id.uid == 1 { after } else { 0 };
        let steps = (late + gust.draw.below(if id.sample > 0 { 9 } else { 4 })) as u32;
        if steps > 0 {
            let arrive = Act::Arrive { steps };
            let SampleId { uid, sample } = id;
            schedule.intents.push(Intent { uid, sample, mark: Mark::Start, act: arrive });
        }
    }
    let mut forecast = Forecast::new(world, workload, &schedule);
    // Residency and tokens at the boundary before: at the same mark a resident sequence can't be acted on again.
    let mut stood = vec![None; forecast.sequences.len()];
    for _ in 0..WALK_MAX {
        if forecast.is_done() {
            break;
        }
        gust.swaps = None;
        for (i, stood) in stood.iter_mut().enumerate() {
            let now = (forecast.sequences[i].residency, forecast.launched(i));
            let moved = stood.replace(now) != Some(now);
            gust.decide(&forecast, i, moved);
            gust.intents.drain(..).for_each(|intent| forecast.add(intent));
        }
        forecast.step();
    }
    forecast
}

/// Percent of the offers at which a sample waits for another one to fork from.
const PATIENCE: usize = 30;

/// What a storm decides.
struct Gust<'a, 'r> {
    draw: &'a mut Draw<'r>,
    /// Of nine decisions, those that deviate.
    busy: usize,
    /// Acts that this storm has none of: others are met in longer runs without them.
    lacks: [bool; 8],
    /// Percent of chunks that land late.
    lands: usize,
    /// Percent of sequences in flight that lose their residency.
    leaves: usize,
    /// Request of a sequence that is swapped at this boundary: it may be back at once, for others to fork from.
    swaps: Option<u64>,
    intents: Vec<Intent>,
}

/// Places in [`Gust::lacks`].
const HOLD: usize = 0;
const REFUSE: usize = 1;
const EVICT: usize = 2;
const CUT: usize = 3;
const LAND: usize = 4;
const PREEMPT: usize = 5;
const SWAP: usize = 6;
const ABORT: usize = 7;

impl<'a, 'r> Gust<'a, 'r> {
    fn new(draw: &'a mut Draw<'r>, kin: bool) -> Gust<'a, 'r> {
        let busy = draw.between(1, 8);
        let about_kin = kin && draw.percent(50);
        let mut lacks = [false; 8];
        for (act, lacks) in lacks.iter_mut().enumerate() {
            *lacks = match about_kin {
                true => matches!(act, REFUSE | EVICT) || act == CUT && draw.percent(50),
                false => draw.percent(if act == ABORT { 35 } else { 25 }),
            };
        }
        let lands = draw.pick(&[20, 35, 60, 80]);
        let leaves = draw.pick(&[15, 50, 80]);
        Gust { draw, busy, lacks, lands, leaves, swaps: None, intents: Vec::new() }
    }

    /// Decides about a sequence at the next boundary; `moved` if it stands elsewhere than at the one before.
    fn decide(&mut self, forecast: &Forecast, i: usize, moved: bool) {
        let s = &forecast.sequences[i];
        let SampleId { uid, sample } = s.id;
        let of = |mark, act| Intent { uid, sample, mark, act };
        let offer = Mark::Offer { n: s.offers + 1 };
        match s.stand {
            Stand::Waiting | Stand::Swapped
                if s.offer_at <= forecast.boundary && !s.awaits(forecast.intents(), offer) =>
            {
                let looks = s.stand == Stand::Waiting;
                let percent = if self.swaps == Some(uid) { 90 } else { 50 };
                if looks && forecast.forkable(i).is_some() && self.draw.percent(percent) {
                    self.intents.push(of(offer, Act::Fork));
                    self.chunk(|act| of(first_chunk(s.residency + 1), act));
                    return;
                }
                if sample > 0 && looks && !self.lacks[HOLD] && self.draw.percent(PATIENCE) {
                    // Until there is somebody to fork from.
                    return self.intents.push(of(offer, Act::Hold { steps: 1 }));
                }
                let own =
                    if looks && !self.lacks[EVICT] { forecast.evictable(i) } else { Vec::new() };
                if !own.is_empty() && self.draw.percent(50) {
                    // The tail first, so that what is evicted is not what the others are found through.
                    let count = 1 + self.draw.below(own.len().min(3));
                    let blocks = own.iter().rev().take(count);
                    self.intents.extend(blocks.map(|&block| of(offer, Act::Evict { block })));
                    if self.draw.percent(30) && !self.lacks[REFUSE] {
                        self.intents.push(of(offer, Act::Hit { at_most: 0 }));
                    }
                    return self.chunk(|act| of(first_chunk(s.residency + 1), act));
                }
                if !looks && !self.lacks[LAND] && self.draw.percent(self.lands / 2) {
                    return self.intents.push(of(offer, Act::Land { late: 1 }));
                }
                if !self.acts_on(false) {
                    return;
                }
                let refuse = Act::Hit { at_most: 0 };
                match self.draw.below(if looks { 6 } else { 3 }) {
                    0 if !self.lacks[HOLD] => {
                        return self.intents.push(of(offer, Act::Hold { steps: 1 }));
                    }
                    1 if !self.lacks[ABORT] => return self.intents.push(of(offer, Act::Abort)),
                    3 | 4 if !self.lacks[REFUSE] => self.intents.push(of(offer, refuse)),
                    _ => {}
                }
                self.chunk(|act| of(first_chunk(s.residency + 1), act));
            }
            Stand::Running if self.acts_on(moved && forecast.is_in_flight(i)) => {
                let tokens = forecast.launched(i) as u32;
                let mark = Mark::Computed { residency: s.residency, tokens };
                let choices = if forecast.is_in_flight(i) { 3 } else { 6 };
                match self.draw.below(choices) {
                    0 if moved && !self.lacks[ABORT] => self.intents.push(of(mark, Act::Abort)),
                    1 if moved && !self.lacks[PREEMPT] => {
                        let kind = PreemptKind::Recompute;
                        self.intents.push(of(mark, Act::Preempt { kind, away: 0 }));
                    }
                    2 if moved && !self.lacks[SWAP] => {
                        let kind = PreemptKind::Swap;
                        self.intents.push(of(mark, Act::Preempt { kind, away: 0 }));
                        if !forecast.is_in_flight(i) && !self.lacks[LAND] && self.draw.percent(25) {
                            self.intents.push(of(mark, Act::Land { late: 1 }));
                        }
                        self.swaps = Some(uid);
                        self.chunk(|act| of(first_chunk(s.residency + 1), act));
                    }
                    _ if !forecast.is_in_flight(i) && !s.awaits(forecast.intents(), mark) => {
                        self.chunk(|act| of(mark, act));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Whether a sequence is treated otherwise at all.
    fn acts_on(&mut self, in_flight: bool) -> bool {
        match in_flight {
            true => self.draw.percent(self.leaves),
            false => self.draw.below(9) < self.busy,
        }
    }

    /// Lets the next chunk land late, or cuts it, or neither.
    fn chunk(&mut self, of: impl Fn(Act) -> Intent) {
        if !self.lacks[LAND] && self.draw.percent(self.lands) {
            self.intents.push(of(Act::Land { late: 1 }));
        } else if !self.lacks[CUT] && self.draw.percent(33) {
            self.intents.push(of(Act::Cut { tokens: 1 }));
        }
    }
}

/// The mark of a residency's first chunk, wherever that begins.
fn first_chunk(residency: u32) -> Mark {
    Mark::Computed { residency, tokens: 0 }
}
