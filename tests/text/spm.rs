//! SentencePiece vocabularies in GGUF.

use lockstep::text::{TextError, Tokenizer};
use serde::Deserialize;

use crate::data;

#[derive(Deserialize)]
struct Reference {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    without_space: Vec<u32>,
}

fn reference() -> Vec<Case> {
    let json = std::fs::read(data("spm-ids.json")).expect("committed");
    serde_json::from_slice::<Reference>(&json).expect("well formed").cases
}

/// The committed metadata, changed.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Result<Tokenizer, TextError> {
    let mut bytes = std::fs::read(data("spm-tokenizer.gguf")).expect("committed");
    change(&mut bytes);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("written");
    Tokenizer::from_gguf(&path)
}

/// Where the value of a key begins, behind its type.
fn value(bytes: &[u8], key: &str) -> usize {
    let at = bytes.windows(key.len()).position(|w| w == key.as_bytes()).expect("present");
    at + key.len() + 4
}

/// Goal: ids are llama.cpp's, bytes and specials included. Method: 35 texts that it encoded, with and without the space before a text,
/// made as `tests/data/text/make_spm.py` says.
#[test]
fn ids_of_a_sentence_piece_vocabulary_are_those_of_llama_cpp() {
    let with = changed(|_| {}).expect("whole");
    let without = changed(|bytes| {
        let at = value(bytes, "tokenizer.ggml.add_space_prefix");
        assert_eq!(bytes[at], 1);
        bytes[at] = 0;
    });
    let without = without.expect("whole");
    let cases = reference();
    assert_eq!(cases.len(), 35);
    let mut differ = 0;
    for case in cases {
        assert_eq!(with.encode(&case.text).expect("encodes"), case.ids, "{:?}", case.text);
        let ids = without.encode(&case.text).expect("encodes");
        assert_eq!(ids, case.without_space, "{:?}", case.text);
        differ += usize::from(case.ids != ids);
    }
    assert!(differ > 20, "{differ}");
}

#[test]
fn texts_of_a_sentence_piece_vocabulary_come_back_behind_its_space() {
    let tokenizer = changed(|_| {}).expect("whole");
    assert!(tokenizer.has_bytes());
    for Case { text, ids, without_space } in reference() {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.bytes(*id)).collect();
        assert_eq!(String::from_utf8_lossy(&bytes), tokenizer.decode(&ids));
        // A sign of its own for a space comes back as a space, and a special is followed by one.
        if !text.contains('\u{2581}') {
            assert_eq!(tokenizer.decode(&without_space), text);
        }
        if !text.contains('\u{2581}') && !text.contains("<s>") && !text.contains("<|im_start|>") {
            assert_eq!(tokenizer.decode(&ids), format!(" {text}"));
        }
    }
    assert!(tokenizer.bytes(u32::MAX).is_empty());
}

#[test]
fn a_sentence_piece_vocabulary_that_contradicts_itself_is_refused_in_one_line() {
    let refused = |says: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let text = changed(|bytes| change(bytes)).err().expect("refused").to_string();
        assert!(text.contains(says) && !text.contains('\n'), "{says}: {text}");
    };
    let put = |key: &'static str, skip: usize, to: &'static [u8]| {
        move |bytes: &mut Vec<u8>| {
            let at = value(bytes, key) + skip;
            bytes[at..at + to.len()].copy_from_slice(to);
        }
    };
    // An array is its elements' type, their number, and they.
    let first = 12;
    refused("not finite", &put("tokenizer.ggml.scores", first, &[0, 0, 0xc0, 0x7f]));
    refused("type 9", &put("tokenizer.ggml.token_type", first, &[9, 0, 0, 0]));
    // The first token, <unk>, is no byte.
    refused("byte \"<unk>\"", &put("tokenizer.ggml.token_type", first, &[6, 0, 0, 0]));
    refused("unknown id 900", &put("tokenizer.ggml.unknown_token_id", 0, &[0x84, 3, 0, 0]));
    refused("not an array of floats", &put("tokenizer.ggml.scores", 0, &[5, 0, 0, 0]));
    refused("which is not known here", &|bytes| {
        let at = value(bytes, "tokenizer.ggml.scores") - 5;
        bytes[at] = b'z';
    });
    refused("model \"lamas\"", &put("tokenizer.ggml.model", 8, b"lamas"));
}

/// Goal: no damaged byte makes the tokenizer panic. Method: each byte of the head, and each seventh after it, changed in two ways;
/// what still opens must still encode.
#[test]
fn a_changed_byte_of_a_sentence_piece_vocabulary_never_panics() {
    let whole = std::fs::read(data("spm-tokenizer.gguf")).expect("committed");
    let mut noticed = 0;
    let places: Vec<usize> = (0..900).chain((900..whole.len()).step_by(7)).collect();
    for &at in &places {
        for change in [0x01, 0x80] {
            match changed(|bytes| bytes[at] ^= change) {
                Ok(tokenizer) => drop(tokenizer.encode("ab <s> é")),
                Err(_) => noticed += 1,
            }
        }
    }
    assert!(noticed > 300, "{noticed} of {}", 2 * places.len());
    for length in (0..whole.len()).step_by(97) {
        assert!(changed(|bytes| bytes.truncate(length)).is_err());
    }
}
