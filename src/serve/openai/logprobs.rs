//! Log-probabilities in the two shapes of the protocol, and what tokens are called.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::record::TokenScore;
use crate::text::Tokenizer;

use super::super::text::whole_characters;

/// What tokens are called in an answer.
#[derive(Clone, Copy)]
pub(in crate::serve) struct Names<'t> {
    pub(in crate::serve) tokenizer: Option<&'t Tokenizer>,
    /// Always by their ids.
    pub(in crate::serve) by_id: bool,
}

impl Names<'_> {
    /// Bytes of a token's text.
    pub(in crate::serve) fn bytes(&self, token: u32) -> Vec<u8> {
        self.tokenizer.map(|t| t.bytes(token)).unwrap_or_default()
    }

    /// A token's text; one that is no text of its own is called by its bytes, one without text by its id. So no two
    /// tokens of a byte vocabulary have the same name.
    pub(in crate::serve) fn name(&self, token: u32) -> String {
        let bytes = self.bytes(token);
        if self.by_id || bytes.is_empty() {
            return format!("token_id:{token}");
        }
        String::from_utf8(bytes).unwrap_or_else(|error| {
            let hex = error.as_bytes().iter().map(|b| format!("\\x{b:02x}"));
            format!("bytes:{}", hex.collect::<String>())
        })
    }
}

/// Log-probabilities of a completion: lists as long as its tokens.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::serve) struct Logprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<Top>>,
    /// Where the text of each begins, in characters.
    text_offset: Vec<usize>,
}

/// The best tokens and the one that is listed, with theirs.
#[derive(Clone, Debug)]
struct Top(Vec<(String, f32)>);

impl Serialize for Top {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, logprob) in &self.0 {
            map.serialize_entry(name, logprob)?;
        }
        map.end()
    }
}

impl Logprobs {
    /// Appends a token whose text begins at `offset`; the first of a prompt has no score.
    pub(in crate::serve) fn push(
        &mut self,
        names: Names<'_>,
        offset: usize,
        token: u32,
        score: Option<&TokenScore>,
    ) {
        self.text_offset.push(offset);
        let name = names.name(token);
        self.token_logprobs.push(score.map(|score| f32::from_bits(score.logprob)));
        self.top_logprobs.push(score.map(|score| {
            let mut top: Vec<(String, f32)> = Vec::with_capacity(score.top.len() + 1);
            for (id, logprob) in score.top.iter().copied().chain([(token, score.logprob)]) {
                let name = names.name(id);
                if top.iter().all(|(other, _)| *other != name) {
                    top.push((name, f32::from_bits(logprob)));
                }
            }
            Top(top)
        }));
        self.tokens.push(name);
    }

    /// Appends what another piece lists.
    pub(in crate::serve) fn extend(&mut self, other: Logprobs) {
        self.tokens.extend(other.tokens);
        self.token_logprobs.extend(other.token_logprobs);
        self.top_logprobs.extend(other.top_logprobs);
        self.text_offset.extend(other.text_offset);
    }
}

/// Characters of a text that comes a token at a time.
#[derive(Clone, Debug, Default)]
pub(in crate::serve) struct Offset {
    characters: usize,
    /// The beginning of a character.
    begun: Vec<u8>,
}

impl Offset {
    /// Where the text of the next token begins: a part of a character begins where the character does.
    pub(in crate::serve) fn advance(&mut self, bytes: &[u8]) -> usize {
        let at = self.characters;
        self.begun.extend_from_slice(bytes);
        let (whole, begun) = whole_characters(&self.begun);
        self.characters += String::from_utf8_lossy(whole).chars().count();
        self.begun = begun.to_vec();
        at
    }
}

/// Log-probabilities of a chat.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::serve) struct ChatLogprobs {
    content: Vec<ChatToken>,
    refusal: Option<Vec<ChatToken>>,
}

#[derive(Clone, Debug, Serialize)]
struct ChatToken {
    #[serde(flatten)]
    token: Named,
    top_logprobs: Vec<Named>,
}

#[derive(Clone, Debug, Serialize)]
struct Named {
    token: String,
    logprob: f32,
    bytes: Option<Vec<u8>>,
}

impl ChatLogprobs {
    /// Appends what another piece lists.
    pub(in crate::serve) fn extend(&mut self, other: ChatLogprobs) {
        self.content.extend(other.content);
    }

    /// Appends a token.
    pub(in crate::serve) fn push(&mut self, names: Names<'_>, score: &TokenScore) {
        let named = |token: u32, logprob: u32| Named {
            token: names.name(token),
            logprob: f32::from_bits(logprob),
            bytes: Some(names.bytes(token)).filter(|bytes| !bytes.is_empty()),
        };
        self.content.push(ChatToken {
            token: named(score.token, score.logprob),
            top_logprobs: score.top.iter().map(|(id, logprob)| named(*id, *logprob)).collect(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::Preset;

    /// Goal: what is written is the f32, no digit more or less. Method: values whose f64 has a longer decimal, read back
    /// as f32 from the JSON of both shapes.
    #[test]
    fn log_probabilities_are_written_as_the_f32_that_they_are() {
        let tokenizer = Tokenizer::for_preset(Preset::Tiny);
        let names = Names { tokenizer: Some(&tokenizer), by_id: false };
        for bits in [0xbdcc_cccd_u32, 0xc0a1_2345, 0x8000_0001, 0xbf80_0000] {
            let x = f32::from_bits(bits);
            let score = TokenScore {
                residency: 1,
                position: 3,
                token: 97,
                logprob: bits,
                top: vec![(98, bits)],
            };
            let (mut plain, mut chat) = (Logprobs::default(), ChatLogprobs::default());
            plain.push(names, 0, 97, Some(&score));
            chat.push(names, &score);
            let json = serde_json::to_string(&plain).unwrap();
            let back: f32 = json
                .split_once("\"token_logprobs\":[")
                .and_then(|(_, rest)| rest.split_once(']'))
                .unwrap()
                .0
                .parse()
                .unwrap();
            assert_eq!(back.to_bits(), bits, "{json}");
            let decimal = serde_json::to_string(&x).unwrap();
            assert!(json.contains(&format!("[{decimal}]")), "{json}");
            assert!(json.contains(&format!("{{\"b\":{decimal},\"a\":{decimal}}}")), "{json}");
            let json = serde_json::to_string(&chat).unwrap();
            assert!(json.contains(&format!("\"logprob\":{decimal},\"bytes\":[97]")), "{json}");
        }
    }

    #[test]
    fn tokens_without_text_of_their_own_have_names_of_their_own() {
        let tokenizer = Tokenizer::for_preset(Preset::Tiny);
        let names = Names { tokenizer: Some(&tokenizer), by_id: false };
        let all: std::collections::BTreeSet<String> = (0..264).map(|t| names.name(t)).collect();
        assert_eq!(all.len(), 264);
        assert_eq!([97, 0xc3, 257].map(|t| names.name(t)), ["a", "bytes:\\xc3", "<|startoftext|>"]);
        let by_id = Names { by_id: true, ..names };
        assert_eq!(by_id.name(97), "token_id:97");
        assert_eq!(Names { tokenizer: None, by_id: false }.name(7), "token_id:7");
    }

    #[test]
    fn offsets_count_characters_and_parts_of_one_begin_where_it_does() {
        let mut offset = Offset::default();
        let tokens: [&[u8]; 6] = [b"ab", b"\xc3", b"\xa9", b"\xff", b"c", b""];
        assert_eq!(tokens.map(|bytes| offset.advance(bytes)), [0, 2, 2, 3, 4, 5]);
    }
}
