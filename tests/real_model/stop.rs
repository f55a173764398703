//! Stop strings of a model with a byte-level vocabulary.

use libtest_mimic::Failed;
use lockstep::contract::Mode;
use lockstep::fixture::Fixture;
use lockstep::record::Finish;
use lockstep::schedule::Schedule;
use lockstep::subject::{Subject as _, SubjectError};
use lockstep::text::Tokenizer;
use lockstep::weights::Model;
use lockstep::workload::{Request, Workload};

/// Goal: an output ends where a string comes to its end in the text, in the middle of tokens too. Method: the greedy
/// text of a prompt, then the same with strings cut from it. Without the tokenizer such a request is refused.
pub(crate) fn strings() -> Result<(), Failed> {
    let model = Model::load(&super::file(), None)?;
    let tokenizer = Tokenizer::from_gguf(&super::file())?;
    let prompt = tokenizer.encode("The capital of France is")?;
    let fixture = Fixture::host("smollm2", &model, Mode::Invariant)?;
    let with_text = Fixture::host("smollm2", &model, Mode::Invariant)?.with_tokenizer(tokenizer);
    let run = |fixture: &Fixture<_>, stop: &[&str]| {
        let stop = stop.iter().map(|s| (*s).to_owned()).collect();
        let request = Request { stop, ignore_eos: true, ..Request::new(1, prompt.clone(), 12) };
        let workload = Workload { requests: vec![request] };
        let mut world = fixture.default_world();
        world.pool_blocks = workload.lengths()[0].blocks(world.block_size) as u32;
        fixture.execute(&world, &workload, &Schedule::default(), 0, None)
    };
    let whole = run(&with_text, &[])?;
    let whole = whole.first(1).ok_or("no output")?;
    let text = String::from_utf8(whole.text.clone())?;
    if whole.tokens.len() != 12 || text.len() < 16 {
        return Err(format!("a text of {} tokens: {text:?}", whole.tokens.len()).into());
    }
    let middle = text.len() / 2;
    let cut: Vec<&str> = [3, 7].iter().filter_map(|n| text.get(middle..middle + n)).collect();
    for stop in cut {
        let run = run(&with_text, &[stop])?;
        let output = run.first(1).ok_or("no output")?;
        let expected = &text[..text.find(stop).ok_or("it is a part of the text")?];
        let is_start = whole.tokens.starts_with(&output.tokens);
        if output.finish != Some(Finish::Stop) || output.text != expected.as_bytes() || !is_start {
            return Err(format!("{stop:?}: {:?} {:?}", output.finish, output.text).into());
        }
    }
    match run(&fixture, &["a"]) {
        Err(SubjectError::BadInput(why)) if why.contains("stop strings") => Ok(()),
        other => Err(format!("without a tokenizer: {:?}", other.map(|_| ())).into()),
    }
}
