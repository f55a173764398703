//! A certificate as one of several: what is compared of it, and what is said of it.

use serde::{Deserialize, Serialize};

use super::super::certificate::{Certificate, LevelClaim, Reference, Verdict};
use super::super::{samples, text};

/// Significant digits by which two servers' decimals may differ and still be written alike.
const DIGITS_APART_MAX: u32 = 2;

/// A certificate among others, in the document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Where the whole certificate is; absent if it was not kept, or if there is none.
    pub file: Option<String>,
    /// Address, without credentials.
    pub url: String,
    /// Model asked for; empty if it did not come to that.
    pub model: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// Why it is that, most important first.
    pub reasons: Vec<String>,
    /// The same in one line.
    pub claim: String,
    /// What it claims at each number of requests at once.
    pub levels: Vec<LevelClaim>,
    /// The group of certificates whose answers alone are equal to its own; absent if it could be compared with none.
    pub kind: Option<String>,
}

/// A certificate that is to be merged, or why there is none.
#[derive(Clone, Debug)]
pub struct Part {
    pub(super) member: Member,
    pub(super) answers: Vec<Reference>,
    /// What makes values comparable: how tokens are named, and digits of values.
    pub(super) written: Option<(String, u32)>,
    /// sha256 of the whole; none if there is no certificate.
    pub(super) digest: Option<String>,
}

impl Part {
    /// A certificate, and the file that it is in.
    pub fn of(certificate: &Certificate, file: Option<String>) -> Part {
        let json = serde_json::to_string(certificate).expect("a certificate serialises");
        let server = &certificate.server;
        let member = Member {
            file,
            url: server.url.clone(),
            model: server.model.clone(),
            verdict: certificate.verdict,
            reasons: certificate.reasons.clone(),
            claim: text::summary(certificate),
            levels: certificate.levels.clone(),
            kind: None,
        };
        let digits = server.resolution.map(|seen| seen.digits);
        Part {
            member,
            answers: certificate.answers.clone(),
            written: digits.map(|digits| (server.tokens_named_by.clone(), digits)),
            digest: Some(samples::sha256(json.as_bytes())),
        }
    }

    /// A life or an address that could not be judged.
    pub fn failed(url: String, why: String) -> Part {
        let member = Member {
            file: None,
            model: String::new(),
            verdict: Verdict::Undecided,
            claim: format!("could not decide: {url}: {why}"),
            reasons: vec![why],
            levels: Vec::new(),
            kind: None,
            url,
        };
        Part { member, answers: Vec::new(), written: None, digest: None }
    }

    /// Whether two servers write tokens and values in the same way. One server does, whatever its digits: if they change, its
    /// answers did.
    pub(super) fn writes_like(&self, other: &Part) -> bool {
        let (Some((named, digits)), Some((others_named, others_digits))) =
            (&self.written, &other.written)
        else {
            return false;
        };
        let is_one = self.member.url == other.member.url;
        named == others_named && (is_one || digits.abs_diff(*others_digits) <= DIGITS_APART_MAX)
    }
}
