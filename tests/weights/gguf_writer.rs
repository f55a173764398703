//! Writes small GGUF files, valid or damaged as a test asks.

use std::collections::BTreeMap;

/// Element type numbers of the format.
pub(crate) const F32: u32 = 0;
pub(crate) const F16: u32 = 1;

/// A metadata value.
#[derive(Clone)]
pub(crate) enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(&'static str),
}

/// A tensor before it is written.
#[derive(Clone)]
pub(crate) struct Tensor {
    /// Dimensions, the fastest first.
    pub(crate) dims: Vec<u64>,
    pub(crate) kind: u32,
    pub(crate) bytes: Vec<u8>,
    /// Offset to claim instead of the true one.
    pub(crate) offset: Option<u64>,
}

/// A file before it is written.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) version: u32,
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) tensors: BTreeMap<String, Tensor>,
}

/// Sizes of a one-layer model.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) ffn: usize,
    pub(crate) vocab: usize,
}

pub(crate) const SIZES: Sizes =
    Sizes { hidden: 16, heads: 2, kv_heads: 1, head_dim: 16, ffn: 24, vocab: 5 };

/// The value of element `e` of the `t`-th tensor: small, exact in both 16-bit types, different between neighbours
/// in every direction.
pub(crate) fn value(t: usize, e: usize) -> f32 {
    ((e * 7 + t * 13) % 61) as f32 / 32.0 - 1.0
}

/// Names of the tensors of a one-layer model and their shapes `[n, k]` (`[k]` for norms), in the order of `value`.
pub(crate) fn tensors(s: Sizes, qwen3: bool) -> Vec<(&'static str, Vec<usize>)> {
    let (q, kv) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
    let mut list = vec![
        ("token_embd.weight", vec![s.vocab, s.hidden]),
        ("output_norm.weight", vec![s.hidden]),
        ("output.weight", vec![s.vocab, s.hidden]),
        ("blk.0.attn_norm.weight", vec![s.hidden]),
        ("blk.0.attn_q.weight", vec![q, s.hidden]),
        ("blk.0.attn_k.weight", vec![kv, s.hidden]),
        ("blk.0.attn_v.weight", vec![kv, s.hidden]),
        ("blk.0.attn_output.weight", vec![s.hidden, q]),
        ("blk.0.ffn_norm.weight", vec![s.hidden]),
        ("blk.0.ffn_gate.weight", vec![s.ffn, s.hidden]),
        ("blk.0.ffn_up.weight", vec![s.ffn, s.hidden]),
        ("blk.0.ffn_down.weight", vec![s.hidden, s.ffn]),
    ];
    if qwen3 {
        list.push(("blk.0.attn_q_norm.weight", vec![s.head_dim]));
        list.push(("blk.0.attn_k_norm.weight", vec![s.head_dim]));
    }
    list
}

/// A whole one-layer model of F32 norms and F16 matrices.
pub(crate) fn model(arch: &'static str, s: Sizes) -> File {
    let mut metadata = BTreeMap::from([("general.architecture".to_owned(), Value::Text(arch))]);
    let numbers = [
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", s.hidden),
        ("feed_forward_length", s.ffn),
        ("attention.head_count", s.heads),
        ("attention.head_count_kv", s.kv_heads),
        ("attention.key_length", s.head_dim),
        ("attention.value_length", s.head_dim),
    ];
    for (key, n) in numbers {
        metadata.insert(format!("{arch}.{key}"), Value::U32(n as u32));
    }
    metadata.insert(format!("{arch}.rope.freq_base"), Value::F32(5e5));
    metadata.insert(format!("{arch}.attention.layer_norm_rms_epsilon"), Value::F32(1e-5));
    metadata.insert("tokenizer.ggml.eos_token_id".to_owned(), Value::U32(2));
    let tensors = tensors(s, arch == "qwen3")
        .into_iter()
        .enumerate()
        .map(|(t, (name, shape))| {
            let values: Vec<f32> = (0..shape.iter().product()).map(|e| value(t, e)).collect();
            (name.to_owned(), tensor(&shape, if shape.len() == 1 { F32 } else { F16 }, &values))
        })
        .collect();
    File { version: 3, metadata, tensors }
}

/// A tensor of F32 or F16 values; `shape` is row-major.
pub(crate) fn tensor(shape: &[usize], kind: u32, values: &[f32]) -> Tensor {
    let bytes = match kind {
        F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        F16 => values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect(),
        other => unreachable!("type {other} is written by hand"),
    };
    let dims = shape.iter().rev().map(|&d| d as u64).collect();
    Tensor { dims, kind, bytes, offset: None }
}

impl File {
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.metadata.insert(key.to_owned(), value);
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.get_mut(name).expect("a tensor of the model")
    }

    /// The bytes of the file, and where its data begins.
    pub(crate) fn write(&self) -> (Vec<u8>, usize) {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u64).to_le_bytes());
            out.extend(text.bytes());
        };
        for (key, value) in &self.metadata {
            text(&mut out, key);
            match value {
                Value::U32(n) => {
                    out.extend(4u32.to_le_bytes());
                    out.extend(n.to_le_bytes());
                }
                Value::F32(x) => {
                    out.extend(6u32.to_le_bytes());
                    out.extend(x.to_le_bytes());
                }
                Value::Bool(b) => {
                    out.extend(7u32.to_le_bytes());
                    out.push(u8::from(*b));
                }
                Value::Text(t) => {
                    out.extend(8u32.to_le_bytes());
                    text(&mut out, t);
                }
            }
        }
        let mut next = 0u64;
        for (name, tensor) in &self.tensors {
            text(&mut out, name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            out.extend(tensor.dims.iter().flat_map(|d| d.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(next).to_le_bytes());
            next += (tensor.bytes.len() as u64).next_multiple_of(32);
        }
        let start = out.len().next_multiple_of(32);
        for tensor in self.tensors.values() {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(&tensor.bytes);
        }
        (out, start)
    }
}
