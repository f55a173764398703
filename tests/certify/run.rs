//! Runs of the certifier with small plans, and words for what came of them.

use std::time::Duration;

use lockstep::certify::certificate::ArmRecord;
use lockstep::certify::{
    self, Arm, Certificate, CertifyError, Options, Silent, Target, Verdict, text,
};

use crate::server::{Faults, Server};

/// A server and what the certifier said of it.
pub(crate) struct Run {
    pub(crate) server: Server,
    pub(crate) certificate: Certificate,
}

/// Arms that need nothing but crowds.
pub(crate) const CROWDS: [Arm; 3] = Arm::COMPANY;

/// A plan of about a second.
pub(crate) fn small(arms: &[Arm]) -> Options {
    Options {
        concurrency: vec![4, 8],
        prompts: 4,
        prompt_tokens: vec![17, 130, 64, 300],
        answer_tokens: 16,
        arms: arms.to_vec(),
        timeout: Duration::from_secs(10),
        time_max: Duration::from_secs(30),
        // So small a plan has few answers; that *held* takes more has a test of its own.
        answers_min: 1,
        rounds: Some(1),
        ..Options::default()
    }
}

pub(crate) fn target(server: &Server) -> Target {
    Target { url: format!("{}/v1", server.url()), ..Target::default() }
}

/// Certifies a server, and keeps it running so that it can be asked what it saw.
pub(crate) fn with(faults: Faults, options: &Options) -> Run {
    let server = Server::start(faults);
    let certificate = certify::run(&target(&server), options, &Silent).expect("a certificate");
    Run { server, certificate }
}

/// The same, where what is found is not made smaller: that takes more requests than all the rest, and has trials of its own.
pub(crate) fn quick(arms: &[Arm]) -> Options {
    Options { shrinks: false, ..small(arms) }
}

pub(crate) fn run(faults: Faults, arms: &[Arm]) -> Run {
    with(faults, &quick(arms))
}

/// Every arm.
pub(crate) fn all(faults: Faults) -> Run {
    run(faults, &Arm::ALL)
}

/// The same of a server that is addressed in another way than by its address alone.
pub(crate) fn to(faults: Faults, options: &Options, address: impl Fn(Target) -> Target) -> Run {
    let server = Server::start(faults);
    let target = address(target(&server));
    let certificate = certify::run(&target, options, &Silent).expect("a certificate");
    Run { server, certificate }
}

/// What a run says where it may also say that there is nothing to certify.
pub(crate) fn attempt(server: &Server, options: &Options) -> Result<Certificate, CertifyError> {
    certify::run(&target(server), options, &Silent)
}

impl Run {
    pub(crate) fn arm(&self, arm: Arm) -> &ArmRecord {
        self.certificate.arm(arm).unwrap_or_else(|| panic!("no record of {arm}"))
    }

    /// What is claimed of crowds of this size.
    pub(crate) fn level(&self, sent: u32) -> Verdict {
        let level = self.certificate.levels.iter().find(|level| level.sent == sent);
        level.unwrap_or_else(|| panic!("no crowds of {sent}")).verdict
    }

    /// All that is said of the run, in lower case, however its lines are cut.
    pub(crate) fn said(&self) -> String {
        let said = text::report(&self.certificate).to_lowercase();
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Fails with all that is said.
    #[track_caller]
    pub(crate) fn expect(&self, verdict: Verdict) -> &Self {
        assert_eq!(self.certificate.verdict, verdict, "{}", text::report(&self.certificate));
        self
    }

    #[track_caller]
    pub(crate) fn expect_not(&self, verdict: Verdict) -> &Self {
        assert_ne!(self.certificate.verdict, verdict, "{}", text::report(&self.certificate));
        self
    }

    #[track_caller]
    pub(crate) fn expect_arm(&self, arm: Arm, verdict: Verdict) -> &Self {
        let said = text::report(&self.certificate);
        assert_eq!(self.arm(arm).verdict, verdict, "{arm}: {said}");
        self
    }

    /// Fails unless one of the words is said.
    #[track_caller]
    pub(crate) fn expect_said(&self, words: &[&str]) -> &Self {
        let said = self.said();
        assert!(words.iter().any(|word| said.contains(word)), "none of {words:?} in:\n{said}");
        self
    }
}
