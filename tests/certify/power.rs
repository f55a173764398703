//! Detection power, measured: many runs against planted faults of a known rate, and many against
//! none. It takes minutes, so it is ignored unless asked for:
//! `cargo test --test certify power -- --ignored`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use lockstep::certify::{self, Options, Verdict};

use crate::run::with;
use crate::server::{Disturbance, Faults, How, When};

const THREADS: u64 = 6;
/// Share of the requests in crowds that a planted fault changes.
const RATE: f64 = 0.1;
/// Longest run in seconds.
const SECONDS_MAX: f64 = 6.0;

/// Verdicts of so many runs: held, broken, undecided; and the most seconds of one, in thousandths.
fn verdicts(runs: u64, rate: f64) -> ([u64; 3], u64) {
    let counts: [AtomicU64; 3] = Default::default();
    let (next, longest_ms) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let life = next.fetch_add(1, Ordering::SeqCst);
                    if life >= runs {
                        return;
                    }
                    let (when, how) = (When::InFlight(2), How::Drift(1e-4));
                    let disturbances = vec![Disturbance { when, how, rate }];
                    let faults = Faults { life, disturbances, step_us: 500, ..Faults::default() };
                    let options = Options { seed: life, ..certify::small(&Options::default()) };
                    let certificate = with(faults, &options).certificate;
                    let place = match certificate.verdict {
                        Verdict::Held => 0,
                        Verdict::Broken => 1,
                        Verdict::Undecided => 2,
                    };
                    counts[place].fetch_add(1, Ordering::SeqCst);
                    let ms = (certificate.seconds * 1e3) as u64;
                    longest_ms.fetch_max(ms, Ordering::SeqCst);
                }
            });
        }
    });
    (counts.map(AtomicU64::into_inner), longest_ms.into_inner())
}

/// At least 99 of 100 planted faults are found, and none of 1,000 clean runs is called broken.
pub(crate) fn power_is_at_least_99_percent_without_false_alarms() {
    let (planted, planted_ms) = verdicts(100, RATE);
    let (clean, clean_ms) = verdicts(1000, 0.0);
    println!("planted, rate {RATE}: held, broken, undecided {planted:?}, longest {planted_ms} ms");
    println!("clean: held, broken, undecided {clean:?}, longest {clean_ms} ms");
    assert!(planted[1] >= 99 && clean[1] == 0);
    // A busy machine may keep requests from meeting; that must stay rare to be of use.
    assert!(clean[2] <= 50, "{} clean runs could not decide", clean[2]);
    assert!((planted_ms.max(clean_ms) as f64) < SECONDS_MAX * 1e3);
}
