#include "gdr/staging.h"

#include <fmt/core.h>

#include <utility>

#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr std::string_view kCopy = "a copy between GPU and host";
constexpr std::string_view kSeeLog =
    "an earlier failure of the application on this GPU is the usual cause: look for its first "
    "error, then at the kernel's log (dmesg)";

}  // namespace

Result<std::shared_ptr<CopyEngine>> CopyEngine::open(std::shared_ptr<const CudaDriver> driver,
                                                     int device) {
  cuda::Device handle = 0;
  cuda::Context context = nullptr;
  cuda::Status status = (*driver)->device_get(&handle, device);
  if (status == cuda::kSuccess) status = (*driver)->retain_context(&context, handle);
  RETURN_IF_ERROR(driver->check("cuDevicePrimaryCtxRetain", status,
                                "`nvidia-smi` shows whether the GPU works and is free"));
  const std::shared_ptr<CopyEngine> engine(new CopyEngine(std::move(driver), handle, context));
  const Current current(*engine);
  for (cuda::Stream& stream : engine->streams_) {
    RETURN_IF_ERROR(engine->driver().check(
        "cuStreamCreate", engine->driver()->stream_create(&stream, cuda::kStreamNonBlocking),
        kSeeLog));
  }
  return engine;
}

CopyEngine::~CopyEngine() {
  wait();
  {
    const Current current(*this);
    for (const cuda::Stream stream : streams_) {
      if (stream != nullptr) driver()->stream_destroy(stream);
    }
  }
  driver()->release_context(device_);
}

// If the context cannot be made current, the calls that follow fail and report it.
CopyEngine::Current::Current(const CopyEngine& engine)
    : driver_(*engine.driver_),
      pushed_(driver_->push_context(engine.context_) == cuda::kSuccess),
      capture_mode_(cuda::kCaptureModeRelaxed) {
  driver_->exchange_capture_mode(&capture_mode_);
}

CopyEngine::Current::~Current() {
  driver_->exchange_capture_mode(&capture_mode_);
  cuda::Context popped = nullptr;
  if (pushed_) driver_->pop_context(&popped);
}

// A failure means that this process has lost the GPU; then no copy is pending.
void CopyEngine::wait() const {
  const Current current(*this);
  for (const cuda::Stream stream : streams_) {
    if (stream != nullptr) driver()->stream_synchronize(stream);
  }
}

Result<void> CopyEngine::flush_writes() const {
  const Current current(*this);
  return driver().check(
      "cuFlushGPUDirectRDMAWrites",
      driver()->flush_writes(cuda::kFlushTargetCurrentContext, cuda::kFlushScopeOwner),
      "look at the kernel's log (dmesg) for the GPU");
}

CopyEvent::~CopyEvent() {
  if (event_ == nullptr) return;
  const CopyEngine::Current current(*engine_);
  engine_->driver()->event_destroy(event_);
}

Result<void> CopyEvent::record(std::shared_ptr<const CopyEngine> engine, CopyWay way) {
  const CopyEngine::Current current(*engine);
  const CudaDriver& driver = engine->driver();
  if (engine_ != engine) {  // of another GPU, or the first time
    if (event_ != nullptr) driver->event_destroy(event_);
    event_ = nullptr;
    RETURN_IF_ERROR(driver.check(
        "cuEventCreate", driver->event_create(&event_, cuda::kEventWithoutTiming), kSeeLog));
    engine_ = engine;
  }
  return driver.check("cuEventRecord", driver->event_record(event_, engine->stream(way)), kSeeLog);
}

Result<bool> CopyEvent::done() const {
  const CopyEngine::Current current(*engine_);
  const cuda::Status status = engine_->driver()->event_query(event_);
  if (status == cuda::kErrorNotReady) return false;
  RETURN_IF_ERROR(engine_->driver().check(kCopy, status, kSeeLog));
  return true;
}

Result<std::unique_ptr<PinnedMemory>> PinnedMemory::allocate(
    std::shared_ptr<const CopyEngine> engine, size_t bytes) {
  void* memory = nullptr;
  const CopyEngine::Current current(*engine);
  RETURN_IF_ERROR(engine->driver().check(
      "cuMemHostAlloc", engine->driver()->host_alloc(&memory, bytes, cuda::kHostMemoryPortable),
      "free memory of the host, use fewer channels (NCCL_MAX_NCHANNELS), or set "
      "PACECAR_GPU=host"));
  return std::unique_ptr<PinnedMemory>(
      new PinnedMemory(std::move(engine), {static_cast<uint8_t*>(memory), bytes}));
}

PinnedMemory::~PinnedMemory() {
  const CopyEngine::Current current(*engine_);
  engine_->driver()->host_free(bytes_.data());
}

Result<void> StagedRange::copy(CopyWay way, const void* device, void* host, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (withdrawn_) {
    return fail(ErrorCode::kInvalidArgument,
                "GPU memory of a message was deregistered before the message was complete: wait "
                "for its requests first");
  }
  const CopyEngine::Current current(*engine_);
  const CudaDriver& driver = engine_->driver();
  const auto address = reinterpret_cast<cuda::DevicePointer>(device);
  const cuda::Stream stream = engine_->stream(way);
  const cuda::Status status = way == CopyWay::kToHost
                                  ? driver->copy_to_host(host, address, bytes, stream)
                                  : driver->copy_to_device(address, host, bytes, stream);
  return driver.check(kCopy, status, kSeeLog);
}

Result<void> StagedRange::copy_and_wait(CopyWay way, const void* device, void* host, size_t bytes) {
  RETURN_IF_ERROR(copy(way, device, host, bytes));
  const CopyEngine::Current current(*engine_);
  const CudaDriver& driver = engine_->driver();
  return driver.check(kCopy, driver->stream_synchronize(engine_->stream(way)), kSeeLog);
}

void StagedRange::withdraw() {
  {
    const std::lock_guard lock(mutex_);
    withdrawn_ = true;
  }
  engine_->wait();
}

Result<std::unique_ptr<GpuAllocation>> GpuAllocation::make(std::shared_ptr<const CopyEngine> engine,
                                                           size_t bytes) {
  const CopyEngine::Current current(*engine);
  cuda::DevicePointer address = 0;
  const cuda::Status status = engine->driver()->device_alloc(&address, bytes);
  if (status == cuda::kErrorOutOfMemory) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("the GPU has no {} MiB of free memory: ask for less, or end what else "
                            "uses it (nvidia-smi)",
                            (bytes >> 20) + 1));
  }
  RETURN_IF_ERROR(engine->driver().check("cuMemAlloc", status, "look at nvidia-smi"));
  return std::unique_ptr<GpuAllocation>(
      new GpuAllocation(std::move(engine), reinterpret_cast<uint8_t*>(address), bytes));
}

GpuAllocation::~GpuAllocation() {
  const CopyEngine::Current current(*engine_);
  engine_->driver()->device_free(reinterpret_cast<cuda::DevicePointer>(address_));
}

Result<void> GpuAllocation::write(uint8_t* to, std::span<const uint8_t> from) {
  return range_.copy_and_wait(CopyWay::kToDevice, to, const_cast<uint8_t*>(from.data()),
                              from.size());
}

Result<void> GpuAllocation::read(std::span<uint8_t> to, const uint8_t* from) {
  return range_.copy_and_wait(CopyWay::kToHost, from, to.data(), to.size());
}

}  // namespace pacecar
