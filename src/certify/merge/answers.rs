//! Answers alone, compared between certificates by their digests.
//!
//! A prompt is compared where two were asked the same and both repeat themselves on it: what does not repeat is no reference.
//! Equality need not carry over from pair to pair where different prompts were asked, so a group takes only who is equal to all of
//! it, and was compared with some of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::super::certificate::Reference;
use super::part::Part;

/// What was compared between the certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// Pairs of certificates.
    pub pairs: u64,
    /// Of these, pairs with a prompt at least that was compared.
    pub pairs_compared: u64,
    /// Different prompts that were compared.
    pub prompts: u64,
    /// Pairs of answers that were compared.
    pub answers: u64,
    /// Of these, pairs that differ.
    pub differing: u64,
    /// Of these, pairs compared by text alone: one lacks values, or the two servers write them differently.
    pub by_text: u64,
}

/// Certificates whose answers alone are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// `A` is the largest.
    pub name: String,
    /// Numbers of the certificates, from 1 on.
    pub members: Vec<u32>,
    /// From which earlier group its answers differ, and how often.
    pub otherwise: Option<Otherwise>,
}

/// How a group differs from an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Otherwise {
    /// Name of the earlier group.
    pub than: String,
    /// Prompts that are answered otherwise.
    pub differing: u64,
    /// Prompts compared.
    pub of: u64,
}

/// What two certificates have in common.
#[derive(Default)]
pub(super) struct Pair {
    /// Prompts that both were asked.
    pub(super) common: u64,
    /// Those that were compared, by number, and whether the answers differ.
    compared: Vec<(u32, bool)>,
    by_text: u64,
}

impl Pair {
    pub(super) fn is_compared(&self) -> bool {
        !self.compared.is_empty()
    }

    pub(super) fn differs(&self) -> bool {
        self.compared.iter().any(|(_, differs)| *differs)
    }
}

/// All pairs.
pub(super) struct Pairs(BTreeMap<(usize, usize), Pair>);

impl Pairs {
    /// Of all parts that have a certificate.
    pub(super) fn of(parts: &[Part]) -> Pairs {
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        let mut asked: Vec<BTreeMap<u32, &Reference>> = Vec::new();
        for part in parts {
            let mut number = |answer: &Reference| {
                let next = numbers.len() as u32;
                *numbers.entry(answer.prompt_sha256.clone()).or_insert(next)
            };
            asked.push(part.answers.iter().map(|answer| (number(answer), answer)).collect());
        }
        let mut pairs = BTreeMap::new();
        let judged = || (0..parts.len()).filter(|at| parts[*at].digest.is_some());
        for a in judged() {
            for b in judged().filter(|b| *b > a) {
                let writes_alike = parts[a].writes_like(&parts[b]);
                pairs.insert((a, b), pair(&asked[a], &asked[b], writes_alike));
            }
        }
        Pairs(pairs)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = ((usize, usize), &Pair)> {
        self.0.iter().map(|(at, pair)| (*at, pair))
    }

    fn get(&self, a: usize, b: usize) -> Option<&Pair> {
        self.0.get(&(a.min(b), a.max(b)))
    }

    pub(super) fn counts(&self) -> Compared {
        let all = || self.0.values();
        let answers = || all().flat_map(|pair| &pair.compared);
        let prompts: BTreeSet<u32> = answers().map(|(number, _)| *number).collect();
        Compared {
            pairs: self.0.len() as u64,
            pairs_compared: all().filter(|pair| pair.is_compared()).count() as u64,
            prompts: prompts.len() as u64,
            answers: answers().count() as u64,
            differing: answers().filter(|(_, differs)| *differs).count() as u64,
            by_text: all().map(|pair| pair.by_text).sum(),
        }
    }

    /// The groups, the largest first.
    pub(super) fn groups(&self, count: usize) -> Vec<Group> {
        let mut sets: Vec<Vec<usize>> = Vec::new();
        for at in 0..count {
            let belongs = |set: &&mut Vec<usize>| {
                let pairs = || set.iter().filter_map(|other| self.get(at, *other));
                pairs().any(Pair::is_compared) && !pairs().any(Pair::differs)
            };
            match sets.iter_mut().find(belongs) {
                Some(set) => set.push(at),
                None => sets.push(vec![at]),
            }
        }
        // Who was compared with nobody is in no group.
        let is_known =
            |at: usize| (0..count).filter_map(|other| self.get(at, other)).any(Pair::is_compared);
        sets.retain(|set| is_known(set[0]));
        sets.sort_by_key(|set| (usize::MAX - set.len(), set[0]));
        let otherwise = |at: usize| {
            (0..at).find_map(|earlier| {
                let (differing, of) = self.between(&sets[at], &sets[earlier]);
                (differing > 0).then(|| Otherwise { than: name(earlier), differing, of })
            })
        };
        let group = |(at, set): (usize, &Vec<usize>)| Group {
            name: name(at),
            members: set.iter().map(|member| *member as u32 + 1).collect(),
            otherwise: otherwise(at),
        };
        sets.iter().enumerate().map(group).collect()
    }

    /// Prompts answered otherwise by some of one set than by some of another, and prompts compared.
    fn between(&self, a: &[usize], b: &[usize]) -> (u64, u64) {
        let (mut differing, mut of) = (BTreeSet::new(), BTreeSet::new());
        let pairs = a.iter().flat_map(|a| b.iter().filter_map(|b| self.get(*a, *b)));
        for (number, differs) in pairs.flat_map(|pair| &pair.compared) {
            of.insert(number);
            if *differs {
                differing.insert(number);
            }
        }
        (differing.len() as u64, of.len() as u64)
    }
}

fn pair(a: &BTreeMap<u32, &Reference>, b: &BTreeMap<u32, &Reference>, writes_alike: bool) -> Pair {
    let mut pair = Pair::default();
    for (number, one) in a {
        let Some(other) = b.get(number) else { continue };
        pair.common += 1;
        if !(one.repeatable && other.repeatable) {
            continue;
        }
        let mut differs = one.text_sha256 != other.text_sha256;
        match (&one.values_sha256, &other.values_sha256) {
            (Some(one), Some(other)) if writes_alike => differs |= one != other,
            _ => pair.by_text += 1,
        }
        pair.compared.push((*number, differs));
    }
    pair
}

/// A to Z, then AA and so on.
fn name(at: usize) -> String {
    let letter = char::from(b'A' + (at % 26) as u8);
    match at / 26 {
        0 => letter.to_string(),
        more => format!("{}{letter}", name(more - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn groups_are_named_as_columns_of_a_sheet() {
        assert_eq!([0, 25, 26, 53].map(name), ["A", "Z", "AA", "BB"]);
    }
}
