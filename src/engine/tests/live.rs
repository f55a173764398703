//! The live engine: its outputs are those of canonical executions, and it keeps nothing.

use std::collections::BTreeMap;

use crate::contract::Mode;
use crate::contract::sampler::SamplerParams;
use crate::engine::live::{Live, Load};
use crate::record::{Held, Output, TokenScore};
use crate::workload::SampleId;

use super::*;

/// Seed of the runs.
const SEED: u64 = 5;

/// Numbers that look random, from a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % n
    }

    /// A request of any kind: prompts that share beginnings, draws of each kind, scores, samples, stops, namespaces.
    fn request(&mut self, uid: u64) -> Request {
        let shared = self.below(14) as u32;
        let own = 1 + self.below(6) as u32;
        let prompt = (0..shared).chain((0..own).map(|i| 60 + (uid as u32 * 7 + i) % 90));
        Request {
            sampling: match self.below(3) {
                0 => SamplerParams::default(),
                1 => SamplerParams { temperature: 1.0, ..SamplerParams::default() },
                _ => SamplerParams { temperature: 0.7, top_k: 40, ..SamplerParams::default() },
            },
            seed: (self.below(2) == 0).then_some(uid % 3),
            samples: 1 + (self.below(4) / 3) as u32,
            namespace: (self.below(4) / 3) as u32,
            stop: match self.below(3) {
                0 => ('a'..='z').map(String::from).collect(),
                _ => Vec::new(),
            },
            stop_token_ids: if self.below(3) == 0 { vec![101, 32] } else { Vec::new() },
            logprobs: (self.below(2) == 0).then_some(2),
            prompt_logprobs: (self.below(4) == 0).then_some(1),
            ..request(uid, prompt, 1 + self.below(14) as u32)
        }
    }
}

/// What a client put together of the news of a sample.
#[derive(Debug, Default)]
struct Heard {
    tokens: Vec<u32>,
    scores: Vec<TokenScore>,
    end: Option<(Finish, Vec<u8>)>,
    began: u32,
}

impl Heard {
    /// In the form of an output; residencies aside, which are the engine's own affair.
    fn visible(self) -> (Vec<u32>, Vec<u8>, Option<Finish>, Vec<TokenScore>) {
        let (finish, text) = self.end.map_or((None, Vec::new()), |(f, text)| (Some(f), text));
        (self.tokens, text, finish, once(self.scores))
    }
}

fn once(scores: Vec<TokenScore>) -> Vec<TokenScore> {
    scores.into_iter().map(|score| TokenScore { residency: 1, ..score }).collect()
}

fn visible(output: &Output) -> (Vec<u32>, Vec<u8>, Option<Finish>, Vec<TokenScore>) {
    let Output { tokens, text, finish, scores, .. } = output;
    (tokens.clone(), text.clone(), *finish, scores.clone())
}

fn hear(live: &mut Live<'_, Host>, heard: &mut BTreeMap<SampleId, Heard>) {
    for news in live.step().unwrap() {
        let heard = heard.entry(news.id).or_default();
        heard.began += u32::from(news.cached.is_some());
        heard.scores.extend(news.prompt_scores);
        if let Some((token, score)) = news.token {
            heard.tokens.push(token);
            heard.scores.extend(score);
        }
        assert!(heard.end.is_none(), "news of {} after its end", news.id);
        heard.end = news.end;
    }
}

/// Outputs of `count` requests that come a few at a time, some of which are aborted, with the requests.
fn live_outputs(
    bench: &Bench,
    numbers: &mut Numbers,
    count: u64,
) -> (Vec<Request>, BTreeMap<SampleId, Heard>) {
    let mut live = Live::new(&bench.model, &bench.world, SEED, true).unwrap();
    let (mut requests, mut heard, mut gone) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut uid = 0;
    while uid < count || !live.is_idle() {
        while uid < count && numbers.below(3) == 0 {
            uid += 1;
            let request = numbers.request(uid);
            live.submit(request.clone()).unwrap();
            requests.push(request);
        }
        if uid > 0 && numbers.below(8) == 0 {
            let gone_uid = uid - numbers.below(uid.min(6));
            live.abort(gone_uid).unwrap();
            gone.push(gone_uid);
        }
        hear(&mut live, &mut heard);
    }
    assert_eq!(live.held().unwrap(), Held::default());
    let load = live.load();
    assert_eq!((load.running, load.waiting, load.blocks_used), (0, 0, 0));
    let engine = &live.engine;
    assert!(engine.scheduler.life.is_empty() && engine.run.outputs.is_empty());
    assert!(engine.run.steps.is_empty() && engine.scores.is_empty() && engine.drawn.is_empty());
    for sentinel in [
        Sentinel::SharedStep,
        Sentinel::HitTokensSaved,
        Sentinel::PreemptForRoom,
        Sentinel::Resume,
        Sentinel::Abort,
        Sentinel::StopString,
    ] {
        assert!(engine.scheduler.sentinels.get(sentinel) > 0, "no {}", sentinel.name());
    }
    // Who was aborted in time has no end.
    heard.retain(|id, heard| heard.end.is_some() || !gone.contains(&id.uid));
    (requests, heard)
}

/// How many of the samples differ from their canonical execution.
fn differing(bench: &Bench, requests: &[Request], heard: BTreeMap<SampleId, Heard>) -> usize {
    let workload = Workload { requests: requests.to_vec() };
    let mut differing = 0;
    for (id, heard) in heard {
        assert_eq!(heard.began, 1, "{id}");
        let alone = workload.alone(id);
        let run =
            execute(&bench.model, &bench.world, &alone, &Schedule::default(), SEED, None).unwrap();
        differing += usize::from(heard.visible() != visible(&run.outputs[&id]));
    }
    differing
}

/// Goal: who comes while the engine runs gets the bits of its canonical execution. Method: requests of every kind at
/// random moments in a pool that is too small for them, some aborted; tokens, texts, finishes and score bits of all
/// others against an execution of each alone.
#[test]
fn whenever_a_request_comes_its_output_is_that_of_its_canonical_execution() {
    let bench = bench(14);
    for start in 1..=3 {
        let (requests, heard) = live_outputs(&bench, &mut Numbers(start), 60);
        assert!(heard.len() > 50, "{} samples were compared", heard.len());
        assert_eq!(differing(&bench, &requests, heard), 0);
    }
}

/// The positive control: under load, the batch-dependent mode gives other bits.
#[test]
fn in_the_batch_dependent_mode_outputs_depend_on_the_load() {
    let mut bench = bench(14);
    bench.world.mode = Mode::batch_dependent();
    let (requests, heard) = live_outputs(&bench, &mut Numbers(1), 60);
    assert!(differing(&bench, &requests, heard) > 10);
}

#[test]
fn what_can_never_run_is_refused_and_leaves_no_trace() {
    let bench = bench(3);
    let mut live = Live::new(&bench.model, &bench.world, SEED, true).unwrap();
    let line = |outcome: Result<(), EngineError>| outcome.unwrap_err().to_string();
    assert!(line(live.submit(request(1, 0..8, 6))).contains("can never fit"));
    assert!(line(live.submit(request(1, [9999], 1))).contains("outside the vocabulary"));
    live.submit(request(1, 0..8, 5)).unwrap();
    assert!(line(live.submit(request(1, [7], 1))).contains("already"));
    assert_eq!(live.load(), Load { running: 0, waiting: 1, blocks_used: 0, blocks: 3 });
    live.step().unwrap();
    assert_eq!(live.load(), Load { running: 1, waiting: 0, blocks_used: 2, blocks: 3 });
    assert_ne!(live.held().unwrap(), Held::default());
    live.abort(2).unwrap();
    live.abort(1).unwrap();
    live.abort(1).unwrap();
    assert!(live.is_idle() && live.step().unwrap().is_empty());
    assert_eq!(live.held().unwrap(), Held::default());
    // The uid is free again.
    live.submit(request(1, [7], 1)).unwrap();
    let news = live.step().unwrap();
    assert!(news.len() == 1 && news[0].end.is_some());
}
