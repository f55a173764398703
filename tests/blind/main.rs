//! Faults that no schedule shows: the same in every execution, so both sides of every relation between schedules move
//! together. Each is planted, passes all of those relations, and is caught by what is there for it.

#[path = "../support/altered.rs"]
mod altered;
mod asked;
mod draws;
mod faults;
mod fold;
mod folds;
#[path = "../support/golden.rs"]
mod golden;
mod harness;
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
