//! Text of an output as it grows: what may be shown already.
//!
//! Two things are held back: bytes that may be the beginning of a character, and text that may be the beginning of a
//! stop string. So the pieces put together are the whole text, and no part of a stop string is ever shown.

/// Text that grows by the bytes of tokens.
#[derive(Clone, Debug)]
pub(super) struct Growing {
    bytes: Vec<u8>,
    /// Bytes that were shown.
    shown: usize,
    stop: Vec<String>,
}

impl Growing {
    /// An empty text that one of these strings may end.
    pub(super) fn new(stop: Vec<String>) -> Growing {
        Growing { bytes: Vec::new(), shown: 0, stop }
    }

    /// Adds the bytes of a token; returns what may be shown now.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len() - self.beginning_of_stop();
        let (whole, _) = whole_characters(&self.bytes[self.shown..end]);
        let text = String::from_utf8_lossy(whole).into_owned();
        self.shown += whole.len();
        text
    }

    /// The text has ended as `bytes`, which begins with all that was shown; returns the rest.
    pub(super) fn finish(&mut self, bytes: &[u8]) -> String {
        let rest = bytes.get(self.shown..).unwrap_or_default();
        self.shown = bytes.len();
        String::from_utf8_lossy(rest).into_owned()
    }

    /// Length of the longest end of the text that a stop string begins with, of what was not shown yet.
    fn beginning_of_stop(&self) -> usize {
        let hidden = &self.bytes[self.shown..];
        let longest = |stop: &String| {
            let stop = stop.as_bytes();
            let most = hidden.len().min(stop.len().saturating_sub(1));
            (1..=most).rev().find(|n| hidden.ends_with(&stop[..*n])).unwrap_or(0)
        };
        self.stop.iter().map(longest).max().unwrap_or(0)
    }
}

/// Cuts off bytes at the end that may be the beginning of a character.
pub(super) fn whole_characters(bytes: &[u8]) -> (&[u8], &[u8]) {
    // A character has four bytes at most, so three can be its beginning.
    let from = bytes.len().saturating_sub(3);
    let begins = (from..bytes.len()).find(|&at| {
        let end = std::str::from_utf8(&bytes[at..]);
        end.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    });
    bytes.split_at(begins.unwrap_or(bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: pieces put together are the text. Method: texts of whole, broken and unfinished characters, cut in pieces of
    /// every size.
    #[test]
    fn the_pieces_put_together_are_the_text_and_end_at_whole_characters() {
        let texts: [&[u8]; 5] = [
            "aé日🦀z".as_bytes(),
            b"\xf0\x9f\xa6a\xe6\x97",
            b"\xff\xfe\x80\x80a\xc3",
            b"\xe6\x97\xe6\x97\xa5\xf0\x9f",
            b"\xc3\xc3\xa9\xf4\x90\x80\x80",
        ];
        for text in texts {
            for size in 1..=text.len() {
                let mut growing = Growing::new(Vec::new());
                let mut pieces: Vec<String> =
                    text.chunks(size).map(|bytes| growing.push(bytes)).collect();
                pieces.push(growing.finish(text));
                assert_eq!(pieces.concat(), String::from_utf8_lossy(text), "{text:?} by {size}");
            }
        }
        let mut growing = Growing::new(Vec::new());
        let pieces = "é🦀".bytes().map(|b| growing.push(&[b])).collect::<Vec<_>>();
        assert_eq!(pieces, ["", "é", "", "", "", "🦀"]);
    }

    #[test]
    fn no_part_of_a_stop_string_is_shown_and_what_proves_to_be_none_is_shown_later() {
        let mut growing = Growing::new(vec!["abc".into(), "bd".into()]);
        let pieces = "xaabxab".bytes().map(|b| growing.push(&[b])).collect::<Vec<_>>();
        assert_eq!(pieces, ["x", "", "a", "", "abx", "", ""]);
        // Then `c`: the engine cuts the text before the stop string.
        assert_eq!(growing.finish(b"xaabx"), "");
        let mut growing = Growing::new(vec!["é!".into()]);
        assert_eq!(
            [growing.push(b"a"), growing.push(b"\xc3"), growing.push(b"\xa9")].concat(),
            "a"
        );
        assert_eq!(growing.push(b"?"), "é?");
    }
}
