//! What ends an output and what is returned with it, on the real engine: stop tokens, stop strings, log-probabilities.

use lockstep::contract::Mode;
use lockstep::fixture::Fixture;
use lockstep::record::{Capture, Finish, Output, Run, Sentinel};
use lockstep::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use lockstep::subject::{Subject, SubjectError};
use lockstep::weights;
use lockstep::workload::{Request, SampleId, Workload};
use lockstep::world::World;

fn subjects() -> [Box<dyn Subject>; 2] {
    let source = || weights::source("tiny", None).unwrap();
    [
        Box::new(Fixture::host("tiny", source(), Mode::Invariant).unwrap()),
        Box::new(Fixture::hash("tiny", source(), Mode::Invariant).unwrap()),
    ]
}

fn try_run(
    subject: &dyn Subject,
    requests: &[Request],
    intents: &[Intent],
    capture: Option<&Capture>,
) -> Result<Run, SubjectError> {
    let world = World { pool_blocks: 100, ..subject.default_world() };
    let workload = Workload { requests: requests.to_vec() };
    let schedule = Schedule { intents: intents.to_vec() };
    subject.execute(&world, &workload, &schedule, 1, capture)
}

fn run(subject: &dyn Subject, requests: &[Request], intents: &[Intent]) -> Run {
    try_run(subject, requests, intents, None).unwrap()
}

fn request(seed: u32) -> Request {
    let prompt: Vec<u32> = (0..7).map(|i| (seed * 37 + i * 11) % 250).collect();
    Request { ignore_eos: true, ..Request::new(1, prompt, 9) }
}

fn output(run: &Run) -> &Output {
    &run.outputs[&SampleId::first(1)]
}

#[test]
fn a_stop_token_ends_the_output_and_is_no_text() {
    for subject in subjects() {
        let free = run(&*subject, &[request(3)], &[]);
        let tokens = output(&free).tokens.clone();
        assert_eq!((tokens.len(), output(&free).finish), (9, Some(Finish::Length)));
        for at in 0..9 {
            let first = tokens.iter().position(|t| *t == tokens[at]).unwrap();
            let stopped = Request { stop_token_ids: vec![263, tokens[at]], ..request(3) };
            let stopped = run(&*subject, &[stopped], &[]);
            let got = output(&stopped);
            assert_eq!((got.finish, &got.tokens[..]), (Some(Finish::Stop), &tokens[..=first]));
            let before = Request { max_tokens: first as u32, ..request(3) };
            let text = match first {
                0 => Vec::new(),
                _ => output(&run(&*subject, &[before], &[])).text.clone(),
            };
            assert_eq!(got.text, text);
            assert_eq!(stopped.sentinels.get(Sentinel::StopToken), 1);
        }
    }
}

/// Goal: a string that begins in one token and ends in a later one is found, is no part of the text, and neither a
/// preemption between the two nor a neighbour changes that. Method: a greedy output's own bytes as the string.
#[test]
fn a_stop_string_across_tokens_is_found_and_cut_off() {
    for subject in subjects() {
        let mut tried = 0;
        for seed in 0..200 {
            let tokens = output(&run(&*subject, &[request(seed)], &[])).tokens.clone();
            let plain = |from: usize, to: usize| tokens[from..=to].iter().all(|t| *t < 128);
            let Some(from) = (1..5).find(|&from| plain(from, from + 2)) else { continue };
            let bytes: Vec<u8> = tokens[from..from + 3].iter().map(|t| *t as u8).collect();
            let stop = vec!["\u{1}\u{2}\u{3}\u{4}".into(), String::from_utf8(bytes).unwrap()];
            let stopped = Request { stop, ..request(seed) };
            let alone = run(&*subject, std::slice::from_ref(&stopped), &[]);
            let got = output(&alone);
            assert_eq!(got.finish, Some(Finish::Stop));
            assert_eq!(got.tokens, tokens[..from + 3]);
            let kept = Request { max_tokens: from as u32, ..request(seed) };
            assert_eq!(got.text, output(&run(&*subject, &[kept], &[])).text);
            assert_eq!(alone.sentinels.get(Sentinel::StopAcrossTokens), 1);

            let neighbour = Request { uid: 2, ..request(seed + 1) };
            let preempt = Intent {
                uid: 1,
                sample: 0,
                mark: Mark::Computed { residency: 1, tokens: 7 + from as u32 + 1 },
                act: Act::Preempt { kind: PreemptKind::Recompute, away: 2 },
            };
            let shared = run(&*subject, &[neighbour, stopped], &[preempt]);
            assert_eq!(shared.intents[0].inert, None);
            let there = output(&shared);
            assert_eq!(
                (&there.text, &there.tokens, there.finish),
                (&got.text, &got.tokens, got.finish)
            );
            tried += 1;
        }
        assert!(tried >= 3, "{tried} outputs on {}", subject.device());
    }
}

/// Goal: values are those of a log-softmax over the row, the alternatives are the best, and every token asked for has
/// one. Method: f64 over captured logits.
#[test]
fn log_probabilities_are_those_of_the_rows() {
    for subject in subjects() {
        let asked = Request { logprobs: Some(3), prompt_logprobs: Some(1), ..request(3) };
        let whole = run(&*subject, std::slice::from_ref(&asked), &[]);
        let got = output(&whole);
        let positions: Vec<u32> = got.scores.iter().map(|s| s.position).collect();
        assert_eq!(positions, (1..16).collect::<Vec<_>>());
        assert_eq!(whole.sentinels.get(Sentinel::ScoredPrompt), 6);
        assert_eq!(whole.sentinels.get(Sentinel::ScoredOutput), 9);
        let prompt = asked.prompt.own_tokens().to_vec();
        let tokens: Vec<u32> = prompt.into_iter().chain(got.tokens.iter().copied()).collect();
        for score in &got.scores {
            let id = SampleId::first(1);
            let capture = Capture::logits_at(id, score.position - 1);
            let captured =
                try_run(&*subject, std::slice::from_ref(&asked), &[], Some(&capture)).unwrap();
            let row = &output(&captured).captured[0].logits;
            let max = row.iter().copied().fold(f32::MIN, f32::max);
            let sum: f64 = row.iter().map(|x| f64::from(x - max).exp()).sum();
            let expected = |id: u32| f64::from(row[id as usize] - max) - sum.ln();
            assert_eq!(score.token, tokens[score.position as usize]);
            assert_eq!(score.top.len(), if score.position < 7 { 1 } else { 3 });
            let listed = std::iter::once((score.token, score.logprob)).chain(score.top.clone());
            for (id, bits) in listed {
                let value = f64::from(f32::from_bits(bits));
                assert!((value - expected(id)).abs() < 1e-4, "{value} and {}", expected(id));
            }
            let mut best: Vec<u32> = (0..row.len() as u32).collect();
            best.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b)));
            let top: Vec<u32> = score.top.iter().map(|(id, _)| *id).collect();
            assert_eq!(top, best[..top.len()]);
        }
    }
}

/// A prompt that is scored takes nothing from the cache, and what is computed again is scored again.
#[test]
fn a_scored_prompt_is_computed_whole_and_scored_again_after_a_preemption() {
    for subject in subjects() {
        let first = Request { uid: 2, ..request(3) };
        let asked = Request { logprobs: Some(0), prompt_logprobs: Some(0), ..request(3) };
        let late = Intent { uid: 1, sample: 0, mark: Mark::Start, act: Act::Arrive { steps: 4 } };
        let preempt = Intent {
            uid: 1,
            sample: 0,
            mark: Mark::Computed { residency: 1, tokens: 9 },
            act: Act::Preempt { kind: PreemptKind::Recompute, away: 1 },
        };
        let plain = Request { prompt_logprobs: None, ..asked.clone() };
        let served = run(&*subject, &[first.clone(), plain], &[late]);
        assert_eq!(served.sentinels.get(Sentinel::HitTokensSaved), 1);
        let scored = run(&*subject, &[first, asked.clone()], &[late, preempt]);
        assert_eq!(scored.sentinels.get(Sentinel::HitTokensSaved), 0);
        let alone = run(&*subject, &[asked], &[]);
        let (there, here) = (&output(&scored).scores, &output(&alone).scores);
        assert!(there.len() > here.len());
        for score in there {
            let canonical = here.iter().find(|s| s.position == score.position).unwrap();
            assert_eq!((score.token, score.logprob), (canonical.token, canonical.logprob));
        }
    }
}

#[test]
fn what_no_server_would_take_is_refused_in_one_line() {
    let [host, _] = subjects();
    let refused = |request: Request| match try_run(&*host, &[request], &[], None) {
        Err(SubjectError::BadInput(why)) => assert_eq!(why.lines().count(), 1),
        other => panic!("{other:?}"),
    };
    refused(Request { stop: vec![String::new()], ..request(1) });
    refused(Request { stop: vec!["x".repeat(257)], ..request(1) });
    refused(Request { stop: vec!["x".into(); 65], ..request(1) });
    refused(Request { stop_token_ids: vec![264], ..request(1) });
    refused(Request { stop_token_ids: vec![1; 65], ..request(1) });
    refused(Request { logprobs: Some(21), ..request(1) });
    refused(Request { prompt_logprobs: Some(21), ..request(1) });
}
