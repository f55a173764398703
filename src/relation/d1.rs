//! D1, plain.

use crate::record::{Finish, Sentinel};
use crate::strategy::Feature;
use crate::subject::{Capabilities, PlainRun, SubjectError};
use crate::workload::SampleId;

use super::compare::{self, Known};
use super::{Compared, Executions, Judgement, Relation, Spread, Standard};

/// A plain engine of the same model gives the same.
pub(super) static D1: Relation = Relation {
    id: "D1",
    path: "d1::plain",
    statement: "an engine without scheduler, blocks and batches gives the same tokens, lengths, finish reasons, log-probabilities, logits, K and V",
    varies: "everything that a case varies; against code of its own for positions, draws, ties, stops and log-probabilities",
    gates: &[
        Sentinel::GemmSkinnyWalk,
        Sentinel::GemmSkinnyParallel,
        Sentinel::GemmTiledWalk,
        Sentinel::GemmTiledParallel,
    ],
    spreads: &[
        Spread::Fired(Sentinel::MultiSplitRow),
        Spread::Fired(Sentinel::DrawNotArgmax),
        Spread::Ties,
        Spread::Rare(Sentinel::FinishEos),
        Spread::Fired(Sentinel::FinishLength),
        Spread::Fired(Sentinel::StopToken),
        Spread::Fired(Sentinel::StopString),
        Spread::Fired(Sentinel::StopAcrossTokens),
        Spread::Fired(Sentinel::ScoredPrompt),
        Spread::Fired(Sentinel::ScoredOutput),
    ],
    focus: &[Feature::Sampled, Feature::Stops],
    every: 1,
    applies,
    judge,
};

fn applies(capabilities: &Capabilities) -> Result<(), &'static str> {
    if capabilities.plain { Ok(()) } else { Err("there is no plain engine of its model") }
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    let &Capabilities { kv, logprobs, .. } = executions.capabilities();
    let ids: Vec<SampleId> = executions.run().outputs.keys().copied().collect();
    let mut total = Compared::default();
    let mut undecided = false;
    for id in ids {
        let request = executions.case().workload.get(id.uid).filter(|_| logprobs).cloned();
        let (run, PlainRun { output: plain, ties }) = executions.with_plain(id)?;
        let got = &run.outputs[&id];
        let known = Known {
            kv,
            sites: false,
            scores: request.map_or(0, |r| r.scores_due(plain.tokens.len())),
            aborted: got.finish == Some(Finish::Aborted),
        };
        match compare::outputs(id, got, &plain, known, &Standard::Plain) {
            Ok(_) if plain.finish == Some(Finish::Undecided) => undecided = true,
            Ok(compared) => total.add(&Compared { ties, ..compared }),
            Err(divergence) => return Ok(Judgement::Broken(divergence)),
        }
    }
    if undecided {
        return Ok(Judgement::Inapplicable("a logit was not finite"));
    }
    Ok(Judgement::Held(total))
}
