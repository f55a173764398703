//! Faults that no schedule shows: the same in every execution, so both sides of every relation between schedules move
//! together. Each is planted, passes all of those relations, and is caught by what is there for it.
//!
//! | fault, same for every schedule | caught by | test |
//! | --- | --- | --- |
//! | split partials folded in reverse | G1 and X1; within F1's bounds, and repeated by D1 | `folds::a_reversed_fold_of_*`, `fidelity::reversed_folds_*` |
//! | mask off by one, wrong head map, wrong scale; norm epsilon, gate and up swapped | F1 | `fidelity::operators_*`, `fidelity::models_*` |
//! | RoPE base; RoPE offset of one position | F1; G1 | `fidelity::models_*`; `operators::rotation_*` |
//! | sums in f16 | G1, F1 | `operators::sums_in_f16_*`, `fidelity::operators_*` |
//! | K and V stored in a lower precision | bytes of K and V, F1 | `stored::stored_values_*`, `fidelity::operators_*` |
//! | a weight tensor swapped, one weight changed | digest of the tensors, F1 | `fidelity::models_*` |
//! | sampler that ignores its seed, temperature squared; top-p too wide | D1; chi-square against exact probabilities | `draws::a_sampler_*`, `draws::a_wrong_temperature_*`; `tests/sampler` |
//! | wrong but fixed tie rule | D1 on planted ties | `draws::a_wrong_tie_rule_*` |
//! | a token before each prompt, a template | reference token ids, D1 | `texts::a_token_before_*`, `draws::ends_and_first_tokens_*` |
//! | output a token short, end of sequence or stop tokens ignored | D1 on tokens | `draws::ends_and_first_tokens_*` |
//! | frozen output | D1, the longest run of one token; I4 is vacuous | `draws::a_frozen_output_*` |
//! | a mechanism that never runs | campaign minima: vacuous, undecided | `harness::mechanisms_that_never_run_*` |
//! | observer that hashes nothing | one planted bit at each place, G1 | `harness::an_observer_*` |
//! | snapshot of a faulty engine | F1 | `fidelity::a_faulty_engines_snapshot_*` |
//! | engine and plain engine share the faulty operator | F1; logits of candle (`tests/real_model`) | `fidelity::a_faulty_engines_snapshot_*` |

#[path = "../support/altered.rs"]
mod altered;
mod asked;
mod draws;
mod faults;
mod fidelity;
mod fold;
mod folds;
#[path = "../support/golden.rs"]
mod golden;
mod harness;
#[path = "../fidelity/faults.rs"]
mod model_faults;
mod operators;
mod stored;
mod texts;

use lockstep::harness::{Campaign, ShrinkBudget, Verdict};
use lockstep::relation::{Observable, RELATIONS, Relation, named};
use lockstep::strategy::Space;
use lockstep::subject::Subject;

/// Judges relations over a small campaign.
fn campaign(
    subject: &dyn Subject,
    relations: Vec<&'static Relation>,
    cases: u64,
) -> lockstep::harness::Report {
    let campaign = Campaign {
        subject,
        space: Space::new(subject.edges(), subject.default_world()),
        relations,
        cases,
        time_max: None,
        seed: 3,
        jobs: 1,
        budget: ShrinkBudget { executions_max: 0, ..ShrinkBudget::default() },
    };
    campaign.run(&|_| ()).expect("the cases are executable")
}

/// Asserts that every relation between schedules holds over a small campaign, and was exercised.
fn no_schedule_shows(subject: &dyn Subject, cases: u64) {
    no_schedule_but_shows(subject, cases, "");
}

/// The same of all but one of them.
fn no_schedule_but_shows(subject: &dyn Subject, cases: u64, but: &str) {
    let between_schedules = |r: &&Relation| r.id.starts_with('I') && r.id != but;
    let relations = RELATIONS.into_iter().filter(between_schedules).collect();
    let report = campaign(subject, relations, cases);
    let failure = report.failure.as_ref().map(|f| format!("{}: {}", f.relation.id, f.divergence));
    assert_eq!(report.verdict(), Verdict::Held, "{failure:?}");
    for relation in &report.tally.relations {
        let held = relation.held > 0 || relation.not_applicable.is_some();
        assert!(held, "{} was not exercised", relation.relation.id);
    }
}

/// Asserts that a relation breaks within so many cases, and says by what.
fn broken(subject: &dyn Subject, relation: &str, cases: u64) -> Observable {
    let report = campaign(subject, named(relation), cases);
    let failure = report.failure.unwrap_or_else(|| panic!("{relation} holds over {cases} cases"));
    failure.divergence.observable
}
