//! Servers that end, refuse or slow down in the middle of a run, and budgets that do: never held, never a panic, never a hang.

use std::thread;
use std::time::{Duration, Instant};

use lockstep::certify::{Arm, Certificate, CertifyError, Options, Verdict, text};

use crate::run::{CROWDS, attempt, quick, with};
use crate::server::{Disturbance, Faults, How, Refusals, Server, When};

const DRIFT: How = How::Drift(1e-3);
/// Runs at once.
const AT_ONCE: usize = 4;

fn hasty(arms: &[Arm]) -> Options {
    Options { timeout: Duration::from_secs(2), time_max: Duration::from_secs(10), ..quick(arms) }
}

/// Some at a time: most of them do nothing but wait.
fn each<T: Copy + Send + Sync>(all: &[T], run: impl Fn(T) + Sync) {
    for some in all.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = some.iter().map(|&one| scope.spawn(move || run(one))).collect();
            for thread in threads {
                thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why));
            }
        });
    }
}

/// A certificate in time, or one line that says why there is none.
fn in_time(faults: Faults, options: &Options, what: &str) -> Option<Certificate> {
    let server = Server::start(faults);
    let started = Instant::now();
    let seen = attempt(&server, options);
    let took = started.elapsed();
    assert!(took < options.time_max + options.timeout, "{what}: {took:?}");
    match seen {
        Ok(certificate) => Some(certificate),
        Err(CertifyError::Unusable(why)) => {
            assert!(!why.is_empty() && !why.contains('\n'), "{what}: {why:?}");
            None
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Requests that a whole run of these arms takes.
fn whole(arms: &[Arm]) -> u64 {
    let clean = with(Faults::default(), &hasty(arms));
    clean.expect(Verdict::Held);
    clean.server.completions().len() as u64
}

/// A server that is killed after any number of requests is undecided, and the reason says that it no longer answers.
pub(crate) fn a_server_that_dies_is_never_held() {
    for arms in [&CROWDS[..], &Arm::ALL] {
        let requests = whole(arms);
        let at: Vec<u64> = (1..requests).step_by(if arms.len() > 3 { 13 } else { 7 }).collect();
        each(&at, |dies_after| {
            let faults = Faults { dies_after: Some(dies_after), ..Faults::default() };
            let what = format!("after {dies_after} of {requests}");
            let Some(certificate) = in_time(faults, &hasty(arms), &what) else {
                assert!(dies_after < 30, "{what}: no certificate");
                return;
            };
            let said = text::report(&certificate);
            assert_eq!(certificate.verdict, Verdict::Undecided, "{what}: {said}");
            let why = &certificate.reasons[0];
            assert!(why.contains("broke off") || why.contains("control"), "{what}: {said}");
        });
    }
    let at: Vec<u64> = (1..6).map(|n| n * 200).collect();
    each(&at, |ms| {
        let faults = Faults { dies_after_ms: Some(ms), ..Faults::default() };
        let options = Options { rounds: Some(3), ..hasty(&Arm::ALL) };
        let seen = in_time(faults, &options, &format!("after {ms} ms"));
        let said = seen.as_ref().map(text::report).unwrap_or_default();
        assert!(seen.is_none_or(|seen| seen.verdict == Verdict::Undecided), "{ms} ms: {said}");
    });
}

/// A difference that was seen before the end stays one.
pub(crate) fn what_was_seen_before_the_end_counts() {
    let requests = whole(&CROWDS);
    let faults = |dies_after| Faults { dies_after, ..Faults::disturbed(When::InFlight(2), DRIFT) };
    each(&[requests - 4, requests - 2], |after| {
        let seen = in_time(faults(Some(after)), &hasty(&CROWDS), "late").expect("a certificate");
        assert_eq!(seen.verdict, Verdict::Broken, "{}", text::report(&seen));
    });
}

/// A budget that ends anywhere leaves nothing held, and nothing broken that is not.
pub(crate) fn a_budget_that_ends_anywhere_holds_nothing() {
    let requests = whole(&Arm::ALL);
    let clean = Faults::default;
    let at: Vec<u64> = (50..1500).step_by(350).collect();
    each(&at, |ms| {
        let options = Options { time_max: Duration::from_millis(ms), ..hasty(&Arm::ALL) };
        if let Some(seen) = in_time(clean(), &options, &format!("{ms} ms")) {
            assert_ne!(seen.verdict, Verdict::Broken, "{ms} ms: {}", text::report(&seen));
            let is_whole = seen.requests >= requests;
            assert!(
                is_whole || seen.verdict == Verdict::Undecided,
                "{ms} ms: {}",
                text::report(&seen)
            );
        }
    });
    let at: Vec<u64> = (50..requests + 60).step_by(38).collect();
    each(&at, |requests_max| {
        let options = Options { requests_max, ..hasty(&Arm::ALL) };
        let server = Server::start(clean());
        match attempt(&server, &options) {
            Err(error) => assert!(matches!(error, CertifyError::BadInput(_)), "{error}"),
            Ok(seen) => {
                let said = text::report(&seen);
                assert!(seen.requests <= requests_max, "{said}");
                // What the plan leaves out to fit is no end before its time.
                assert_eq!(seen.verdict, Verdict::Held, "{requests_max}: {said}");
            }
        }
    });
    let at: Vec<u64> = (500..12_000).step_by(2300).collect();
    each(&at, |tokens_max| {
        let options = Options { tokens_max, ..hasty(&Arm::ALL) };
        let server = Server::start(clean());
        match attempt(&server, &options) {
            Err(error) => assert!(matches!(error, CertifyError::BadInput(_)), "{error}"),
            Ok(seen) => {
                let said = text::report(&seen);
                assert!(seen.tokens <= tokens_max && seen.verdict != Verdict::Broken, "{said}");
            }
        }
    });
}

fn few_only(refusals: Refusals) -> bool {
    refusals == Refusals::Every(40)
}

/// Refusals for load void cases: a storm decides nothing, a few take nothing away, and a difference among them counts.
pub(crate) fn storms_of_refusals_decide_nothing_false() {
    let kinds = [
        Refusals::Every(2),
        Refusals::Every(3),
        Refusals::Every(5),
        Refusals::Every(40),
        Refusals::Above(1),
        Refusals::Unavailable(1),
        Refusals::After(45),
        Refusals::After(70),
    ];
    let quick = |arms| Options { time_max: Duration::from_secs(5), ..hasty(arms) };
    each(&kinds, |refusals| {
        let what = format!("{refusals:?}");
        if let Some(seen) =
            in_time(Faults { refusals, ..Faults::default() }, &quick(&CROWDS), &what)
        {
            let said = text::report(&seen);
            assert_ne!(seen.verdict, Verdict::Broken, "{what}: {said}");
            assert!(few_only(refusals) || seen.verdict == Verdict::Undecided, "{what}: {said}");
        }
        if few_only(refusals) {
            let disturbances = vec![Disturbance { when: When::InFlight(2), how: DRIFT, rate: 1.0 }];
            let faults = Faults { refusals, disturbances, ..Faults::default() };
            let seen = in_time(faults, &hasty(&CROWDS), &what).expect("a certificate");
            assert_eq!(seen.verdict, Verdict::Broken, "{what}: {}", text::report(&seen));
        }
    });
}

/// Plans of every odd shape: two prompts, one level, one length, rounds; a fault is found, and without one nothing is.
pub(crate) fn plans_of_odd_shapes_find_the_same() {
    let of = |prompts: u32, concurrency: &[u32], prompt_tokens: &[u32]| Options {
        prompts,
        concurrency: concurrency.to_vec(),
        prompt_tokens: prompt_tokens.to_vec(),
        // One crowd of two may miss its moment on a busy machine.
        rounds: Some(if prompts < 4 { 3 } else { 1 }),
        ..quick(&Arm::ALL)
    };
    let plans = [
        of(2, &[2], &[2]),
        of(2, &[2, 3], &[17]),
        Options { arms: CROWDS.to_vec(), ..of(2, &[64], &[40, 3]) },
        of(7, &[5], &[33, 200]),
        Options { arms: CROWDS.to_vec(), ..of(16, &[4], &[12]) },
        Options { repeats: 5, rounds: Some(2), answer_tokens: 4, ..of(2, &[3], &[20]) },
    ];
    let numbers: Vec<usize> = (0..plans.len()).collect();
    each(&numbers, |number| {
        let plan = &plans[number];
        with(Faults::default(), plan).expect(Verdict::Held);
        let when = match number % 3 {
            0 if plan.asks(Arm::First) => When::FirstOfPrompt,
            1 => When::ReadInCompany,
            _ => When::InFlight(2),
        };
        with(Faults::disturbed(when, DRIFT), plan).expect(Verdict::Broken);
    });
}
