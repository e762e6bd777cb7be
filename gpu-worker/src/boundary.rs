//! The only `unsafe` code of the project: calls into `boundary.cpp`. Each foreign function takes
//! valid pointers to plain data, catches its own exceptions and keeps no pointer.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;

use iteragpu_lab::protocol::Failure;
use iteragpu_lab::settings::RuntimeSettings;

const TEXT: usize = 2048;

#[repr(C)]
struct RawCudaError {
    code: c_int,
    name: [c_char; 128],
    words: [c_char; 512],
}

#[repr(C)]
struct RawCounters {
    allocated: i64,
    reserved: i64,
    peak_allocated: i64,
    peak_reserved: i64,
}

#[repr(C)]
struct RawSettings {
    backend: [c_char; 32],
    expandable_segments: c_int,
    large_segment_bytes: u64,
    max_split_bytes: u64,
    max_non_split_rounding_bytes: u64,
    roundup_power2_divisions: [u64; 32],
    roundup_ranges: u64,
    garbage_collection_threshold: f64,
}

#[repr(C)]
struct RawWorkspaces {
    cublas_bytes: u64,
    cublaslt_bytes: u64,
}

#[repr(C)]
struct RawDevice {
    name: [c_char; 256],
    pci_bus_id: [c_char; 32],
    total_bytes: u64,
    capability_major: c_int,
    capability_minor: c_int,
}

unsafe extern "C" {
    fn iteragpu_build_option(
        option: *const c_char,
        value: *mut c_char,
        value_size: usize,
        words: *mut c_char,
        size: usize,
    ) -> c_int;
    fn iteragpu_libtorch_path(path: *mut c_char, path_size: usize, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_has_gpu_backend(has: *mut c_int, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_device_count(count: *mut c_int, error: *mut RawCudaError, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_select_device(index: c_int, error: *mut RawCudaError, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_describe_device(index: c_int, device: *mut RawDevice, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_settings(settings: *mut RawSettings, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_workspaces(workspaces: *mut RawWorkspaces, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_counters(index: c_int, counters: *mut RawCounters, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_reset_peaks(index: c_int, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_synchronize(index: c_int, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_use_highest_matmul_precision(words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_enter_inference_mode() -> *mut c_void;
    fn iteragpu_leave_inference_mode(guard: *mut c_void);
    fn iteragpu_new_event(event: *mut *mut c_void, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_delete_event(event: *mut c_void);
    fn iteragpu_record_event(index: c_int, event: *mut c_void, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_seconds_between(
        start: *const c_void,
        end: *const c_void,
        seconds: *mut f64,
        words: *mut c_char,
        size: usize,
    ) -> c_int;
    fn iteragpu_enter_side_stream(index: c_int, guard: *mut *mut c_void, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_leave_side_stream(guard: *mut c_void);
    fn iteragpu_begin_capture(index: c_int, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_end_capture(index: c_int, executable: *mut *mut c_void, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_launch_graph(index: c_int, executable: *mut c_void, words: *mut c_char, size: usize) -> c_int;
    fn iteragpu_delete_graph(executable: *mut c_void);
    fn iteragpu_exit(code: c_int) -> !;
}

/// A CUDA call's own result; `code` 0 is success.
#[derive(Debug)]
pub struct CudaResult {
    pub code: i32,
    pub name: String,
    pub words: String,
}

/// Counters of the caching allocator, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    pub allocated: u64,
    pub reserved: u64,
    pub peak_allocated: u64,
    pub peak_reserved: u64,
}

/// A device as its driver describes it.
#[derive(Debug)]
pub struct Device {
    pub name: String,
    pub pci_bus_id: String,
    pub total_bytes: u64,
    pub capability_major: u32,
    pub capability_minor: u32,
}

/// One of libtorch's build options; empty when it has none of that name.
pub fn build_option(name: &str) -> Result<String, Failure> {
    let name = CString::new(name).map_err(|error| Failure::Libtorch { words: error.to_string() })?;
    let mut value = [0; TEXT];
    // SAFETY: `name` and `value` outlive the call, and the size given is the buffer's.
    checked(|words, size| unsafe {
        iteragpu_build_option(name.as_ptr(), value.as_mut_ptr(), value.len(), words, size)
    })?;
    Ok(text(&value))
}

/// The file that libtorch was loaded from.
pub fn libtorch_path() -> Result<PathBuf, Failure> {
    let mut path = [0; TEXT];
    // SAFETY: `path` outlives the call, and the size given is the buffer's.
    checked(|words, size| unsafe { iteragpu_libtorch_path(path.as_mut_ptr(), path.len(), words, size) })?;
    Ok(PathBuf::from(OsString::from(text(&path))))
}

/// Whether libtorch's GPU library is loaded.
pub fn has_gpu_backend() -> Result<bool, Failure> {
    let mut has = 0;
    // SAFETY: `has` outlives the call.
    checked(|words, size| unsafe { iteragpu_has_gpu_backend(&mut has, words, size) })?;
    Ok(has != 0)
}

/// CUDA's count of visible devices, with the result of asking.
pub fn device_count() -> Result<(u32, CudaResult), Failure> {
    let mut count = 0;
    let mut error = RawCudaError { code: 0, name: [0; 128], words: [0; 512] };
    // SAFETY: both outlive the call and have the layout of their C++ twins.
    checked(|words, size| unsafe { iteragpu_device_count(&mut count, &mut error, words, size) })?;
    Ok((u32::try_from(count).unwrap_or(0), CudaResult::of(&error)))
}

/// Makes a device the current one and starts its context.
pub fn select_device(index: i32) -> Result<CudaResult, Failure> {
    let mut error = RawCudaError { code: 0, name: [0; 128], words: [0; 512] };
    // SAFETY: `error` outlives the call and has the layout of its C++ twin.
    checked(|words, size| unsafe { iteragpu_select_device(index, &mut error, words, size) })?;
    Ok(CudaResult::of(&error))
}

/// Name, bus number, memory and compute capability of a device.
pub fn describe_device(index: i32) -> Result<Device, Failure> {
    let mut raw =
        RawDevice { name: [0; 256], pci_bus_id: [0; 32], total_bytes: 0, capability_major: 0, capability_minor: 0 };
    // SAFETY: `raw` outlives the call and has the layout of its C++ twin.
    checked(|words, size| unsafe { iteragpu_describe_device(index, &mut raw, words, size) })?;
    Ok(Device {
        name: text(&raw.name),
        pci_bus_id: text(&raw.pci_bus_id),
        total_bytes: raw.total_bytes,
        capability_major: u32::try_from(raw.capability_major).unwrap_or(0),
        capability_minor: u32::try_from(raw.capability_minor).unwrap_or(0),
    })
}

/// The settings that the allocator goes by, without what is not its own.
pub fn allocator_settings() -> Result<RuntimeSettings, Failure> {
    let mut raw = RawSettings {
        backend: [0; 32],
        expandable_segments: 0,
        large_segment_bytes: 0,
        max_split_bytes: 0,
        max_non_split_rounding_bytes: 0,
        roundup_power2_divisions: [0; 32],
        roundup_ranges: 0,
        garbage_collection_threshold: 0.0,
    };
    // SAFETY: `raw` outlives the call and has the layout of its C++ twin.
    checked(|words, size| unsafe { iteragpu_settings(&mut raw, words, size) })?;
    let divisions = raw.roundup_power2_divisions.iter().zip(0..raw.roundup_ranges).map(|(divisions, _)| *divisions);
    let rounds = divisions.clone().any(|divisions| divisions != 0);
    Ok(RuntimeSettings {
        allocator_backend: text(&raw.backend),
        expandable_segments: raw.expandable_segments != 0,
        large_segment_bytes: raw.large_segment_bytes,
        max_split_bytes: Some(raw.max_split_bytes).filter(|bytes| *bytes != u64::MAX),
        max_non_split_rounding_bytes: raw.max_non_split_rounding_bytes,
        roundup_power2_divisions: divisions.filter(|_| rounds).collect(),
        garbage_collection_threshold: raw.garbage_collection_threshold,
        ..RuntimeSettings::default()
    })
}

/// Sizes in bytes of the workspaces of cuBLAS and cuBLASLt on the current device.
pub fn workspaces() -> Result<(u64, u64), Failure> {
    let mut raw = RawWorkspaces { cublas_bytes: 0, cublaslt_bytes: 0 };
    // SAFETY: `raw` outlives the call and has the layout of its C++ twin.
    checked(|words, size| unsafe { iteragpu_workspaces(&mut raw, words, size) })?;
    Ok((raw.cublas_bytes, raw.cublaslt_bytes))
}

/// The allocator's counters for a device.
pub fn counters(index: i32) -> Result<Counters, Failure> {
    let mut raw = RawCounters { allocated: 0, reserved: 0, peak_allocated: 0, peak_reserved: 0 };
    // SAFETY: `raw` outlives the call and has the layout of its C++ twin.
    checked(|words, size| unsafe { iteragpu_counters(index, &mut raw, words, size) })?;
    let bytes = |value: i64| {
        u64::try_from(value).map_err(|_| Failure::Libtorch { words: format!("a counter of {value} bytes") })
    };
    Ok(Counters {
        allocated: bytes(raw.allocated)?,
        reserved: bytes(raw.reserved)?,
        peak_allocated: bytes(raw.peak_allocated)?,
        peak_reserved: bytes(raw.peak_reserved)?,
    })
}

/// Starts counting peaks anew.
pub fn reset_peaks(index: i32) -> Result<(), Failure> {
    // SAFETY: the buffer given by `checked` is valid for the call.
    checked(|words, size| unsafe { iteragpu_reset_peaks(index, words, size) })
}

/// Waits for all work on a device.
pub fn synchronize(index: i32) -> Result<(), Failure> {
    // SAFETY: the buffer given by `checked` is valid for the call.
    checked(|words, size| unsafe { iteragpu_synchronize(index, words, size) })
}

/// Forbids shortened float32 products.
pub fn use_highest_matmul_precision() -> Result<(), Failure> {
    // SAFETY: the buffer given by `checked` is valid for the call.
    checked(|words, size| unsafe { iteragpu_use_highest_matmul_precision(words, size) })
}

/// libtorch's inference mode on this thread, until dropped.
pub struct InferenceMode(*mut c_void);

impl InferenceMode {
    pub fn enter() -> Self {
        // SAFETY: no argument; the guard is deleted once, in `drop`, on this thread (the raw
        // pointer keeps the type from being sent to another).
        Self(unsafe { iteragpu_enter_inference_mode() })
    }
}

impl Drop for InferenceMode {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `enter` and is deleted nowhere else.
        unsafe { iteragpu_leave_inference_mode(self.0) }
    }
}

/// A point in the work of a device, with the device's own time.
pub struct Event(*mut c_void);

impl Event {
    pub fn new() -> Result<Self, Failure> {
        let mut event = ptr::null_mut();
        // SAFETY: `event` outlives the call.
        checked(|words, size| unsafe { iteragpu_new_event(&mut event, words, size) })?;
        Ok(Self(event))
    }

    /// Puts the event behind the work that the current stream already has.
    pub fn record(&mut self, index: i32) -> Result<(), Failure> {
        // SAFETY: the pointer came from `new` and lives as long as this value.
        checked(|words, size| unsafe { iteragpu_record_event(index, self.0, words, size) })
    }

    /// Device seconds from this event to a later one; the device has reached both.
    pub fn seconds_until(&self, end: &Self) -> Result<f64, Failure> {
        let mut seconds = 0.0;
        // SAFETY: both pointers came from `new` and live as long as their values.
        checked(|words, size| unsafe { iteragpu_seconds_between(self.0, end.0, &mut seconds, words, size) })?;
        Ok(seconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `new` and is deleted nowhere else.
        unsafe { iteragpu_delete_event(self.0) }
    }
}

/// Another stream as this thread's current one, until dropped.
pub struct SideStream(*mut c_void);

impl SideStream {
    pub fn enter(index: i32) -> Result<Self, Failure> {
        let mut guard = ptr::null_mut();
        // SAFETY: `guard` outlives the call; the raw pointer keeps the type from being sent to another thread.
        checked(|words, size| unsafe { iteragpu_enter_side_stream(index, &mut guard, words, size) })?;
        Ok(Self(guard))
    }
}

impl Drop for SideStream {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `enter` and is deleted nowhere else.
        unsafe { iteragpu_leave_side_stream(self.0) }
    }
}

/// Work of a stream that is launched as a whole.
pub struct Graph {
    index: i32,
    executable: *mut c_void,
}

impl Graph {
    /// Notes what `work` asks of the current stream, which must not be the default one, instead of doing it.
    pub fn capture<T>(index: i32, work: impl FnOnce() -> Result<T, Failure>) -> Result<(Self, T), Failure> {
        // SAFETY: the buffer given by `checked` is valid for the call.
        checked(|words, size| unsafe { iteragpu_begin_capture(index, words, size) })?;
        let noted = work();
        let mut executable = ptr::null_mut();
        // Also after a failure, so that the stream works again.
        // SAFETY: `executable` outlives the call.
        let ended = checked(|words, size| unsafe { iteragpu_end_capture(index, &mut executable, words, size) });
        let graph = ended.map(|()| Self { index, executable });
        // What went wrong inside says more than that the capture has become void.
        let noted = noted?;
        Ok((graph?, noted))
    }

    /// Puts the whole work behind what the current stream already has.
    pub fn launch(&self) -> Result<(), Failure> {
        // SAFETY: the pointer came from `capture` and lives as long as this value.
        checked(|words, size| unsafe { iteragpu_launch_graph(self.index, self.executable, words, size) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `capture` and is deleted nowhere else.
        unsafe { iteragpu_delete_graph(self.executable) }
    }
}

/// Ends the process at once, without destructors: nothing may be left in a buffer.
pub fn exit(code: i32) -> ! {
    // SAFETY: ends the process, touches no memory.
    unsafe { iteragpu_exit(code) }
}

impl CudaResult {
    fn of(raw: &RawCudaError) -> Self {
        Self { code: raw.code, name: text(&raw.name), words: text(&raw.words) }
    }
}

/// Runs a foreign call with a buffer for its words, and turns a complaint into a failure.
fn checked(call: impl FnOnce(*mut c_char, usize) -> c_int) -> Result<(), Failure> {
    let mut words = [0; TEXT];
    match call(words.as_mut_ptr(), words.len()) {
        0 => Ok(()),
        _ => Err(crate::failure::of_words(&text(&words))),
    }
}

/// A C text, whatever its encoding; the buffers start zeroed and are always ended by a zero.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|byte| byte.to_ne_bytes()[0]).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}
