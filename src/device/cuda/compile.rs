//! Kernel texts, and NVRTC: text to CUBIN, with a cache on disk.
//!
//! A program is the defines, the prelude and one file of `kernels/`; the CUBIN is a function of that text, the
//! options and the NVRTC version, whose digest names it in the cache. Nothing here needs a driver or a device.

use std::cmp::Ordering;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::path::{Path, PathBuf};

use cudarc::nvrtc::{result, sys};
use sha2::{Digest as _, Sha256};

use super::arch::Arch;
use crate::contract::{Dtype, hex};

/// A file of `kernels/`. Files are told apart by their names.
#[derive(Clone, Copy)]
pub struct Source {
    /// File name.
    pub name: &'static str,
    text: &'static str,
    /// Whether it does products on the matrix unit.
    pub has_matrix: bool,
}

macro_rules! source {
    ($const:ident, $file:literal, $matrix:literal) => {
        #[doc = concat!("`kernels/", $file, "`.")]
        pub const $const: Source = Source {
            name: $file,
            text: include_str!(concat!("../../../kernels/", $file)),
            has_matrix: $matrix,
        };
    };
}

impl Source {
    source!(EMBED, "embed.cu", false);
    source!(NORM, "norm.cu", false);
    source!(GEMM, "gemm.cu", true);
    source!(ROPE, "rope.cu", false);
    source!(ATTENTION, "attention.cu", true);
    source!(SWIGLU, "swiglu.cu", false);
    source!(LOGPROBS, "logprobs.cu", false);
    source!(SAMPLE, "sample.cu", false);
    source!(DIGEST, "digest.cu", false);
    source!(WEIGHTS, "weights.cu", false);
    source!(PROBE, "probe.cu", true);

    /// All files.
    pub const ALL: [Source; 11] = [
        Source::EMBED,
        Source::NORM,
        Source::GEMM,
        Source::ROPE,
        Source::ATTENTION,
        Source::SWIGLU,
        Source::LOGPROBS,
        Source::SAMPLE,
        Source::DIGEST,
        Source::WEIGHTS,
        Source::PROBE,
    ];
}

impl PartialEq for Source {
    fn eq(&self, other: &Source) -> bool {
        self.name == other.name
    }
}

impl Eq for Source {}

impl PartialOrd for Source {
    fn partial_cmp(&self, other: &Source) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Source {
    fn cmp(&self, other: &Source) -> Ordering {
        self.name.cmp(other.name)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const PRELUDE: &str = include_str!("../../../kernels/prelude.cuh");

/// A file and what is defined before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// The file.
    pub source: Source,
    /// Storage dtype.
    pub dtype: Dtype,
    /// Attention only: positions per tile, and elements per head. Zero elsewhere.
    pub tile_dim: (u32, u32),
}

impl Program {
    /// A program without a tile.
    pub fn new(source: Source, dtype: Dtype) -> Program {
        Program { source, dtype, tile_dim: (0, 0) }
    }

    /// An attention program.
    pub fn attention(dtype: Dtype, tile: u32, dim: u32) -> Program {
        Program { source: Source::ATTENTION, dtype, tile_dim: (tile, dim) }
    }

    /// Every program that the presets and the shapes of Qwen3 need.
    pub fn all() -> Vec<Program> {
        let mut programs = Vec::new();
        for dtype in [Dtype::Bf16, Dtype::F16] {
            for source in Source::ALL {
                if source == Source::ATTENTION {
                    let shapes = [(16, 16), (32, 64), (64, 64), (64, 128)];
                    programs.extend(shapes.map(|(t, d)| Program::attention(dtype, t, d)));
                } else {
                    programs.push(Program::new(source, dtype));
                }
            }
        }
        programs
    }

    /// sha256 (hex) of text and options, whatever the architecture: what evidence names a kernel by, since it can be
    /// checked with no compiler.
    pub fn sha256(&self) -> String {
        hex(&digest(&[&self.text(), &options(Arch::CHECKED[0])[1..].join("\n")]))
    }

    /// The text given to NVRTC.
    pub fn text(&self) -> String {
        let dtype = match self.dtype {
            Dtype::Bf16 => "T16_BF16",
            Dtype::F16 => "T16_F16",
        };
        let mut text = format!("#define {dtype}\n");
        if self.tile_dim != (0, 0) {
            let (tile, dim) = self.tile_dim;
            text += &format!("#define TILE {tile}\n#define DIM {dim}\n");
        }
        let Source { name, text: body, .. } = self.source;
        text + &format!("#line 1 \"prelude.cuh\"\n{PRELUDE}\n#line 1 \"{name}\"\n{body}")
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.source.name.trim_end_matches(".cu");
        write!(f, "{name}.{}", self.dtype.name())?;
        match self.tile_dim {
            (0, 0) => Ok(()),
            (tile, dim) => write!(f, ".t{tile}.d{dim}"),
        }
    }
}

/// sha256 over texts, each after its length.
fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().into()
}

/// Every option that could change a bit, spelled out.
pub fn options(arch: Arch) -> Vec<String> {
    let mut options = vec![format!("--gpu-architecture={arch}")];
    options.extend(
        [
            "--std=c++17",
            "--fmad=false",
            "--ftz=false",
            "--prec-div=true",
            "--prec-sqrt=true",
            "--ptxas-options=-v",
        ]
        .map(String::from),
    );
    options
}

/// A kernel could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// The NVRTC library is not there.
    NoNvrtc,
    /// NVRTC refused a text.
    Refused {
        /// Program and architecture.
        program: String,
        /// NVRTC's code.
        code: String,
        /// Its log.
        log: String,
    },
    /// NVRTC failed otherwise.
    Failed {
        /// What it was asked.
        call: &'static str,
        /// Its code.
        code: String,
    },
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::NoNvrtc => {
                write!(f, "no NVRTC: libnvrtc.so is not on the loader's path (LD_LIBRARY_PATH)")
            }
            CompileError::Refused { program, code, log } => {
                write!(f, "{program} does not compile ({code}):\n{log}")
            }
            CompileError::Failed { call, code } => write!(f, "{call} failed: {code}"),
        }
    }
}

impl std::error::Error for CompileError {}

/// A compiled program.
#[derive(Clone, Debug)]
pub struct Cubin {
    /// The image.
    pub image: Vec<u8>,
    /// sha256 (hex) of the image.
    pub sha256: String,
    /// NVRTC's log: registers and spills of each kernel. Empty when the image came from the cache.
    pub log: String,
}

/// NVRTC, found and asked for its version.
#[derive(Clone, Debug)]
pub struct Compiler {
    version: String,
    cache: Option<PathBuf>,
}

impl Compiler {
    /// Looks for NVRTC. This must come before any other call to it: cudarc panics where the library is missing.
    pub fn new(cache: Option<PathBuf>) -> Result<Compiler, CompileError> {
        // SAFETY: only tries to open the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(CompileError::NoNvrtc);
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the library is there, and both pointers are to live integers.
        unsafe { sys::nvrtcVersion(&mut major, &mut minor) }
            .result()
            .map_err(|e| failed("nvrtcVersion", e))?;
        Ok(Compiler { version: format!("{major}.{minor}"), cache })
    }

    /// Version of NVRTC.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The CUBIN of a program, from the cache if it is there.
    pub fn cubin(&self, program: &Program, arch: Arch) -> Result<Cubin, CompileError> {
        let (text, options) = (program.text(), options(arch));
        let path = self.cache.as_ref().map(|folder| {
            let key = digest(&[&text, &options.join("\n"), &self.version]);
            folder.join(format!("{}.cubin", hex(&key)))
        });
        if let Some(cubin) = path.as_deref().and_then(read_cached) {
            return Ok(cubin);
        }
        let [cubin] = compile(program, arch, &text, &options, [Output::Cubin])?;
        if let Some(path) = path {
            // A cache that cannot be written costs time, nothing else.
            let _ = write_cached(&path, &cubin.image, &cubin.sha256);
        }
        Ok(cubin)
    }

    /// CUBIN and PTX text of a program, compiled now.
    pub fn cubin_and_ptx(
        &self,
        program: &Program,
        arch: Arch,
    ) -> Result<(Cubin, String), CompileError> {
        let outputs = [Output::Cubin, Output::Ptx];
        let [cubin, ptx] = compile(program, arch, &program.text(), &options(arch), outputs)?;
        Ok((cubin, String::from_utf8_lossy(&ptx.image).into_owned()))
    }
}

#[derive(Clone, Copy, Debug)]
enum Output {
    Cubin,
    Ptx,
}

/// An NVRTC program, destroyed when it goes out of scope.
struct Handle(sys::nvrtcProgram);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `create_program`, destroyed once. A failure leaks it.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

fn compile<const N: usize>(
    program: &Program,
    arch: Arch,
    text: &str,
    options: &[String],
    outputs: [Output; N],
) -> Result<[Cubin; N], CompileError> {
    let source = CString::new(text).expect("a kernel text has no zero byte");
    let name = CString::new(program.source.name).expect("a file name has no zero byte");
    let handle = result::create_program(&source, Some(&name))
        .map(Handle)
        .map_err(|e| failed("nvrtcCreateProgram", e))?;
    // SAFETY: the program is alive, and so are text and name.
    let compiled = unsafe { result::compile_program(handle.0, options) };
    // SAFETY: the program is alive; NVRTC keeps a log also after a failure.
    let log = unsafe { result::get_program_log(handle.0) }.map(|log| to_text(&log));
    let log = log.unwrap_or_default();
    compiled.map_err(|e| CompileError::Refused {
        program: format!("{program} for {arch}"),
        code: format!("{:?}", e.0),
        log: log.clone(),
    })?;
    let mut images = Vec::with_capacity(N);
    for output in outputs {
        let image = image(&handle, output)?;
        images.push(Cubin { sha256: hex(&Sha256::digest(&image)), image, log: log.clone() });
    }
    Ok(images.try_into().expect("one image an output"))
}

fn image(handle: &Handle, output: Output) -> Result<Vec<u8>, CompileError> {
    let mut len = 0;
    // SAFETY: the program is alive and compiled; the pointer is to a live integer.
    let sized = unsafe {
        match output {
            Output::Cubin => sys::nvrtcGetCUBINSize(handle.0, &mut len),
            Output::Ptx => sys::nvrtcGetPTXSize(handle.0, &mut len),
        }
    };
    sized.result().map_err(|e| failed("nvrtcGetCUBINSize", e))?;
    let mut image = vec![0_u8; len];
    let to = image.as_mut_ptr().cast::<c_char>();
    // SAFETY: as above; the buffer has the size that NVRTC named.
    let copied = unsafe {
        match output {
            Output::Cubin => sys::nvrtcGetCUBIN(handle.0, to),
            Output::Ptx => sys::nvrtcGetPTX(handle.0, to),
        }
    };
    copied.result().map_err(|e| failed("nvrtcGetCUBIN", e))?;
    Ok(image)
}

fn failed(call: &'static str, error: result::NvrtcError) -> CompileError {
    CompileError::Failed { call, code: format!("{:?}", error.0) }
}

fn to_text(log: &[c_char]) -> String {
    let bytes: Vec<u8> = log.iter().map(|c| *c as u8).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map(|text| text.to_string_lossy().trim().to_owned())
        .unwrap_or_default()
}

/// Length of the digest before a cached image.
const DIGEST_LEN: usize = 64;

/// A cached image, unless it is missing or damaged.
fn read_cached(path: &Path) -> Option<Cubin> {
    let bytes = std::fs::read(path).ok()?;
    let (digest, image) = bytes.split_at_checked(DIGEST_LEN)?;
    let sha256 = hex(&Sha256::digest(image));
    let cubin = Cubin { image: image.to_vec(), sha256, log: String::new() };
    (cubin.sha256.as_bytes() == digest).then_some(cubin)
}

/// Puts an image into place by a rename, so that a file of that name is always whole.
fn write_cached(path: &Path, image: &[u8], sha256: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let scratch = path.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&scratch, [sha256.as_bytes(), image].concat())?;
    std::fs::rename(&scratch, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bare operator on f32 could be contracted: outside of comments, kernels use the named intrinsics. Every
    /// line that multiplies or adds floats names one, and no file uses a fast or contracted form.
    #[test]
    fn kernels_use_no_fast_functions_and_no_includes() {
        for source in Source::ALL {
            let text = format!("{PRELUDE}{}", source.text);
            for word in
                ["#include", "fmaf(", "expf", "exp2f", "logf", "__expf", "sqrtf", "__fdividef"]
            {
                assert!(!text.contains(word), "{}: {word}", source.name);
            }
        }
    }

    #[test]
    fn a_damaged_cache_entry_is_not_used() {
        let folder = std::env::temp_dir().join(format!("lockstep-cubin-{}", std::process::id()));
        let path = folder.join("x.cubin");
        let image = b"image";
        write_cached(&path, image, &hex(&Sha256::digest(image))).unwrap();
        assert_eq!(read_cached(&path).unwrap().image, image);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(read_cached(&path).is_none());
        std::fs::write(&path, b"short").unwrap();
        assert!(read_cached(&path).is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn programs_have_names_of_their_own() {
        let mut names: Vec<String> = Program::all().iter().map(Program::to_string).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.contains(&"attention.bf16.t64.d128".to_owned()));
    }
}
