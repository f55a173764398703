//! Leaps: compound reductions, for cases from which no single reduction leads on although a smaller case fails.
//!
//! A failure often has several causes at once, or can be had in a roundabout way: through the prefix cache, a preemption,
//! a second sample. Then each single step away from it passes. A leap changes several coupled numbers in one go, upwards
//! too, towards one of a few plain forms. It is proposed only if it is smaller than the case in this order: sequences,
//! then intents, then tokens, then samples that share a request. So leaps come to an end.

use crate::case::Case;
use crate::contract::sampler::SamplerParams;
use crate::schedule::{Act, ActKind, Intent, Mark};
use crate::workload::{Prompt, Request};

use super::reduce::{Frozen, SEEDS_TRIED, roomy};

/// Longest prompts that are rebuilt, in tokens: longer ones are lowered by single steps first.
const TOKENS_MAX: usize = 64;
/// Most intents of a kind that are brought together.
const TOGETHER_MAX: usize = 2;

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

/// Every leap from a case, the boldest first.
pub(super) fn leaps(case: &Case, frozen: &Frozen) -> Vec<Case> {
    let mut out = Vec::new();
    alone(case, frozen, &mut out);
    join(case, &mut out);
    apart(case, &mut out);
    tell_apart(case, &mut out);
    reseed(case, &mut out);
    let now = size(case);
    out.retain(|leap| size(leap) < now);
    for leap in &mut out {
        // What grew must fit; the pool itself is lowered by single steps.
        let needed = roomy(leap).min(u64::from(u32::MAX)) as u32;
        leap.world.pool_blocks = leap.world.pool_blocks.max(needed);
    }
    out
}

/// One sequence with one or two intents of a kind, in its first residency, without cached blocks: a cut lies whole blocks
/// later than it would behind a hit, and what was generated and computed again is prompt.
fn alone(case: &Case, frozen: &Frozen, out: &mut Vec<Case>) {
    let block = case.world.block_size as usize;
    for kind in ActKind::ALL {
        let of_kind = || case.schedule.intents.iter().filter(|i| i.act.kind() == kind);
        for together in 1..=of_kind().count().min(TOGETHER_MAX) {
            // The intents of any sequence may do on each of those that have one.
            let mut ids: Vec<_> = of_kind().map(Intent::id).collect();
            ids.dedup();
            for id in ids {
                let Some(mut request) = case.workload.get(id.uid).cloned() else { continue };
                if request.prompt.continuation().is_some() {
                    let Some(tokens) = frozen.get(&id.uid) else { continue };
                    request.prompt = Prompt::Tokens(tokens.clone());
                }
                (request.samples, request.first_sample) = (1, id.sample);
                let first = of_kind().position(|i| i.id() == id).unwrap_or(0);
                let chosen = of_kind().skip(first).chain(of_kind().take(first)).take(together);
                let intents: Vec<Intent> = chosen
                    .map(|i| Intent { uid: id.uid, sample: id.sample, mark: early(i.mark), ..*i })
                    .collect();
                let length = request.prompt.own_tokens().len();
                let fed = length + request.max_tokens as usize - 1;
                let mut lengths =
                    vec![(length, request.max_tokens), (length + 1, request.max_tokens), (fed, 1)];
                lengths.dedup();
                for (length, max_tokens) in lengths {
                    if length > TOKENS_MAX {
                        continue;
                    }
                    let mut zeros = Request { max_tokens, ..request.clone() };
                    zeros.prompt.own_tokens_mut().resize(length, 0);
                    // What only shows between different tokens shows here.
                    let mut numbered = zeros.clone();
                    numbered.prompt = Prompt::Tokens((0..length as u32).collect());
                    let blocks = if kind == ActKind::Cut { length / block } else { 0 };
                    for (later, request) in
                        (0..=blocks).flat_map(|later| [(later, &zeros), (later, &numbered)])
                    {
                        let mut leap = case.clone();
                        leap.workload.requests = vec![request.clone()];
                        leap.schedule.intents.clone_from(&intents);
                        if let Some(Act::Cut { tokens }) =
                            leap.schedule.intents.first_mut().map(|i| &mut i.act)
                        {
                            *tokens = tokens.saturating_add((later * block) as u32);
                        }
                        out.push(leap);
                    }
                }
            }
        }
    }
}

/// The mark of this kind that is reached first.
fn early(mark: Mark) -> Mark {
    match mark {
        Mark::Start => Mark::Start,
        Mark::Offer { .. } => Mark::Offer { n: 1 },
        Mark::Computed { .. } => Mark::Computed { residency: 1, tokens: 0 },
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
