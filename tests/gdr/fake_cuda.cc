// A driver library without a GPU: the CUDA entry points that Pacecar uses.
//
// GPU memory is mapped without access at the address that the program gets, so a direct read or
// write crashes. A second mapping, for copies only, holds the bytes. Streams make progress when
// they are waited for or asked for an event: a copy completes some time after the call, and a held
// stream (copies_wait) makes none, so that code that does not wait for its copies fails.
//
// FAKE_CUDA_OLD leaves out the entry points that drivers before CUDA 11.3 lack, FAKE_CUDA_BROKEN
// one that all drivers have.
#include "tests/gdr/fake_cuda.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "gdr/cuda_abi.h"

using namespace pacecar::cuda;

struct pacecar::cuda::OpaqueStream {
  std::deque<std::function<void()>> work;
};

struct pacecar::cuda::OpaqueEvent {
  uint64_t recorded = 0;
  uint64_t reached = 0;
  Status status = kSuccess;
};

struct pacecar::cuda::OpaqueContext {
  int device = 0;
};

namespace {

constexpr Status kInvalidValue = 1;
constexpr Status kInvalidContext = 201;
constexpr Status kNotSupported = 801;
constexpr Status kIllegalAddress = 700;
constexpr Status kCaptureUnsupported = 900;
constexpr int kMaxDevices = 8;
constexpr size_t kDeviceBytes = size_t{1} << 30;

struct Allocation {
  size_t bytes = 0;
  int device = 0;
  int file = -1;
  uint8_t* contents = nullptr;
  uint64_t number = 0;
};

struct Fake {
  std::mutex mutex;
  std::condition_variable changed;
  FakeCuda state;
  std::map<uint64_t, Allocation> memory;  // by the address that the program gets
  uint64_t allocations = 0;               // so far, freed ones included
  OpaqueContext contexts[kMaxDevices];
  std::deque<std::unique_ptr<OpaqueStream>> streams;
  uint32_t draw = 1;
  int queries = 0;  // of events, since streams last made progress
};

Fake& fake() {
  static Fake* const instance = new Fake;
  return *instance;
}

thread_local std::deque<OpaqueContext*> current;
thread_local int capture_mode = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL

// While a graph is captured, as CUDA documents for calls that may be unsafe then. Under the lock.
bool breaks_capture() {
  const bool breaks = fake().state.capturing && capture_mode != kCaptureModeRelaxed;
  fake().state.broken_captures += breaks ? 1 : 0;
  return breaks;
}

uint8_t* contents_of(uint64_t address, size_t bytes) {
  auto after = fake().memory.upper_bound(address);
  if (after == fake().memory.begin()) return nullptr;
  const auto& [base, allocation] = *--after;
  const uint64_t offset = address - base;
  if (offset > allocation.bytes || bytes > allocation.bytes - offset) return nullptr;
  return allocation.contents + offset;
}

uint32_t draw_below(uint32_t bound) {
  fake().draw = fake().draw * 1664525 + 1013904223;
  return (fake().draw >> 16) % bound;
}

// One piece of work of a stream that has some; false if none may run. Under the lock.
bool run_one() {
  Fake& gpu = fake();
  if (gpu.state.copies_wait || gpu.streams.empty()) return false;
  const size_t first = draw_below(static_cast<uint32_t>(gpu.streams.size()));
  for (size_t i = 0; i < gpu.streams.size(); ++i) {
    OpaqueStream& stream = *gpu.streams[(first + i) % gpu.streams.size()];
    if (stream.work.empty()) continue;
    stream.work.front()();
    stream.work.pop_front();
    return true;
  }
  return false;
}

void run_some() {
  for (uint32_t pieces = draw_below(3); pieces > 0; --pieces) run_one();
}

template <typename Done>
void run_until(std::unique_lock<std::mutex>& lock, const Done& done) {
  while (!done()) {
    if (!run_one()) fake().changed.wait(lock);
  }
}

void give(OpaqueStream* stream, std::function<void()> work) {
  stream->work.push_back(std::move(work));
  if (draw_below(4) == 0) run_one();
}

Status copy(OpaqueStream* stream, uint64_t device, size_t bytes,
            const std::function<void(uint8_t*)>& move) {
  const std::lock_guard lock(fake().mutex);
  if (current.empty()) return kInvalidContext;
  if (contents_of(device, bytes) == nullptr) return kInvalidValue;
  give(stream, [device, bytes, move] {
    Fake& gpu = fake();
    ++gpu.state.copies;
    uint8_t* const contents = contents_of(device, bytes);
    if (gpu.state.copies_fail || contents == nullptr) gpu.state.copy_failure = kIllegalAddress;
    if (gpu.state.copy_failure == kSuccess) move(contents);
  });
  return kSuccess;
}

}  // namespace

#define FAKE extern "C" [[gnu::visibility("default")]]

FAKE void fake_cuda_use(FakeCudaUse use, void* argument) {
  const std::lock_guard lock(fake().mutex);
  use(fake().state, argument);
  fake().changed.notify_all();
}

FAKE void* fake_cuda_allocate(size_t bytes, int device) {
  const std::lock_guard lock(fake().mutex);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  bytes = (bytes + page - 1) / page * page;
  Allocation made{.bytes = bytes, .device = device, .file = memfd_create("gpu", MFD_CLOEXEC)};
  if (made.file < 0 || ftruncate(made.file, static_cast<off_t>(bytes)) != 0) std::abort();
  void* const known = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, made.file, 0);
  void* const hidden = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.file, 0);
  if (known == MAP_FAILED || hidden == MAP_FAILED) std::abort();
  made.contents = static_cast<uint8_t*>(hidden);
  made.number = ++fake().allocations;
  fake().memory[reinterpret_cast<uint64_t>(known)] = made;
  return known;
}

FAKE void fake_cuda_free(void* memory) {
  const std::lock_guard lock(fake().mutex);
  const auto found = fake().memory.find(reinterpret_cast<uint64_t>(memory));
  if (found == fake().memory.end()) std::abort();
  munmap(memory, found->second.bytes);
  munmap(found->second.contents, found->second.bytes);
  close(found->second.file);
  fake().memory.erase(found);
}

FAKE void fake_cuda_write(void* memory, const void* from, size_t bytes) {
  const std::lock_guard lock(fake().mutex);
  if (bytes == 0) return;
  std::memcpy(contents_of(reinterpret_cast<uint64_t>(memory), bytes), from, bytes);
}

FAKE void fake_cuda_read(void* to, const void* memory, size_t bytes) {
  const std::lock_guard lock(fake().mutex);
  run_some();
  if (bytes == 0) return;
  std::memcpy(to, contents_of(reinterpret_cast<uint64_t>(memory), bytes), bytes);
}

FAKE Status cuInit(unsigned) {
  const std::lock_guard lock(fake().mutex);
  return fake().state.init_status;
}

FAKE Status cuGetErrorString(Status status, const char** text) {
  *text = status == kIllegalAddress     ? "an illegal memory access was encountered"
          : status == kErrorOutOfMemory ? "out of memory"
          : status == kNotSupported     ? "operation not supported"
                                        : "invalid argument";
  return kSuccess;
}

FAKE Status cuDeviceGetCount(int* count) {
  const std::lock_guard lock(fake().mutex);
  *count = fake().state.devices;
  return fake().state.count_status;
}

FAKE Status cuDeviceGet(Device* device, int ordinal) {
  const std::lock_guard lock(fake().mutex);
  if (ordinal < 0 || ordinal >= fake().state.devices) return kInvalidValue;
  *device = ordinal;
  return kSuccess;
}

FAKE Status cuDeviceGetAttribute(int* value, int attribute, Device) {
  const std::lock_guard lock(fake().mutex);
  const FakeCuda& state = fake().state;
  switch (attribute) {
    case kAttributeDmaBufSupported: *value = state.dma_buf ? 1 : 0; return kSuccess;
    case kAttributeRdmaSupported: *value = state.peer_memory ? 1 : 0; return kSuccess;
    case kAttributeFlushOptions: *value = state.flush_options; return kSuccess;
    case kAttributeWritesOrdering: *value = state.writes_ordering; return kSuccess;
    default: return kInvalidValue;
  }
}

FAKE Status cuDeviceGetPCIBusId(char* text, int bytes, Device device) {
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02X:00.0", 0x3a + device);
  return kSuccess;
}

FAKE Status cuDevicePrimaryCtxRetain(Context* context, Device device) {
  const std::lock_guard lock(fake().mutex);
  fake().contexts[device].device = device;
  *context = &fake().contexts[device];
  return kSuccess;
}

FAKE Status cuDevicePrimaryCtxRelease_v2(Device) { return kSuccess; }

FAKE Status cuCtxPushCurrent_v2(Context context) {
  current.push_back(context);
  return kSuccess;
}

FAKE Status cuCtxPopCurrent_v2(Context* context) {
  if (current.empty()) return kInvalidContext;
  *context = current.back();
  current.pop_back();
  return kSuccess;
}

FAKE Status cuCtxGetDevice(Device* device) {
  if (current.empty()) return kInvalidContext;
  *device = current.back()->device;
  return kSuccess;
}

FAKE Status cuPointerGetAttributes(unsigned count, int* attributes, void** values,
                                   DevicePointer pointer) {
  const std::lock_guard lock(fake().mutex);
  auto after = fake().memory.upper_bound(pointer);
  const bool known = after != fake().memory.begin() &&
                     pointer - std::prev(after)->first < std::prev(after)->second.bytes;
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case kPointerMemoryType:
        *static_cast<unsigned*>(values[i]) = known ? kMemoryTypeDevice : 0;
        break;
      case kPointerIsManaged:
        *static_cast<unsigned*>(values[i]) = known && fake().state.managed ? 1 : 0;
        break;
      case kPointerDeviceOrdinal:
        *static_cast<int*>(values[i]) = known ? std::prev(after)->second.device : -2;
        break;
      case kPointerRangeStart:
        *static_cast<DevicePointer*>(values[i]) = known ? std::prev(after)->first : 0;
        break;
      case kPointerRangeSize:
        *static_cast<size_t*>(values[i]) = known ? std::prev(after)->second.bytes : 0;
        break;
      case kPointerBufferId:
        *static_cast<unsigned long long*>(values[i]) = known ? std::prev(after)->second.number : 0;
        break;
      default: return kInvalidValue;
    }
  }
  return kSuccess;
}

FAKE Status cuMemAlloc_v2(DevicePointer* memory, size_t bytes) {
  if (current.empty()) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  if (bytes > kDeviceBytes) return kErrorOutOfMemory;
  *memory = reinterpret_cast<DevicePointer>(fake_cuda_allocate(bytes, current.back()->device));
  return kSuccess;
}

FAKE Status cuMemFree_v2(DevicePointer memory) {
  if (current.empty()) return kInvalidContext;
  fake_cuda_free(reinterpret_cast<void*>(memory));
  return kSuccess;
}

FAKE Status cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return kSuccess;
}

FAKE Status cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  const std::lock_guard lock(fake().mutex);
  if (current.empty()) return kInvalidContext;
  if (breaks_capture()) return kCaptureUnsupported;
  if (fake().state.host_memory_fails) return kErrorOutOfMemory;
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  ++fake().state.host_allocations;
  return kSuccess;
}

FAKE Status cuMemFreeHost(void* memory) {
  const std::lock_guard lock(fake().mutex);
  const auto works = [](const auto& stream) { return !stream->work.empty(); };
  if (breaks_capture()) return kCaptureUnsupported;
  if (std::ranges::any_of(fake().streams, works)) ++fake().state.early_frees;
  std::free(memory);
  --fake().state.host_allocations;
  return kSuccess;
}

FAKE Status cuStreamCreate(Stream* stream, unsigned) {
  const std::lock_guard lock(fake().mutex);
  if (current.empty()) return kInvalidContext;
  if (breaks_capture()) return kCaptureUnsupported;
  Fake& gpu = fake();
  *stream = gpu.streams.emplace_back(std::make_unique<OpaqueStream>()).get();
  ++gpu.state.streams;
  return kSuccess;
}

FAKE Status cuStreamDestroy_v2(Stream stream) {
  std::unique_lock lock(fake().mutex);
  run_until(lock, [&] { return stream->work.empty(); });
  std::erase_if(fake().streams, [&](const auto& each) { return each.get() == stream; });
  --fake().state.streams;
  return kSuccess;
}

FAKE Status cuStreamSynchronize(Stream stream) {
  std::unique_lock lock(fake().mutex);
  if (breaks_capture()) return kCaptureUnsupported;
  run_until(lock, [&] { return stream->work.empty(); });
  return fake().state.copy_failure;
}

FAKE Status cuMemcpyDtoHAsync_v2(void* host, DevicePointer device, size_t bytes, Stream stream) {
  return copy(stream, device, bytes,
              [=](const uint8_t* contents) { std::memcpy(host, contents, bytes); });
}

FAKE Status cuMemcpyHtoDAsync_v2(DevicePointer device, const void* host, size_t bytes,
                                 Stream stream) {
  return copy(stream, device, bytes,
              [=](uint8_t* contents) { std::memcpy(contents, host, bytes); });
}

FAKE Status cuEventCreate(Event* event, unsigned) {
  if (current.empty()) return kInvalidContext;
  *event = new OpaqueEvent;
  return kSuccess;
}

// As with CUDA, an event may be destroyed before it is reached: waits until the streams no longer
// use it.
FAKE Status cuEventDestroy_v2(Event event) {
  std::unique_lock lock(fake().mutex);
  run_until(lock, [&] { return event->reached == event->recorded; });
  delete event;
  return kSuccess;
}

FAKE Status cuEventRecord(Event event, Stream stream) {
  const std::lock_guard lock(fake().mutex);
  if (fake().state.records_fail) return kInvalidValue;
  const uint64_t turn = ++event->recorded;
  give(stream, [event, turn] {
    event->status = fake().state.copy_failure;
    event->reached = turn;
  });
  return kSuccess;
}

#ifndef FAKE_CUDA_BROKEN
FAKE Status cuEventQuery(Event event) {
  const std::lock_guard lock(fake().mutex);
  if (breaks_capture()) return kCaptureUnsupported;
  if (++fake().queries > fake().state.late) {
    fake().queries = 0;
    run_some();
  }
  return event->reached == event->recorded ? event->status : kErrorNotReady;
}
#endif

#ifndef FAKE_CUDA_OLD
FAKE Status cuMemGetHandleForAddressRange(void* handle, DevicePointer device, size_t bytes,
                                          int kind, unsigned long long flags) {
  const std::lock_guard lock(fake().mutex);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (fake().state.refuses_export) return kNotSupported;
  if (kind != kHandleDmaBuf || flags != 0 || device % page != 0 || bytes % page != 0) {
    return kInvalidValue;
  }
  if (contents_of(device, bytes) == nullptr) return kInvalidValue;
  const auto& allocation = *std::prev(fake().memory.upper_bound(device));
  *static_cast<int*>(handle) = fcntl(allocation.second.file, F_DUPFD_CLOEXEC, 0);
  return kSuccess;
}

FAKE Status cuFlushGPUDirectRDMAWrites(int target, int scope) {
  const std::lock_guard lock(fake().mutex);
  if (target != kFlushTargetCurrentContext || scope != kFlushScopeOwner) return kInvalidValue;
  if (current.empty()) return kInvalidContext;
  ++fake().state.flushes;
  return kSuccess;
}
#endif
