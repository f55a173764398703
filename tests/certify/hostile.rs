//! Servers that answer nonsense, from the start or in the middle of a run: never a panic, never a
//! hang, always one line that says what happened.

use std::time::{Duration, Instant};

use lockstep::certify::{self, Arm, CertifyError, Options, Secret, Silent, Verdict, text};

use crate::run::{CROWDS, attempt, small, target};
use crate::server::{Faults, Hostile, How, Server, When};

const KINDS: [Hostile; 17] = [
    Hostile::HugeBody,
    Hostile::EndlessStream,
    Hostile::InvalidUtf8,
    Hostile::NotANumber,
    Hostile::HugeNumber,
    Hostile::Html,
    Hostile::Redirect,
    Hostile::ResetInBody,
    Hostile::SlowBytes,
    Hostile::Silent,
    Hostile::ServerError,
    Hostile::EmptyBody,
    Hostile::CutJson,
    Hostile::DeepJson,
    Hostile::LongHeader,
    Hostile::LongLine,
    Hostile::WrongTypes,
];

fn hasty() -> Options {
    Options {
        timeout: Duration::from_millis(500),
        time_max: Duration::from_secs(6),
        ..small(&CROWDS)
    }
}

/// Not held, not broken, in time, with one line that says why.
fn survive(kind: Hostile, after: u64) {
    let faults = Faults { hostile: Some(kind), hostile_after: after, ..Faults::default() };
    let server = Server::start(faults);
    let started = Instant::now();
    let line = match attempt(&server, &hasty()) {
        Err(CertifyError::Unusable(why)) => why,
        Err(other) => panic!("{kind:?} after {after}: {other}"),
        Ok(certificate) => {
            let said = text::report(&certificate);
            assert_eq!(certificate.verdict, Verdict::Undecided, "{kind:?} after {after}: {said}");
            certificate.reasons.first().cloned().unwrap_or_default()
        }
    };
    assert!(started.elapsed() < Duration::from_secs(9), "{kind:?} after {after}");
    assert!(!line.is_empty() && !line.contains('\n'), "{kind:?} after {after}: {line:?}");
    assert!(line.len() < 500, "{kind:?} after {after}: {} bytes", line.len());
}

/// Some at a time: most of them do nothing but wait.
fn survive_all(after: u64) {
    for some in KINDS.chunks(6) {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                some.iter().map(|&kind| scope.spawn(move || survive(kind, after))).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("survived"));
        });
    }
}

pub(crate) fn a_server_that_is_hostile_from_the_start_is_unusable() {
    survive_all(0);
}

pub(crate) fn a_server_that_turns_hostile_in_the_middle_leaves_nothing_decided() {
    survive_all(40);
}

/// Nobody listens, or somebody who speaks no HTTP.
pub(crate) fn an_address_without_a_server_is_unusable() {
    let gone = {
        let server = Server::start(Faults::default());
        target(&server)
    };
    let error = certify::run(&gone, &hasty(), &Silent).expect_err("nobody listens");
    assert!(matches!(error, CertifyError::Unusable(_)), "{error}");
    assert!(!error.to_string().contains('\n'));
}

/// The key goes to the server, and to nothing that is printed or kept.
pub(crate) fn the_key_is_sent_and_never_shown() {
    let key = "sk-lockstep-very-secret";
    let server = Server::start(Faults::disturbed(When::InFlight(2), How::Drift(1e-3)));
    let mut target = target(&server);
    target.key = Secret::new(key);
    let certificate = certify::run(&target, &small(&[Arm::ConcurrentWarm]), &Silent).unwrap();
    let json = serde_json::to_string(&certificate).expect("JSON");
    assert!(!json.contains(key) && !text::report(&certificate).contains(key));
    assert!(!format!("{target:?}").contains(key));
    let asked = server.completions();
    let bearer = format!("Bearer {key}");
    assert!(asked.iter().all(|asked| asked.headers.get("authorization") == Some(&bearer)));
    // One that comes back as a name, and is written with escapes in JSON.
    let key = r#"sk-"lockstep\secret"#;
    (target.key, target.model) = (Secret::new(key), Some(key.into()));
    let certificate = certify::run(&target, &small(&[Arm::ConcurrentWarm]), &Silent).unwrap();
    assert_eq!(certificate.server.model, "(key)");
    let said = format!("{certificate:?}{}", text::report(&certificate));
    assert!(!said.contains("secret"), "{said}");
}
