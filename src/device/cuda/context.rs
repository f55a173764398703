//! Contexts: a stream each, on a device that they share; memory, modules, launches, and what became of them.
//!
//! A buffer is used on the stream that made it, and on streams that forked from that one later. Launches are
//! asynchronous, so an error shows at a later call, perhaps on another stream. The device remembers the launches of
//! each stream since its last good synchronisation and names them; after an error from which CUDA does not recover,
//! every call is answered with [`DeviceError::Lost`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr,
    DriverError, LaunchConfig, PushKernelArg, result, sys,
};
use cudarc::nvrtc::Ptx;

pub(super) use super::args::{Arg, Cuts, NULL, Pool, Shape};
use super::compile::{Cubin, Program};
use super::probe::Gpu;
use crate::device::{DeviceError, GpuFacts};

/// A device buffer.
#[derive(Debug)]
pub struct Buffer<T>(CudaSlice<T>);

impl<T> Buffer<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Its address as a kernel argument.
    pub(super) fn at(&self, element: usize) -> Arg {
        let (pointer, _) = self.0.device_ptr(self.0.stream());
        Arg::Pointer(pointer + (element * size_of::<T>()) as u64)
    }

    pub(super) fn arg(&self) -> Arg {
        self.at(0)
    }
}

/// A device, and a stream of it.
#[derive(Debug)]
pub struct Context {
    shared: Arc<Shared>,
    stream: Arc<CudaStream>,
    /// Names the stream among those of the device.
    id: u64,
}

/// What the streams of a device share.
#[derive(Debug)]
struct Shared {
    gpu: Gpu,
    modules: Mutex<Modules>,
    /// Launches of each stream since its last good synchronisation.
    pending: Mutex<BTreeMap<u64, Vec<String>>>,
    lost: OnceLock<String>,
    /// Whether each launch is waited for, so that an error names it alone.
    waits: bool,
    streams: AtomicU64,
}

#[derive(Debug, Default)]
struct Modules {
    loaded: BTreeMap<Program, Arc<CudaModule>>,
    functions: BTreeMap<(Program, &'static str), CudaFunction>,
    digests: BTreeMap<String, String>,
}

/// Most launches of its own stream that an error names.
const NAMED_MAX: usize = 12;
/// Most launches of each other stream.
const OTHERS_NAMED_MAX: usize = 3;

impl Context {
    /// A context on a device that [`probe`](super::probe::probe) found.
    pub fn new(gpu: Gpu) -> Result<Context, DeviceError> {
        let failed = |what: &'static str| {
            move |e: DriverError| DeviceError::Failed { what: what.into(), error: code(e) }
        };
        let context = CudaContext::new(gpu.ordinal).map_err(failed("cuCtxCreate"))?;
        // SAFETY: a buffer is used on its own stream and on later forks of it, which wait for it, so it needs no
        // events; nothing was allocated yet.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(failed("cuStreamCreate"))?;
        keep_freed_memory(&context).map_err(failed("cuMemPoolSetAttribute"))?;
        let shared = Arc::new(Shared {
            gpu,
            modules: Mutex::default(),
            pending: Mutex::default(),
            lost: OnceLock::new(),
            waits: std::env::var_os("LOCKSTEP_CUDA_WAIT").is_some(),
            streams: AtomicU64::new(1),
        });
        Ok(Context { shared, stream, id: 0 })
    }

    /// A context with a stream of its own, which begins after everything launched here so far; this one if there can
    /// be no other stream. Its instances run beside those of other streams.
    pub(super) fn fork(self: &Arc<Context>) -> Arc<Context> {
        match self.stream.fork() {
            Ok(stream) => Arc::new(Context {
                shared: Arc::clone(&self.shared),
                stream,
                id: self.shared.streams.fetch_add(1, Ordering::Relaxed),
            }),
            Err(_) => Arc::clone(self),
        }
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.shared.gpu
    }

    /// What there is to know of it, with every CUBIN loaded so far.
    pub fn facts(&self) -> GpuFacts {
        let gpu = &self.shared.gpu;
        GpuFacts {
            name: gpu.name.clone(),
            sm: gpu.arch.to_string(),
            driver: gpu.driver.clone(),
            nvrtc: gpu.compiler.version().into(),
            matrix_unit_verified: gpu.arch.matrix_unit().verified,
            cubins: lock(&self.shared.modules).digests.clone(),
        }
    }

    /// Refuses to go on after an error from which the context does not recover.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        match self.shared.lost.get() {
            Some(cause) => Err(DeviceError::Lost { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Turns a driver's error into ours, and remembers the ones that last.
    fn fail(&self, what: &str, error: DriverError, bytes: usize) -> DeviceError {
        if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return DeviceError::OutOfMemory { bytes };
        }
        let mut pending = lock(&self.shared.pending);
        let mut what = what.to_owned();
        let own = pending.remove(&self.id).unwrap_or_default();
        if !own.is_empty() {
            what += &format!(", after {}", last_of(&own, NAMED_MAX));
        }
        // The fault may be another stream's.
        for launches in pending.values().filter(|launches| !launches.is_empty()) {
            what += &format!("; on another stream: {}", last_of(launches, OTHERS_NAMED_MAX));
        }
        drop(pending);
        let error = code(error);
        if is_lasting(&error) {
            let cause = format!("{what}: {error}");
            let cause = self.shared.lost.get_or_init(|| cause);
            return DeviceError::Lost { cause: cause.clone() };
        }
        DeviceError::Failed { what, error }
    }

    /// Waits for everything launched so far.
    pub(super) fn synchronize(&self) -> Result<(), DeviceError> {
        self.check()?;
        let waited = self.stream.synchronize().and_then(|()| self.stream.context().check_err());
        waited.map_err(|e| self.fail("synchronize", e, 0))?;
        lock(&self.shared.pending).remove(&self.id);
        Ok(())
    }

    /// A buffer full of 0xff bytes: NaN in every dtype, so that a stray read shows.
    pub(super) fn alloc<T: DeviceRepr>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        self.alloc_filled(len, 0xff)
    }

    /// A buffer full of one byte.
    pub(super) fn alloc_filled<T: DeviceRepr>(
        &self,
        len: usize,
        byte: u8,
    ) -> Result<Buffer<T>, DeviceError> {
        self.check()?;
        // An allocation of nothing is an error in CUDA.
        let len = len.max(1);
        let bytes = len.saturating_mul(size_of::<T>());
        if bytes > isize::MAX as usize {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        // SAFETY: every byte is written before anyone reads it.
        let slice = unsafe { self.stream.alloc::<T>(len) };
        let slice = slice.map_err(|e| self.fail("cuMemAlloc", e, bytes))?;
        let (pointer, _) = slice.device_ptr(&self.stream);
        // SAFETY: the range is the allocation just made, and the stream is this context's.
        unsafe { result::memset_d8_async(pointer, byte, bytes, self.stream.cu_stream()) }
            .map_err(|e| self.fail("cuMemset", e, 0))?;
        Ok(Buffer(slice))
    }

    /// Fills elements with 0xff bytes, after everything launched before: NaN in every dtype.
    pub(super) fn poison<T: DeviceRepr>(
        &self,
        buffer: &mut Buffer<T>,
        elements: Range<usize>,
    ) -> Result<(), DeviceError> {
        self.check()?;
        if elements.is_empty() {
            return Ok(());
        }
        // Bounds are the driver's to check otherwise, and it does not know the buffer's end.
        assert!(elements.end <= buffer.len(), "{elements:?} of {}", buffer.len());
        self.stream.context().bind_to_thread().map_err(|e| self.fail("cuCtxSetCurrent", e, 0))?;
        let (start, _) = buffer.0.device_ptr(&self.stream);
        let pointer = start + (elements.start * size_of::<T>()) as u64;
        let bytes = elements.len() * size_of::<T>();
        // SAFETY: the range is within the buffer, and the stream is this context's.
        unsafe { result::memset_d8_async(pointer, 0xff, bytes, self.stream.cu_stream()) }
            .map_err(|e| self.fail("cuMemset", e, 0))
    }

    /// A buffer with these values.
    pub(super) fn upload<T: DeviceRepr + Clone>(
        &self,
        values: &[T],
    ) -> Result<Buffer<T>, DeviceError> {
        if values.is_empty() {
            return self.alloc(0);
        }
        self.check()?;
        let slice = self.stream.clone_htod(values);
        slice.map(Buffer).map_err(|e| self.fail("upload", e, size_of_val(values)))
    }

    /// Copies the first `len` elements to the host, after everything launched before.
    pub(super) fn download<T: DeviceRepr + Clone + Default>(
        &self,
        from: &Buffer<T>,
        len: usize,
    ) -> Result<Vec<T>, DeviceError> {
        self.download_from(from, 0, len)
    }

    /// Copies `len` elements from `first` on.
    pub(super) fn download_from<T: DeviceRepr + Clone + Default>(
        &self,
        from: &Buffer<T>,
        first: usize,
        len: usize,
    ) -> Result<Vec<T>, DeviceError> {
        self.check()?;
        let mut values = vec![T::default(); len];
        if len > 0 {
            let view = from.0.slice(first..first + len);
            self.stream.memcpy_dtoh(&view, &mut values).map_err(|e| self.fail("download", e, 0))?;
        }
        self.synchronize()?;
        Ok(values)
    }

    /// Copies `values` to the elements from `first` on, and waits until they are there.
    pub(super) fn upload_to<T: DeviceRepr>(
        &self,
        to: &mut Buffer<T>,
        first: usize,
        values: &[T],
    ) -> Result<(), DeviceError> {
        self.check()?;
        if values.is_empty() {
            return Ok(());
        }
        let mut view = to.0.slice_mut(first..first + values.len());
        self.stream.memcpy_htod(values, &mut view).map_err(|e| self.fail("upload", e, 0))?;
        self.synchronize()
    }

    /// Copies `len` elements of a buffer from `from` on to those from `to` on; the two ranges do not overlap.
    pub(super) fn copy_within<T: DeviceRepr>(
        &self,
        buffer: &mut Buffer<T>,
        from: usize,
        to: usize,
        len: usize,
    ) -> Result<(), DeviceError> {
        self.check()?;
        let inside = from.max(to) + len <= buffer.len();
        if len == 0 || !inside || from.abs_diff(to) < len {
            let what = format!("copy: {len} elements from {from} to {to} of {}", buffer.len());
            return Err(DeviceError::Launch(what));
        }
        self.stream.context().bind_to_thread().map_err(|e| self.fail("copy", e, 0))?;
        let size = size_of::<T>();
        let (pointer, _) = buffer.0.device_ptr(&self.stream);
        let at = |element: usize| pointer + (element * size) as u64;
        // SAFETY: both ranges lie in the buffer, as just checked, and the stream is this context's.
        unsafe { result::memcpy_dtod_async(at(to), at(from), len * size, self.stream.cu_stream()) }
            .map_err(|e| self.fail("copy", e, 0))
    }

    /// Loads a program, so that its compilation is not part of a launch. Several threads may do so at once.
    pub fn load(&self, program: Program) -> Result<(), DeviceError> {
        if lock(&self.shared.modules).loaded.contains_key(&program) {
            return Ok(());
        }
        let cubin = self.compile(program)?;
        self.insert(&mut lock(&self.shared.modules), program, cubin).map(|_| ())
    }

    fn compile(&self, program: Program) -> Result<Cubin, DeviceError> {
        let cubin = self.gpu().compiler.cubin(&program, self.gpu().arch);
        cubin.map_err(|e| DeviceError::Compile(e.to_string()))
    }

    fn module(
        &self,
        modules: &mut Modules,
        program: Program,
    ) -> Result<Arc<CudaModule>, DeviceError> {
        if let Some(module) = modules.loaded.get(&program) {
            return Ok(Arc::clone(module));
        }
        let cubin = self.compile(program)?;
        self.insert(modules, program, cubin)
    }

    fn insert(
        &self,
        modules: &mut Modules,
        program: Program,
        cubin: Cubin,
    ) -> Result<Arc<CudaModule>, DeviceError> {
        let module = self
            .stream
            .context()
            .load_module(Ptx::from_binary(cubin.image))
            .map_err(|e| self.fail(&format!("loading {program}"), e, 0))?;
        modules.digests.insert(program.to_string(), cubin.sha256);
        modules.loaded.insert(program, Arc::clone(&module));
        Ok(module)
    }

    fn function(&self, program: Program, name: &'static str) -> Result<CudaFunction, DeviceError> {
        let mut modules = lock(&self.shared.modules);
        if let Some(function) = modules.functions.get(&(program, name)) {
            return Ok(function.clone());
        }
        let module = self.module(&mut modules, program)?;
        let bound = self.stream.context().bind_to_thread();
        let function = bound
            .and_then(|()| module.load_function(name))
            .map_err(|e| self.fail(&format!("finding {name} in {program}"), e, 0))?;
        modules.functions.insert((program, name), function.clone());
        Ok(function)
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// `args` are the kernel's parameters in order, with its types; pointers are to buffers of this context that
    /// hold what the kernel reads and writes, and that live until the launch has run (buffers are freed in the
    /// order of the stream, so dropping one after the call is fine).
    pub(super) unsafe fn launch(
        &self,
        program: Program,
        name: &'static str,
        shape: Shape,
        args: &[Arg],
    ) -> Result<(), DeviceError> {
        self.check()?;
        let (x, y, z) = shape.grid;
        let what = format!("{name}[{program}]<<<({x},{y},{z}),{}>>>", shape.block);
        if !shape.fits() {
            return Err(DeviceError::Launch(format!("{what}: no such grid")));
        }
        let function = self.function(program, name)?;
        let mut launch = self.stream.launch_builder(&function);
        for arg in args {
            match arg {
                Arg::Pointer(p) => launch.arg(p),
                Arg::U32(n) => launch.arg(n),
                Arg::F32(x) => launch.arg(x),
                Arg::Cuts(cuts) => launch.arg(cuts),
                Arg::Pool(pool) => launch.arg(pool),
            };
        }
        let config = LaunchConfig {
            grid_dim: shape.grid,
            block_dim: (shape.block, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: as this function requires.
        let launched = unsafe { launch.launch(config) };
        launched.map_err(|e| self.fail(&format!("launching {what}"), e, 0))?;
        lock(&self.shared.pending).entry(self.id).or_default().push(what);
        if self.shared.waits { self.synchronize() } else { Ok(()) }
    }
}

impl Drop for Context {
    /// Waits for the stream: what it reads may belong to a stream that does not wait for it.
    fn drop(&mut self) {
        // An error from which nothing recovers shows at the next call of another stream.
        let _ = self.stream.synchronize();
        lock(&self.shared.pending).remove(&self.id);
    }
}

/// The last launches of a list, and how many there were before.
fn last_of(launches: &[String], most: usize) -> String {
    let skipped = launches.len().saturating_sub(most);
    let named = launches[skipped..].join(", ");
    if skipped > 0 { format!("{skipped} earlier ones, {named}") } else { named }
}

/// Freed memory stays in the pool: by default every synchronisation would give it back to the driver, and every
/// allocation would fetch it again.
fn keep_freed_memory(context: &CudaContext) -> Result<(), DriverError> {
    if !context.has_async_alloc() {
        return Ok(());
    }
    let mut pool = std::ptr::null_mut();
    let mut threshold = u64::MAX;
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the device is the context's own; the pointers are to live values, the second of the type that the
    // attribute asks for.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&mut pool, context.cu_device()).result()?;
        sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast()).result()
    }
}

/// The driver's name for an error, which needs no driver to be told.
fn code(error: DriverError) -> String {
    format!("{:?}", error.0)
}

/// Errors after which every further call of the context fails.
fn is_lasting(code: &str) -> bool {
    const LASTING: [&str; 17] = [
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "CUDA_ERROR_DEINITIALIZED",
        "CUDA_ERROR_INVALID_CONTEXT",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        "CUDA_ERROR_EXTERNAL_DEVICE",
        "CUDA_ERROR_UNKNOWN",
    ];
    LASTING.contains(&code)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is whole between any two statements.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_last_launches() {
        let launches = ["a", "b", "c"].map(String::from);
        assert_eq!(last_of(&launches, 3), "a, b, c");
        assert_eq!(last_of(&launches, 2), "1 earlier ones, b, c");
    }

    #[test]
    fn a_wrong_argument_does_not_end_a_context_and_a_wild_pointer_does() {
        assert!(!is_lasting("CUDA_ERROR_INVALID_VALUE"));
        assert!(!is_lasting("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
        assert!(is_lasting(&code(DriverError(sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS))));
    }
}
