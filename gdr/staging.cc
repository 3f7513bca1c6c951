#include "gdr/staging.h"

#include <thread>

#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr std::string_view kSeeLog =
    "an earlier failure of the application on this GPU is the usual cause: look for its first "
    "error, then at the kernel's log (dmesg)";

}  // namespace

Result<std::shared_ptr<CopyEngine>> CopyEngine::open(std::shared_ptr<const CudaDriver> driver,
                                                     int device) {
  ASSIGN_OR_RETURN(auto context, PrimaryContext::retain(std::move(driver), device));
  const std::shared_ptr<CopyEngine> engine(new CopyEngine(std::move(context)));
  const PrimaryContext::Current current(engine->context());
  for (cuda::Stream& stream : engine->streams_) {
    const cuda::Status status = engine->driver()->stream_create(&stream, cuda::kStreamNonBlocking);
    if (status != cuda::kSuccess) {
      return tl::unexpected(engine->driver().error("cuStreamCreate", status, kSeeLog));
    }
  }
  return engine;
}

CopyEngine::~CopyEngine() {
  wait();
  const PrimaryContext::Current current(*context_);
  for (const cuda::Stream stream : streams_) {
    if (stream != nullptr) driver()->stream_destroy(stream);
  }
}

// A failure means that this process has lost the GPU, so nothing copies any more.
void CopyEngine::wait() const {
  const PrimaryContext::Current current(*context_);
  for (const cuda::Stream stream : streams_) {
    if (stream != nullptr) driver()->stream_synchronize(stream);
  }
}

CopyEvent::~CopyEvent() {
  if (event_ == nullptr) return;
  const PrimaryContext::Current current(engine_->context());
  engine_->driver()->event_destroy(event_);
}

Result<void> CopyEvent::record(std::shared_ptr<const CopyEngine> engine, CopyWay way) {
  const PrimaryContext::Current current(engine->context());
  const CudaDriver& driver = engine->driver();
  if (engine_ != engine) {  // of another GPU, or the first time
    if (event_ != nullptr) driver->event_destroy(event_);
    event_ = nullptr;
    const cuda::Status status = driver->event_create(&event_, cuda::kEventWithoutTiming);
    if (status != cuda::kSuccess) {
      return tl::unexpected(driver.error("cuEventCreate", status, kSeeLog));
    }
    engine_ = engine;
  }
  const cuda::Status status = driver->event_record(event_, engine->stream(way));
  if (status == cuda::kSuccess) return {};
  return tl::unexpected(driver.error("cuEventRecord", status, kSeeLog));
}

Result<bool> CopyEvent::done() const {
  const PrimaryContext::Current current(engine_->context());
  const cuda::Status status = engine_->driver()->event_query(event_);
  if (status == cuda::kErrorNotReady) return false;
  if (status == cuda::kSuccess) return true;
  return tl::unexpected(engine_->driver().error("a copy between GPU and host", status, kSeeLog));
}

Result<std::unique_ptr<PinnedMemory>> PinnedMemory::allocate(
    std::shared_ptr<const CopyEngine> engine, size_t bytes) {
  void* memory = nullptr;
  const PrimaryContext::Current current(engine->context());
  const cuda::Status status =
      engine->driver()->host_alloc(&memory, bytes, cuda::kHostMemoryPortable);
  if (status != cuda::kSuccess) {
    return tl::unexpected(engine->driver().error(
        "cuMemHostAlloc", status,
        "free memory of the host, use fewer channels (NCCL_MAX_NCHANNELS), or set "
        "PACECAR_GPU=host"));
  }
  return std::unique_ptr<PinnedMemory>(
      new PinnedMemory(std::move(engine), {static_cast<uint8_t*>(memory), bytes}));
}

PinnedMemory::~PinnedMemory() {
  const PrimaryContext::Current current(engine_->context());
  engine_->driver()->host_free(bytes_.data());
}

Result<void> StagedRange::copy(CopyWay way, const void* device, void* host, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (withdrawn_) {
    return fail(ErrorCode::kInvalidArgument,
                "GPU memory of a message was deregistered before the message was through: wait for "
                "its requests first");
  }
  const PrimaryContext::Current current(engine_->context());
  const CudaDriver& driver = engine_->driver();
  const auto address = reinterpret_cast<cuda::DevicePointer>(device);
  const cuda::Stream stream = engine_->stream(way);
  const cuda::Status status = way == CopyWay::kToHost
                                  ? driver->copy_to_host(host, address, bytes, stream)
                                  : driver->copy_to_device(address, host, bytes, stream);
  if (status == cuda::kSuccess) return {};
  return tl::unexpected(driver.error("a copy between GPU and host", status, kSeeLog));
}

Result<void> StagedRange::copy_and_wait(CopyWay way, const void* device, void* host,
                                        size_t bytes) {
  CopyEvent event;
  if (auto started = copy(way, device, host, bytes); !started) return started;
  if (auto recorded = event.record(engine_, way); !recorded) return recorded;
  for (;;) {
    ASSIGN_OR_RETURN(const auto done, event.done());
    if (done) return {};
    std::this_thread::yield();
  }
}

void StagedRange::withdraw() {
  {
    const std::lock_guard lock(mutex_);
    withdrawn_ = true;
  }
  engine_->wait();
}

}  // namespace pacecar
