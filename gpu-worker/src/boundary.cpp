// What tch does not offer: allocator counters, start-up errors with their numbers, the device's
// description, matmul precision, inference mode, the device's own time, CUDA graphs. Every function returns 0, or 1 with words in
// `words`; no exception leaves this file.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <typeinfo>
#include <unistd.h>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <caffe2/core/common.h>

// Of libtorch_cuda, whose header needs CUDA's own. Weak: this file is also linked with a libtorch
// that has no GPU library.
namespace at::cuda {
__attribute__((weak)) size_t getChosenWorkspaceSize();
__attribute__((weak)) size_t getCUDABlasLtWorkspaceSize();
} // namespace at::cuda

namespace {

void copy_text(const std::string& text, char* to, size_t size) {
  std::snprintf(to, size, "%s", text.c_str());
}

template <typename Operation>
int guarded(char* words, size_t size, Operation operation) {
  try {
    operation();
    return 0;
  } catch (const c10::Error& error) {
    copy_text(error.what_without_backtrace(), words, size);
  } catch (const std::exception& error) {
    copy_text(error.what(), words, size);
  } catch (...) {
    copy_text("unknown C++ exception", words, size);
  }
  return 1;
}

// The CUDA runtime that libtorch has loaded, without its headers: these entry points are part of
// its stable C interface.
template <typename Function>
Function runtime(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

c10::DeviceAllocator* allocator() {
  return c10::getDeviceAllocator(c10::kCUDA);
}

// The backends are told apart by their classes: the function that names them is declared in a
// header that needs CUDA's own.
const char* allocator_backend() {
  const auto* current = c10::GetAllocator(c10::kCUDA);
  const std::string type = current ? typeid(*current).name() : "";
  const auto is = [&](const char* name) { return type.find(name) != std::string::npos; };
  return is("NativeCachingAllocator") ? "native" : is("CudaMallocAsyncAllocator") ? "cudaMallocAsync" : "other";
}

c10::Device device_of(int index) {
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

c10::Stream current_stream(int index) {
  return c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device_of(index));
}

// Calls an entry point of the CUDA runtime that returns its error number.
template <typename... Arguments>
void call_runtime(const char* name, Arguments... arguments) {
  const auto function = runtime<int (*)(Arguments...)>(name);
  TORCH_CHECK(function, name, " not found");
  const int code = function(arguments...);
  if (code != 0) {
    const auto words = runtime<const char* (*)(int)>("cudaGetErrorString");
    // Forgotten, so that the next operation does not report it as its own.
    if (const auto forget = runtime<int (*)()>("cudaGetLastError")) {
      forget();
    }
    TORCH_CHECK(false, name, ": ", words ? words(code) : "", " (", code, ")");
  }
}

std::string build_option(const char* name) {
  const auto& options = caffe2::GetBuildOptions();
  const auto found = options.find(name);
  return found == options.end() ? std::string() : found->second;
}

} // namespace

extern "C" {

struct IteragpuCudaError {
  int code;
  char name[128];
  char words[512];
};

struct IteragpuCounters {
  int64_t allocated;
  int64_t reserved;
  int64_t peak_allocated;
  int64_t peak_reserved;
};

struct IteragpuSettings {
  char backend[32];
  int expandable_segments;
  uint64_t large_segment_bytes;
  uint64_t max_split_bytes; // the largest number of 64 bits when there is no limit
  uint64_t max_non_split_rounding_bytes;
  uint64_t roundup_power2_divisions[32];
  uint64_t roundup_ranges;
  double garbage_collection_threshold;
};

struct IteragpuWorkspaces {
  uint64_t cublas_bytes;
  uint64_t cublaslt_bytes;
};

struct IteragpuDevice {
  char name[256];
  char pci_bus_id[32];
  uint64_t total_bytes;
  int capability_major;
  int capability_minor;
};

// One of libtorch's own build options, such as TORCH_VERSION; empty when it has none of that name.
int iteragpu_build_option(const char* option, char* value, size_t value_size, char* words, size_t size) {
  return guarded(words, size, [&] { copy_text(build_option(option), value, value_size); });
}

// File that the loaded libtorch_cpu came from.
int iteragpu_libtorch_path(char* path, size_t path_size, char* words, size_t size) {
  return guarded(words, size, [&] {
    Dl_info info;
    const auto address = reinterpret_cast<void*>(&caffe2::GetBuildOptions);
    copy_text(dladdr(address, &info) != 0 && info.dli_fname ? info.dli_fname : "", path, path_size);
  });
}

// 1 when libtorch's GPU library is loaded, 0 when not.
int iteragpu_has_gpu_backend(int* has, char* words, size_t size) {
  return guarded(words, size, [&] { *has = at::detail::getCUDAHooks().hasCUDART() ? 1 : 0; });
}

static void describe(int code, IteragpuCudaError* error) {
  using Describe = const char* (*)(int);
  const auto name = runtime<Describe>("cudaGetErrorName");
  const auto text = runtime<Describe>("cudaGetErrorString");
  error->code = code;
  copy_text(name ? name(code) : "", error->name, sizeof error->name);
  copy_text(text ? text(code) : "", error->words, sizeof error->words);
}

// Number of visible devices; error->code is CUDA's own result.
int iteragpu_device_count(int* count, IteragpuCudaError* error, char* words, size_t size) {
  return guarded(words, size, [&] {
    const auto get = runtime<int (*)(int*)>("cudaGetDeviceCount");
    TORCH_CHECK(get, "cudaGetDeviceCount not found");
    *count = 0;
    describe(get(count), error);
  });
}

// Makes `index` the current device and starts its context; error->code is CUDA's own result.
int iteragpu_select_device(int index, IteragpuCudaError* error, char* words, size_t size) {
  return guarded(words, size, [&] {
    const auto select = runtime<int (*)(int)>("cudaSetDevice");
    // Frees nothing; the documented way to make the runtime create the context now.
    const auto start = runtime<int (*)(void*)>("cudaFree");
    TORCH_CHECK(select && start, "cudaSetDevice or cudaFree not found");
    const int selected = select(index);
    describe(selected != 0 ? selected : start(nullptr), error);
    if (error->code == 0) {
      at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    }
  });
}

// Name, bus number, memory and compute capability, from the driver's own interface.
int iteragpu_describe_device(int index, IteragpuDevice* device, char* words, size_t size) {
  return guarded(words, size, [&] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    TORCH_CHECK(driver, "libcuda.so.1 cannot be loaded");
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    const auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
    const auto name = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetName"));
    const auto memory = reinterpret_cast<int (*)(size_t*, int)>(dlsym(driver, "cuDeviceTotalMem_v2"));
    const auto attribute = reinterpret_cast<int (*)(int*, int, int)>(dlsym(driver, "cuDeviceGetAttribute"));
    const auto bus = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetPCIBusId"));
    TORCH_CHECK(init && get && name && bus && memory && attribute, "libcuda.so.1 lacks an entry point");
    constexpr int kCapabilityMajor = 75; // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    constexpr int kCapabilityMinor = 76;
    int handle = 0;
    size_t total = 0;
    const bool known = init(0) == 0 && get(&handle, index) == 0 &&
        name(device->name, sizeof device->name, handle) == 0 &&
        bus(device->pci_bus_id, sizeof device->pci_bus_id, handle) == 0 && memory(&total, handle) == 0 &&
        attribute(&device->capability_major, kCapabilityMajor, handle) == 0 &&
        attribute(&device->capability_minor, kCapabilityMinor, handle) == 0;
    TORCH_CHECK(known, "the driver does not describe device ", index);
    device->total_bytes = total;
  });
}

// What the allocator goes by; throws what libtorch says of a setting that it does not accept.
int iteragpu_settings(IteragpuSettings* settings, char* words, size_t size) {
  return guarded(words, size, [&] {
    using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
    const auto& divisions = Config::roundup_power2_divisions();
    TORCH_CHECK(divisions.size() <= std::size(settings->roundup_power2_divisions), "too many rounding ranges");
    copy_text(allocator_backend(), settings->backend, sizeof settings->backend);
    settings->expandable_segments = Config::use_expandable_segments() ? 1 : 0;
    settings->large_segment_bytes = Config::large_segment_size();
    settings->max_split_bytes = Config::max_split_size();
    settings->max_non_split_rounding_bytes = Config::max_non_split_rounding_size();
    settings->roundup_ranges = divisions.size();
    std::copy(divisions.begin(), divisions.end(), settings->roundup_power2_divisions);
    settings->garbage_collection_threshold = Config::garbage_collection_threshold();
  });
}

// What the current device's first matrix products allocate beside their operands.
int iteragpu_workspaces(IteragpuWorkspaces* workspaces, char* words, size_t size) {
  return guarded(words, size, [&] {
    TORCH_CHECK(at::cuda::getChosenWorkspaceSize && at::cuda::getCUDABlasLtWorkspaceSize, "no GPU library");
    workspaces->cublas_bytes = at::cuda::getChosenWorkspaceSize();
    workspaces->cublaslt_bytes = at::cuda::getCUDABlasLtWorkspaceSize();
  });
}

int iteragpu_counters(int index, IteragpuCounters* counters, char* words, size_t size) {
  return guarded(words, size, [&] {
    const auto stats = allocator()->getDeviceStats(static_cast<c10::DeviceIndex>(index));
    constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    counters->allocated = stats.allocated_bytes[all].current;
    counters->reserved = stats.reserved_bytes[all].current;
    counters->peak_allocated = stats.allocated_bytes[all].peak;
    counters->peak_reserved = stats.reserved_bytes[all].peak;
  });
}

int iteragpu_reset_peaks(int index, char* words, size_t size) {
  return guarded(words, size, [&] { allocator()->resetPeakStats(static_cast<c10::DeviceIndex>(index)); });
}

int iteragpu_synchronize(int index, char* words, size_t size) {
  return guarded(words, size, [&] {
    at::detail::getCUDAHooks().deviceSynchronize(static_cast<c10::DeviceIndex>(index));
  });
}

int iteragpu_use_highest_matmul_precision(char* words, size_t size) {
  return guarded(words, size, [&] { at::globalContext().setFloat32MatmulPrecision("highest"); });
}

// Both would end the process rather than let an exception reach Rust; neither has a reason to throw.
void* iteragpu_enter_inference_mode() noexcept {
  return new c10::InferenceMode(true);
}

void iteragpu_leave_inference_mode(void* guard) noexcept {
  delete static_cast<c10::InferenceMode*>(guard);
}

// A point in the work of the device, with its time.
int iteragpu_new_event(void** event, char* words, size_t size) {
  return guarded(words, size, [&] { *event = new c10::Event(c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT); });
}

void iteragpu_delete_event(void* event) noexcept {
  delete static_cast<c10::Event*>(event);
}

// Puts the event behind the work that the current stream already has.
int iteragpu_record_event(int index, void* event, char* words, size_t size) {
  return guarded(words, size, [&] { static_cast<c10::Event*>(event)->record(current_stream(index)); });
}

// Device seconds between two events that have both been reached.
int iteragpu_seconds_between(const void* start, const void* end, double* seconds, char* words, size_t size) {
  return guarded(words, size, [&] {
    const auto milliseconds = static_cast<const c10::Event*>(start)->elapsedTime(*static_cast<const c10::Event*>(end));
    *seconds = milliseconds / 1000;
  });
}

// Makes another stream the current one: the default stream cannot be captured.
int iteragpu_enter_side_stream(int index, void** guard, char* words, size_t size) {
  return guarded(words, size, [&] {
    const auto stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStreamFromGlobalPool(device_of(index));
    *guard = new c10::StreamGuard(stream);
  });
}

void iteragpu_leave_side_stream(void* guard) noexcept {
  delete static_cast<c10::StreamGuard*>(guard);
}

static void* native_stream(int index) {
  return c10::impl::VirtualGuardImpl(c10::kCUDA).getStreamNativeHandle(current_stream(index));
}

// From here on the current stream's work is noted instead of done. libtorch's own class for this needs CUDA's
// headers. Its allocator need not know: after passes on this stream it has all that a pass asks for, and keeps
// it as long as nothing else asks.
int iteragpu_begin_capture(int index, char* words, size_t size) {
  constexpr int kRelaxed = 2; // cudaStreamCaptureModeRelaxed
  return guarded(words, size, [&] { call_runtime("cudaStreamBeginCapture", native_stream(index), kRelaxed); });
}

// The noted work, ready to be launched as a whole.
int iteragpu_end_capture(int index, void** executable, char* words, size_t size) {
  return guarded(words, size, [&] {
    void* graph = nullptr;
    call_runtime("cudaStreamEndCapture", native_stream(index), &graph);
    const auto destroy = [](void* noted) {
      if (const auto end = runtime<int (*)(void*)>("cudaGraphDestroy")) {
        end(noted);
      }
    };
    const auto destroyed = std::unique_ptr<void, decltype(destroy)>(graph, destroy);
    call_runtime("cudaGraphInstantiateWithFlags", executable, graph, 0ULL);
  });
}

int iteragpu_launch_graph(int index, void* executable, char* words, size_t size) {
  return guarded(words, size, [&] { call_runtime("cudaGraphLaunch", executable, native_stream(index)); });
}

void iteragpu_delete_graph(void* executable) noexcept {
  if (const auto destroy = runtime<int (*)(void*)>("cudaGraphExecDestroy")) {
    destroy(executable);
  }
}

// Ends the process at once: the driver frees a process's GPU memory far faster than the
// destructors of libtorch do.
void iteragpu_exit(int code) {
  _exit(code);
}

} // extern "C"
