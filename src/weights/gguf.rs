//! The GGUF container, versions 2 and 3: metadata, tensor directory, tensor values.
//!
//! Every count and length is checked against what is left of the file before memory is taken for it, so a
//! damaged header costs at most a constant factor of its own size.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::quant::{BLOCK_MAX, Quant};
use super::{Origin, WeightsError, gguf_split, quoted};
use crate::input::{IS_LFS_POINTER, is_lfs_pointer};

/// Longest string, in bytes.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Most array elements of the metadata, all arrays together.
const ELEMENTS_MAX: u64 = 4 << 20;
/// Most metadata keys.
const KEYS_MAX: u64 = 1 << 16;
/// Most tensors.
const TENSORS_MAX: u64 = 1 << 16;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Array(Vec<Value>),
}

/// A directory entry.
#[derive(Clone, Debug)]
struct Entry {
    /// Dimensions, the fastest first.
    dims: Vec<u64>,
    /// Number of the element type.
    kind: u32,
    /// Bytes from the start of the data section.
    offset: u64,
    /// Number of the file that holds it.
    part: usize,
}

/// An open file whose header has been read, and the others of a split one.
pub(crate) struct Gguf<R> {
    /// The first file's.
    metadata: BTreeMap<String, Value>,
    entries: BTreeMap<String, Entry>,
    parts: Vec<Part<R>>,
}

/// Where the values of one file are.
struct Part<R> {
    origin: Origin,
    reader: R,
    file_bytes: u64,
    alignment: u64,
    data_start: u64,
}

impl Gguf<BufReader<File>> {
    /// Opens a file. Of a split one this is the first, which has the metadata of all.
    pub(crate) fn open(path: &Path) -> Result<Self, WeightsError> {
        let gguf = Gguf::open_part(path)?;
        gguf_split::check_first(&gguf)?;
        Ok(gguf)
    }

    /// Opens one file, whole or a part.
    pub(super) fn open_part(path: &Path) -> Result<Self, WeightsError> {
        let origin = Origin::new(path);
        let file = File::open(path).map_err(|e| origin.io(e))?;
        Gguf::read(origin, BufReader::with_capacity(1 << 20, file))
    }
}

impl<R: Read + Seek> Gguf<R> {
    /// Reads the header.
    pub(crate) fn read(origin: Origin, mut reader: R) -> Result<Self, WeightsError> {
        let file_bytes = reader.seek(SeekFrom::End(0)).map_err(|e| origin.io(e))?;
        reader.rewind().map_err(|e| origin.io(e))?;
        let mut header = Header { origin: &origin, reader: &mut reader, at: 0, file_bytes };
        if header.array::<4>("magic")? != *b"GGUF" {
            return Err(no_gguf(&origin, &mut reader));
        }
        match header.u32("version")? {
            2 | 3 => {}
            version if version.swap_bytes() <= 3 => {
                return Err(origin.unsupported("big-endian GGUF"));
            }
            version => return Err(origin.unsupported(format!("GGUF version {version}"))),
        }
        let tensors = header.count("tensors", TENSORS_MAX)?;
        let keys = header.count("metadata keys", KEYS_MAX)?;
        let mut metadata = BTreeMap::new();
        let mut elements_left = ELEMENTS_MAX;
        for _ in 0..keys {
            let key = header.text("metadata key")?;
            let kind = header.u32(&key)?;
            let value = header.value(&key, kind, &mut elements_left)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(origin.format(format!("metadata key {} twice", quoted(&key))));
            }
        }
        let mut entries = BTreeMap::new();
        for _ in 0..tensors {
            let name = header.text("tensor name")?;
            let entry = header.entry(&name)?;
            if entries.insert(name.clone(), entry).is_some() {
                return Err(origin.tensor(&name, "listed twice"));
            }
        }
        let header_bytes = header.at;
        let alignment = match metadata.get("general.alignment") {
            None => 32,
            Some(Value::Unsigned(a)) if a.is_power_of_two() && (8..=1 << 20).contains(a) => *a,
            Some(other) => {
                return Err(origin.format(format!("general.alignment is {other:?}")));
            }
        };
        let data_start = header_bytes.next_multiple_of(alignment);
        let parts = vec![Part { origin, reader, file_bytes, alignment, data_start }];
        Ok(Gguf { metadata, entries, parts })
    }

    /// Takes in the tensors of a further part of a split file.
    pub(super) fn join(&mut self, other: Gguf<R>) -> Result<(), WeightsError> {
        let before = self.parts.len();
        self.parts.extend(other.parts);
        for (name, entry) in other.entries {
            let entry = Entry { part: before + entry.part, ..entry };
            let origin = &self.parts[entry.part].origin;
            if self.entries.len() as u64 == TENSORS_MAX {
                return Err(origin.format(format!("more than {TENSORS_MAX} tensors in all")));
            }
            if self.entries.insert(name.clone(), entry).is_some() {
                return Err(origin.tensor(&name, "is in another part too"));
            }
        }
        Ok(())
    }

    /// The file, the first of a split one.
    pub(crate) fn origin(&self) -> &Origin {
        &self.parts[0].origin
    }

    /// The file that holds a tensor.
    pub(super) fn origin_of(&self, tensor: &str) -> &Origin {
        &self.parts[self.entries.get(tensor).map_or(0, |entry| entry.part)].origin
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// All metadata.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.metadata.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// A text value; `None` when the key is absent.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(key, "a string")),
        }
    }

    /// A whole number; `None` when the key is absent.
    pub(crate) fn unsigned(&self, key: &str) -> Result<Option<u64>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(n)) => Ok(Some(*n)),
            Some(Value::Signed(n)) if *n >= 0 => Ok(Some(*n as u64)),
            Some(_) => Err(self.wrong(key, "a whole number")),
        }
    }

    /// A float; `None` when the key is absent.
    pub(crate) fn float(&self, key: &str) -> Result<Option<f64>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(x)) => Ok(Some(*x)),
            Some(_) => Err(self.wrong(key, "a float")),
        }
    }

    /// A bool; `None` when the key is absent.
    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(*b)),
            Some(_) => Err(self.wrong(key, "a bool")),
        }
    }

    /// An array; `None` when the key is absent. Only tokenizers have arrays.
    #[cfg(feature = "cli")]
    pub(crate) fn array(&self, key: &str) -> Result<Option<&[Value]>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values)),
            Some(_) => Err(self.wrong(key, "an array")),
        }
    }

    /// An error about a key's type.
    pub(crate) fn wrong(&self, key: &str, wanted: &str) -> WeightsError {
        self.origin().format(format!("metadata key {} is not {wanted}", quoted(key)))
    }

    /// Names of all tensors.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &String> {
        self.entries.keys()
    }

    /// Row-major shape of a tensor.
    pub(super) fn shape(&self, tensor: &str) -> Option<Vec<u64>> {
        self.entries.get(tensor).map(|e| e.dims.iter().rev().copied().collect())
    }

    /// Checks types, sizes, alignment and bounds of all tensors, and that no two overlap.
    pub(super) fn check_data(&self) -> Result<(), WeightsError> {
        let mut ranges = Vec::new();
        for (name, entry) in &self.entries {
            let bytes = self.extent(name, entry)?.2;
            ranges.push((entry.part, entry.offset, entry.offset + bytes, name));
        }
        ranges.sort();
        match ranges.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].2 > pair[1].1) {
            Some(pair) => {
                let name = pair[1].3;
                Err(self.origin_of(name).tensor(name, format!("overlaps {}", quoted(pair[0].3))))
            }
            None => Ok(()),
        }
    }

    /// Type, blocks and bytes of a tensor, all within the file.
    fn extent(&self, name: &str, entry: &Entry) -> Result<(Quant, u64, u64), WeightsError> {
        let part = &self.parts[entry.part];
        let wrong = |what: String| part.origin.tensor(name, what);
        let quant = Quant::from_id(entry.kind).ok_or_else(|| {
            part.origin.unsupported(format!(
                "tensor {} has element type {}",
                quoted(name),
                entry.kind
            ))
        })?;
        let too_large = || wrong(format!("dimensions {:?} are too large", entry.dims));
        let elements = entry.dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let elements = elements.ok_or_else(too_large)?;
        let block = quant.block() as u64;
        let row = entry.dims[0];
        if elements == 0 || !row.is_multiple_of(block) {
            return Err(wrong(format!("rows of {row} elements in blocks of {block}")));
        }
        let blocks = elements / block;
        let bytes = blocks.checked_mul(quant.bytes() as u64).ok_or_else(too_large)?;
        if !entry.offset.is_multiple_of(part.alignment) {
            let what = format!("offset {} is not a multiple of {}", entry.offset, part.alignment);
            return Err(wrong(what));
        }
        let end = part.data_start.checked_add(entry.offset).and_then(|at| at.checked_add(bytes));
        match end {
            Some(end) if end <= part.file_bytes => Ok((quant, blocks, bytes)),
            _ => Err(wrong(format!(
                "{bytes} bytes at offset {} go past the end of the file ({} bytes)",
                entry.offset, part.file_bytes
            ))),
        }
    }

    /// Hands the values of a tensor over in order.
    pub(super) fn values(
        &mut self,
        name: &str,
        each: &mut dyn FnMut(&[f32]) -> Result<(), WeightsError>,
    ) -> Result<(), WeightsError> {
        let entry = self.entries.get(name).ok_or_else(|| self.origin().tensor(name, "missing"))?;
        let (quant, blocks, _) = self.extent(name, entry)?;
        let (part, offset) = (entry.part, entry.offset);
        let Part { origin, reader, data_start, .. } = &mut self.parts[part];
        let at = *data_start + offset;
        reader.seek(SeekFrom::Start(at)).map_err(|e| origin.io(e))?;
        let blocks_per_read = (BLOCK_MAX / quant.block() * 16) as u64;
        let mut bytes = vec![0; blocks_per_read as usize * quant.bytes()];
        let mut values = vec![0.0; blocks_per_read as usize * quant.block()];
        let mut left = blocks;
        while left > 0 {
            let count = left.min(blocks_per_read) as usize;
            let bytes = &mut bytes[..count * quant.bytes()];
            reader.read_exact(bytes).map_err(|e| origin.io(e))?;
            let values = &mut values[..count * quant.block()];
            let blocks = bytes.chunks_exact(quant.bytes());
            for (b, y) in blocks.zip(values.chunks_exact_mut(quant.block())) {
                quant.dequantise(b, y);
            }
            each(values)?;
            left -= count as u64;
        }
        Ok(())
    }
}

/// What a file is that does not begin as GGUF does.
fn no_gguf<R: Read + Seek>(origin: &Origin, reader: &mut R) -> WeightsError {
    let mut start = Vec::new();
    let read = reader.rewind().and_then(|()| reader.take(64).read_to_end(&mut start));
    match read {
        Err(error) => origin.io(error),
        Ok(_) if is_lfs_pointer(&start) => origin.unsupported(IS_LFS_POINTER),
        // The length of a header, and JSON.
        Ok(_) if start.len() > 8 && start[4..8] == [0; 4] && start[8] == b'{' => {
            origin.unsupported(LONE_SAFETENSORS)
        }
        Ok(_) => origin.format("does not begin with GGUF"),
    }
}

/// What is said about a safetensors file where a model is wanted.
pub(super) const LONE_SAFETENSORS: &str =
    "a lone safetensors file; give the folder that also holds config.json";

/// The part of the file before the data.
struct Header<'a, R> {
    origin: &'a Origin,
    reader: &'a mut R,
    at: u64,
    file_bytes: u64,
}

impl<R: Read> Header<'_, R> {
    /// Refuses to go past the end of the file.
    fn need(&self, bytes: u64, of: &str) -> Result<(), WeightsError> {
        if bytes > self.file_bytes - self.at {
            return Err(self.origin.format(format!(
                "ends inside {} (byte {} of {})",
                quoted(of),
                self.at,
                self.file_bytes
            )));
        }
        Ok(())
    }

    fn fill(&mut self, bytes: &mut [u8], of: &str) -> Result<(), WeightsError> {
        self.need(bytes.len() as u64, of)?;
        self.reader.read_exact(bytes).map_err(|e| self.origin.io(e))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn array<const N: usize>(&mut self, of: &str) -> Result<[u8; N], WeightsError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, of)?;
        Ok(bytes)
    }

    fn u32(&mut self, of: &str) -> Result<u32, WeightsError> {
        Ok(u32::from_le_bytes(self.array(of)?))
    }

    fn u64(&mut self, of: &str) -> Result<u64, WeightsError> {
        Ok(u64::from_le_bytes(self.array(of)?))
    }

    fn count(&mut self, of: &str, most: u64) -> Result<u64, WeightsError> {
        let count = self.u64(of)?;
        if count > most {
            return Err(self.origin.format(format!("{count} {of}, more than {most}")));
        }
        Ok(count)
    }

    fn text(&mut self, of: &str) -> Result<String, WeightsError> {
        let bytes = self.u64(of)?;
        if bytes > TEXT_BYTES_MAX {
            return Err(self.origin.format(format!("{} of {bytes} bytes", quoted(of))));
        }
        self.need(bytes, of)?;
        let mut text = vec![0; bytes as usize];
        self.fill(&mut text, of)?;
        String::from_utf8(text)
            .map_err(|_| self.origin.format(format!("{} is not UTF-8", quoted(of))))
    }

    fn value(&mut self, key: &str, kind: u32, left: &mut u64) -> Result<Value, WeightsError> {
        Ok(match kind {
            0 => Value::Unsigned(u8::from_le_bytes(self.array(key)?).into()),
            1 => Value::Signed(i8::from_le_bytes(self.array(key)?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.array(key)?).into()),
            3 => Value::Signed(i16::from_le_bytes(self.array(key)?).into()),
            4 => Value::Unsigned(self.u32(key)?.into()),
            5 => Value::Signed(i32::from_le_bytes(self.array(key)?).into()),
            6 => Value::Float(f32::from_le_bytes(self.array(key)?).into()),
            7 => match self.array::<1>(key)?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                other => {
                    let what = format!("metadata key {} is the bool {other}", quoted(key));
                    return Err(self.origin.format(what));
                }
            },
            8 => Value::Text(self.text(key)?),
            9 => self.elements(key, left)?,
            10 => Value::Unsigned(self.u64(key)?),
            11 => Value::Signed(i64::from_le_bytes(self.array(key)?)),
            12 => Value::Float(f64::from_le_bytes(self.array(key)?)),
            _ => {
                let what = format!("metadata key {} has value type {kind}", quoted(key));
                return Err(self.origin.format(what));
            }
        })
    }

    fn elements(&mut self, key: &str, left: &mut u64) -> Result<Value, WeightsError> {
        let kind = self.u32(key)?;
        let count = self.u64(key)?;
        if kind == 9 {
            let what = format!("metadata key {} is an array of arrays", quoted(key));
            return Err(self.origin.unsupported(what));
        }
        if count > *left {
            let what = format!("metadata key {} has {count} elements", quoted(key));
            return Err(self.origin.format(what));
        }
        *left -= count;
        let bytes = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            _ => 8,
        };
        self.need(count * bytes, key)?;
        let mut values = Vec::with_capacity(count as usize);
        for _ in 0..count {
            values.push(self.value(key, kind, left)?);
        }
        Ok(Value::Array(values))
    }

    fn entry(&mut self, name: &str) -> Result<Entry, WeightsError> {
        let rank = self.u32(name)?;
        if !(1..=4).contains(&rank) {
            return Err(self.origin.tensor(name, format!("{rank} dimensions")));
        }
        let dims = (0..rank).map(|_| self.u64(name)).collect::<Result<Vec<u64>, _>>()?;
        Ok(Entry { dims, kind: self.u32(name)?, offset: self.u64(name)?, part: 0 })
    }
}
