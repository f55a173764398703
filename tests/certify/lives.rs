//! A fault that lives in one life of a server in three: lives are counted, and their answers alone are compared.

use lockstep::certify::merge::{Between, Merged};
use lockstep::certify::{self, Arm, Silent, Verdict};

use crate::run::{small, target};
use crate::server::{Faults, How, Server, When};

const DRIFT: How = How::Drift(1e-3);

/// Three lives of a server, of which the second may be another. A restart ends one server and starts the next.
fn three(when: When) -> Merged {
    let start = |life| Server::start(Faults { life, ..Faults::disturbed(when, DRIFT) });
    let mut server = start(1);
    let first = target(&server);
    let mut restart = |life| {
        server = start(u64::from(life));
        Ok(target(&server))
    };
    let mut told = Vec::new();
    let mut judged = |life, outcome: Result<&certify::Certificate, &str>| {
        told.push((life, outcome.is_ok()));
        Some(format!("{life}.json"))
    };
    let options = small(&[Arm::First, Arm::ConcurrentWarm]);
    let merged = certify::lives(&first, &options, 3, &Silent, &mut restart, &mut judged);
    let merged = merged.expect("three lives");
    assert_eq!(told, [(1, true), (2, true), (3, true)]);
    assert_eq!((merged.between, merged.members.len()), (Between::Lives, 3));
    assert_eq!(merged.members[2].file.as_deref(), Some("3.json"));
    merged
}

/// Goal: a fault of crowds that one life has makes it one of three, and the answers alone are equal in all.
pub(crate) fn a_fault_of_one_life_in_three_is_counted() {
    let merged = three(When::InFlightInLife(2, 2));
    let said = certify::merge::report(&merged);
    assert_eq!(merged.verdict, Verdict::Broken, "{said}");
    assert_eq!((merged.counts.broken, merged.counts.held), (1, 2), "{said}");
    assert!(said.contains("life 2 of 3 is broken: concurrent_warm"), "{said}");
    assert_eq!((merged.groups.len(), merged.compared.differing), (1, 0), "{said}");
}

/// Goal: lives that are at peace with themselves, of which one answers otherwise, are broken between each other.
pub(crate) fn a_life_whose_answers_are_others_is_seen_between_lives() {
    let merged = three(When::InLife(2));
    let said = certify::merge::report(&merged);
    assert_eq!((merged.counts.held, merged.verdict), (3, Verdict::Broken), "{said}");
    let says =
        "differ between lives: life 2 of 3 answers 4 of 4 prompts otherwise than lives 1 and 3";
    assert!(merged.reasons[0].ends_with(says), "{said}");
}

/// The same without the fault.
pub(crate) fn lives_that_are_alike_are_held() {
    let merged = three(When::InLife(9));
    let said = certify::merge::report(&merged);
    assert_eq!((merged.counts.held, merged.verdict), (3, Verdict::Held), "{said}");
    assert_eq!((merged.compared.prompts, merged.compared.answers), (4, 12), "{said}");
}
