//! Tokenizers against ids that another runtime made of the same vocabulary.
#![cfg(feature = "cli")]

mod spm;

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use lockstep::text::{TextError, Tokenizer, prompts};
use lockstep::weights::Preset;
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
}

pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/text").join(name)
}

/// The metadata of SmolLM2's GGUF file, without its tensors.
fn smollm2() -> Tokenizer {
    Tokenizer::from_gguf(&data("smollm2-tokenizer.gguf")).expect("the committed metadata is whole")
}

fn reference() -> Reference {
    let json = std::fs::read(data("smollm2-ids.json")).expect("committed");
    serde_json::from_slice(&json).expect("well formed")
}

/// Goal: our ids are those of llama.cpp. Method: 30 texts that it encoded, made as the file says.
#[test]
fn ids_are_those_of_llama_cpp() {
    let (tokenizer, reference) = (smollm2(), reference());
    assert!(reference.cases.len() >= 20);
    let wrong: Vec<String> = reference
        .cases
        .iter()
        .filter_map(|case| {
            let ids = tokenizer.encode(&case.text).expect("encodes");
            (ids != case.ids).then(|| format!("{:?}: {ids:?}, not {:?}", case.text, case.ids))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Goal: bytes of ids are those of the text, also where a character is cut between two ids. Method: the reference texts, and
/// arbitrary runs of ids, whose bytes together are what decoding shows.
#[test]
fn the_bytes_of_ids_are_the_bytes_of_their_text() {
    let (tokenizer, reference) = (smollm2(), reference());
    assert!(tokenizer.has_bytes());
    let bytes = |ids: &[u32]| ids.iter().flat_map(|id| tokenizer.bytes(*id)).collect::<Vec<u8>>();
    let mut cut = 0;
    for case in &reference.cases {
        assert_eq!(bytes(&case.ids), case.text.as_bytes(), "{:?}", case.text);
        cut +=
            case.ids.iter().filter(|id| String::from_utf8(tokenizer.bytes(**id)).is_err()).count();
    }
    assert!(cut > 0, "no text with a character in two tokens");
    let mut id = 1_u32;
    for _ in 0..2000 {
        let ids: Vec<u32> = (0..5)
            .map(|_| {
                id = id.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (id >> 8) % 49_152
            })
            .collect();
        let all = bytes(&ids);
        assert_eq!(String::from_utf8_lossy(&all), tokenizer.decode(&ids), "{ids:?}");
    }
    assert!(tokenizer.bytes(49_152).is_empty());
}

/// The metadata with another pre-tokenizer's name.
fn renamed(pre: &str) -> Vec<u8> {
    let bytes = std::fs::read(data("smollm2-tokenizer.gguf")).expect("committed");
    let key = b"tokenizer.ggml.pre\x08\0\0\0";
    let at = bytes.windows(key.len()).position(|w| w == key).expect("present") + key.len();
    let rest = &bytes[at + 8 + "smollm".len()..];
    [&bytes[..at], &(pre.len() as u64).to_le_bytes(), pre.as_bytes(), rest].concat()
}

/// Goal: the other ways of splitting are llama.cpp's too. Method: the same vocabulary and texts under another
/// pre-tokenizer's name. One text differs on purpose: Qwen's own tokenizer composes characters first, llama.cpp
/// does not.
#[test]
fn ids_under_other_pre_tokenizers_are_those_of_llama_cpp() {
    #[derive(Deserialize)]
    struct ByPre {
        cases: Vec<Pre>,
    }
    #[derive(Deserialize)]
    struct Pre {
        pre: String,
        ids: Vec<Vec<u32>>,
    }
    let json = std::fs::read(data("smollm2-ids-by-pre.json")).expect("committed");
    let by_pre: ByPre = serde_json::from_slice(&json).expect("well formed");
    let texts: Vec<String> = reference().cases.into_iter().map(|case| case.text).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let mut differ = Vec::new();
    for case in &by_pre.cases {
        std::fs::write(&path, renamed(&case.pre)).expect("written");
        let tokenizer = Tokenizer::from_gguf(&path).expect("a known pre-tokenizer");
        assert_eq!(case.ids.len(), texts.len());
        for (text, expected) in texts.iter().zip(&case.ids) {
            let ids = tokenizer.encode(text).expect("encodes");
            if ids != *expected {
                differ.push((case.pre.as_str(), text.as_str()));
            }
        }
    }
    assert_eq!(by_pre.cases.len(), 3);
    assert_eq!(differ, [("qwen2", "cafe\u{301} vs caf\u{e9}")]);
}

/// Metadata of a byte-level BPE with these tokens and merges, and no tensors.
fn metadata(pre: &str, tokens: &[&str], merges: &[&str]) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend([0u64, 4].iter().flat_map(|n| n.to_le_bytes()));
    for (key, value) in [("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", pre)] {
        out.extend([text(key), 8u32.to_le_bytes().to_vec(), text(value)].concat());
    }
    for (key, list) in [("tokenizer.ggml.tokens", tokens), ("tokenizer.ggml.merges", merges)] {
        out.extend(text(key));
        out.extend([9u32, 8].iter().flat_map(|n| n.to_le_bytes()));
        out.extend((list.len() as u64).to_le_bytes());
        out.extend(list.iter().flat_map(|t| text(t)));
    }
    out
}

/// Goal: digits are grouped, and whole words taken, as each pre-tokenizer says; SmolLM2's vocabulary, which has no
/// token of two digits, cannot show it. Method: a vocabulary by hand; "aaa" is a token that no merge makes.
#[test]
fn pre_tokenizers_group_digits_and_take_whole_words_each_in_its_way() {
    let tokens = ["1", "2", "a", "12", "121", "aaa"];
    let merges = ["1 2", "12 1"];
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let ids = |pre: &str| {
        std::fs::write(&path, metadata(pre, &tokens, &merges)).expect("written");
        Tokenizer::from_gguf(&path).expect("well formed").encode("1212aaa").expect("encodes")
    };
    assert_eq!(ids("gpt-2"), [3, 3, 2, 2, 2]);
    assert_eq!(ids("smollm"), [0, 1, 0, 1, 2, 2, 2]);
    assert_eq!(ids("llama-bpe"), [4, 1, 5]);
    assert_eq!(ids("qwen2"), [0, 1, 0, 1, 2, 2, 2]);
}

#[test]
fn vocabularies_that_contradict_themselves_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let cases: [(&[&str], &[&str], &str); 5] = [
        (&["a", "b", "a"], &[], "a token is listed twice"),
        (&["a", "b"], &["ab"], "merge \"ab\""),
        (&["a", "b"], &["a c"], "\"c\" is no token"),
        (&["a", "b"], &["a b"], "merge \"a b\" makes no token"),
        (&["a", "b"], &[""], "merge \"\""),
    ];
    for (tokens, merges, says) in cases {
        std::fs::write(&path, metadata("gpt-2", tokens, merges)).expect("written");
        let text = Tokenizer::from_gguf(&path).err().expect("refused").to_string();
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn decoding_gives_the_text_back_specials_included() {
    let tokenizer = smollm2();
    for case in reference().cases {
        assert_eq!(tokenizer.decode(&case.ids), case.text);
    }
}

#[test]
fn a_long_run_of_spaces_is_encoded_whole() {
    let tokenizer = smollm2();
    let text = format!("a{}b", " ".repeat(100_000));
    let ids = tokenizer.encode(&text).expect("encodes");
    assert_eq!(tokenizer.decode(&ids), text);
}

#[test]
fn a_text_over_the_limit_is_refused() {
    let text = "a".repeat(lockstep::text::TEXT_BYTES_MAX + 1);
    for tokenizer in [Tokenizer::for_preset(Preset::Tiny), smollm2()] {
        assert!(matches!(tokenizer.encode(&text), Err(TextError::TooLong { .. })));
    }
}

/// Goal: the example prompts are what fuzzing needs: most short, two longer than two splits of 128 positions.
#[test]
fn example_prompts_are_mostly_short_and_two_cross_two_splits() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/prompts.txt");
    let text = std::fs::read_to_string(file).expect("committed");
    let prompts = prompts::parse(&text).expect("well formed");
    let tokenizer = smollm2();
    let lengths: Vec<usize> =
        prompts.iter().map(|p| tokenizer.encode(p).expect("encodes").len()).collect();
    assert!(prompts.len() >= 12, "{lengths:?}");
    assert_eq!(lengths.iter().filter(|&&n| n > 256).count(), 2, "{lengths:?}");
    assert!(lengths.iter().filter(|&&n| n < 64).count() >= 9, "{lengths:?}");
}

/// A `tokenizer.json` that would cut texts and put an id before them.
const JSON: &str = r#"{
    "version": "1.0",
    "truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0},
    "added_tokens": [{"id": 3, "content": "<s>", "special": true, "single_word": false,
                      "lstrip": false, "rstrip": false, "normalized": false}],
    "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<s>": 3}, "merges": [["a", "b"]]}
}"#;

/// Goal: a `tokenizer.json` is read, and what it would add to a text or cut off it is switched off.
#[test]
fn a_folder_is_read_without_the_ids_that_its_template_would_add() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("tokenizer.json"), JSON).expect("written");
    let tokenizer = Tokenizer::from_path(folder.path()).expect("well formed");
    assert_eq!(tokenizer.encode("aabb<s>").expect("encodes"), [0, 2, 1, 3]);
    assert_eq!(tokenizer.decode(&[0, 2, 1, 3]), "aabb<s>");
}

/// Goal: a damaged `tokenizer.json` is an error, although the crate that reads it panics on some. Method: every
/// truncation, and every byte replaced by each of a few that matter to JSON.
#[test]
fn no_damaged_tokenizer_json_panics() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, JSON).expect("written");
    let mut file = std::fs::File::options().write(true).open(&path).expect("opens");
    let mut put = |at: usize, byte: u8| {
        file.seek(SeekFrom::Start(at as u64)).expect("in the file");
        file.write_all(&[byte]).expect("written");
    };
    let mut noticed = 0;
    for (at, &byte) in JSON.as_bytes().iter().enumerate() {
        for other in *b"0\"{},-Z" {
            put(at, other);
            match Tokenizer::from_dir(folder.path()) {
                Ok(tokenizer) => drop(tokenizer.encode("ab <s>")),
                Err(_) => noticed += 1,
            }
        }
        put(at, byte);
    }
    assert!(noticed > JSON.len() * 2, "{noticed} of {}", 7 * JSON.len());
    assert!(Tokenizer::from_dir(folder.path()).is_ok());
    for length in (0..JSON.len()).rev() {
        file.set_len(length as u64).expect("cut");
        assert!(Tokenizer::from_dir(folder.path()).is_err());
    }
}

#[test]
fn damaged_and_foreign_tokenizers_are_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.gguf");
    let whole = std::fs::read(data("smollm2-tokenizer.gguf")).expect("committed");
    let error = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("written");
        let text = Tokenizer::from_gguf(&path).err().expect("refused").to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let replaced = |from: &[u8], to: &[u8]| {
        let at = whole.windows(from.len()).position(|w| w == from).expect("present");
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    assert!(error(&[]).contains("ends inside"));
    assert!(error(&whole[..1_000_000]).contains("ends inside"));
    assert!(error(&replaced(b"smollm\x15", b"mystic\x15")).contains("pre-tokenizer \"mystic\""));
    assert!(error(&replaced(b"gpt2\x12", b"bert\x12")).contains("model \"bert\""));
    assert!(error(&replaced(b"ggml.merges", b"ggml.scores")).contains("no tokenizer.ggml.merges"));
    // The first merge is a space sign and "t"; without its blank it is no pair.
    assert!(error(&replaced(b"\xc4\xa0 t", b"\xc4\xa0_t")).contains("merge"));
    std::fs::write(folder.path().join("tokenizer.json"), "{}").expect("written");
    assert!(Tokenizer::from_dir(folder.path()).is_err());
}
