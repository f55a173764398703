//! GGUF files, whole and damaged.

use std::fs;
use std::path::PathBuf;

use lockstep::contract::rope::RopeScaling;
use lockstep::contract::{Constants, Dtype};
use lockstep::weights::{Family, Model, WeightsError};
use tempfile::TempDir;

use crate::gguf_writer::{F16, F32, File, SIZES, Sizes, Value, model, tensor, tensors, value};
use crate::in_place::InPlace;

/// A folder for one test's file.
pub(crate) struct Scratch {
    _folder: TempDir,
    pub(crate) path: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.gguf");
        Scratch { _folder: folder, path }
    }

    pub(crate) fn load(&self, file: &File) -> Result<Model, WeightsError> {
        self.load_bytes(&file.write().0)
    }

    pub(crate) fn load_bytes(&self, bytes: &[u8]) -> Result<Model, WeightsError> {
        fs::write(&self.path, bytes).expect("written");
        Model::load(&self.path, None)
    }

    /// The message about a file that must be refused.
    pub(crate) fn refused(&self, file: &File) -> String {
        one_line(self.load(file).err())
    }
}

fn one_line(error: Option<WeightsError>) -> String {
    let text = error.expect("the file must be refused").to_string();
    assert!(!text.contains('\n') && text.contains("model.gguf"), "{text}");
    text
}

/// f16 bits of the first `n` values of the named tensor of the test model.
fn bits(name: &str, qwen3: bool) -> Vec<u16> {
    let list = tensors(SIZES, qwen3);
    let t = list.iter().position(|(n, _)| *n == name).expect("a tensor of the model");
    let count = list[t].1.iter().product();
    (0..count).map(|e| Dtype::F16.round(value(t, e))).collect()
}

#[test]
fn a_qwen3_file_gives_its_tensors_in_their_order() {
    let scratch = Scratch::new();
    let model = scratch.load(&model("qwen3", SIZES)).expect("a whole file");
    let c = &model.config;
    assert_eq!((c.family, c.layers, c.hidden, c.heads), (Family::Qwen3, 1, 16, 2));
    assert_eq!((c.kv_heads, c.head_dim, c.ffn, c.vocab), (1, 16, 24, 5));
    assert_eq!((c.norm_eps, c.rope_base, c.context), (1e-5, 5e5, 64));
    assert_eq!((c.rope_scaling, &c.eos[..], c.bos), (RopeScaling::None, &[2][..], None));
    assert_eq!((c.constants, c.block_size), (Constants::SMALL, 16));
    assert_eq!((c.name.as_str(), model.dtype), ("model.gguf", Dtype::F16));
    let layer = &model.layers[0];
    let stacked = |names: &[&str]| names.iter().flat_map(|n| bits(n, true)).collect::<Vec<u16>>();
    assert_eq!(model.embedding.data, bits("token_embd.weight", true));
    assert_eq!((model.embedding.n, model.embedding.k), (5, 16));
    assert_eq!(model.final_norm, bits("output_norm.weight", true));
    assert_eq!(model.head.expect("untied").data, bits("output.weight", true));
    let qkv = ["blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"];
    assert_eq!(layer.qkv.data, stacked(&qkv));
    assert_eq!((layer.qkv.n, layer.qkv.k), (64, 16));
    assert_eq!(layer.gate_up.data, stacked(&["blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"]));
    assert_eq!(layer.o.data, bits("blk.0.attn_output.weight", true));
    assert_eq!(layer.down.data, bits("blk.0.ffn_down.weight", true));
    assert_eq!(layer.attention_norm, bits("blk.0.attn_norm.weight", true));
    assert_eq!(layer.ffn_norm, bits("blk.0.ffn_norm.weight", true));
    assert_eq!(layer.q_norm, Some(bits("blk.0.attn_q_norm.weight", true)));
    assert_eq!(layer.k_norm, Some(bits("blk.0.attn_k_norm.weight", true)));
}

/// Goal: q and k of architecture `llama` come out in half-split order. Method: one-hot rows that name themselves; row
/// `j d/2 + i` of a head must be the file's row `2i + j` (docs/contract.md section 5), and v must be left alone.
#[test]
fn a_llama_file_has_the_rows_of_q_and_k_put_into_half_split_order() {
    let scratch = Scratch::new();
    let sizes = Sizes { hidden: 32, ..SIZES };
    let mut file = model("llama", sizes);
    let one_hot = |rows: usize| -> Vec<f32> {
        (0..rows * 32).map(|e| if e % 32 == e / 32 { 1.0 } else { 0.0 }).collect()
    };
    for (name, rows) in [("attn_q", 32), ("attn_k", 16), ("attn_v", 16)] {
        let name = format!("blk.0.{name}.weight");
        file.tensors.insert(name, tensor(&[rows, 32], F16, &one_hot(rows)));
    }
    let loaded = scratch.load(&file).expect("a whole file");
    assert_eq!(loaded.config.family, Family::Llama);
    assert_eq!(loaded.layers[0].q_norm, None);
    let column = |row: &[u16]| row.iter().position(|&b| b != 0).expect("one element is set");
    let columns: Vec<usize> = loaded.layers[0].qkv.data.chunks(32).map(column).collect();
    let head = |first: usize| (0..16).map(move |row| first + 2 * (row % 8) + row / 8);
    let expected: Vec<usize> = head(0).chain(head(16)).chain(head(0)).chain(0..16).collect();
    assert_eq!(columns, expected);
}

#[test]
fn a_file_without_an_output_tensor_is_tied() {
    let scratch = Scratch::new();
    let mut file = model("llama", SIZES);
    file.tensors.remove("output.weight");
    assert_eq!(scratch.load(&file).expect("tied").head, None);
}

#[test]
fn version_2_reads_like_version_3_and_others_are_refused() {
    let scratch = Scratch::new();
    let mut file = model("qwen3", SIZES);
    let three = scratch.load(&file).expect("version 3").digest;
    file.version = 2;
    assert_eq!(scratch.load(&file).expect("version 2").digest, three);
    for (version, says) in [(1, "version 1"), (4, "version 4"), (3 << 24, "big-endian")] {
        file.version = version;
        assert!(scratch.refused(&file).contains(says));
    }
}

#[test]
fn bf16_on_request_rounds_each_value_once() {
    let scratch = Scratch::new();
    let mut file = model("qwen3", SIZES);
    let values: Vec<f32> = (0..16).map(|i| 1.0 + i as f32 / 512.0).collect();
    file.tensors.insert("output_norm.weight".to_owned(), tensor(&[16], F32, &values));
    fs::write(&scratch.path, file.write().0).expect("written");
    let model = Model::load(&scratch.path, Some(Dtype::Bf16)).expect("a whole file");
    let expected: Vec<u16> = values.iter().map(|&v| Dtype::Bf16.round(v)).collect();
    assert_eq!((model.dtype, model.final_norm), (Dtype::Bf16, expected));
}

/// Goal: no file that ends early is taken for whole, and none makes the loader panic. Method: every length.
#[test]
fn every_truncation_is_an_error() {
    let scratch = Scratch::new();
    for arch in ["llama", "qwen3"] {
        let bytes = model(arch, SIZES).write().0;
        assert!(scratch.load_bytes(&bytes).is_ok());
        let file = InPlace::open(&scratch.path);
        for length in (0..bytes.len()).rev() {
            file.cut(length);
            let error = Model::load(&scratch.path, None).err();
            // Noticed from the sizes, not by running into the end.
            assert!(!matches!(error, Some(WeightsError::Io { .. })), "{length}: {error:?}");
            one_line(error);
        }
    }
}

/// Goal: no damaged byte makes the loader panic or take memory without bound. Method: every byte of a file, changed
/// in four ways; most changes of the header must be noticed.
#[test]
fn a_changed_byte_never_panics() {
    let scratch = Scratch::new();
    for arch in ["llama", "qwen3"] {
        let (bytes, start) = model(arch, SIZES).write();
        assert!(scratch.load_bytes(&bytes).is_ok());
        let file = InPlace::open(&scratch.path);
        let mut noticed = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            let changes: &[u8] = if at < start { &[0x01, 0x80, 0x20, 0xff] } else { &[0x7c] };
            for change in changes {
                file.put(at, byte ^ change);
                let failed = Model::load(&scratch.path, None).is_err();
                noticed += usize::from(failed && at < start);
            }
            file.put(at, byte);
        }
        assert!(noticed > start * 3, "{noticed} of {} changes of the header", 4 * start);
    }
}

#[test]
fn absurd_counts_and_lengths_are_refused_before_memory_is_taken() {
    let scratch = Scratch::new();
    let (bytes, _) = model("llama", SIZES).write();
    let with = |at: usize, n: u64| {
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&n.to_le_bytes());
        one_line(scratch.load_bytes(&bytes).err())
    };
    assert!(with(8, u64::MAX).contains("tensors, more than"));
    assert!(with(16, 1 << 40).contains("metadata keys, more than"));
    assert!(with(24, u64::MAX).contains("bytes"));
    assert!(with(24, 1 << 20).contains("ends inside"));
    // An array's length is believed only as far as the file goes: its elements are not begun.
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend([0u64, 1, 1].iter().flat_map(|n| n.to_le_bytes()));
    bytes.push(b'k');
    bytes.extend([9u32, 4].iter().flat_map(|n| n.to_le_bytes()));
    bytes.extend(1000u64.to_le_bytes());
    let end = bytes.len();
    bytes.extend([0; 3999]);
    let says = format!("ends inside \"k\" (byte {end} of {})", bytes.len());
    assert!(one_line(scratch.load_bytes(&bytes).err()).contains(&says));
}

/// One change to a whole file and what the message must say about it.
type Change = (&'static str, Box<dyn Fn(&mut File)>);

#[test]
fn tensors_that_cannot_be_right_are_refused_by_name() {
    const Q: &str = "blk.0.attn_q.weight";
    let changes: Vec<Change> = vec![
        ("missing", Box::new(|f| drop(f.tensors.remove(Q)))),
        ("shape [16, 32]", Box::new(|f| f.tensor(Q).dims = vec![32, 16])),
        ("0 dimensions", Box::new(|f| f.tensor(Q).dims = vec![])),
        ("5 dimensions", Box::new(|f| f.tensor(Q).dims = vec![16, 32, 1, 1, 1])),
        ("rows of 0", Box::new(|f| f.tensor(Q).dims = vec![0, 32])),
        ("too large", Box::new(|f| f.tensor(Q).dims = vec![u64::MAX, 32])),
        ("too large", Box::new(|f| f.tensor(Q).dims = vec![1 << 63])),
        ("past the end", Box::new(|f| f.tensor(Q).dims = vec![16, 1 << 20])),
        ("past the end", Box::new(|f| f.tensor(Q).offset = Some(1 << 40))),
        ("past the end", Box::new(|f| f.tensor(Q).offset = Some(u64::MAX - 31))),
        ("multiple of 32", Box::new(|f| f.tensor(Q).offset = Some(8))),
        ("overlaps", Box::new(|f| f.tensor(Q).offset = Some(0))),
        ("element type 4", Box::new(|f| f.tensor(Q).kind = 4)),
        ("element type 17", Box::new(|f| f.tensor(Q).kind = 17)),
        ("blocks of 32", Box::new(|f| f.tensor(Q).kind = 3)),
        (
            "element 3 is not finite",
            Box::new(|f| {
                f.tensor(Q).bytes[6..8].copy_from_slice(&0x7c00u16.to_le_bytes());
            }),
        ),
        (
            "element 0 is not finite",
            Box::new(|f| {
                f.tensor(Q).bytes[..2].copy_from_slice(&0x7e00u16.to_le_bytes());
            }),
        ),
    ];
    let scratch = Scratch::new();
    for (says, change) in changes {
        let mut file = model("llama", SIZES);
        change(&mut file);
        let text = scratch.refused(&file);
        assert!(text.contains(says) && text.contains("attn_"), "{says}: {text}");
    }
    let mut file = model("llama", SIZES);
    let large = [1.0, 65520.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
    file.tensors.insert("output_norm.weight".to_owned(), tensor(&[16], F32, &large.repeat(2)));
    assert!(scratch.refused(&file).contains("element 1 is 6.552e4, too large for f16"));
    let mut file = model("llama", SIZES);
    file.tensors.insert("blk.0.attn_q.bias".to_owned(), tensor(&[32], F32, &[0.0; 32]));
    assert!(
        scratch.refused(&file).contains("\"blk.0.attn_q.bias\" is not part of a Llama decoder")
    );
}

#[test]
fn configurations_that_cannot_be_right_are_refused() {
    let changes: Vec<(&str, &str, Value)> = vec![
        ("heads 0", "llama.attention.head_count", Value::U32(0)),
        ("kv heads 0", "llama.attention.head_count_kv", Value::U32(0)),
        ("3 heads over 2", "llama.attention.head_count", Value::U32(3)),
        ("2 heads over 3", "llama.attention.head_count_kv", Value::U32(3)),
        ("layers 0", "llama.block_count", Value::U32(0)),
        ("layers 4294967295", "llama.block_count", Value::U32(u32::MAX)),
        ("hidden width 0", "llama.embedding_length", Value::U32(0)),
        ("context 0", "llama.context_length", Value::U32(0)),
        ("feed-forward width 0", "llama.feed_forward_length", Value::U32(0)),
        ("value_length 8", "llama.attention.value_length", Value::U32(8)),
        ("norm epsilon NaN", "llama.attention.layer_norm_rms_epsilon", Value::F32(f32::NAN)),
        ("norm epsilon 0", "llama.attention.layer_norm_rms_epsilon", Value::F32(0.0)),
        ("RoPE base -1", "llama.rope.freq_base", Value::F32(-1.0)),
        ("id 5 in a vocabulary of 5", "tokenizer.ggml.eos_token_id", Value::U32(5)),
        ("scaling \"longrope\"", "llama.rope.scaling.type", Value::Text("longrope")),
        ("\"llama.expert_count\" is 8", "llama.expert_count", Value::U32(8)),
        ("not a whole number", "llama.block_count", Value::Text("1")),
        ("not a float", "llama.rope.freq_base", Value::U32(1)),
        ("not a string", "general.architecture", Value::U32(1)),
        ("architecture \"mamba\"", "general.architecture", Value::Text("mamba")),
        ("alignment is", "general.alignment", Value::U32(33)),
    ];
    let scratch = Scratch::new();
    for (says, key, value) in changes {
        let mut file = model("llama", Sizes { kv_heads: 2, ..SIZES });
        file.set(key, value);
        let text = scratch.refused(&file);
        assert!(text.contains(says), "{says}: {text}");
    }
    for key in ["general.architecture", "llama.block_count", "llama.context_length"] {
        let mut file = model("llama", SIZES);
        file.metadata.remove(key);
        assert!(scratch.refused(&file).contains(&format!("{key:?} is missing")));
    }
}

/// Goal: scalings are read from all three places. Method: linear by metadata; Llama 3's by its factors, computed
/// here as converters do; other factors are refused.
#[test]
fn rope_scalings_are_recognised() {
    let scratch = Scratch::new();
    let scaling = |file: &File| scratch.load(file).expect("a whole file").config.rope_scaling;
    let mut file = model("llama", SIZES);
    file.set("llama.rope.scaling.type", Value::Text("linear"));
    file.set("llama.rope.scaling.factor", Value::F32(4.0));
    assert_eq!(scaling(&file), RopeScaling::Linear { factor: 4.0 });

    let mut file = model("llama", SIZES);
    let factors: Vec<f32> = (0..8)
        .map(|i| {
            let wavelength = 2.0 * std::f64::consts::PI * 5e5f64.powf(2.0 * f64::from(i) / 16.0);
            let (high, low) = (8192.0 / 4.0, 8192.0 / 1.0);
            let smooth = (8192.0 / wavelength - 1.0) / (4.0 - 1.0);
            let blend = 1.0 / ((1.0 - smooth) / 32.0 + smooth);
            let rest = if wavelength > low { 32.0 } else { blend };
            (if wavelength < high { 1.0 } else { rest }) as f32
        })
        .collect();
    file.tensors.insert("rope_freqs.weight".to_owned(), tensor(&[8], F32, &factors));
    let RopeScaling::Llama3 { factor, original_context, .. } = scaling(&file) else {
        panic!("factors {factors:?} are Llama 3's");
    };
    assert_eq!((factor, original_context), (32.0, 8192.0));
    let mut other = factors.clone();
    other[4] *= 1.01;
    file.tensors.insert("rope_freqs.weight".to_owned(), tensor(&[8], F32, &other));
    assert!(scratch.refused(&file).contains("rope_freqs.weight"));
    file.tensors.insert("rope_freqs.weight".to_owned(), tensor(&[4], F32, &factors[..4]));
    assert!(scratch.refused(&file).contains("is not 8 factors"));
}

/// Goal: an id goes before a text where flag or vocabulary want one. Method: each, and a file that does not say which id.
#[test]
fn the_first_id_is_wanted_by_flag_or_vocabulary() {
    let scratch = Scratch::new();
    let bos = |keys: &[(&str, Value)]| {
        let mut file = model("llama", SIZES);
        keys.iter()
            .for_each(|(key, value)| file.set(&format!("tokenizer.ggml.{key}"), value.clone()));
        scratch.load(&file).map(|model| model.config.bos).map_err(|e| one_line(Some(e)))
    };
    let id = ("bos_token_id", Value::U32(3));
    let flag = |on| ("add_bos_token", Value::Bool(on));
    assert_eq!(bos(std::slice::from_ref(&id)), Ok(None));
    assert_eq!(bos(&[id.clone(), flag(true)]), Ok(Some(3)));
    assert_eq!(bos(&[id.clone(), ("pre", Value::Text("llama-bpe"))]), Ok(Some(3)));
    let spm = ("model", Value::Text("llama"));
    assert_eq!(bos(&[id.clone(), spm.clone()]), Ok(Some(3)));
    assert_eq!(bos(std::slice::from_ref(&spm)), Ok(Some(1)));
    assert_eq!(bos(&[id, spm, flag(false)]), Ok(None));
    assert!(bos(&[flag(true)]).expect_err("no id").contains("bos_token_id is missing"));
    let eos = bos(&[("add_eos_token", Value::Bool(true))]).expect_err("an id behind a text");
    assert!(eos.contains("\"tokenizer.ggml.add_eos_token\" is true"), "{eos}");
}

#[test]
fn the_digest_follows_weights_and_configuration_but_not_the_file_name() {
    let scratch = Scratch::new();
    let mut file = model("llama", SIZES);
    let first = scratch.load(&file).expect("whole").digest;
    let elsewhere = scratch.path.with_file_name("other.gguf");
    fs::copy(&scratch.path, &elsewhere).expect("copied");
    assert_eq!(Model::load(&elsewhere, None).expect("whole").digest, first);
    file.set("llama.rope.freq_base", Value::F32(1e4));
    let other_base = scratch.load(&file).expect("whole").digest;
    *file.tensor("blk.0.ffn_down.weight").bytes.last_mut().expect("not empty") ^= 1;
    let other_weight = scratch.load(&file).expect("whole").digest;
    assert!(first != other_base && other_base != other_weight);
}

#[test]
fn a_path_that_is_no_model_says_so() {
    let scratch = Scratch::new();
    assert!(one_line(Model::load(&scratch.path, None).err()).contains("No such file"));
    assert!(one_line(scratch.load_bytes(b"").err()).contains("ends inside"));
    assert!(one_line(scratch.load_bytes(b"GGML....").err()).contains("does not begin with GGUF"));
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    assert!(one_line(scratch.load_bytes(pointer).err()).contains("a Git-LFS pointer"));
    let lone = b"\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}";
    assert!(one_line(scratch.load_bytes(lone).err()).contains("give the folder"));
}

/// The tensors of a model over `count` files, the metadata in the first, as programs that split write them.
fn split(file: &File, count: u32) -> Vec<File> {
    let numbers = |part: &mut File, no: u32| {
        part.set("split.no", Value::U32(no));
        part.set("split.count", Value::U32(count));
        part.set("split.tensors.count", Value::U32(file.tensors.len() as u32));
    };
    let mut parts: Vec<File> = (0..count)
        .map(|no| {
            let metadata = if no == 0 { file.metadata.clone() } else { Default::default() };
            let mut part = File { version: 3, metadata, tensors: Default::default() };
            numbers(&mut part, no);
            part
        })
        .collect();
    for (i, (name, tensor)) in file.tensors.iter().enumerate() {
        parts[i % count as usize].tensors.insert(name.clone(), tensor.clone());
    }
    parts
}

/// Goal: a split file reads like a whole one. Method: the same tensors over three files; then each way in which parts can be wrong.
#[test]
fn parts_of_a_split_file_read_like_one_file() {
    let scratch = Scratch::new();
    let whole = model("llama", SIZES);
    let digest = scratch.load(&whole).expect("whole").digest;
    let folder = scratch.path.parent().expect("a folder");
    let path = |no: u32| folder.join(format!("model.gguf-{no:05}-of-00003.gguf"));
    let parts = split(&whole, 3);
    let write = |no: u32, part: &File| fs::write(path(no), part.write().0).expect("written");
    let all = || (1..=3).zip(&parts).for_each(|(no, part)| write(no, part));
    let refused = |no: u32| one_line(Model::load(&path(no), None).err());
    all();
    assert_eq!(Model::load(&path(1), None).expect("three parts").digest, digest);
    assert!(refused(2).contains("part 2 of 3 of a split file; give the first"));

    let changed = |no: usize, change: &dyn Fn(&mut File)| {
        let mut part = parts[no - 1].clone();
        change(&mut part);
        write(no as u32, &part);
        let text = refused(1);
        all();
        text
    };
    let other = changed(2, &|part| part.set("split.no", Value::U32(2)));
    assert!(other.contains("part 3 of 3 by its metadata") && other.contains("00002-of"), "{other}");
    assert!(changed(1, &|part| part.set("split.no", Value::U32(3))).contains("part 4 of 3"));
    assert!(changed(1, &|part| part.set("split.count", Value::U32(1 << 20))).contains("part 1 of"));
    let less = changed(3, &|part| drop(part.tensors.pop_first()));
    assert!(less.contains("11 tensors in 3 parts, 12 by the metadata"), "{less}");
    let (name, tensor) = parts[0].tensors.first_key_value().expect("not empty");
    let twice = changed(2, &|part| drop(part.tensors.insert(name.clone(), tensor.clone())));
    assert!(twice.contains("is in another part too"), "{twice}");
    // A fault in a later part is that part's.
    let (name, _) = parts[2].tensors.first_key_value().expect("not empty");
    let past = changed(3, &|part| part.tensor(name).offset = Some(1 << 40));
    assert!(past.contains("past the end") && past.contains("00003-of-00003"), "{past}");

    fs::remove_file(path(3)).expect("removed");
    assert!(
        refused(1).contains("part 1 of 3; part 3, \"model.gguf-00003-of-00003.gguf\", is missing")
    );
    // The first part alone, under a name of its own.
    assert!(scratch.refused(&parts[0]).contains("part 1 of 3, whose name does not end"));
}
