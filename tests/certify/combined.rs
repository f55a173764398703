//! Faults and servers of many kinds, put together: whatever else a server is like, a fault is found, and no fault is none.

use lockstep::certify::{Arm, Options, Verdict};

use crate::run::{CROWDS, all, quick, run, with};
use crate::server::{
    Alternatives, Cold, Disturbance, Faults, Gauge, How, Ids, Keeps, Logprobs, Refusals, Stream,
    Usage, When,
};

const DRIFT: How = How::Drift(1e-3);

fn disturbed(all: &[(When, How, f64)]) -> Vec<Disturbance> {
    all.iter().map(|&(when, how, rate)| Disturbance { when, how, rate }).collect()
}

/// A server that is one of each list, another for each number.
fn kind(number: usize) -> Faults {
    const USAGES: [Usage; 4] =
        [Usage::Whole, Usage::None, Usage::WithoutCached, Usage::CachedTimesSamples];
    const COLDS: [Cold; 3] = [Cold::Salt, Cold::Prompt, Cold::Never];
    const GAUGES: [Gauge; 5] =
        [Gauge::Vllm, Gauge::Missing, Gauge::Sglang, Gauge::Stuck, Gauge::LlamaCpp];
    const STREAMS: [Stream; 4] =
        [Stream::Whole, Stream::Refused, Stream::Merged, Stream::OneRecordAChunk];
    const IDS: [Ids; 2] = [Ids::Everywhere, Ids::Nowhere];
    Faults {
        usage: USAGES[number % USAGES.len()],
        cold: COLDS[number % COLDS.len()],
        gauge: GAUGES[number % GAUGES.len()],
        stream: STREAMS[(number / 2) % STREAMS.len()],
        ids: IDS[(number / 3) % IDS.len()],
        chat_only: number % 7 == 6,
        block_tokens: [16, 64][number % 2],
        cache_keeps: [Keeps::First, Keeps::Last][(number / 5) % 2],
        prefix_cache: number % 6 != 5,
        many_prompts: number % 4 != 3,
        begins_text: number % 11 == 3,
        alternatives: [Alternatives::AsAsked, Alternatives::Shuffled][(number / 4) % 2],
        ..Faults::default()
    }
}

/// Each fault at servers of some kinds.
pub(crate) fn a_fault_is_found_whatever_the_server_is_like() {
    let faults = [
        (When::FirstOfPrompt, DRIFT),
        (When::InFlight(2), How::Drift(1e-5)),
        (When::PrefillInStep(60), DRIFT),
        (When::InFlight(6), How::Foreign),
        (When::PromptTokensAbove(100), DRIFT),
        (When::OtherLengths, How::Shorter),
        (When::FirstOfPrompt, How::Foreign),
        (When::InFlight(4), How::Shorter),
    ];
    for (number, (when, how)) in faults.into_iter().enumerate() {
        let disturbances = disturbed(&[(when, how, 1.0)]);
        let kind = kind(number * 5 + 1);
        let seen = all(Faults { disturbances, ..kind.clone() });
        assert_eq!(
            seen.certificate.verdict,
            Verdict::Broken,
            "{number}: {kind:?}\n{}",
            seen.said()
        );
    }
}

/// The same servers with no fault are never broken, and held where everything is there that held takes.
pub(crate) fn no_fault_is_none_whatever_the_server_is_like() {
    for number in 0..8 {
        let kind = kind(number * 5 + 1);
        let seen = all(kind.clone());
        let verdict = seen.certificate.verdict;
        assert_ne!(verdict, Verdict::Broken, "{number}: {kind:?}\n{}", seen.said());
        let counts = [Usage::Whole, Usage::CachedTimesSamples].contains(&kind.usage);
        // New prompts are cold once; what an answer alone takes from the cache afterwards is the crowd's.
        let is_warmed = kind.cold == Cold::Never && counts && kind.prefix_cache;
        let is_seen = kind.gauge != Gauge::Missing && kind.gauge != Gauge::Stuck;
        if !is_warmed && (is_seen || kind.stream == Stream::Whole) {
            assert_eq!(verdict, Verdict::Held, "{number}: {kind:?}\n{}", seen.said());
        }
    }
}

/// Long prompts are answered alone and cut in crowds: their length is not claimed, since no crowd was compared there.
pub(crate) fn a_length_that_no_crowd_answered_is_not_claimed() {
    let plan = Options {
        prompt_tokens: vec![17, 30, 40, 20, 60, 70, 25, 33, 44, 50, 300],
        prompts: 11,
        ..quick(&CROWDS)
    };
    let cut = disturbed(&[(When::PromptTokensAbove(200), How::Abort, 1.0)]);
    let seen = with(Faults { disturbances: cut, ..Faults::default() }, &plan);
    seen.expect(Verdict::Undecided).expect_said(&["1 of 11 prompts"]);
    with(Faults::default(), &plan).expect(Verdict::Held);
}

/// Two faults at once are told by both arms, and other things that go wrong hide none.
pub(crate) fn faults_do_not_hide_each_other() {
    let both =
        disturbed(&[(When::FirstOfPrompt, DRIFT, 1.0), (When::InFlight(2), How::Drift(2e-3), 1.0)]);
    let seen = all(Faults { disturbances: both, ..Faults::default() });
    seen.expect(Verdict::Broken).expect_arm(Arm::First, Verdict::Broken);
    seen.expect_arm(Arm::ConcurrentWarm, Verdict::Broken);
    let drift = disturbed(&[(When::InFlight(2), DRIFT, 1.0)]);
    let drifting = Faults { disturbances: drift, ..Faults::default() };
    for faults in [
        Faults { refusals: Refusals::Every(16), ..drifting.clone() },
        Faults { strangers: 3, ..Faults::disturbed(When::InFlight(5), DRIFT) },
        Faults { gauge: Gauge::Stuck, ..drifting.clone() },
        Faults { answer_tokens_max: Some(5), ..drifting.clone() },
        Faults { prefix_cache: false, usage: Usage::CachedRounded(2096), ..drifting.clone() },
        Faults { decimals: Some(4), ..drifting.clone() },
        Faults {
            logprobs: Logprobs::Processed,
            alternatives: Alternatives::OddValues,
            ..drifting.clone()
        },
    ] {
        run(faults, &CROWDS).expect(Verdict::Broken);
    }
    // Ids that do not fit their tokens: nothing that such a server says is held.
    run(Faults { ids: Ids::Mismatched, ..drifting }, &CROWDS).expect_not(Verdict::Held);
}

/// Prefills in company change answers, alone afterwards too where the cache keeps them: broken, whatever there is to tell by.
pub(crate) fn a_prefill_in_company_is_found() {
    for (cold, usages, cache_keeps) in [
        (Cold::Salt, &[Usage::Whole][..], Keeps::First),
        (Cold::Prompt, &[Usage::Whole, Usage::None], Keeps::Last),
        (Cold::Never, &[Usage::None], Keeps::First),
    ] {
        for &usage in usages {
            let reads = Faults {
                cold,
                usage,
                cache_keeps,
                ..Faults::disturbed(When::ReadInCompany, DRIFT)
            };
            let seen = run(reads, &CROWDS);
            // Two answers of which each comes again and again may be those of two replicas, where no counter shows one cache.
            match usage {
                Usage::Whole => seen.expect(Verdict::Broken),
                _ => seen.expect_not(Verdict::Held),
            };
        }
    }
}
