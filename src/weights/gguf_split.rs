//! A GGUF file in parts, `NAME-00001-of-0000N.gguf` and so on: the first has the metadata of all, each has tensors of its own.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use super::gguf::Gguf;
use super::{WeightsError, quoted};

/// Which part of how many a file is; a file that is whole is the first of one.
struct Number {
    /// From 0.
    no: u64,
    count: u64,
}

/// Most parts.
const PARTS_MAX: u64 = 1 << 12;

fn number<R: Read + Seek>(gguf: &Gguf<R>) -> Result<Number, WeightsError> {
    let no = gguf.unsigned("split.no")?.unwrap_or(0);
    let count = gguf.unsigned("split.count")?.unwrap_or(0).max(1);
    if no >= count || count > PARTS_MAX {
        let what = format!("part {} of {count}", no.saturating_add(1));
        return Err(gguf.origin().format(what));
    }
    Ok(Number { no, count })
}

/// Refuses a part that is not the first.
pub(super) fn check_first<R: Read + Seek>(gguf: &Gguf<R>) -> Result<(), WeightsError> {
    let Number { no, count } = number(gguf)?;
    if no > 0 {
        let what = format!("part {} of {count} of a split file; give the first", no + 1);
        return Err(gguf.origin().unsupported(what));
    }
    Ok(())
}

/// Opens a file with all its parts, which lie beside it.
pub(super) fn open(path: &Path) -> Result<Gguf<BufReader<File>>, WeightsError> {
    let mut gguf = Gguf::open(path)?;
    let origin = gguf.origin().clone();
    let Number { count, .. } = number(&gguf)?;
    if count == 1 {
        return Ok(gguf);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(stem) = name.strip_suffix(&format!("-00001-of-{count:05}.gguf")) else {
        let what =
            format!("part 1 of {count}, whose name does not end in -00001-of-{count:05}.gguf");
        return Err(origin.unsupported(what));
    };
    for no in 1..count {
        let name = format!("{stem}-{:05}-of-{count:05}.gguf", no + 1);
        let path = path.with_file_name(&name);
        if !path.is_file() {
            let what = format!("part 1 of {count}; part {}, {}, is missing", no + 1, quoted(&name));
            return Err(origin.unsupported(what));
        }
        let part = Gguf::open_part(&path)?;
        let found = number(&part)?;
        if (found.no, found.count) != (no, count) {
            let what = format!("part {} of {} by its metadata", found.no + 1, found.count);
            return Err(part.origin().format(what));
        }
        gguf.join(part)?;
    }
    let (found, stated) = (gguf.tensors().count() as u64, gguf.unsigned("split.tensors.count")?);
    match stated.filter(|&stated| stated != found) {
        Some(stated) => {
            let what = format!("{found} tensors in {count} parts, {stated} by the metadata");
            Err(origin.format(what))
        }
        None => Ok(gguf),
    }
}
