//! Certificates of a company's own: `SSL_CERT_FILE`, a bundle in PEM, and `SSL_CERT_DIR`, folders of such files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ureq::tls::{Certificate, PemItem, parse_pem};

use super::super::error::CertifyError;
use crate::input;

/// Largest file of certificates read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most files of a folder that are read.
const FILES_MAX: usize = 4096;

/// The certificates that the environment names. `None` if it names none.
pub(super) fn certificates(
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Vec<Certificate<'static>>>, CertifyError> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let (file, folders) = (set("SSL_CERT_FILE"), set("SSL_CERT_DIR"));
    if file.is_none() && folders.is_none() {
        return Ok(None);
    }
    let mut all = Vec::new();
    if let Some(file) = file {
        let path = PathBuf::from(file);
        let bad = |why: String| bad("SSL_CERT_FILE", &path, &why);
        let found = of_file(&path).map_err(bad)?;
        if found.is_empty() {
            return Err(bad("no certificate in PEM".into()));
        }
        all.extend(found);
    }
    for folder in folders.iter().flat_map(std::env::split_paths) {
        all.extend(of_folder(&folder).map_err(|e| bad("SSL_CERT_DIR", &folder, &e.to_string()))?);
    }
    Ok(Some(all))
}

fn bad(variable: &str, path: &Path, why: &str) -> CertifyError {
    CertifyError::BadInput(format!("{variable}: {}: {why}", path.display()))
}

fn of_file(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let bytes = input::read(path, FILE_BYTES_MAX).map_err(|e| e.to_string())?;
    let mut all = Vec::new();
    for item in parse_pem(&bytes) {
        match item {
            Ok(PemItem::Certificate(certificate)) => all.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(all)
}

/// Other files may lie in such a folder, and links that lead nowhere.
fn of_folder(folder: &Path) -> std::io::Result<Vec<Certificate<'static>>> {
    let entries = std::fs::read_dir(folder)?.take(FILES_MAX);
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths.iter().filter_map(|path| of_file(path).ok()).flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not a certificate, but its frame: what is inside is looked at when a server shows one.
    const PEM: &str = "x\n-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";

    fn of(name: &'static str, value: &Path) -> Result<usize, String> {
        let found = certificates(|asked| (asked == name).then(|| value.into()));
        found.map(|found| found.expect("it is set").len()).map_err(|e| e.to_string())
    }

    #[test]
    fn bundles_and_folders_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pem");
        std::fs::write(&file, PEM.repeat(3)).unwrap();
        std::fs::write(folder.path().join("README"), "nothing").unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        assert_eq!(of("SSL_CERT_FILE", &file), Ok(3));
        assert_eq!(of("SSL_CERT_DIR", folder.path()), Ok(3));
        assert!(matches!(certificates(|_| None), Ok(None)));
        assert!(matches!(certificates(|_| Some(OsString::new())), Ok(None)));
    }

    #[test]
    fn a_file_that_can_not_be_read_or_holds_none_is_one_clear_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pem");
        let cut = "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n";
        for bytes in [&b""[..], b"not PEM", b"\xff\xfe\n", cut.as_bytes()] {
            std::fs::write(&file, bytes).unwrap();
            let why = of("SSL_CERT_FILE", &file).unwrap_err();
            assert!(why.starts_with("SSL_CERT_FILE: /") && !why.contains('\n'), "{why}");
        }
        for (name, path) in
            [("SSL_CERT_FILE", "/nowhere"), ("SSL_CERT_FILE", "/"), ("SSL_CERT_DIR", "/nowhere")]
        {
            assert!(of(name, Path::new(path)).unwrap_err().contains(path));
        }
    }
}
