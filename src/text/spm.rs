//! A SentencePiece BPE vocabulary with byte fallback, from GGUF metadata: ids as llama.cpp makes them.
//!
//! A text is cut at the specials that are written out in it. What is between two is escaped (a space becomes `▁`) and merged:
//! of all neighbours that make a token together, those with the best score first, the leftmost of equals. A character that is no
//! token is spelt in bytes. Decoding is the tokens' text, one after the other: a space that was put before a text stays there,
//! so that what continues a text can be appended to it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::TextError;
use crate::weights::quoted;

/// Types of tokens in the format.
const NORMAL: u64 = 1;
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;
const BYTE: u64 = 6;

/// What a space is in the vocabulary.
const SPACE: &str = "\u{2581}";

/// The lists of a vocabulary, as they stand in the metadata.
pub(super) struct Lists<'a> {
    pub(super) tokens: Vec<&'a str>,
    pub(super) scores: Vec<f64>,
    pub(super) types: Vec<u64>,
    /// What a byte without a token becomes.
    pub(super) unknown: u32,
    /// Whether a text begins with a space of its own.
    pub(super) add_space: bool,
}

pub(super) struct Spm {
    /// Bytes of each id.
    bytes: Vec<Vec<u8>>,
    scores: Vec<f64>,
    ids: BTreeMap<String, u32>,
    /// Id of each byte.
    of_bytes: Vec<u32>,
    specials: Specials,
    add_space: bool,
    /// Longest token, in bytes.
    token_bytes_max: usize,
}

/// Tokens that a text may spell out.
struct Specials {
    ids: BTreeMap<String, u32>,
    /// Their lengths, the longest first.
    lengths: Vec<usize>,
    /// First bytes.
    first: BTreeSet<u8>,
}

impl Spm {
    pub(super) fn new(lists: Lists<'_>, file: &str) -> Result<Spm, TextError> {
        let damaged = |what: String| TextError::Format { file: file.to_owned(), what };
        let Lists { tokens, scores, types, unknown, add_space } = lists;
        for (what, found) in [("scores", scores.len()), ("types", types.len())] {
            if found != tokens.len() {
                return Err(damaged(format!("{found} {what} of {} tokens", tokens.len())));
            }
        }
        if let Some(at) = scores.iter().position(|score| !score.is_finite()) {
            return Err(damaged(format!("the score of {} is not finite", quoted(tokens[at]))));
        }
        if unknown as usize >= tokens.len() {
            return Err(damaged(format!("unknown id {unknown} of {} tokens", tokens.len())));
        }
        let mut spm = Spm {
            bytes: Vec::with_capacity(tokens.len()),
            scores,
            ids: BTreeMap::new(),
            of_bytes: vec![unknown; 256],
            specials: Specials::default(),
            add_space,
            token_bytes_max: tokens.iter().map(|token| token.len()).max().unwrap_or(0),
        };
        for (id, (&token, kind)) in tokens.iter().zip(types).enumerate() {
            let id = id as u32;
            if spm.ids.insert(token.to_owned(), id).is_some() {
                return Err(damaged("a token is listed twice".to_owned()));
            }
            let bytes = match kind {
                NORMAL => token.replace(SPACE, " ").into_bytes(),
                UNKNOWN | CONTROL | USER_DEFINED => {
                    spm.specials.add(token, id);
                    token.as_bytes().to_vec()
                }
                UNUSED => Vec::new(),
                BYTE => {
                    let byte = byte(token);
                    let byte = byte.ok_or_else(|| damaged(format!("byte {}", quoted(token))))?;
                    spm.of_bytes[usize::from(byte)] = id;
                    vec![byte]
                }
                other => return Err(damaged(format!("type {other} of {}", quoted(token)))),
            };
            spm.bytes.push(bytes);
        }
        Ok(spm)
    }

    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut rest = text;
        loop {
            let (before, special) = self.specials.next(rest);
            if !before.is_empty() {
                // A special is followed by a beginning.
                let space = if self.add_space { SPACE } else { "" };
                self.merge(&format!("{space}{}", before.replace(' ', SPACE)), &mut ids);
            }
            let Some((id, length)) = special else { return ids };
            ids.push(id);
            rest = &rest[before.len() + length..];
        }
    }

    /// Bytes of an id; none outside of the vocabulary.
    pub(super) fn bytes(&self, id: u32) -> Vec<u8> {
        self.bytes.get(id as usize).cloned().unwrap_or_default()
    }

    pub(super) fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.bytes(id)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Ids of an escaped text without specials.
    fn merge(&self, text: &str, ids: &mut Vec<u32>) {
        let mut pieces: Vec<Piece> = text
            .char_indices()
            .map(|(at, c)| Piece { start: at, end: at + c.len_utf8(), before: None, after: None })
            .collect();
        for i in 1..pieces.len() {
            (pieces[i].before, pieces[i - 1].after) = (Some(i - 1), Some(i));
        }
        let mut pairs = BinaryHeap::new();
        for i in 1..pieces.len() {
            pairs.extend(self.pair(text, &pieces, i - 1, i));
        }
        while let Some(pair) = pairs.pop() {
            let Pair { left, right, start, end, .. } = pair;
            // One of the two may have grown, or been taken in by another, since.
            if pieces[left].start != start
                || pieces[right].end != end
                || pieces[left].after != Some(right)
            {
                continue;
            }
            let after = pieces[right].after;
            (pieces[left].end, pieces[left].after) = (end, after);
            (pieces[right].before, pieces[right].after) = (None, None);
            if let Some(after) = after {
                pieces[after].before = Some(left);
                pairs.extend(self.pair(text, &pieces, left, after));
            }
            if let Some(before) = pieces[left].before {
                pairs.extend(self.pair(text, &pieces, before, left));
            }
        }
        let mut next = (!pieces.is_empty()).then_some(0);
        while let Some(at) = next {
            let piece = &text[pieces[at].start..pieces[at].end];
            match self.ids.get(piece) {
                Some(&id) => ids.push(id),
                None => ids.extend(piece.bytes().map(|byte| self.of_bytes[usize::from(byte)])),
            }
            next = pieces[at].after;
        }
    }

    /// Two neighbours, if they make a token.
    fn pair(&self, text: &str, pieces: &[Piece], left: usize, right: usize) -> Option<Pair> {
        let (start, end) = (pieces[left].start, pieces[right].end);
        if end - start > self.token_bytes_max {
            return None;
        }
        let &id = self.ids.get(&text[start..end])?;
        Some(Pair { score: self.scores[id as usize], left, right, start, end })
    }
}

/// A run of characters that are one so far.
struct Piece {
    start: usize,
    end: usize,
    before: Option<usize>,
    after: Option<usize>,
}

/// Two pieces that could be one.
struct Pair {
    score: f64,
    left: usize,
    right: usize,
    /// Their bytes when they were found.
    start: usize,
    end: usize,
}

impl Ord for Pair {
    /// The best score is the greatest, of equals the leftmost.
    fn cmp(&self, other: &Pair) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Pair) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Pair) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

impl Specials {
    fn default() -> Specials {
        Specials { ids: BTreeMap::new(), lengths: Vec::new(), first: BTreeSet::new() }
    }

    fn add(&mut self, token: &str, id: u32) {
        let Some(&first) = token.as_bytes().first() else { return };
        self.first.insert(first);
        self.ids.insert(token.to_owned(), id);
        if let Err(at) = self.lengths.binary_search_by(|length| token.len().cmp(length)) {
            self.lengths.insert(at, token.len());
        }
    }

    /// The text before the first special, and that one with its length: the longest of those that begin there.
    fn next<'t>(&self, text: &'t str) -> (&'t str, Option<(u32, usize)>) {
        for (at, byte) in text.bytes().enumerate() {
            if !self.first.contains(&byte) {
                continue;
            }
            let here = |&length: &usize| {
                let written = text.get(at..at.checked_add(length)?)?;
                self.ids.get(written).map(|&id| (id, length))
            };
            if let Some(found) = self.lengths.iter().find_map(here) {
                return (&text[..at], Some(found));
            }
        }
        (text, None)
    }
}

/// The byte that a token such as `<0x0A>` stands for.
fn byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vocabulary of letters and some pairs, with bytes; scores as given.
    fn spm(extra: &[(&'static str, f64, u64)], add_space: bool) -> Spm {
        let bytes: Vec<String> = (0..=255).map(|b| format!("<0x{b:02X}>")).collect();
        let mut tokens = vec!["<unk>", "<s>"];
        let (mut scores, mut types) = (vec![0.0; 258], vec![UNKNOWN, CONTROL]);
        tokens.extend(bytes.iter().map(String::as_str));
        types.extend([BYTE; 256]);
        for &(token, score, kind) in extra {
            tokens.push(token);
            scores.push(score);
            types.push(kind);
        }
        let lists = Lists { tokens, scores, types, unknown: 0, add_space };
        Spm::new(lists, "x.gguf").expect("a vocabulary")
    }

    const LETTERS: [(&str, f64, u64); 6] = [
        ("a", -10.0, NORMAL), // 258
        ("b", -11.0, NORMAL),
        ("\u{2581}", -12.0, NORMAL), // 260
        ("ab", -1.0, NORMAL),
        ("ba", -2.0, NORMAL), // 262
        ("\u{2581}a", -3.0, NORMAL),
    ];

    #[test]
    fn the_best_score_is_merged_first_and_of_equals_the_leftmost() {
        // "bab": "ab" (-1) goes before "ba" (-2).
        assert_eq!(spm(&LETTERS, false).encode("bab"), [259, 261]);
        let mut equal = LETTERS;
        equal[4].1 = -1.0;
        assert_eq!(spm(&equal, false).encode("bab"), [262, 259]);
    }

    #[test]
    fn what_is_no_token_is_spelt_in_bytes() {
        assert_eq!(spm(&LETTERS, false).encode("aé\n"), [258, 2 + 0xc3, 2 + 0xa9, 2 + 10]);
    }

    #[test]
    fn a_space_is_put_before_a_text_and_behind_a_special_where_the_vocabulary_wants_it() {
        assert_eq!(spm(&LETTERS, true).encode("a<s>a"), [263, 1, 263]);
        assert_eq!(spm(&LETTERS, false).encode("a<s>a"), [258, 1, 258]);
        assert_eq!(spm(&LETTERS, true).encode(""), [0u32; 0]);
        assert_eq!(spm(&LETTERS, true).encode("<s><s"), [1, 260, 2 + 60, 2 + 115]);
    }

    #[test]
    fn decoding_is_the_tokens_text_and_bytes() {
        let spm = spm(&[LETTERS[0], LETTERS[2], ("c", 0.0, UNUSED)], true);
        assert_eq!(spm.decode(&spm.encode("a é<s>")), " a é<s>");
        assert_eq!(spm.decode(&[258, 260, 9999, 2 + 0xc3]), "a\u{fffd}");
    }
}
