//! Resident memory of a long campaign: it may not grow.
//!
//! `LOCKSTEP_SOAK_SECONDS=600 cargo test --test soak -- --ignored --nocapture
//! --test-threads 1 NAME` runs every relation on the host for ten minutes, in the profile that the other tests have; one test a
//! process. Linux only: elsewhere there is no `/proc/self/statm` to read.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockstep::contract::Mode;
use lockstep::fixture::Fixture;
use lockstep::harness::{Campaign, ShrinkBudget};
use lockstep::record::{Capture, Run};
use lockstep::relation::RELATIONS;
use lockstep::schedule::Schedule;
use lockstep::strategy::Space;
use lockstep::subject::{Capabilities, Subject, SubjectError};
use lockstep::weights;
use lockstep::workload::Workload;
use lockstep::world::World;

/// Seconds that the soak takes.
const SECONDS: &str = "LOCKSTEP_SOAK_SECONDS";
const SECONDS_DEFAULT: u64 = 600;
/// Samples over the whole time: one a second by default.
const SAMPLES: usize = 600;
/// Most that the maximum after the second tenth (minute 2 by default) may be above the maximum within it.
const GROWTH_MAX: f64 = 1.01;

/// Where memory is read from.
type Read = fn() -> u64;

/// The most that was ever resident of this process, in pages of 4 KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux has it");
    let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    kib.expect("a number of KiB") / 4
}

/// Resident memory of this process, in pages.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the second field")
}

/// Maximum of the second tenth of the samples, and of all after it.
fn maxima(samples: &[u64]) -> (u64, u64) {
    let tenth = samples.len() / 10;
    let most = |samples: &[u64]| samples.iter().copied().max().expect("at least one a tenth");
    (most(&samples[tenth..2 * tenth]), most(&samples[2 * tenth..]))
}

/// Least sample of each tenth: what stays resident where no large case is under way.
fn floors(samples: &[u64]) -> Vec<u64> {
    samples
        .chunks_exact(samples.len() / 10)
        .filter_map(|tenth| tenth.iter().copied().min())
        .collect()
}

/// The floor of the last tenth over the highest of those from the second to the fifth.
fn floor_growth(samples: &[u64]) -> f64 {
    let floors = floors(samples);
    let before = floors[1..5].iter().copied().max().expect("four tenths");
    floors[9] as f64 / before as f64
}

fn growth(samples: &[u64]) -> f64 {
    let (before, after) = maxima(samples);
    after as f64 / before as f64
}

/// Cases of a pass, where the same ones are run again and again.
const PASS: u64 = 300;

/// Runs campaigns of so many cases, the same in each, for this long, and samples the memory meanwhile. Returns the cases run.
fn soak(
    subject: &dyn Subject,
    time: Duration,
    cases: u64,
    jobs: usize,
    read: Read,
) -> (u64, Vec<u64>) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            // Room beforehand: the samples themselves must not grow.
            let mut samples = Vec::with_capacity(SAMPLES);
            let started = Instant::now();
            while samples.len() < SAMPLES && !is_over.load(Ordering::Relaxed) {
                let due = time * (samples.len() as u32 + 1) / SAMPLES as u32;
                std::thread::sleep(due.saturating_sub(started.elapsed()));
                samples.push(read());
            }
            samples
        });
        let (started, mut run) = (Instant::now(), 0);
        while started.elapsed() < time {
            let campaign = Campaign {
                subject,
                space: Space::new(subject.edges(), subject.default_world()),
                relations: RELATIONS.to_vec(),
                cases,
                time_max: Some(time.saturating_sub(started.elapsed())),
                seed: 1,
                jobs,
                budget: ShrinkBudget::default(),
            };
            let report = campaign.run(&|_| ()).expect("the fixture can run");
            assert!(report.failure.is_none(), "{:?}", report.failure);
            run += report.tally.cases;
        }
        is_over.store(true, Ordering::Relaxed);
        (run, sampler.join().expect("the sampler ends"))
    })
}

/// Soaks, prints each tenth, and asserts that memory did not grow as `growth` measures it.
fn resident_memory(jobs: usize, cases: u64, read: Read, growth: fn(&[u64]) -> f64) {
    let seconds = std::env::var(SECONDS)
        .map_or(SECONDS_DEFAULT, |text| text.parse().expect("LOCKSTEP_SOAK_SECONDS is a number"));
    let source = weights::source("tiny", None).unwrap();
    let fixture = Fixture::host("tiny", source, Mode::Invariant).unwrap();
    let (run, samples) = soak(&fixture, Duration::from_secs(seconds), cases, jobs, read);
    assert!(samples.len() * 100 >= SAMPLES * 98, "{} of {SAMPLES} samples", samples.len());
    let kib = |pages: u64| pages * 4;
    for (tenth, chunk) in samples.chunks(SAMPLES / 10).enumerate() {
        let mut sorted = chunk.to_vec();
        sorted.sort_unstable();
        let [least, median, most] =
            [0, sorted.len() / 2, sorted.len() - 1].map(|at| kib(sorted[at]));
        println!("tenth {}: {least} to {most} KiB resident, median {median}", tenth + 1);
    }
    let (before, after) = maxima(&samples);
    let ratio = growth(&samples);
    println!(
        "{run} cases in {seconds} s: at most {} KiB in the second tenth, {} KiB after it; growth {ratio:.4}",
        kib(before),
        kib(after)
    );
    assert!(ratio <= GROWTH_MAX, "resident memory grew by a factor of {ratio:.4}");
}

/// One campaign, as a user runs it. Its maximum also follows the largest case drawn so far, leak or not: where it is above,
/// the figures of each tenth tell a trend from a peak.
#[test]
#[ignore = "takes ten minutes, or LOCKSTEP_SOAK_SECONDS"]
fn resident_memory_of_one_campaign() {
    resident_memory(1, u64::MAX, resident, growth);
}

/// Campaigns of the same cases again and again, on one thread: what is most resident at any moment, samples or not, is that
/// of the first pass, if nothing is lost.
#[test]
#[ignore = "takes ten minutes, or LOCKSTEP_SOAK_SECONDS"]
fn most_resident_memory_of_the_same_cases() {
    resident_memory(1, PASS, peak, growth);
}

/// Campaigns of the same cases again and again, on two threads whose results wait for each other. A large case takes up to
/// 25 MB while it is under way, and which two are so at once is chance: maxima tell nothing here, floors do.
#[test]
#[ignore = "takes ten minutes, or LOCKSTEP_SOAK_SECONDS"]
fn resident_memory_of_campaigns_on_two_threads() {
    resident_memory(2, PASS, resident, floor_growth);
}

/// The fixture, which loses some memory in each execution.
struct Leaky(Fixture<lockstep::device::hash::Hash>);

/// Bytes that an execution loses.
const LOST: usize = 16 << 10;

impl lockstep::subject::Wrapper for Leaky {
    fn inner(&self) -> &dyn Subject {
        &self.0
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { fresh_process: false, ..self.0.capabilities() }
    }
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        // Else the optimiser leaves out what nobody reads.
        std::mem::forget(std::hint::black_box(vec![1u8; LOST]));
        self.0.execute(world, workload, schedule, seed, capture)
    }
}

/// What is lost in each execution is seen.
#[test]
fn a_leak_is_seen() {
    let source = weights::source("tiny", None).unwrap();
    let leaky = Leaky(Fixture::hash("tiny", source, Mode::Invariant).unwrap());
    for (jobs, growth) in [(1, growth as fn(&[u64]) -> f64), (2, floor_growth)] {
        let (_, samples) = soak(&leaky, Duration::from_secs(3), PASS, jobs, resident);
        let ratio = growth(&samples);
        assert!(ratio > 1.1, "{jobs} threads: {ratio:.4}");
    }
}

/// Peaks do not count, what stays does.
#[test]
fn floors_are_compared_with_those_of_the_second_to_the_fifth_tenth() {
    let mut samples = vec![1000; SAMPLES];
    samples[..60].fill(10);
    samples[541..].fill(5000);
    assert!(floor_growth(&samples) <= GROWTH_MAX);
    samples[540] = 1011;
    assert!(floor_growth(&samples) > GROWTH_MAX);
    samples[240..300].fill(1011);
    assert!(floor_growth(&samples) <= GROWTH_MAX);
}

#[test]
fn growth_is_measured_from_the_second_tenth_on() {
    let mut samples = vec![1000; SAMPLES];
    samples[..60].fill(10);
    assert!(growth(&samples) <= GROWTH_MAX);
    samples[599] = 1010;
    assert!(growth(&samples) <= GROWTH_MAX);
    samples[120] = 1011;
    assert!(growth(&samples) > GROWTH_MAX);
    // What was there in minute 2 may be there later.
    samples[119] = 1011;
    assert!(growth(&samples) <= GROWTH_MAX);
}
