//! Detection power, measured: whole runs against a planted fault of known rate, and against none.

use std::collections::BTreeMap;

use serde::Serialize;

use super::certificate::{Arm, Certificate, Verdict};
use super::error::CertifyError;
use super::options::{Options, Progress, Silent, Target};
use super::proxy::Proxy;
use super::run::run;
use super::stats;

/// What came of many runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Share of a crowd's answers that the fault changes.
    pub rate: f64,
    /// Runs against the fault.
    pub faulty: u64,
    /// Of these, found broken.
    pub detections: u64,
    /// Of these, undecided.
    pub faulty_undecided: u64,
    /// Runs against the server as it is.
    pub clean: u64,
    /// Of these, found broken.
    pub false_alarms: u64,
    /// Of these, undecided.
    pub clean_undecided: u64,
    /// Why runs were undecided, and how many.
    pub undecided_because: BTreeMap<String, u64>,
    /// Fewest answers in crowds that a run against the fault compared.
    pub trials_min: u64,
    /// Probability of detection for so many independent answers.
    pub predicted: f64,
    /// 95 % interval of the detections' share.
    pub interval: [f64; 2],
    /// 95 % interval of the false alarms' share.
    pub false_alarm_interval: [f64; 2],
    /// Most seconds of a run.
    pub seconds_max: f64,
    /// Seconds of all runs.
    pub seconds: f64,
}

impl Measured {
    fn took(&mut self, certificate: &Certificate) {
        self.seconds += certificate.seconds;
        self.seconds_max = self.seconds_max.max(certificate.seconds);
        if certificate.verdict == Verdict::Undecided {
            *self.undecided_because.entry(certificate.reasons.join("; ")).or_default() += 1;
        }
    }
}

/// Tokens of an answer: a small model gives fewer before the next request of its crowd is there.
const TOKENS: u32 = 48;

/// Tokens of its prompts: short, since the fault that is planted does not depend on them.
const PROMPT_TOKENS: [u32; 8] = [17, 72, 33, 48, 24, 96, 15, 63];

/// The plan that power is measured with: small, and of the arms that *held* takes. 144 answers in crowds: of a fault of rate 0.1,
/// one in 3,000,000 runs sees none.
pub fn small(options: &Options) -> Options {
    Options {
        prompts: 8,
        prompt_tokens: PROMPT_TOKENS.to_vec(),
        repeats: 2,
        rounds: Some(3),
        concurrency: vec![4, 8],
        answer_tokens: TOKENS,
        arms: [Arm::First, Arm::Repeat].into_iter().chain(Arm::COMPANY).collect(),
        shrinks: false,
        ..options.clone()
    }
}

/// Judges the server behind a proxy that plants a fault, `faulty` times, and as it is, `clean` times. Each run has a seed of its
/// own.
pub fn measure(
    target: &Target,
    options: &Options,
    rate: f64,
    (faulty, clean): (u64, u64),
    progress: &dyn Progress,
) -> Result<Measured, CertifyError> {
    if !(rate > 0.0 && rate <= 1.0) {
        return Err(CertifyError::BadInput(format!("rate {rate}: expected above 0 and at most 1")));
    }
    let mut measured =
        Measured { rate, faulty, clean, trials_min: u64::MAX, ..Measured::default() };
    let all = faulty + clean;
    progress.stage("planted faults");
    for i in 0..faulty {
        let seed = options.seed.wrapping_add(i);
        let proxy = Proxy::start(&target.url, rate, seed, options.timeout)?;
        let target = Target { url: proxy.url(), ..target.clone() };
        let certificate = run(&target, &Options { seed, ..options.clone() }, &Silent)?;
        match certificate.verdict {
            Verdict::Broken => measured.detections += 1,
            Verdict::Undecided => measured.faulty_undecided += 1,
            Verdict::Held => {}
        }
        measured.trials_min = measured.trials_min.min(certificate.power.trials);
        measured.took(&certificate);
        progress.requests(i + 1, all);
    }
    progress.stage("clean runs");
    for i in 0..clean {
        let seed = options.seed.wrapping_add(faulty + i);
        let certificate = run(target, &Options { seed, ..options.clone() }, &Silent)?;
        match certificate.verdict {
            Verdict::Broken => measured.false_alarms += 1,
            Verdict::Undecided => measured.clean_undecided += 1,
            Verdict::Held => {}
        }
        measured.took(&certificate);
        progress.requests(faulty + i + 1, all);
    }
    if faulty == 0 {
        measured.trials_min = 0;
    }
    measured.predicted = stats::detection(rate, measured.trials_min);
    measured.interval = stats::interval(measured.detections, faulty);
    measured.false_alarm_interval = stats::interval(measured.false_alarms, clean);
    Ok(measured)
}
