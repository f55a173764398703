//! How the repeats of one request fall into kinds, in the order in which they were made.

use serde::{Deserialize, Serialize};

/// A sequence of kinds, as letters, and what it looks like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// One letter a repeat: equal letters are equal answers.
    pub kinds: String,
    /// What that is typical of.
    pub shape: Shape,
}

/// What a sequence of kinds is typical of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A,A,A,A.
    Equal,
    /// A,B,B,B: cold against warm, or a warm-up.
    FirstDiffers,
    /// A,A,B,B: something was kept, or replaced, on the way: a cache, or a server that changed.
    Switches,
    /// Anything else: not repeatable; chance, or several replicas behind one address.
    Mixed,
}

impl Shape {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Shape::Equal => "all equal",
            Shape::FirstDiffers => {
                "the first differs from all later ones: cold against warm, or a warm-up"
            }
            Shape::Switches => "changes once and stays: a cache, or a server that changed",
            Shape::Mixed => "mixed: not repeatable, or several replicas behind one address",
        }
    }
}

impl Pattern {
    /// Of `n` repeats, given which two are equal. An answer is of the first kind all of whose members it equals.
    pub fn of(n: usize, equal: impl Fn(usize, usize) -> bool) -> Pattern {
        let mut kinds: Vec<Vec<usize>> = Vec::new();
        let mut of = Vec::with_capacity(n);
        for i in 0..n {
            let kind = kinds.iter().position(|members| members.iter().all(|&m| equal(m, i)));
            let kind = kind.unwrap_or_else(|| {
                kinds.push(Vec::new());
                kinds.len() - 1
            });
            kinds[kind].push(i);
            of.push(kind);
        }
        let changes = of.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let shape = match changes {
            0 => Shape::Equal,
            1 if n > 2 && of[0] != of[1] => Shape::FirstDiffers,
            1 if n > 2 => Shape::Switches,
            _ => Shape::Mixed,
        };
        let letter = |kind: &usize| char::from(b'A' + (*kind).min(25) as u8);
        Pattern { kinds: of.iter().map(letter).collect(), shape }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(answers: &str) -> (String, Shape) {
        let answers = answers.as_bytes();
        let pattern = Pattern::of(answers.len(), |a, b| answers[a] == answers[b]);
        (pattern.kinds, pattern.shape)
    }

    #[test]
    fn patterns_are_told_apart() {
        assert_eq!(of("xxxx"), ("AAAA".into(), Shape::Equal));
        assert_eq!(of("xyyy"), ("ABBB".into(), Shape::FirstDiffers));
        assert_eq!(of("xxyy"), ("AABB".into(), Shape::Switches));
        assert_eq!(of("xyxy"), ("ABAB".into(), Shape::Mixed));
        assert_eq!(of("xyzw"), ("ABCD".into(), Shape::Mixed));
        assert_eq!(of("xy"), ("AB".into(), Shape::Mixed));
    }
}
