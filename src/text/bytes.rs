//! The tokenizer of the synthetic vocabulary: one id per byte, and eight specials.

use crate::weights::synthetic::BYTE_TOKENS;

/// Specials in the order of their ids, from 256: end and begin of text first.
const SPECIALS: [&str; 8] = [
    "<|endoftext|>",
    "<|startoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|pad|>",
    "<|sep|>",
    "<|tool|>",
    "<|unk|>",
];

pub(super) fn encode(text: &str) -> Vec<u32> {
    let mut ids = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(&byte) = rest.as_bytes().first() {
        let special = SPECIALS.iter().position(|s| rest.starts_with(s));
        // A character's bytes are taken one by one; only whole specials are skipped over.
        match special {
            Some(i) => {
                ids.push(BYTE_TOKENS + i as u32);
                rest = &rest[SPECIALS[i].len()..];
            }
            None if byte == b'<' => {
                ids.push(byte.into());
                rest = &rest[1..];
            }
            None => {
                let end = rest.find('<').unwrap_or(rest.len());
                ids.extend(rest[..end].bytes().map(u32::from));
                rest = &rest[end..];
            }
        }
    }
    ids
}

/// Bytes of one id.
pub(super) fn of(id: u32) -> Vec<u8> {
    match u8::try_from(id) {
        Ok(byte) => vec![byte],
        Err(_) => {
            let special = SPECIALS.get((id - BYTE_TOKENS) as usize);
            special.map(|s| s.as_bytes().to_vec()).unwrap_or_default()
        }
    }
}

pub(super) fn decode(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| of(*id)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_their_own_ids_and_specials_follow_them() {
        assert_eq!(encode("aé<b"), [97, 0xc3, 0xa9, 60, 98]);
        assert_eq!(encode("<|endoftext|><|unk|><|im_start|"), {
            let mut ids = vec![256, 263];
            ids.extend(b"<|im_start|".map(u32::from));
            ids
        });
        assert!(encode("").is_empty());
    }

    #[test]
    fn decoding_undoes_encoding() {
        for text in ["", "plain", " a \n", "b\t<|im_end|> c", "<<|x|>>", "日本語 🦀\r\n\0"] {
            assert_eq!(decode(&encode(text)), text);
        }
    }

    #[test]
    fn ids_without_text_decode_to_nothing_and_broken_characters_to_the_replacement() {
        assert_eq!(decode(&[97, 264, u32::MAX, 98]), "ab");
        assert_eq!(decode(&[97, 0xc3]), "a\u{fffd}");
    }
}
