//! Bounded reads of what comes from outside.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// How a pointer of Git LFS begins: a few lines of text in the place of a large file.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// What is said about a pointer of Git LFS.
pub const IS_LFS_POINTER: &str = "a Git-LFS pointer, not the file itself: git lfs pull fetches it";

/// Whether a file that begins so is a pointer of Git LFS.
pub fn is_lfs_pointer(start: &[u8]) -> bool {
    start.starts_with(LFS_POINTER)
}

/// Reads a regular file of at most `bytes_max` bytes. A device, a pipe or a folder is refused, so that nothing is read
/// without end or waited for.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("larger than {bytes_max} bytes")));
    }
    if is_lfs_pointer(&bytes) {
        return Err(io::Error::other(IS_LFS_POINTER));
    }
    Ok(bytes)
}

/// The same, as UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read(path, bytes_max)?).map_err(|_| io::Error::other("not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_limit_is_read_and_one_more_byte_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abcd").unwrap();
        assert_eq!(read(file.path(), 4).unwrap(), b"abcd");
        assert!(read(file.path(), 3).is_err());
        std::fs::write(file.path(), [0xff]).unwrap();
        assert!(read_text(file.path(), 4).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn folders_and_devices_are_refused() {
        assert!(read(Path::new("/"), 4).is_err());
        assert!(read(Path::new("/dev/zero"), 4).is_err());
    }
}
