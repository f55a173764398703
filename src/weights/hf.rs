//! A folder of safetensors, single or sharded, with its `config.json`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use half::{bf16, f16};
use safetensors::Dtype as StoredDtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;

use super::assemble::{Source, assemble};
use super::hf_config::{self, json};
use super::layout::{Part, Slot};
use super::{Model, Origin, WeightsError, quoted};
use crate::contract::Dtype;
use crate::input::{IS_LFS_POINTER, is_lfs_pointer};

/// Longest header, in bytes.
const HEADER_BYTES_MAX: u64 = 64 << 20;
/// Most shards.
const SHARDS_MAX: usize = 1 << 12;
/// Tensors of older files that are recomputed, and a head that a tied model does not use.
const IGNORED: [&str; 1] = ["rotary_emb.inv_freq"];
const HEAD: &str = "lm_head.weight";

/// Loads a model from a folder.
pub(super) fn load(
    folder: &Path,
    name: String,
    dtype: Option<Dtype>,
) -> Result<Model, WeightsError> {
    let hf = hf_config::read(folder, name)?;
    let mut source =
        HfSource { folder: Origin::new(folder), shards: Vec::new(), of: BTreeMap::new() };
    match index(folder)? {
        None => source.add(Shard::open(&folder.join("model.safetensors"))?, |_| true)?,
        Some(index) => {
            for file in shard_names(folder, &index)? {
                let shard = Shard::open(&folder.join(&file))?;
                // A copy in a shard that the index does not name is a stale one.
                source.add(shard, |tensor| index.weight_map.get(tensor) == Some(&file))?;
            }
            source.check_index(&index)?;
        }
    }
    let ignored: &[&str] = if hf.tied { &[IGNORED[0], HEAD] } else { &IGNORED };
    assemble(&mut source, hf.config, dtype.unwrap_or(hf.dtype), hf.tied, ignored)
}

/// Which file holds which tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

const INDEX: &str = "model.safetensors.index.json";

/// The index of a folder with several shards.
fn index(folder: &Path) -> Result<Option<Index>, WeightsError> {
    let path = folder.join(INDEX);
    if path.exists() { json(&path).map(Some) } else { Ok(None) }
}

/// File names of the shards, each once.
fn shard_names(folder: &Path, index: &Index) -> Result<Vec<String>, WeightsError> {
    let origin = Origin::new(&folder.join(INDEX));
    let mut names: Vec<String> = index.weight_map.values().cloned().collect();
    names.sort();
    names.dedup();
    if names.is_empty() || names.len() > SHARDS_MAX {
        return Err(origin.format(format!("{} shards", names.len())));
    }
    // A plain file name cannot lead out of the folder.
    let plain = |name: &str| Path::new(name).file_name().is_some_and(|file| file == name);
    match names.iter().find(|name| !plain(name)) {
        Some(name) => Err(origin.format(format!("shard name {}", quoted(name)))),
        None => Ok(names),
    }
}

/// All shards of a folder.
struct HfSource {
    folder: Origin,
    shards: Vec<Shard>,
    /// The shard of each tensor.
    of: BTreeMap<String, usize>,
}

impl HfSource {
    /// Takes the tensors of a shard that `belongs` to it.
    fn add(&mut self, shard: Shard, belongs: impl Fn(&str) -> bool) -> Result<(), WeightsError> {
        for name in shard.metadata.offset_keys() {
            if belongs(&name) && self.of.insert(name.clone(), self.shards.len()).is_some() {
                return Err(shard.origin.tensor(&name, "is in another shard too"));
            }
        }
        self.shards.push(shard);
        Ok(())
    }

    /// Every tensor that the index names is where it says.
    fn check_index(&self, index: &Index) -> Result<(), WeightsError> {
        match index.weight_map.iter().find(|(tensor, _)| !self.of.contains_key(*tensor)) {
            Some((tensor, file)) => {
                let what = format!("missing in {}, where the index has it", quoted(file));
                Err(self.folder.tensor(tensor, what))
            }
            None => Ok(()),
        }
    }
}

impl Source for HfSource {
    fn origin(&self, tensor: &str) -> &Origin {
        self.of.get(tensor).map_or(&self.folder, |&shard| &self.shards[shard].origin)
    }

    fn names(&self) -> Vec<String> {
        self.of.keys().cloned().collect()
    }

    fn name(&self, slot: Slot) -> String {
        match slot {
            Slot::Embedding => "model.embed_tokens.weight".to_owned(),
            Slot::FinalNorm => "model.norm.weight".to_owned(),
            Slot::Head => HEAD.to_owned(),
            Slot::Layer(l, part) => {
                let part = match part {
                    Part::AttentionNorm => "input_layernorm",
                    Part::Q => "self_attn.q_proj",
                    Part::K => "self_attn.k_proj",
                    Part::V => "self_attn.v_proj",
                    Part::QNorm => "self_attn.q_norm",
                    Part::KNorm => "self_attn.k_norm",
                    Part::O => "self_attn.o_proj",
                    Part::FfnNorm => "post_attention_layernorm",
                    Part::Gate => "mlp.gate_proj",
                    Part::Up => "mlp.up_proj",
                    Part::Down => "mlp.down_proj",
                };
                format!("model.layers.{l}.{part}.weight")
            }
        }
    }

    fn shape(&self, tensor: &str) -> Option<Vec<u64>> {
        let shard = &self.shards[*self.of.get(tensor)?];
        let info = shard.metadata.info(tensor)?;
        Some(info.shape.iter().map(|&d| d as u64).collect())
    }

    fn read(
        &mut self,
        tensor: &str,
        each: &mut dyn FnMut(&[f32]) -> Result<(), WeightsError>,
    ) -> Result<(), WeightsError> {
        match self.of.get(tensor) {
            Some(&shard) => self.shards[shard].read(tensor, each),
            None => Err(self.folder.tensor(tensor, "missing")),
        }
    }

    fn interleaved(&self) -> bool {
        false
    }
}

/// One open file whose header has been read.
struct Shard {
    origin: Origin,
    reader: BufReader<File>,
    metadata: Metadata,
    data_start: u64,
}

impl Shard {
    fn open(path: &Path) -> Result<Shard, WeightsError> {
        let origin = Origin::new(path);
        let file = File::open(path).map_err(|e| origin.io(e))?;
        let file_bytes = file.metadata().map_err(|e| origin.io(e))?.len();
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let start = reader.fill_buf().map_err(|e| origin.io(e))?;
        if is_lfs_pointer(start) {
            return Err(origin.unsupported(IS_LFS_POINTER));
        }
        let mut length = [0; 8];
        if file_bytes < 8 {
            return Err(origin.format(format!("{file_bytes} bytes")));
        }
        reader.read_exact(&mut length).map_err(|e| origin.io(e))?;
        let length = u64::from_le_bytes(length);
        if length > HEADER_BYTES_MAX || length > file_bytes - 8 {
            let what = format!("header of {length} bytes in a file of {file_bytes}");
            return Err(origin.format(what));
        }
        let mut header = vec![0; length as usize];
        reader.read_exact(&mut header).map_err(|e| origin.io(e))?;
        // Parsing also checks that sizes follow from shapes and that tensors neither overlap nor leave gaps.
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|e| origin.format(format!("header: {e}")))?;
        let data_start = 8 + length;
        if data_start.checked_add(metadata.data_len() as u64) != Some(file_bytes) {
            let what = format!(
                "{} bytes of data expected, {} are there",
                metadata.data_len(),
                file_bytes - data_start
            );
            return Err(origin.format(what));
        }
        Ok(Shard { origin, reader, metadata, data_start })
    }

    fn read(
        &mut self,
        tensor: &str,
        each: &mut dyn FnMut(&[f32]) -> Result<(), WeightsError>,
    ) -> Result<(), WeightsError> {
        let missing = || self.origin.tensor(tensor, "missing");
        let TensorInfo { dtype, data_offsets, .. } =
            self.metadata.info(tensor).ok_or_else(missing)?;
        let widen: fn(&[u8]) -> f32 = match dtype {
            StoredDtype::F32 => |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            StoredDtype::F16 => |b| f16::from_le_bytes([b[0], b[1]]).to_f32(),
            StoredDtype::BF16 => |b| bf16::from_le_bytes([b[0], b[1]]).to_f32(),
            other => {
                let what = format!("tensor {} has dtype {other:?}", quoted(tensor));
                return Err(self.origin.unsupported(what));
            }
        };
        let size = if *dtype == StoredDtype::F32 { 4 } else { 2 };
        let (from, to) = *data_offsets;
        let start = SeekFrom::Start(self.data_start + from as u64);
        self.reader.seek(start).map_err(|e| self.origin.io(e))?;
        let mut bytes = vec![0; size * VALUES_PER_READ];
        let mut values = Vec::with_capacity(VALUES_PER_READ);
        let mut left = to - from;
        while left > 0 {
            let bytes = &mut bytes[..left.min(size * VALUES_PER_READ)];
            self.reader.read_exact(bytes).map_err(|e| self.origin.io(e))?;
            values.clear();
            values.extend(bytes.chunks_exact(size).map(widen));
            each(&values)?;
            left -= bytes.len();
        }
        Ok(())
    }
}

/// Values converted at a time.
const VALUES_PER_READ: usize = 4096;
