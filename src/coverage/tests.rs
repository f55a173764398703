//! Coverage on logs made by hand: what counts, what does not, and against what.

use super::*;
use crate::lifecycle::State;
use crate::record::{Boundary, LifeEvent};
use crate::strategy::Feature;
use crate::workload::SampleId;

fn log(events: &[(u64, Event, State)]) -> Run {
    let life = |&(uid, event, state): &(u64, Event, State)| LifeEvent {
        id: SampleId { uid, sample: 0 },
        event,
        state,
    };
    Run { life: events.iter().map(life).collect(), ..Run::default() }
}

fn cover(run: &Run, drawn: Features, targets: Features) -> Shares {
    let mut coverage = Coverage::new(&Capabilities::all());
    coverage.add(&Folder::new().fold(run, drawn, targets));
    coverage.shares()
}

/// Events of two sequences interleave in the log; n-grams are those of one sequence.
#[test]
fn grams_do_not_cross_sequences() {
    use {Event::*, State::*};
    let run = log(&[
        (1, Arrive, Waiting),
        (2, Arrive, Waiting),
        (1, Admit, Admitted),
        (2, AdmitRefused, Waiting),
        (1, Chunk, Drawn),
    ]);
    let shares = cover(&run, Features::default(), Features::default());
    assert_eq!((shares.transitions.hit, shares.bigrams.hit, shares.trigrams.hit), (4, 3, 1));
    assert!(shares.undeclared.is_empty());
    assert_eq!(shares.trigrams.feasible, shares.trigrams.missed.len() + 1);
    assert!(!shares.trigrams.missed.contains(&"arrive admit chunk".to_owned()));
}

#[test]
fn what_the_table_does_not_have_is_named_and_counts_for_nothing() {
    use {Event::*, State::*};
    let run = log(&[(1, Arrive, Waiting), (1, Publish, Published)]);
    let shares = cover(&run, Features::default(), Features::default());
    assert_eq!(shares.undeclared, ["waiting publish published", "arrive publish"]);
    assert_eq!((shares.transitions.hit, shares.bigrams.hit), (1, 0));
}

/// A campaign about preemption preempts; that it does is no exploration. What else happens around it is.
#[test]
fn a_focused_case_counts_only_outside_the_subsystem_that_it_targets() {
    use {Event::*, State::*};
    let run = log(&[
        (1, Arrive, Waiting),
        (1, Admit, Admitted),
        (1, PreemptRecompute, Preempted),
        (1, Resume, Admitted),
        (1, PreemptRecompute, Preempted),
    ]);
    let free = cover(&run, Features::default(), Features::default());
    assert_eq!((free.transitions.hit, free.bigrams.hit, free.trigrams.hit), (4, 4, 3));
    let targets = Features::from_iter([Feature::Preempt]);
    let focused = cover(&run, Features::default(), targets);
    // Left: the two others; arrive admit, admit preempt; arrive admit preempt, admit preempt resume.
    assert_eq!((focused.transitions.hit, focused.bigrams.hit, focused.trigrams.hit), (2, 2, 2));
}

#[test]
fn a_feature_counts_where_the_run_shows_it() {
    let drawn = Features::from_iter([Feature::Odd, Feature::Crowd, Feature::Budget, Feature::Cut]);
    let shares = cover(&Run::default(), drawn, Features::default());
    // No cut fired: of the four features three are left, which are one triple.
    assert_eq!(shares.triples.hit, 1);
    let all = Features::from_iter([Feature::Odd, Feature::Crowd, Feature::Budget]);
    assert_eq!(cover(&Run::default(), drawn, all).triples.hit, 0);
}

#[test]
fn boundaries_are_counted_by_offset_and_impossible_ones_are_not_due() {
    let mut run = Run::default();
    run.boundaries.near(Boundary::MaxTokens, 2, 1);
    run.boundaries.near(Boundary::MaxTokens, 1, 1);
    let shares = cover(&run, Features::default(), Features::default());
    assert_eq!(shares.boundaries.hit, 2);
    assert!(shares.boundaries.missed.contains(&"chunk_block-1".to_owned()));
    assert!(!shares.boundaries.missed.iter().any(|m| m.starts_with("max_tokens")));
}

#[test]
fn a_subject_is_owed_only_what_it_can_do() {
    let mut less = Capabilities::all();
    for event in [Event::PreemptSwap, Event::Abort, Event::Fork] {
        less.events.remove(&event);
    }
    let (less, all) = (Coverage::new(&less).shares(), Coverage::new(&Capabilities::all()).shares());
    assert!(less.trigrams.feasible < all.trigrams.feasible);
    assert!(less.transitions.missed.iter().all(|t| !t.contains("swap")));
    assert!(!Coverage::new(&Capabilities::default()).is_reported());
}
