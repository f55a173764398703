//! Leaps: compound reductions, for cases from which no single reduction leads on although a smaller case fails.
//!
//! A failure often has several causes at once, or can be had in a roundabout way: through the prefix cache, a preemption,
//! a second sample. Then each single step away from it passes. A leap changes several coupled numbers in one go, upwards
//! too, towards one of a few plain forms. It is proposed only if it is smaller than the case in this order: sequences,
//! then intents, then tokens, then samples that share a request. So leaps come to an end.

use crate::case::Case;
use crate::contract::sampler::SamplerParams;
use crate::schedule::{Act, ActKind, Intent, Mark, PreemptKind};
use crate::workload::{Prompt, Request, SampleId};

use super::reduce::{Frozen, SEEDS_TRIED, roomy};

/// Longest prompts that are rebuilt, in tokens: longer ones are lowered by single steps first.
const TOKENS_MAX: usize = 64;
/// Most intents that are brought together.
const INTENTS_MAX: usize = 4;
/// Most leaps from a case.
const LEAPS_MAX: usize = 400;

/// Sequences, intents, tokens of prompts and outputs, and samples that are not requests of their own.
fn size(case: &Case) -> (u64, usize, u64, u64) {
    let requests = &case.workload.requests;
    // A continuation counts with what it continues.
    let lengths = case.workload.lengths();
    let tokens = requests.iter().zip(lengths).map(|(r, lengths)| {
        u64::from(r.samples) * (lengths.prompt as u64 + u64::from(r.max_tokens))
    });
    (
        requests.iter().map(|r| u64::from(r.samples)).sum(),
        case.schedule.intents.len(),
        tokens.sum(),
        requests.iter().map(|r| u64::from(r.samples) - 1).sum(),
    )
}

/// The leaps from a case, those to the smallest cases first.
pub(super) fn leaps(case: &Case, frozen: &Frozen) -> Vec<Case> {
    let mut out = Vec::new();
    gathered(case, frozen, &mut out);
    single(case, &mut out);
    resumed(case, frozen, &mut out);
    join(case, &mut out);
    apart(case, &mut out);
    tell_apart(case, &mut out);
    reseed(case, &mut out);
    never_admitted(case, &mut out);
    let now = size(case);
    out.retain(|leap| size(leap) < now);
    out.sort_by_key(size);
    out.truncate(LEAPS_MAX);
    for leap in &mut out {
        // What grew must fit; the pool itself is lowered by single steps.
        let needed = roomy(leap).min(u64::from(u32::MAX)) as u32;
        leap.world.pool_blocks = leap.world.pool_blocks.max(needed);
    }
    out
}

/// One sequence with some of the intents, whichever they were meant for. A cut may lie whole blocks later than it did behind
/// a hit; what was generated and computed again may be prompt.
fn gathered(case: &Case, frozen: &Frozen, out: &mut Vec<Case>) {
    let intents = &case.schedule.intents;
    let within = intents.len().min(INTENTS_MAX);
    let mut sets: Vec<Vec<usize>> = (0..within).map(|i| vec![i]).collect();
    sets.extend((0..within).flat_map(|i| (i + 1..within).map(move |j| vec![i, j])));
    if (3..=INTENTS_MAX).contains(&intents.len()) {
        sets.push((0..intents.len()).collect());
    }
    for set in sets {
        let mut ids: Vec<SampleId> = set.iter().map(|i| intents[*i].id()).collect();
        ids.dedup();
        for id in ids {
            let Some(request) = alone(case, frozen, id) else { continue };
            for place in PLACES {
                let moved: Vec<Intent> = set
                    .iter()
                    .zip(1..)
                    .map(|(i, nth)| {
                        let mark = place(&intents[*i], nth);
                        Intent { uid: id.uid, sample: id.sample, mark, ..intents[*i] }
                    })
                    .collect();
                reshaped(case, &request, &moved, out);
            }
        }
    }
}

/// A sample of a request, a request of its own, its prompt frozen.
fn alone(case: &Case, frozen: &Frozen, id: SampleId) -> Option<Request> {
    let mut request = case.workload.get(id.uid)?.clone();
    if request.prompt.continuation().is_some() {
        request.prompt = Prompt::Tokens(frozen.get(&id.uid)?.clone());
    }
    (request.samples, request.first_sample) = (1, id.sample);
    Some(request)
}

/// Where the n-th intent may stand: where it did, at its first opportunity, at the first one after a preemption, or each in a
/// residency of its own.
const PLACES: [fn(&Intent, u32) -> Mark; 4] =
    [|i, _| i.mark, |i, _| early(i, 1), |i, _| resumed_mark(i), early];

fn resumed_mark(intent: &Intent) -> Mark {
    early(intent, if matches!(intent.act, Act::Preempt { .. }) { 1 } else { 2 })
}

/// The mark of an intent's kind that is reached first in this residency.
fn early(intent: &Intent, residency: u32) -> Mark {
    match intent.mark {
        Mark::Start => Mark::Start,
        Mark::Offer { .. } => Mark::Offer { n: residency },
        Mark::Computed { .. } => Mark::Computed { residency, tokens: 0 },
    }
}

/// The request alone with these intents, in each of a few shapes.
fn reshaped(case: &Case, request: &Request, intents: &[Intent], out: &mut Vec<Case>) {
    let block = case.world.block_size as usize;
    let (length, generated) = (request.prompt.own_tokens().len(), request.max_tokens);
    let fed = (length + generated as usize).saturating_sub(1);
    let more = generated.saturating_add(1);
    let shapes =
        [(1, generated), (length, generated), (length + 1, generated), (length, more), (fed, 1)];
    let cut = intents.iter().position(|i| i.act.kind() == ActKind::Cut);
    for (length, max_tokens) in shapes {
        if length > TOKENS_MAX {
            continue;
        }
        let mut padded = Request { max_tokens, ..request.clone() };
        padded.prompt.own_tokens_mut().resize(length, 0);
        // What only shows between different tokens shows here.
        let mut numbered = padded.clone();
        numbered.prompt = Prompt::Tokens((0..length as u32).collect());
        let blocks = if cut.is_some() { length / block } else { 0 };
        for later in 0..=blocks {
            for request in [&padded, &numbered] {
                let mut leap = case.clone();
                leap.workload.requests = vec![request.clone()];
                leap.schedule.intents = intents.to_vec();
                if let Some(Act::Cut { tokens }) = cut.map(|at| &mut leap.schedule.intents[at].act)
                {
                    *tokens = tokens.saturating_add((later * block) as u32);
                }
                out.push(leap);
            }
        }
    }
}

/// One intent alone among all requests, one of which is a token longer.
fn single(case: &Case, out: &mut Vec<Case>) {
    if case.schedule.intents.len() < 2 {
        return;
    }
    for intent in &case.schedule.intents {
        for place in &PLACES[..3] {
            let mut leap = case.clone();
            leap.schedule.intents = vec![Intent { mark: place(intent, 1), ..*intent }];
            for at in 0..case.workload.requests.len() {
                let (mut wider, mut longer) = (leap.clone(), leap.clone());
                wider.workload.requests[at].prompt.own_tokens_mut().push(0);
                let generated = &mut longer.workload.requests[at].max_tokens;
                *generated = generated.saturating_add(1);
                out.extend([wider, longer]);
            }
            out.push(leap);
        }
    }
}

/// A sequence that meets what another one left may meet it after a preemption as well.
fn resumed(case: &Case, frozen: &Frozen, out: &mut Vec<Case>) {
    for id in case.workload.requests.iter().map(|r| SampleId { uid: r.uid, sample: r.first_sample })
    {
        let Some(request) = alone(case, frozen, id) else { continue };
        let act = Act::Preempt { kind: PreemptKind::Recompute, away: 0 };
        let mark = Mark::Computed { residency: 1, tokens: 0 };
        let preempt = Intent { uid: id.uid, sample: id.sample, mark, act };
        reshaped(case, &request, &[preempt], out);
        for intent in case.schedule.intents.iter().take(INTENTS_MAX) {
            let mark = resumed_mark(intent);
            let after = Intent { uid: id.uid, sample: id.sample, mark, ..*intent };
            reshaped(case, &request, &[preempt, after], out);
        }
    }
}

/// Two requests made one whose prompt is as long as both.
fn join(case: &Case, out: &mut Vec<Case>) {
    if case.workload.has_continuations() {
        return;
    }
    for i in 1..case.workload.requests.len() {
        let mut leap = case.clone();
        let gone = leap.workload.requests.remove(i);
        let kept = &mut leap.workload.requests[i - 1];
        kept.prompt.own_tokens_mut().extend_from_slice(gone.prompt.own_tokens());
        leap.schedule.intents.retain(|intent| intent.uid != gone.uid);
        out.push(leap);
    }
}

/// The samples of a request as requests of their own, so that each can be lowered alone: without their intents and with
/// another first token, or as they are.
fn apart(case: &Case, out: &mut Vec<Case>) {
    let free = case.workload.requests.iter().map(|r| r.uid).max().unwrap_or(0);
    for (i, request) in case.workload.requests.iter().enumerate() {
        let more = request.samples.saturating_sub(1);
        if more == 0 || request.prompt.continuation().is_some() {
            continue;
        }
        if free.checked_add(more.into()).is_none() {
            return;
        }
        let uid = |n: u32| if n == 0 { request.uid } else { free + u64::from(n) };
        let mut same = case.clone();
        same.workload.requests[i].samples = 1;
        for n in 1..=more {
            let other = Request { uid: uid(n), samples: 1, ..request.clone() };
            same.workload.requests.insert(i + n as usize, other);
        }
        for intent in same.schedule.intents.iter_mut().filter(|x| x.uid == request.uid) {
            let n = intent.sample.saturating_sub(request.first_sample).min(more);
            (intent.uid, intent.sample) = (uid(n), request.first_sample);
        }
        let mut different = same.clone();
        for n in 1..=more {
            let tokens = different.workload.requests[i + n as usize].prompt.own_tokens_mut();
            tokens[0] = n;
        }
        let mut plain = different.clone();
        plain.schedule.intents.retain(|x| (0..=more).all(|n| x.uid != uid(n)));
        let mut short = plain.clone();
        short.workload.requests[i..=i + more as usize].iter_mut().for_each(|r| r.max_tokens = 1);
        out.extend([short, plain, different, same]);
    }
}

/// A prompt that differs from others by its length differs by a token instead.
fn tell_apart(case: &Case, out: &mut Vec<Case>) {
    for (i, request) in case.workload.requests.iter().enumerate() {
        let length = request.prompt.own_tokens().len();
        if length < 2 {
            continue;
        }
        for shorter in [1, length - 1] {
            let mut leap = case.clone();
            let tokens = leap.workload.requests[i].prompt.own_tokens_mut();
            tokens.truncate(shorter);
            tokens[shorter - 1] = 1;
            out.push(leap);
        }
    }
}

/// What is aborted may be aborted at its first offer: then it needs no output.
fn never_admitted(case: &Case, out: &mut Vec<Case>) {
    for (k, intent) in case.schedule.intents.iter().enumerate() {
        if intent.act != Act::Abort || !matches!(intent.mark, Mark::Computed { .. }) {
            continue;
        }
        let mut leap = case.clone();
        leap.schedule.intents[k].mark = Mark::Offer { n: 1 };
        let aborted = leap.workload.requests.iter_mut().filter(|r| r.uid == intent.uid);
        aborted.for_each(|request| request.max_tokens = 1);
        out.push(leap);
    }
}

/// Where draws decide, fewer tokens may need another seed, or draws from the whole distribution.
fn reseed(case: &Case, out: &mut Vec<Case>) {
    if case.workload.requests.iter().all(|r| r.sampling.is_greedy()) {
        return;
    }
    let whole = SamplerParams { temperature: 1.0, ..SamplerParams::default() };
    for seed in 0..SEEDS_TRIED {
        let mut seeded = case.clone();
        seeded.seed = seed;
        for request in seeded.workload.requests.iter_mut().filter(|r| r.seed.is_some()) {
            request.seed = Some(seed);
        }
        let mut drawn = seeded.clone();
        for request in drawn.workload.requests.iter_mut().filter(|r| !r.sampling.is_greedy()) {
            request.sampling = whole;
        }
        for leap in [seeded, drawn] {
            let mut shortest = leap.clone();
            for request in &mut shortest.workload.requests {
                request.max_tokens = 1;
            }
            out.push(shortest);
            for i in 0..case.workload.requests.len() {
                let (mut short, mut narrow) = (leap.clone(), leap.clone());
                short.workload.requests[i].max_tokens = 1;
                narrow.workload.requests[i].prompt.own_tokens_mut().truncate(1);
                out.extend([short, narrow]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::strategy::ValueTree;

    use super::super::cases;
    use super::super::tests::space;
    use super::*;

    /// Goal: a shrinker that takes leaps ends, and takes none that can't be read back.
    #[test]
    fn leaps_are_smaller_and_fit_their_pool() {
        let mut seen = 0;
        for index in 0..60 {
            let case = cases(space()).nth(2, index).current();
            for leap in leaps(&case, &Frozen::new()) {
                assert!(size(&leap) < size(&case));
                assert!(u64::from(leap.world.pool_blocks) >= roomy(&leap));
                seen += usize::from(leap.validate().is_ok());
            }
        }
        assert!(seen > 100, "{seen}");
    }

    #[test]
    fn the_smallest_case_has_none() {
        let mut case = cases(space()).nth(1, 0).current();
        case.workload.requests = vec![Request::new(1, vec![0], 1)];
        case.schedule.intents.clear();
        assert!(leaps(&case, &Frozen::new()).is_empty());
    }
}
