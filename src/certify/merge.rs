//! Several certificates as one statement: of lives of a server, or of addresses.
//!
//! Some faults live in one life of a server in three: each life by itself is at peace with itself. So lives are counted, and their
//! answers alone to the same prompts are compared. Held takes that all are held and that each pair was compared.

pub(crate) mod asked;

mod answers;
mod lives;
mod part;
#[cfg(test)]
mod tests;
mod text;

use serde::{Deserialize, Serialize};

use super::certificate::Verdict;
use super::error::CertifyError;
use super::stats;
use crate::env::Tool;
use crate::schema::Schema;

pub use answers::{Compared, Group, Otherwise};
pub use lives::{Judged, LIVES_MAX, is_up, lives};
pub use part::{Member, Part};
pub use text::{report, summary};

use answers::{Pair, Pairs};

/// Schema of the document.
pub const MERGED_SCHEMA: Schema = Schema { name: "lockstep.certificates", major: 1, minor: 0 };
/// Most certificates.
pub const PARTS_MAX: usize = 128;
/// Most certificates that a reason is given for, one by one.
const NAMED_MAX: usize = 4;

/// The whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Merged {
    /// [`MERGED_SCHEMA`].
    pub schema: String,
    /// The verdict of all together.
    pub verdict: Verdict,
    /// Why it is that, most important first.
    pub reasons: Vec<String>,
    /// What the members are to each other.
    pub between: Between,
    /// How many members have which verdict.
    pub counts: Counts,
    /// What was compared between them.
    pub compared: Compared,
    /// Members whose answers alone are equal, the largest group first.
    pub groups: Vec<Group>,
    /// Each certificate, in the order in which they were given.
    pub members: Vec<Member>,
    /// The certifier.
    pub tool: Tool,
}

/// What certificates are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Between {
    /// All of one server: its lives, one after the other, or launches with other settings.
    Lives,
    /// Each of another address.
    Addresses,
    /// Some of one address, some of another.
    Both,
}

/// Members by verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// All.
    pub of: u64,
    /// Broken.
    pub broken: u64,
    /// Held.
    pub held: u64,
    /// Undecided.
    pub undecided: u64,
    /// 95 % interval of the share that is broken, after Clopper and Pearson, among those that are decided.
    pub interval: [f64; 2],
}

/// Merges certificates of one server, or of several.
pub fn merge(parts: Vec<Part>) -> Result<Merged, CertifyError> {
    let of = |n: usize| parts.iter().filter(|part| part.member.url == parts[n].member.url).count();
    let alike: Vec<usize> = (0..parts.len()).map(of).collect();
    let between = match (alike.iter().all(|n| *n == parts.len()), alike.iter().all(|n| *n == 1)) {
        (true, _) => Between::Lives,
        (_, true) => Between::Addresses,
        _ => Between::Both,
    };
    merge_as(between, parts)
}

/// Merges certificates that are known to be this to each other.
pub fn merge_as(between: Between, parts: Vec<Part>) -> Result<Merged, CertifyError> {
    let n = parts.len();
    if !(2..=PARTS_MAX).contains(&n) {
        let why = format!("{n} certificates: expected 2 to {PARTS_MAX}");
        return Err(CertifyError::BadInput(why));
    }
    refuse_twins(&parts)?;
    let pairs = Pairs::of(&parts);
    let groups = pairs.groups(n);
    let compared = pairs.counts();
    let mut members: Vec<Member> = parts.into_iter().map(|part| part.member).collect();
    for group in &groups {
        for number in &group.members {
            members[*number as usize - 1].kind = Some(group.name.clone());
        }
    }
    let (verdict, reasons) =
        Whole { between, members: &members, pairs: &pairs, groups: &groups }.decide();
    Ok(Merged {
        schema: MERGED_SCHEMA.to_string(),
        verdict,
        reasons,
        between,
        counts: counts(&members),
        compared,
        groups,
        members,
        tool: Tool::current(),
    })
}

/// One certificate given twice would count twice, and agree with itself.
fn refuse_twins(parts: &[Part]) -> Result<(), CertifyError> {
    let file = |part: &Part| part.member.file.clone().unwrap_or_else(|| part.member.url.clone());
    for (at, part) in parts.iter().enumerate() {
        let is_twin = |other: &&Part| part.digest.is_some() && part.digest == other.digest;
        if let Some(twin) = parts[..at].iter().find(is_twin) {
            let (a, b) = (file(twin), file(part));
            let why = format!("{a} and {b} are the same certificate: each counts once");
            return Err(CertifyError::BadInput(why));
        }
    }
    Ok(())
}

fn counts(members: &[Member]) -> Counts {
    let of = |verdict| members.iter().filter(|member| member.verdict == verdict).count() as u64;
    let (broken, held) = (of(Verdict::Broken), of(Verdict::Held));
    Counts {
        of: members.len() as u64,
        broken,
        held,
        undecided: of(Verdict::Undecided),
        interval: stats::interval(broken, broken + held),
    }
}

/// All that the verdict is made from.
struct Whole<'a> {
    between: Between,
    members: &'a [Member],
    pairs: &'a Pairs,
    groups: &'a [Group],
}

impl Whole<'_> {
    fn decide(&self) -> (Verdict, Vec<String>) {
        let mut reasons = self.each(Verdict::Broken, "is broken");
        reasons.extend(self.differing());
        let is_broken = !reasons.is_empty();
        reasons.extend(self.each(Verdict::Undecided, "is undecided"));
        reasons.extend(self.not_compared());
        if is_broken {
            return (Verdict::Broken, reasons);
        }
        if !reasons.is_empty() {
            return (Verdict::Undecided, reasons);
        }
        let Compared { prompts, by_text, answers, .. } = self.pairs.counts();
        let by_text = match by_text {
            0 => String::new(),
            n => format!(", {n} of {answers} comparisons by text alone"),
        };
        let all = self.between.words().1;
        let n = self.members.len();
        let all = format!("answers alone to {prompts} prompts are equal in all {n} {all}{by_text}");
        (Verdict::Held, vec![all])
    }

    /// A line for each of this verdict, with its own first reason.
    fn each(&self, verdict: Verdict, words: &str) -> Vec<String> {
        let of = || self.members.iter().enumerate().filter(|(_, m)| m.verdict == verdict);
        let line = |(at, member): (usize, &Member)| {
            let why = member.reasons.first().map_or("no reason given", String::as_str);
            format!("{} {words}: {why}", self.named(&[at as u32 + 1]))
        };
        let mut lines: Vec<String> = of().take(NAMED_MAX).map(line).collect();
        let more = of().count() - lines.len();
        if more > 0 {
            lines.push(format!("so it is with {more} more"));
        }
        lines
    }

    /// Whose answers alone differ from whose.
    fn differing(&self) -> Vec<String> {
        let Some(what) = self.differ_between() else { return Vec::new() };
        let of = || self.groups.iter().filter(|group| group.otherwise.is_some());
        let mut lines: Vec<String> =
            of().take(NAMED_MAX).map(|group| self.otherwise(group)).collect();
        if let Some(first) = lines.first_mut() {
            *first = format!("answers alone to the same prompts differ between {what}: {first}");
        }
        let more = of().count() - lines.len();
        if more > 0 {
            lines.push(format!("so it is with {more} more groups"));
        }
        lines
    }

    /// Between what answers differ, if they do.
    fn differ_between(&self) -> Option<&'static str> {
        let differing = || self.pairs.iter().filter(|(_, pair)| pair.differs());
        let is_one = |(a, b): (usize, usize)| {
            self.between == Between::Lives || self.members[a].url == self.members[b].url
        };
        let lives = differing().any(|(at, _)| is_one(at));
        let addresses = differing().any(|(at, _)| !is_one(at));
        match (lives, addresses) {
            (true, true) => Some("lives and addresses"),
            (true, false) => Some("lives"),
            (false, true) => Some("addresses"),
            (false, false) => None,
        }
    }

    /// How a group answers otherwise.
    fn otherwise(&self, group: &Group) -> String {
        let Some(Otherwise { than, differing, of }) = &group.otherwise else {
            return String::new();
        };
        let than = self.groups.iter().find(|group| group.name == *than);
        let verb = if group.members.len() == 1 { "answers" } else { "answer" };
        format!(
            "{} {verb} {differing} of {of} prompts otherwise than {}",
            self.named(&group.members),
            self.between.listed(than.map_or(&[][..], |group| &group.members))
        )
    }

    /// Pairs that were not compared, and what to do about it.
    fn not_compared(&self) -> Vec<String> {
        let of = |is_asked: bool, why: &str, advice: &str| {
            let is_it = |pair: &Pair| !pair.is_compared() && (pair.common > 0) == is_asked;
            let all: Vec<_> = self.pairs.iter().filter(|(_, pair)| is_it(pair)).collect();
            let ((a, b), _) = all.first()?;
            let first = self.between.listed(&[*a as u32 + 1, *b as u32 + 1]);
            let which = match all.len() {
                1 => first,
                n => format!("{n} of {} pairs, {first} first", self.pairs.iter().count()),
            };
            Some(format!("{why} in {which}: {advice}"))
        };
        let nothing = of(false, "no prompt in common", "run them with the same --seed and --nonce");
        let unrepeated = of(
            true,
            "answers alone to the prompts in common do not repeat themselves",
            "there is no reference",
        );
        nothing.into_iter().chain(unrepeated).collect()
    }

    /// Some members, and of how many.
    fn named(&self, numbers: &[u32]) -> String {
        format!("{} of {}", self.between.listed(numbers), self.members.len())
    }
}

impl Between {
    /// One of them and many.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Between::Lives => ("life", "lives"),
            Between::Addresses => ("address", "addresses"),
            Between::Both => ("certificate", "certificates"),
        }
    }

    /// `life 2`, `lives 1 and 3`, `lives 1, 2 and 4`.
    fn listed(self, numbers: &[u32]) -> String {
        let (one, many) = self.words();
        let shown: Vec<String> = numbers.iter().map(u32::to_string).collect();
        match shown.as_slice() {
            [] => many.to_owned(),
            [only] => format!("{one} {only}"),
            [some @ .., last] => format!("{many} {} and {last}", some.join(", ")),
        }
    }
}
