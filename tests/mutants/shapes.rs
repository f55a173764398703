//! Two test shapes in use today, run on the fixture: what they would have seen of a mutant.
//!
//! Both keep their lengths and numbers where the fixture has room for them. A server lives on between their batches, so
//! here the batches of one server arrive one after another in one execution. A run that fails counts as seen.

use lockstep::contract::sampler::SamplerParams;
use lockstep::record::{Output, TokenScore};
use lockstep::schedule::{Act, Intent, Mark, Schedule};
use lockstep::subject::Subject;
use lockstep::workload::{Request, Workload};
use lockstep::world::World;

/// Requests, each with the boundary at which it arrives, on one server.
#[derive(Default)]
struct Server {
    requests: Vec<Request>,
    schedule: Schedule,
}

impl Server {
    fn arrive(&mut self, at: u32, request: impl FnOnce(u64) -> Request) -> usize {
        let uid = self.requests.len() as u64 + 1;
        self.requests.push(request(uid));
        if at > 0 {
            let act = Act::Arrive { steps: at };
            self.schedule.intents.push(Intent { uid, sample: 0, mark: Mark::Start, act });
        }
        uid as usize - 1
    }

    /// The outputs in the order of arrival; `None` if the run failed.
    fn serve(self, subject: &dyn Subject) -> Option<Vec<Output>> {
        let workload = Workload { requests: self.requests };
        let mut world = subject.default_world();
        let lengths = workload.lengths();
        let blocks: usize = lengths.iter().map(|l| l.blocks(world.block_size)).sum();
        world = World { pool_blocks: blocks as u32 + 8, ..world };
        let run =
            lockstep::subject::guard::execute(subject, &world, &workload, &self.schedule, 42, None);
        Some(run.ok()?.outputs.into_values().collect())
    }
}

/// Random numbers that no library can change: splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn tokens(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| 32 + self.below(95) as u32).collect()
    }
}

/// Batch 1 against batch N: 32 prompts of 10 to 50 tokens, each alone and then all at once; 16 tokens at temperature 0.6
/// with one seed and five alternatives a token. Tokens and log-probabilities must be equal bit for bit. After vLLM's
/// `test_logprobs_bitwise_batch_invariance_bs1_vs_bsN`.
pub(crate) fn batch_one_against_batch_n(subject: &dyn Subject) -> bool {
    const PROMPTS: u32 = 32;
    const TOKENS: u32 = 16;
    let mut rng = Rng(12345);
    let prompts: Vec<Vec<u32>> = (0..PROMPTS)
        .map(|_| {
            let len = 10 + rng.below(41);
            rng.tokens(len)
        })
        .collect();
    let request = |uid, prompt: &Vec<u32>| Request {
        sampling: SamplerParams { temperature: 0.6, ..SamplerParams::default() },
        seed: Some(1234),
        logprobs: Some(5),
        ..Request::new(uid, prompt.clone(), TOKENS)
    };
    let mut server = Server::default();
    for (prompt, at) in prompts.iter().zip(0..) {
        server.arrive(at * (TOKENS + 4), |uid| request(uid, prompt));
    }
    for prompt in &prompts {
        server.arrive(PROMPTS * (TOKENS + 4), |uid| request(uid, prompt));
    }
    let Some(outputs) = server.serve(subject) else { return true };
    let bits = |o: &Output| {
        let score = |s: &TokenScore| (s.position, s.token, s.logprob, s.top.clone());
        o.scores.iter().map(score).collect::<Vec<_>>()
    };
    let (alone, batch) = outputs.split_at(prompts.len());
    alone.iter().zip(batch).any(|(a, b)| a.tokens != b.tokens || bits(a) != bits(b))
}

/// Unique texts: one prompt in batches of 1 to 16 on one server, then mixtures of four lengths of one long prompt, 1, 63,
/// 256 and 420 tokens, in batches of 1 to 16 with the cache flushed before each; greedy, 32 tokens. Each prompt must have
/// one text. After SGLang's `test_deterministic`, modes `single` and `prefix`, which has 50 trials of 100 tokens and
/// prefixes of 1, 511, 2048 and 4097 characters.
pub(crate) fn unique_texts(subject: &dyn Subject) -> bool {
    const TRIALS: u32 = 16;
    const TOKENS: u32 = 32;
    let mut rng = Rng(42);
    let long = rng.tokens(420);
    let request = |uid, prompt: &[u32]| Request {
        ignore_eos: true,
        seed: Some(42),
        ..Request::new(uid, prompt.to_vec(), TOKENS)
    };
    let mut server = Server::default();
    let mut firsts = Vec::new();
    for batch in 1..=TRIALS {
        let at = (batch - 1) * (TOKENS + 4);
        firsts.push(server.arrive(at, |uid| request(uid, &long[100..131])));
        for _ in 1..batch {
            server.arrive(at, |uid| request(uid, &long[100..131]));
        }
    }
    let Some(outputs) = server.serve(subject) else { return true };
    if firsts.iter().any(|&first| outputs[first].tokens != outputs[0].tokens) {
        return true;
    }
    let prefixes = [1, 63, 256, 420].map(|len| &long[..len]);
    let mut texts: [Option<Vec<u32>>; 4] = Default::default();
    for batch in 1..=TRIALS {
        let mut server = Server::default();
        let drawn: Vec<usize> = (0..batch).map(|_| rng.below(prefixes.len())).collect();
        for &i in &drawn {
            server.arrive(0, |uid| request(uid, prefixes[i]));
        }
        let Some(outputs) = server.serve(subject) else { return true };
        for (i, output) in drawn.into_iter().zip(outputs) {
            match &texts[i] {
                None => texts[i] = Some(output.tokens),
                Some(text) if *text != output.tokens => return true,
                Some(_) => {}
            }
        }
    }
    false
}
