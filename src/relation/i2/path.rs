//! I2, the two paths to a position: a prefill chunk, and a decode.

use crate::case::Case;
use crate::record::{Finish, Output, Sentinel};
use crate::relation::compare::{self, Place};
use crate::relation::{
    Compared, Divergence, Executions, Judgement, Observable, Relation, Spread, Standard, counts,
};
use crate::schedule::Schedule;
use crate::strategy::Feature;
use crate::subject::SubjectError;
use crate::workload::{Prompt, Request, SampleId, Workload};

/// What was generated a token at a time, against the same tokens as a prompt.
pub(in crate::relation) static PATH: Relation = Relation {
    id: "I2.path",
    path: "i2::path",
    statement: "a position that was decoded has the bits that it has in the prefill of a prompt with the same tokens, and the next token is drawn alike",
    varies: "nothing in the run: its outputs are given back as prompts, each to a fresh instance",
    gates: &[Sentinel::Decoded],
    spreads: &[
        Spread::Fired(Sentinel::MultiSplitRow),
        Spread::Fired(Sentinel::SharedStep),
        Spread::Fired(Sentinel::DrawNotArgmax),
        Spread::Fired(Sentinel::ScoredOutput),
    ],
    focus: &[Feature::Sampled, Feature::Scored],
    every: 4,
    applies: |c| counts(c, Sentinel::Decoded, "the subject doesn't count decodes"),
    judge,
};

/// A request whose prompt is all that the sample computed: its last token is drawn from the prefill.
fn taught(request: &Request, id: SampleId, output: &Output) -> Request {
    let mut tokens = request.prompt.own_tokens().to_vec();
    tokens.extend(&output.tokens[..output.tokens.len() - 1]);
    Request {
        prompt: Prompt::Tokens(tokens),
        max_tokens: 1,
        samples: 1,
        first_sample: id.sample,
        stop: Vec::new(),
        stop_token_ids: Vec::new(),
        prompt_logprobs: request.logprobs,
        ..request.clone()
    }
}

fn judge(executions: &mut Executions<'_>) -> Result<Judgement, SubjectError> {
    let case = executions.case().clone();
    let ids: Vec<SampleId> = executions.run().outputs.keys().copied().collect();
    let mut total = Compared::default();
    for id in ids {
        let (Some(request), generated) =
            (case.workload.get(id.uid), executions.run().outputs[&id].tokens.len())
        else {
            continue;
        };
        if generated < 2 {
            continue;
        }
        let prompt = request.prompt.own_tokens().len();
        let request = taught(request, id, &executions.run().outputs[&id]);
        let workload = Workload { requests: vec![request] };
        let run = executions.carry_out(&workload, &Schedule::default(), case.seed)?;
        let schedule = Schedule::default();
        let standard =
            Standard::other("scored as a prompt", Case { workload, schedule, ..case.clone() });
        let got = &executions.run().outputs[&id];
        let Some(scored) = run.outputs.get(&id) else {
            let detail = format!("the engine reported no output for {id}, scored as a prompt");
            return Ok(Judgement::Broken(Box::new(compare::crash(detail))));
        };
        if [got.finish, scored.finish].contains(&Some(Finish::Undecided)) {
            return Ok(Judgement::Inapplicable("a logit was not finite"));
        }
        match same(id, &decoded(got, prompt), scored, generated - 1, &standard) {
            Ok(compared) => total.add(&compared),
            Err(divergence) => return Ok(Judgement::Broken(divergence)),
        }
    }
    Ok(match total.positions {
        0 => Judgement::Inapplicable("nobody generated two tokens"),
        _ => Judgement::Held(total),
    })
}

/// The part of an output behind its prompt, and of its tokens the last.
fn decoded(output: &Output, prompt: usize) -> Output {
    let behind = |position: u32| position as usize >= prompt;
    Output {
        tokens: output.tokens.last().copied().into_iter().collect(),
        scores: output.scores.iter().filter(|s| behind(s.position)).cloned().collect(),
        positions: output.positions.iter().filter(|p| behind(p.position)).cloned().collect(),
        kv: output.kv.iter().filter(|kv| behind(kv.position)).cloned().collect(),
        ..Output::default()
    }
}

/// Compares `due` positions and all behind them.
fn same(
    id: SampleId,
    got: &Output,
    scored: &Output,
    due: usize,
    standard: &Standard,
) -> Result<Compared, Box<Divergence>> {
    let compared = compare::twins(id, got, scored, false, standard)?;
    let seen = compare::distinct(got.positions.iter().map(|p| p.position)).len();
    if (compared.positions as usize, seen) == (got.positions.len(), due) {
        return Ok(compared);
    }
    let detail = format!(
        "{seen} of {due} decoded positions were observed, {} of {} observations compared",
        compared.positions,
        got.positions.len()
    );
    Err(Box::new(Divergence {
        observable: Observable::Coverage,
        all: [Observable::Coverage].into(),
        place: Place { id: Some(id), ..Place::default() },
        detail,
        origin: None,
        standard: standard.clone(),
    }))
}
