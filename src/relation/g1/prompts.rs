//! The prompts of the golden set: lengths on both sides of each boundary of a subject, contents from a fixed seed.

use std::collections::BTreeMap;

use crate::contract::philox::{key_of, philox4x32_10};
use crate::subject::Edges;

/// Fewest prompts of a set.
pub const PROMPTS_MIN: usize = 32;
/// Multiples of a tile and of a block at which prompts stand.
const MULTIPLES: u32 = 3;
/// Key of the contents.
const SEED: u64 = 0x601d;

/// A prompt of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// The boundaries that its length stands at, without spaces: `split-1,tile*2-1`.
    pub place: String,
}

/// The prompts for a subject with these edges and blocks: at least [`PROMPTS_MIN`], by length, of at most `splits` attention
/// splits and a token.
///
/// Every second one begins as one common text does, so that a prefix cache serves it.
pub fn prompts(edges: &Edges, block_size: u32, splits: u32) -> Vec<Prompt> {
    let kinds = [("split", edges.split, splits), ("tile", edges.tile, MULTIPLES)];
    let mut places: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut stand = |name: String, at: u32| {
        for (length, side) in [(at.saturating_sub(1), "-1"), (at, ""), (at + 1, "+1")] {
            if length > 0 {
                places.entry(length).or_default().push(format!("{name}{side}"));
            }
        }
    };
    for (kind, size, most) in kinds.into_iter().chain([("block", block_size, MULTIPLES)]) {
        stand(kind.into(), size);
        (2..=most).for_each(|n| stand(format!("{kind}*{n}"), n * size));
    }
    // A prompt alone is one step of as many rows.
    edges.rows.iter().for_each(|rows| stand("rows".into(), *rows));
    let mut set: Vec<(u32, String)> =
        places.into_iter().map(|(length, names)| (length, names.join(","))).collect();
    let distinct = set.len();
    for index in 0..PROMPTS_MIN.saturating_sub(distinct) {
        set.push(set[index % distinct].clone());
    }
    set.sort();
    let prompt = |(index, (length, place)): (usize, (u32, String))| {
        let own = index as u32 + 1;
        let common = if index % 2 == 0 { length - 1 } else { 0 };
        let token = |i| token(if i < common { 0 } else { own }, i, edges.vocab);
        Prompt { tokens: (0..length).map(token).collect(), place }
    };
    set.into_iter().enumerate().map(prompt).collect()
}

/// Token `index` of text `text`.
fn token(text: u32, index: u32, vocab: u32) -> u32 {
    philox4x32_10([index, text, 0, 0], key_of(SEED))[0] % vocab
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_stand_on_both_sides_of_each_boundary() {
        let edges =
            Edges { rows: vec![2, 5, 9, 17], tile: 16, split: 32, vocab: 264, positions_max: 512 };
        let all = prompts(&edges, 4, 4);
        assert!(all.len() >= PROMPTS_MIN);
        let boundaries = [2, 4, 5, 8, 9, 12, 16, 17, 32, 48, 64, 96, 128];
        for length in boundaries.into_iter().flat_map(|b| [b - 1, b, b + 1]) {
            assert!(all.iter().any(|p| p.tokens.len() == length), "{length}");
        }
        let split = all.iter().find(|p| p.tokens.len() == 33).unwrap();
        assert_eq!(split.place, "split+1,tile*2+1");
        assert!(all.iter().all(|p| p.tokens.iter().all(|t| *t < 264)));
        // Longer ones of every second prompt share the text's beginning, and no two are equal.
        let stem: Vec<_> = all.iter().step_by(2).filter(|p| p.tokens.len() > 8).collect();
        assert!(stem.windows(2).all(|w| w[0].tokens[..8] == w[1].tokens[..8]));
        assert!(all.windows(2).all(|w| w[0].tokens != w[1].tokens));
        // Few boundaries: the set is filled up with other contents.
        let few = prompts(&Edges { rows: vec![2], tile: 4, split: 4, ..edges }, 4, 1);
        assert_eq!(few.len(), PROMPTS_MIN);
        let mut contents: Vec<_> = few.iter().map(|p| &p.tokens).collect();
        contents.sort();
        contents.dedup();
        assert_eq!(contents.len(), few.len());
    }
}
