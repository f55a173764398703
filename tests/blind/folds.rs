//! Split partials folded in reverse: G1 and X1 alone see it.

use lockstep::contract::{Dtype, MatrixUnit, Mode};
use lockstep::device::host::Host;
use lockstep::fixture::Fixture;
use lockstep::relation::g1::{self, Line, Table};
use lockstep::relation::x1::schedules;
use lockstep::subject::Subject;
use lockstep::weights;

use super::altered::{self, Alteration};
use super::fold::{ReversedAttention, ReversedGemm};
use super::{golden, no_schedule_shows};

fn sound(preset: &str) -> Fixture<Host> {
    Fixture::host(preset, weights::source(preset, None).unwrap(), Mode::Invariant).unwrap()
}

/// The lines of the committed snapshot, and those of the subject, of prompts of at most so many tokens.
pub(crate) fn lines(preset: &str, subject: &dyn Subject, tokens: usize) -> Vec<(Line, Line)> {
    let name = golden::name(preset, Dtype::Bf16, MatrixUnit::SM90);
    let committed = golden::committed(&name).expect("it is committed");
    let mut prompts = golden::prompts(preset, subject);
    assert_eq!(committed.lines.len(), prompts.len());
    prompts.retain(|p| p.tokens.len() <= tokens);
    let Table { lines, .. } = g1::alone(subject, &prompts).expect("they are executable");
    committed.lines.into_iter().zip(lines).collect()
}

/// In how many of the first cases whole executions differ from those of an engine without the fault.
fn x1_differs(preset: &str, subject: &dyn Subject, cases: u64) -> u64 {
    let compared = schedules::compare(&sound(preset), subject, cases, 1, 1).unwrap();
    let where_it_is = compared.localisation.as_ref().map_or_else(String::new, ToString::to_string);
    println!("{preset}: X1: {:?}\n{where_it_is}", compared.first);
    assert!(!compared.held());
    assert!(where_it_is.contains("so the fold over them differs"), "{where_it_is}");
    compared.different
}

fn altered<A: Alteration<Host> + Send + Sync + 'static>(
    preset: &str,
    alteration: A,
) -> Box<dyn Subject> {
    Box::new(altered::fixture(preset, Host::new, alteration).unwrap())
}

#[test]
fn a_reversed_fold_of_gemm_partials_moves_every_prompts_layer_digests() {
    for (preset, tokens, cases) in [("tiny", usize::MAX, 12), ("small", 17, 1)] {
        let subject = altered(preset, ReversedGemm);
        let lines = lines(preset, &*subject, tokens);
        let moved = |f: fn(&Line) -> &str| lines.iter().filter(|(a, b)| f(a) != f(b)).count();
        let (layers, logits) = (moved(|l| &l.layers), moved(|l| &l.logits));
        println!(
            "{preset}: layer digests of {layers}, logits of {logits} of {} prompts",
            lines.len()
        );
        assert_eq!(layers, lines.len());
        assert!(logits > 0);
        assert_eq!(x1_differs(preset, &*subject, 1), 1);
        if preset == "tiny" {
            no_schedule_shows(&*subject, cases);
        }
    }
}

#[test]
fn a_reversed_fold_of_attention_partials_moves_exactly_the_prompts_past_the_split() {
    let subject = altered("tiny", ReversedAttention::new(true));
    let lines = lines("tiny", &*subject, usize::MAX);
    let mut logits = 0;
    for (before, after) in &lines {
        let past = before.splits > 1;
        assert_eq!(before.layers != after.layers, past, "{} tokens", before.length);
        assert!(past || before == after, "{} tokens", before.length);
        logits += usize::from(before.logits != after.logits);
    }
    let past = lines.iter().filter(|(before, _)| before.splits > 1).count();
    println!("tiny: layer digests of {past}, logits of {logits} of {} prompts", lines.len());
    assert!(past > 0 && past < lines.len() && logits > 0);
    assert!(x1_differs("tiny", &*subject, 12) > 0);
    no_schedule_shows(&*subject, 12);
}

/// Goal: the attention that folds in reverse is at fault in nothing else. Method: folded in order it gives the snapshot.
#[test]
fn the_second_attention_in_order_gives_the_snapshot() {
    let subject = altered("tiny", ReversedAttention::new(false));
    for (before, after) in lines("tiny", &*subject, usize::MAX) {
        assert_eq!(before, after);
    }
}
