//! Changes a file where it is: rewriting it whole for each byte would take a minute.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

pub(crate) struct InPlace(RefCell<File>);

impl InPlace {
    pub(crate) fn open(path: &Path) -> InPlace {
        InPlace(RefCell::new(File::options().write(true).open(path).expect("opens")))
    }

    /// Sets one byte.
    pub(crate) fn put(&self, at: usize, byte: u8) {
        let mut file = self.0.borrow_mut();
        file.seek(SeekFrom::Start(at as u64)).expect("in the file");
        file.write_all(&[byte]).expect("written");
    }

    /// Cuts the file to a length.
    pub(crate) fn cut(&self, length: usize) {
        self.0.borrow().set_len(length as u64).expect("cut");
    }
}
