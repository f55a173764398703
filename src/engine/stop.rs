//! What ends an output: end of sequence, stop tokens, stop strings, length.
//!
//! Stop strings are looked for in the bytes of the detokenised output, so one may begin in one token and end in another.
//! The text ends before the first of them; of the token that ends an output otherwise than by its length, nothing is
//! text.

use crate::record::{Finish, Sentinel};

use super::scheduler::Scheduler;

impl Scheduler {
    /// Appends a drawn token; returns why the sequence ends with it, if it does.
    pub(super) fn take_token(&mut self, i: usize, token: u32) -> Option<Finish> {
        let sequence = &mut self.sequences[i];
        sequence.tokens.push(token);
        if self.eos.contains(&token) && !sequence.ignore_eos {
            return Some(Finish::Eos);
        }
        if sequence.stop_token_ids.contains(&token) {
            self.sentinels.hit(Sentinel::StopToken);
            return Some(Finish::Stop);
        }
        if let Some(tokenizer) = &self.text {
            let before = sequence.text.len();
            sequence.text.extend_from_slice(&tokenizer.bytes(token));
            if let Some(at) = first_match(&sequence.text, before, &sequence.stop) {
                self.sentinels.hit(Sentinel::StopString);
                if at < before {
                    self.sentinels.hit(Sentinel::StopAcrossTokens);
                }
                sequence.text.truncate(at);
                return Some(Finish::Stop);
            }
        }
        (sequence.output().len() == sequence.max_tokens).then_some(Finish::Length)
    }
}

/// Where the first stop string begins, of those that end in the text past `before`: what ends earlier was found then.
fn first_match(text: &[u8], before: usize, stop: &[String]) -> Option<usize> {
    let starts = stop.iter().filter_map(|string| {
        let string = string.as_bytes();
        let from = (before + 1).saturating_sub(string.len());
        let at = text[from..].windows(string.len()).position(|window| window == string)?;
        Some(from + at)
    });
    starts.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a token at a time finds what a search of the whole text would find at the first moment that it is there.
    #[test]
    fn a_string_is_found_when_its_last_byte_comes_and_never_later() {
        let text = b"aabaabaaab";
        for stop in [&["ab"][..], &["aab", "ba"], &["aaab"], &["b", "aa"], &["x", "aabaabaaab"]] {
            let stop: Vec<String> = stop.iter().map(|s| (*s).to_owned()).collect();
            for sizes in [&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1][..], &[3, 4, 3], &[10], &[9, 1], &[1, 9]]
            {
                let mut end = 0;
                let found = sizes.iter().find_map(|size| {
                    let before = end;
                    end += size;
                    first_match(&text[..end], before, &stop).map(|at| (end, at))
                });
                let whole = |end: usize| {
                    let find =
                        |s: &String| (0..end).find(|&i| text[i..end].starts_with(s.as_bytes()));
                    stop.iter().filter_map(find).min()
                };
                let mut end = 0;
                let expected = sizes.iter().find_map(|size| {
                    end += size;
                    whole(end).map(|at| (end, at))
                });
                assert_eq!(found, expected, "{stop:?} in pieces of {sizes:?}");
                assert!(found.is_some());
            }
        }
    }
}
