//! The bugs, each with the derivation of its minimum.
//!
//! Two sequences have four tokens at least: a prompt of one and an output of one each. Blocks have `b` positions. The last
//! token drawn is never fed back, so a sequence computes one position fewer than it has tokens.

use lockstep::record::{IntentOutcome, Run, Sentinel};
use lockstep::schedule::ActKind;
use lockstep::workload::Workload;

use super::faulty::Fault;
use super::{Bug, Flips, Planted, Size};

fn device(fault: Fault, relation: &'static str, minimum: fn(usize) -> Size) -> Planted {
    Planted { name: format!("{fault:?}"), bug: Bug::Device(fault), relation, minimum }
}

fn flips(name: &str, flips: Flips, relation: &'static str, minimum: fn(usize) -> Size) -> Planted {
    Planted { name: name.into(), bug: Bug::Flips(flips), relation, minimum }
}

/// Whether an act of this kind fired in the run, so many times.
fn fired(run: &Run, kind: ActKind, times: usize) -> bool {
    let fired = |o: &&IntentOutcome| o.inert.is_none() && o.intent.act.kind() == kind;
    run.intents.iter().filter(fired).count() >= times
}

fn ran(run: &Run, sentinel: Sentinel) -> bool {
    run.sentinels.get(sentinel) > 0
}

/// Length of the longest prompt.
fn longest(workload: &Workload) -> usize {
    workload.requests.iter().map(|r| r.prompt.own_tokens().len()).max().unwrap_or(0)
}

/// Bugs on which the shrinker was tuned.
pub(super) fn first() -> Vec<Planted> {
    vec![
        // A continued chunk whose sequence has two blocks by its end: a prompt of b + 1, cut anywhere, and an output of 1.
        device(Fault::BlocksSwapped, "I2.chunk", |b| (1, 1, b + 2)),
        // The smallest two sequences, if their tokens differ.
        device(Fault::BlockOfANeighbour, "I1", |_| (2, 0, 4)),
        // The smallest two sequences: the second reads its own position as it was before.
        device(Fault::WriteLost, "I1", |_| (2, 0, 4)),
        // A decode that starts inside the second block has the fault in the canonical execution too, so a chunk must: a
        // prompt of b + 2, cut at b + 1, and an output of 1.
        device(Fault::WriteIntoTheBlockBefore, "I2.chunk", |b| (1, 1, b + 3)),
        // As WriteLost, of both.
        device(Fault::StaleReads, "I1", |_| (2, 0, 4)),
        // A prompt of 2, cut at 1; with blocks of 2 one position later is past the end, so it is a prompt of 3.
        device(Fault::PositionTooLate, "I2.chunk", |b| (1, 1, if b > 2 { 3 } else { 4 })),
        // A prompt of 2, cut at 1: the second row sees one position instead of two.
        device(Fault::SeesTooLittle, "I2.chunk", |_| (1, 1, 3)),
        // The smallest two sequences: the layers' K and V differ.
        device(Fault::LayerOfAnother, "I1", |_| (2, 0, 4)),
        // A prompt of 2 has the fault in one chunk, as the canonical execution computes it, and not if cut.
        device(Fault::WriteToOtherLayer, "I2.chunk", |_| (1, 1, 3)),
        // The smallest two sequences, if their tokens differ.
        device(Fault::RowsRotated, "I1", |_| (2, 0, 4)),
        // A prompt of 2 different tokens has the fault in one chunk, and not if cut.
        device(Fault::TokenOfTheRowBefore, "I2.chunk", |_| (1, 1, 3)),
        // The smallest two sequences, if their tokens differ so that the largest logits do.
        device(Fault::DrawsFromAnotherRow, "I1", |_| (2, 0, 4)),
        // The smallest two sequences, the second one sampled, with a seed for which the next position draws otherwise.
        device(Fault::DrawsOtherPosition, "I1", |_| (2, 0, 4)),
        flips("two sequences", |_, r| r.outputs.len() > 1, "I1", |_| (2, 0, 4)),
        flips("three sequences", |_, r| r.outputs.len() > 2, "I1", |_| (3, 0, 6)),
        flips("five sequences", |_, r| r.outputs.len() > 4, "I1", |_| (5, 0, 10)),
        // A prompt of 9 with an output of 1, and the smallest sequence.
        flips(
            "a prompt of nine beside another",
            |w, r| w.requests.len() > 1 && ran(r, Sentinel::SharedStep) && longest(w) > 8,
            "I1",
            |_| (2, 0, 12),
        ),
        // A prompt of 5 with an output of 1, and the smallest two sequences.
        flips(
            "a prompt of five beside two others",
            |w, r| w.requests.len() > 2 && ran(r, Sentinel::SharedStep) && longest(w) > 4,
            "I1",
            |_| (3, 0, 10),
        ),
        // Two positions to compute at once: a prompt of 2 and an output of 1.
        flips("a cut", |_, r| fired(r, ActKind::Cut, 1), "I2.chunk", |_| (1, 1, 3)),
        // Each cut leaves a position to compute: a prompt of 3. With a preemption two positions are enough, but that is a
        // third intent; in two sequences too, but that is a second sequence.
        flips("two cuts", |_, r| fired(r, ActKind::Cut, 2), "I2.chunk", |_| (1, 2, 4)),
        // Resident at a second boundary, so two steps: without a cut, a prompt of 1 and an output of 2.
        flips("a preemption", |_, r| fired(r, ActKind::Preempt, 1), "I2.preempt", |_| (1, 1, 3)),
        // As a preemption.
        flips(
            "a swap without a cut",
            |_, r| ran(r, Sentinel::SwapIn) && !fired(r, ActKind::Cut, 1),
            "I2.swap",
            |_| (1, 1, 3),
        ),
        // Two samples. The second comes a step later (an intent) and forks (another) a first one that has not ended: an
        // output of 2. It must share a position and compute one: a prompt of 2. Waiting for room instead of arriving late
        // takes a tight pool and a cached block, b + 2 tokens a prompt.
        flips("a copy on write", |_, r| ran(r, Sentinel::CowCopy), "I2.fork", |_| (2, 2, 8)),
        // Aborted at its second boundary, after a step shared with the smallest sequence: a prompt of 1, an output of 2.
        flips("an abort", |_, r| fired(r, ActKind::Abort, 1), "I2.cancel", |_| (2, 1, 5)),
        // The only chunk of the smallest sequence.
        flips("a late landing", |_, r| fired(r, ActKind::Land, 1), "I2.land", |_| (1, 1, 2)),
    ]
}

/// Bugs whose minima were derived before the shrinker was run on any of them. It reached 31 of 40 then, and was mended.
pub(super) fn second() -> Vec<Planted> {
    vec![
        // The smallest two sequences, both with log-probabilities, if their tokens differ.
        device(Fault::ScoreOfAnotherRow, "I1", |_| (2, 0, 4)),
        // Five rows in a step of which neither sequence has five: prompts of 5 together, and outputs of 1.
        device(Fault::ResidualLost, "I1", |_| (2, 0, 7)),
        // Nine rows likewise.
        device(Fault::ActivationSkipped, "I1", |_| (2, 0, 11)),
        // One sequence publishes a block and decodes after it: b + 1 positions, b + 2 tokens. Another one finds that block
        // (it arrives later, or is preempted: one intent) and computes two positions after it: a prompt of b + 2, an output
        // of 1.
        device(Fault::OneBlockShared, "I2.prefix", |b| (2, 1, 2 * b + 5)),
        // A prompt of 2, cut at 1, and preempted at the boundary after: no output is needed for it.
        flips(
            "a cut and a preemption",
            |_, r| fired(r, ActKind::Cut, 1) && fired(r, ActKind::Preempt, 1),
            "I2.chunk",
            |_| (1, 2, 3),
        ),
        // A preemption's 3 tokens, and the smallest sequence.
        flips(
            "a swap beside another",
            |_, r| fired(r, ActKind::Swap, 1) && r.outputs.len() > 1,
            "I2.swap",
            |_| (2, 1, 5),
        ),
        // A sequence that published a block is preempted at the boundary after (an intent) and its block is evicted when it
        // comes back (another): b + 1 positions at least, the last one still to compute.
        flips("an eviction", |_, r| fired(r, ActKind::Evict, 1), "I2.evict", |b| (1, 2, b + 2)),
        // The same, and the block is found.
        flips("a hit", |_, r| ran(r, Sentinel::HitTokensSaved), "I2.prefix", |b| (1, 1, b + 2)),
        // The only block of the smallest sequence, in a pool of two.
        flips("a placement", |_, r| fired(r, ActKind::Place, 1), "I2.place", |_| (1, 1, 2)),
        // The only step of the smallest sequence.
        flips("a bucket", |_, r| fired(r, ActKind::Bucket, 1), "I2.bucket", |_| (1, 1, 2)),
    ]
}

/// Likewise, after that: 32 of 36.
pub(super) fn third() -> Vec<Planted> {
    vec![
        // The fault in up to 16 rows, and so in small canonical executions: 17 rows in a step of which neither sequence has
        // as many, prompts of 17 together, and outputs of 1.
        device(Fault::NormSkipped, "I1", |_| (2, 0, 19)),
        // Resident at a boundary after a step, twice, and a third step: a prompt of 1, an output of 3.
        flips("two preemptions", |_, r| fired(r, ActKind::Preempt, 2), "I2.preempt", |_| (1, 2, 4)),
        // Stalled at its second boundary, after a step shared with the smallest sequence.
        flips("a stall", |_, r| fired(r, ActKind::Stall, 1), "I1", |_| (2, 1, 5)),
        // Ranked at its second boundary, in a step of two, so that both have two steps: outputs of 2.
        flips("a rank", |_, r| fired(r, ActKind::Rank, 1), "I1", |_| (2, 1, 6)),
        // The smallest sequence is admitted a step late, beside one that is in its second step: an output of 2.
        flips("a hold", |_, r| fired(r, ActKind::Hold, 1), "I1", |_| (2, 1, 5)),
        // As a hit, and a second intent that refuses it.
        flips("a hit refused", |_, r| fired(r, ActKind::Hit, 1), "I2.prefix", |b| (1, 2, b + 2)),
        // A prompt of 2, of which the first chunk is cut to 1 and lands late.
        flips(
            "a cut that lands late",
            |_, r| fired(r, ActKind::Land, 1) && fired(r, ActKind::Cut, 1),
            "I2.land",
            |_| (1, 2, 3),
        ),
        // A prompt of 2, cut at 1 and swapped at the boundary after.
        flips(
            "a swap behind a cut",
            |_, r| fired(r, ActKind::Swap, 1) && fired(r, ActKind::Cut, 1),
            "I2.swap",
            |_| (1, 2, 3),
        ),
        // Aborted at its offer, beside two smallest sequences that share a step. Derived as (3, 1, 7) first, as an abort and
        // a third sequence, and undercut.
        flips(
            "an abort beside two",
            |_, r| fired(r, ActKind::Abort, 1) && r.outputs.len() > 2,
            "I2.cancel",
            |_| (3, 1, 6),
        ),
    ]
}
