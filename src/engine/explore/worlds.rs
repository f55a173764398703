//! The worlds that are explored, and the acts tried in each: small ones for the exhaustive search, random ones for walks.

use crate::workload::Request;

use super::STOP;

/// A world to explore, and the acts tried in it.
pub(super) struct Root {
    pub(super) name: &'static str,
    pub(super) block_size: u32,
    pub(super) pool_blocks: u32,
    pub(super) swap_blocks: u32,
    pub(super) requests: Vec<Request>,
    /// Boundary at which each sequence arrives.
    pub(super) arrivals: [u32; 3],
    pub(super) acts: Vec<Kind>,
    /// Most deviations of a path: a sequence that deviates at a boundary is one.
    pub(super) deviations_max: usize,
    pub(super) states_max: usize,
}

/// Acts to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Hold,
    Refuse,
    Evict,
    Fork,
    Cut,
    Land,
    Preempt,
    Swap,
    Abort,
    End,
}

/// A xorshift generator: the walks are the same on every machine.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

/// A request that [`STOP`] ends.
pub(super) fn request(uid: u64, prompt: &[u32], max_tokens: u32, samples: u32) -> Request {
    Request {
        samples,
        stop_token_ids: vec![STOP],
        ..Request::new(uid, prompt.to_vec(), max_tokens)
    }
}

pub(super) fn roots() -> Vec<Root> {
    use Kind::*;
    vec![
        Root {
            name: "prefixes",
            block_size: 2,
            pool_blocks: 5,
            swap_blocks: 0,
            requests: vec![
                request(1, &[1, 2, 3, 4, 5], 2, 1),
                request(2, &[1, 2, 3, 4, 6], 1, 1),
                request(3, &[1, 2, 7], 4, 1),
            ],
            arrivals: [0, 1, 1],
            acts: vec![Hold, Refuse, Evict, Cut, Land, Preempt, Abort, End],
            deviations_max: 4,
            states_max: 60000,
        },
        Root {
            name: "samples",
            block_size: 4,
            pool_blocks: 5,
            swap_blocks: 4,
            requests: vec![request(1, &[1, 2, 3, 4, 5, 6], 4, 2), request(2, &[7, 8], 1, 1)],
            arrivals: [0, 1, 0],
            acts: vec![Hold, Fork, Cut, Land, Preempt, Swap, Abort, End],
            deviations_max: 4,
            states_max: 60000,
        },
        Root {
            name: "crowded samples",
            block_size: 3,
            pool_blocks: 5,
            swap_blocks: 4,
            requests: vec![
                request(1, &[1, 2, 3, 4, 5], 3, 2),
                request(2, &[7, 8, 9, 10, 11, 12, 13], 3, 1),
            ],
            arrivals: [1, 2, 0],
            acts: vec![Fork, Cut, Land, Preempt, Swap, Abort],
            deviations_max: 4,
            states_max: 60000,
        },
        Root {
            name: "single positions",
            block_size: 1,
            pool_blocks: 5,
            swap_blocks: 3,
            requests: vec![
                request(1, &[1, 2], 3, 1),
                request(2, &[1, 2], 2, 1),
                request(3, &[1], 3, 1),
            ],
            arrivals: [0, 0, 1],
            acts: vec![Hold, Refuse, Evict, Cut, Land, Preempt, Swap, Abort],
            deviations_max: 4,
            states_max: 60000,
        },
        Root {
            name: "long",
            block_size: 2,
            pool_blocks: 5,
            swap_blocks: 4,
            requests: vec![
                request(1, &[1, 2, 3], 8, 1),
                request(2, &[1, 2, 4], 7, 1),
                request(3, &[5], 3, 1),
            ],
            arrivals: [0, 0, 1],
            acts: vec![Hold, Land, Preempt, Swap, Abort],
            deviations_max: 3,
            states_max: 60000,
        },
    ]
}

/// Worlds in which random walks are made.
pub(super) const WALKED_WORLDS: usize = 5000;

/// A random world: samples of one request and another one, with or without a common prefix, in a pool that is tight.
pub(super) fn walked(random: &mut Random) -> Root {
    use Kind::*;
    let block_size = 1 + random.below(7) as u32;
    let length = 1 + random.below(2 * block_size as usize + 2);
    let prompt: Vec<u32> = (1..=length as u32).collect();
    let shared = random.below(length + 1);
    let own = 1 + random.below(2 * block_size as usize) as u32;
    let other: Vec<u32> = prompt[..shared].iter().copied().chain(50..50 + own).collect();
    let samples = [1, 2, 2, 3, 3][random.below(5)];
    let mut requests = vec![
        request(1, &prompt, 1 + random.below(9) as u32, samples),
        request(2, &other, 1 + random.below(4) as u32, 3 - samples.min(2)),
    ];
    requests.truncate(if samples == 3 { 1 } else { 2 });
    if random.below(2) == 0 {
        requests.reverse();
    }
    let positions = |r: &Request| r.prompt.own_tokens().len() as u32 + r.max_tokens - 1;
    let blocks = |r: &Request| positions(r).div_ceil(block_size);
    let largest = requests.iter().map(blocks).max().unwrap_or(1);
    // Most walks leave some acts out, so that others are met in longer runs.
    let acts = [Hold, Refuse, Evict, Fork, Cut, Land, Preempt, Swap, Abort, End];
    let ends = |kind: &Kind| matches!(kind, Abort | End);
    let kin = samples > 1 && random.below(2) == 0;
    let about_kin = |kind: &Kind| matches!(kind, Hold | Fork | Land | Preempt | Swap | Abort);
    let kept = |kind: &Kind| match kin {
        true => about_kin(kind),
        false => random.below(4) > usize::from(ends(kind)),
    };
    let acts = acts.into_iter().filter(kept).collect();
    Root {
        name: "walk",
        block_size,
        pool_blocks: largest + random.below(3) as u32,
        swap_blocks: random.below(9) as u32,
        requests,
        arrivals: [0; 3].map(|_| random.below(5) as u32),
        acts,
        deviations_max: 0,
        states_max: 0,
    }
}
