//! Alone against in a crowd. Cold, warm and mixed are three arms: a crowd that also finds another cache, or other work in its
//! steps, would show all at once.
//!
//! Where an answer in a crowd differs, the same request is asked alone again at once. Only if it gets its reference again is the
//! difference the crowd's; else it is what the crowd left behind, or a server that changed.

use std::time::Duration;

use super::super::certificate::{Arm, New};
use super::super::clusters::Sighting;
use super::super::compare::{Comparison, Parts, compare};
use super::super::plan::{groups, judged_among_new};
use super::super::score::{Outcome, Requests, Score, Trial};
use super::super::session::{Crowd, Member};
use super::super::wire::{Answer, Call, Cold};
use super::alone::compare_again;
use super::{
    Bench, OTHER_START, against, alone, is_cold, is_equal, no_reference, same_prompt, same_start,
};

/// Differing answers from which on larger crowds of the arm are not sent: what they would show is known.
const DIFFERING_ENOUGH: u64 = 4;
/// Tokens of a new neighbour's answer, as a multiple of a judged one's: it is still there when the judged one ends.
const NEIGHBOUR_ANSWERS: u32 = 2;
/// Part of the time of an answer within which new neighbours arrive.
const ARRIVALS: (f64, f64) = (0.1, 0.6);

/// Why an answer alone that equals the one in its crowd is no reference for a new prompt.
const FROM_THE_CROWD: &str = "the answer alone took from the cache what its crowd had left there, and no field keeps it from that";

/// A crowd of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing of any prompt is cached, and each can be kept so again.
    Cold,
    /// All prompts are new: nothing can be cached, once.
    New,
    /// All prompts were sent before.
    Warm,
    /// Judged ones were sent before; the others are new and long, and arrive while these decode.
    Mixed,
}

impl Kind {
    /// Which of its prompts are new each time.
    fn renews(self) -> New {
        New { request: self == Kind::New, neighbours: matches!(self, Kind::New | Kind::Mixed) }
    }

    /// The arm that asks it.
    pub(crate) fn arm(self) -> Arm {
        match self {
            Kind::Cold | Kind::New => Arm::ConcurrentCold,
            Kind::Warm => Arm::ConcurrentWarm,
            Kind::Mixed => Arm::ConcurrentMixed,
        }
    }
}

/// Asks an arm at every level. What crowds left behind is counted in `after`.
pub(crate) fn run(bench: &mut Bench<'_, '_>, kind: Kind, after: &mut Score) -> Outcome {
    let mut score = Score::new(kind.arm());
    let options = bench.options;
    for &level in &options.concurrency {
        if let Some(why) = bench.session.refuses(level) {
            score.note(format!("crowds of {level} were not sent: {why} before"));
            continue;
        }
        if score.differing() >= DIFFERING_ENOUGH {
            score.note(format!("crowds of {level} were not sent: smaller ones differ"));
            continue;
        }
        let judged = judged_in(kind, level, options.prompts);
        for round in 0..options.rounds() {
            for group in groups(options.prompts, judged, round, options.seed ^ u64::from(level)) {
                ask(bench, kind, level, &group, (&mut score, after));
            }
        }
    }
    score.conclude()
}

/// Judged requests in a crowd of this kind and size.
pub(crate) fn judged_in(kind: Kind, level: u32, prompts: u32) -> u32 {
    match kind {
        Kind::Mixed => judged_among_new(level, prompts),
        _ => level.min(prompts),
    }
}

/// Asks these judged prompts in one crowd.
pub(crate) fn ask(
    bench: &mut Bench<'_, '_>,
    kind: Kind,
    level: u32,
    group: &[u32],
    (score, after): (&mut Score, &mut Score),
) {
    let members = members(bench, kind, level, group);
    match bench.session.crowd(&members) {
        Err(error) => score.void(&error),
        Ok(crowd) => {
            match crowd.in_flight > 1 {
                true => score.case(),
                false => score.unwitnessed(),
            }
            judge(bench, kind, (score, after), group, &members, crowd);
        }
    }
}

/// The requests of a crowd, the judged ones first.
pub(crate) fn members(
    bench: &mut Bench<'_, '_>,
    kind: Kind,
    level: u32,
    group: &[u32],
) -> Vec<Member> {
    let mut members = Vec::with_capacity(level as usize);
    for &number in group {
        let known = &bench.known[number as usize];
        let (call, took) = (known.call.clone(), known.took);
        let call = match kind {
            Kind::Cold => Call { cold: Some(bench.session.salt()), ..call },
            Kind::New => {
                let prompt = bench.prompts.fresh(bench.session, number);
                bench.facts.call(&prompt, bench.options.answer_tokens)
            }
            Kind::Warm | Kind::Mixed => call,
        };
        members.push(Member::at_once(call, Some(took)));
    }
    let others = level - group.len() as u32;
    let time = bench.usual_time();
    for number in 0..others {
        let member = match kind {
            Kind::Cold => {
                let call = Call { cold: Some(bench.session.salt()), ..bench.filler(number) };
                Member::at_once(call, None)
            }
            Kind::New => {
                let prompt = bench.prompts.fresh(bench.session, number);
                Member::at_once(bench.facts.call(&prompt, bench.options.answer_tokens), None)
            }
            Kind::Warm => Member::at_once(bench.filler(number), None),
            Kind::Mixed => new_neighbour(bench, number, others, time),
        };
        members.push(member);
    }
    members
}

/// A new, long neighbour. Each third one comes with the judged requests, the others while these decode.
fn new_neighbour(bench: &mut Bench<'_, '_>, number: u32, of: u32, time: Duration) -> Member {
    let prompt = bench.prompts.fresh_neighbour(bench.session, number);
    let call = bench.facts.call(&prompt, NEIGHBOUR_ANSWERS * bench.options.answer_tokens);
    let delay = match number % 3 {
        2 => Duration::ZERO,
        _ => {
            let (from, to) = ARRIVALS;
            time.mul_f64(from + (to - from) * f64::from(number) / f64::from(of))
        }
    };
    Member { call, delay, alone: None }
}

/// Counts the judged members of a crowd.
fn judge(
    bench: &mut Bench<'_, '_>,
    kind: Kind,
    (score, after): (&mut Score, &mut Score),
    group: &[u32],
    members: &[Member],
    crowd: Crowd,
) {
    let calls: Vec<Call> = members.iter().map(|member| member.call.clone()).collect();
    let delays_ms: Vec<u64> = members.iter().map(|m| m.delay.as_millis() as u64).collect();
    let met: Vec<_> = crowd.members.into_iter().take(group.len()).collect();
    for (place, (&number, met)) in group.iter().zip(met).enumerate() {
        let got = match met.answer {
            Ok(got) => got,
            Err(error) => {
                score.void_at(calls.len() as u32, &error);
                continue;
            }
        };
        let reference = match reference(bench, kind, number, &calls[place], &got) {
            Ok(reference) => reference,
            Err(why) => {
                score.void_for(why);
                continue;
            }
        };
        let comparison = compare(&reference, &got, Parts::All);
        // A difference counts all the same.
        if kind == Kind::New && comparison.difference.is_none() && !is_cold(&reference) {
            score.void_for(FROM_THE_CROWD.into());
            continue;
        }
        // Nobody can arrive while an answer of one token decodes.
        let in_flight = match kind {
            Kind::Mixed if got.tokens.len() == 1 => 1,
            _ => met.in_flight,
        };
        let (what, load) = ((kind, number), (calls.len() as u32, in_flight));
        bench.seen.push(Sighting::of(what, load, &reference, &got, &comparison));
        let confirmed = match comparison.difference {
            Some(_) => confirm(bench, kind, after, number, &calls[place], &reference, &got),
            None => Confirmed::Crowd,
        };
        if let Some(why) = confirmed.void() {
            score.void_for(why.into());
            continue;
        }
        let session = &*bench.session;
        let sent = |call: &Call| session.sent(call);
        let (reference_call, crowd) = (&calls[place], calls.as_slice());
        let requests = Requests {
            sent: &sent,
            reference: reference_call,
            crowd,
            place,
            delays_ms: &delays_ms,
            new: kind.renews(),
        };
        score.take(Trial {
            prompt: number,
            sent: calls.len() as u32,
            in_flight,
            comparison,
            expected: &reference,
            got: &got,
            requests,
        });
    }
}

/// The answer alone that an answer in a crowd is compared with: the one from which it differs, if it does from any.
fn reference(
    bench: &mut Bench<'_, '_>,
    kind: Kind,
    number: u32,
    call: &Call,
    got: &Answer,
) -> Result<Answer, String> {
    let known = &bench.known[number as usize];
    let of = |answers: &[Answer], cached_matters: bool| {
        let same = |a: &&Answer| match cached_matters {
            true => same_start(a, got),
            false => same_prompt(a, got),
        };
        let found: Option<(&Answer, Comparison)> = against(answers.iter().filter(same), got);
        found.map(|(reference, _)| reference.clone()).ok_or_else(|| OTHER_START.to_owned())
    };
    match kind {
        Kind::Cold if !known.cold_is_clean => Err(no_reference(known.cold_differs)),
        Kind::Cold => of(&known.cold, true),
        Kind::Warm | Kind::Mixed if !known.warm_is_clean => Err(no_reference(known.warm_differs)),
        // Where what is cached changes an answer, a crowd is compared only with what was cached alike.
        Kind::Warm | Kind::Mixed => of(&known.warm, bench.cached_matters),
        Kind::New => match bench.session.one(call) {
            Ok(exchange) if same_prompt(&exchange.answer, got) => Ok(exchange.answer),
            Ok(_) => Err(OTHER_START.to_owned()),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// What the request alone says after a crowd whose answer differed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirmed {
    /// Its reference again, or nothing, or another one that stays: the difference is the crowd's.
    Crowd,
    /// The crowd's answer.
    LeftBehind,
    /// Another answer each time.
    Unsettled,
}

impl Confirmed {
    /// Why the answer in the crowd shows nothing, if it does not.
    fn void(self) -> Option<&'static str> {
        match self {
            Confirmed::Crowd => None,
            Confirmed::LeftBehind => Some(
                "the answer alone changed too: what the crowd left behind, or a server that changed",
            ),
            Confirmed::Unsettled => Some("answers alone no longer repeat"),
        }
    }
}

fn confirm(
    bench: &mut Bench<'_, '_>,
    kind: Kind,
    after: &mut Score,
    number: u32,
    call: &Call,
    reference: &Answer,
    got: &Answer,
) -> Confirmed {
    // A request that takes nothing from the cache may replace there what the crowd has left: that is looked at before.
    if kind == Kind::Cold && bench.session.dialect.cold == Some(Cold::Refuse) {
        let warm = bench.known[number as usize].call.clone();
        if let Ok(got) = bench.ask(&warm) {
            compare_again(bench, after, number, &warm, got);
        }
    }
    let again = |bench: &mut Bench<'_, '_>| {
        let call = match kind {
            Kind::Cold => Call { cold: Some(bench.session.salt()), ..call.clone() },
            _ => call.clone(),
        };
        let answer = bench.ask(&call).ok()?;
        Some((call, answer))
    };
    let Some((sent, alone_again)) = again(bench) else { return Confirmed::Crowd };
    let comparison = compare(reference, &alone_again, Parts::All);
    if comparison.difference.is_none() {
        return Confirmed::Crowd;
    }
    if same_prompt(reference, &alone_again) {
        let (session, reference) = (&*bench.session, (&sent, reference));
        alone(session, after, number, reference, (&sent, &alone_again), comparison);
    }
    let confirmed = match is_equal(&alone_again, got) {
        true => Confirmed::LeftBehind,
        // A state that the crowd left behind stays as it is; chance does not.
        false => match again(bench) {
            Some((_, third)) if !is_equal(&third, &alone_again) => Confirmed::Unsettled,
            _ => Confirmed::Crowd,
        },
    };
    match kind {
        Kind::Cold => bench.known[number as usize].cold = vec![alone_again.clone(), alone_again],
        Kind::Warm | Kind::Mixed => bench.known[number as usize].warm = vec![alone_again],
        Kind::New => {}
    }
    confirmed
}
