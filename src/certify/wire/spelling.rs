//! Whether the records of tokens spell an answer's text. Records that leave tokens out can't be compared by their places.
//!
//! Decoders differ in white space, write halves of a character as U+FFFD, and show special tokens that the text leaves out:
//! none of this makes a record missing.

use std::collections::BTreeSet;

use super::answer::{Key, Token};

/// Most places in the text that are followed at once. A character in pieces makes a few.
const PLACES_MAX: usize = 64;

/// What records say of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// They spell it, and nothing is missing.
    Whole,
    /// They spell something else, which may be a decoder's way.
    Other,
    /// They spell not half of it, although each has a text.
    Short,
}

/// Compares the records with the text.
pub(super) fn of(tokens: &[Token], text: &str) -> Spelling {
    let wanted: Vec<char> = text.chars().filter(|c| is_visible(*c) && *c != '\u{fffd}').collect();
    if spells(&by_bytes(tokens), &wanted) || spells(&by_text(tokens), &wanted) {
        return Spelling::Whole;
    }
    let shown = by_text(tokens);
    let is_short = || shown.iter().map(|piece| piece.len()).sum::<usize>() * 2 < wanted.len();
    match shown.iter().all(|piece| !piece.is_empty()) && is_short() {
        true => Spelling::Short,
        false => Spelling::Other,
    }
}

/// Characters that decoders agree on.
fn is_visible(c: char) -> bool {
    // The last three stand for white space in vocabularies.
    !c.is_whitespace() && !matches!(c, '\u{2581}' | 'Ġ' | 'Ċ')
}

fn by_text(tokens: &[Token]) -> Vec<Vec<char>> {
    tokens.iter().map(|token| token.text.chars().filter(|c| is_visible(*c)).collect()).collect()
}

/// All bytes as one text, so that characters in pieces are whole again.
fn by_bytes(tokens: &[Token]) -> Vec<Vec<char>> {
    let mut bytes = Vec::new();
    for token in tokens {
        match &token.key {
            Key::Bytes(own) => bytes.extend_from_slice(own),
            _ => bytes.extend_from_slice(token.text.as_bytes()),
        }
    }
    vec![String::from_utf8_lossy(&bytes).chars().filter(|c| is_visible(*c)).collect()]
}

/// Whether the pieces, one after another, are the text or more. Follows every place that is possible so far.
fn spells(pieces: &[Vec<char>], text: &[char]) -> bool {
    let mut places = BTreeSet::from([0]);
    for piece in pieces {
        let mut after = places.clone();
        for c in piece {
            after = step(&after, *c, text);
        }
        match is_special(piece) {
            // A special token is in the text, or it is not.
            true => places.extend(after),
            false => places = after,
        }
        while places.len() > PLACES_MAX {
            places.pop_first();
        }
        if places.is_empty() {
            return false;
        }
    }
    places.contains(&text.len())
}

fn step(places: &BTreeSet<usize>, c: char, text: &[char]) -> BTreeSet<usize> {
    let mut after = BTreeSet::new();
    for &place in places.iter().rev().take(PLACES_MAX) {
        match text.get(place) {
            // What goes beyond the text was cut off it.
            None => drop(after.insert(place)),
            // A piece of a character: the whole one may belong to a neighbour.
            Some(_) if c == '\u{fffd}' => after.extend([place, place + 1]),
            Some(wanted) if *wanted == c => drop(after.insert(place + 1)),
            Some(_) => {}
        }
    }
    after
}

/// `</s>`, `<|im_end|>`, `[EOS]`.
fn is_special(piece: &[char]) -> bool {
    piece.len() > 2 && matches!((piece[0], piece[piece.len() - 1]), ('<', '>') | ('[', ']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelling(pieces: &[&str], text: &str) -> Spelling {
        let token = |text: &&str| Token {
            key: Key::Text((*text).into()),
            text: (*text).into(),
            logprob: None,
            top: std::collections::BTreeMap::new(),
            unreadable: 0,
        };
        of(&pieces.iter().map(token).collect::<Vec<_>>(), text)
    }

    #[test]
    fn white_space_special_tokens_and_pieces_of_characters_are_no_gap() {
        for (pieces, text) in [
            (&["a", " b", "c"][..], "a bc"),
            (&["▁a", "▁b"], "a b"),
            (&["a", "b"], "a b\n"),
            (&["a", "b", "</s>"], "ab"),
            (&["<|channel|>", "a", "[INST]", "b"], "ab"),
            (&["<b>", "x"], "<b>x"),
            (&["a", "\u{fffd}", "\u{fffd}", "b"], "aéb"),
            (&["\u{fffd}\u{fffd}", "\u{fffd}", "\u{fffd}b"], "🙂b"),
            (&["a", "\u{fffd}"], "a"),
            (&["a", "\u{fffd}"], "a\u{fffd}"),
            (&["a", "b", "STOP"], "ab"),
            (&["x"], ""),
        ] {
            assert_eq!(spelling(pieces, text), Spelling::Whole, "{pieces:?} {text:?}");
        }
    }

    #[test]
    fn a_token_that_is_left_out_is_a_gap() {
        for (pieces, text) in [
            (&["a", "c"][..], "abc"),
            (&["a", "b"], "abc"),
            (&["b", "c"], "abc"),
            (&["\u{fffd}", "c"], "abc"),
            (&["a", "</s>"], "ab"),
        ] {
            assert_ne!(spelling(pieces, text), Spelling::Whole, "{pieces:?} {text:?}");
        }
        assert_eq!(spelling(&["one"], "one two three"), Spelling::Short);
        assert_eq!(spelling(&["", ""], "one two"), Spelling::Other);
    }

    #[test]
    fn bytes_are_put_together_before_they_are_read() {
        let token = |bytes: &[u8]| Token {
            key: Key::Bytes(bytes.to_vec()),
            text: "?".into(),
            logprob: None,
            top: std::collections::BTreeMap::new(),
            unreadable: 0,
        };
        let whole = [token(b"a"), token(&[0xc3]), token(&[0xa9])];
        assert_eq!(of(&whole, "aé"), Spelling::Whole);
        assert_ne!(of(&whole[1..], "aé"), Spelling::Whole);
    }

    /// An answer of nothing but pieces takes no longer than its length.
    #[test]
    fn an_answer_of_pieces_alone_is_read_in_time() {
        let pieces = vec!["\u{fffd}\u{fffd}"; 50_000];
        assert_eq!(spelling(&pieces, &"é".repeat(50_000)), Spelling::Whole);
    }
}
