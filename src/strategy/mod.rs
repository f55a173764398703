//! proptest strategies over cases: worlds, workloads and schedules, and how they shrink.
//!
//! Case `i` of a campaign depends on (seed, i) only. The first cases are directed: each gate of each relation fires
//! in them, so that a campaign of three cases is not vacuous.

mod draw;
pub mod reduce;
mod schedule;
pub mod swarm;
pub mod tree;
mod workload;

use std::sync::Arc;

use proptest::strategy::{NewTree, Strategy};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sha2::{Digest as _, Sha256};

use crate::case::Case;
use crate::subject::Edges;
use crate::workload::Workload;
use crate::world::World;

use draw::Draw;
pub use swarm::Feature;
use swarm::Swarm;
pub use tree::CaseTree;

/// What cases are drawn from.
#[derive(Clone, Debug)]
pub struct Space {
    /// Where the subject's behaviour changes.
    pub edges: Edges,
    /// The world that cases start from.
    pub world: World,
    /// Real prompts to draw from; `None` draws random tokens.
    pub prompts: Option<Arc<Vec<Vec<u32>>>>,
    /// Features that every case is about, for a focused campaign.
    pub focus: Vec<Feature>,
    /// Most requests.
    pub requests_max: usize,
    /// Usual length of a prompt, in tokens.
    pub prompt_usual: usize,
    /// Most tokens generated.
    pub output_max: usize,
    /// Percent of cases with a prompt past the first attention split.
    pub long_percent: usize,
}

impl Space {
    /// The space of a subject: short prompts for quick cases, one past a split in most of them.
    pub fn new(edges: Edges, world: World) -> Space {
        Space {
            prompt_usual: (edges.tile as usize).clamp(8, 32),
            edges,
            world,
            prompts: None,
            focus: Vec::new(),
            requests_max: 33,
            output_max: 9,
            long_percent: 55,
        }
    }

    /// Longest prompt that leaves room for `max_tokens`.
    fn positions_max(&self, max_tokens: usize) -> usize {
        (self.edges.positions_max as usize + 1).saturating_sub(max_tokens).max(1)
    }
}

/// The strategy whose values are cases.
#[derive(Clone, Debug)]
pub struct Cases {
    space: Arc<Space>,
    directed: Option<usize>,
}

/// Cases for use in `proptest!`: none of them directed.
pub fn cases(space: Space) -> Cases {
    Cases { space: Arc::new(space), directed: None }
}

impl Cases {
    /// Case `index` of the campaign with this seed.
    pub fn nth(&self, seed: u64, index: u64) -> CaseTree {
        let mut hasher = Sha256::new();
        hasher.update(b"lockstep/case");
        hasher.update(seed.to_le_bytes());
        hasher.update(index.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &hasher.finalize());
        let config = Config { failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, rng);
        let strategy = Cases { space: Arc::clone(&self.space), directed: Some(index as usize) };
        strategy.new_tree(&mut runner).expect("generation rejects nothing")
    }
}

impl Strategy for Cases {
    type Tree = CaseTree;
    type Value = Case;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let mut draw = Draw::new(runner.rng());
        Ok(CaseTree::new(draw_case(&mut draw, &self.space, self.directed)))
    }
}

/// Features of the first cases of a campaign.
const DIRECTED: [&[Feature]; 4] = {
    use Feature::*;
    [
        &[Cut, Preempt, Shared, Arrive, Hit, Rank],
        &[Cut, Preempt, Siblings, Sampled, Stall, Hold],
        &[Shared, Arrive, Hit, Cut],
        &[Tight, Preempt, Cut, Sampled],
    ]
};

fn draw_case(draw: &mut Draw<'_>, space: &Space, directed: Option<usize>) -> Case {
    let directed = directed.and_then(|i| DIRECTED.get(i));
    let swarm = match directed {
        Some(features) => Swarm::directed(features),
        None => Swarm::draw(draw),
    }
    .focus(&space.focus);
    let mut world = workload::world(draw, space, &swarm);
    let least = if directed.is_some() { 3 } else { 1 };
    let count = workload::count(draw, space, &swarm, least);
    let planned = workload::requests(draw, space, &swarm, &world, count, directed.is_some());
    let workload = Workload { requests: planned.iter().map(|p| p.request.clone()).collect() };
    workload::size_pool(draw, &swarm, &mut world, &workload);
    let schedule = schedule::schedule(draw, space, &swarm, &world, &planned);
    Case { world, workload, schedule, seed: draw.word() >> 16 }
}
