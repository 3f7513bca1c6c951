// Copies between a GPU's memory and pinned memory of the host, for NICs that cannot reach the GPU.
// A GPU has one CopyEngine, with a stream each way; copies are asynchronous, and an event shows
// when all copies before it are done.
//
// Thread rule: CopyEngine and StagedRange may be used from any thread; the rest by one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "gdr/primary_context.h"
#include "transport/base/result.h"

namespace pacecar {

enum class CopyWay : uint8_t { kToHost, kToDevice };

class CopyEngine {
 public:
  // Errors: kSystem.
  static Result<std::shared_ptr<CopyEngine>> open(std::shared_ptr<const CudaDriver> driver,
                                                  int device);
  ~CopyEngine();  // waits for pending copies
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  const PrimaryContext& context() const { return *context_; }
  const CudaDriver& driver() const { return context_->driver(); }
  cuda::Stream stream(CopyWay way) const { return streams_[static_cast<size_t>(way)]; }
  // Waits until no copy is pending.
  void wait() const;

 private:
  explicit CopyEngine(std::unique_ptr<PrimaryContext> context) : context_(std::move(context)) {}

  const std::unique_ptr<PrimaryContext> context_;
  cuda::Stream streams_[2] = {nullptr, nullptr};
};

// Shows when copies are done.
class CopyEvent {
 public:
  CopyEvent() = default;
  ~CopyEvent();
  CopyEvent(const CopyEvent&) = delete;
  CopyEvent& operator=(const CopyEvent&) = delete;

  // Records the event after all copies so far in that direction. Errors: kSystem.
  Result<void> record(std::shared_ptr<const CopyEngine> engine, CopyWay way);
  // Whether the copies before the last record() are done. Errors: kSystem, if a copy has failed.
  Result<bool> done() const;

 private:
  std::shared_ptr<const CopyEngine> engine_;  // that the event was made for
  cuda::Event event_ = nullptr;
};

// Pinned host memory, which GPUs copy to and from asynchronously.
class PinnedMemory {
 public:
  // Errors: kSystem, with the cure where the system's limits are too low.
  static Result<std::unique_ptr<PinnedMemory>> allocate(std::shared_ptr<const CopyEngine> engine,
                                                        size_t bytes);
  ~PinnedMemory();  // no copy may still use it
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::span<uint8_t> bytes() const { return bytes_; }

 private:
  PinnedMemory(std::shared_ptr<const CopyEngine> engine, std::span<uint8_t> bytes)
      : engine_(std::move(engine)), bytes_(bytes) {}

  const std::shared_ptr<const CopyEngine> engine_;
  const std::span<uint8_t> bytes_;
};

// GPU memory whose messages are staged. The application may deregister it at any time.
class StagedRange {
 public:
  StagedRange(std::shared_ptr<const CopyEngine> engine, void* address, size_t length)
      : engine_(std::move(engine)), begin_(reinterpret_cast<uint64_t>(address)), length_(length) {}

  const std::shared_ptr<const CopyEngine>& engine() const { return engine_; }
  bool covers(const void* data, size_t size) const {
    const auto start = reinterpret_cast<uint64_t>(data);
    return start >= begin_ && size <= length_ && start - begin_ <= length_ - size;
  }

  // Starts a copy between `device` in this range and pinned memory. Errors: kInvalidArgument
  // (withdrawn), kSystem.
  Result<void> copy(CopyWay way, const void* device, void* host, size_t bytes);
  // Likewise, with any memory of the host, and waits until the copy is done.
  Result<void> copy_and_wait(CopyWay way, const void* device, void* host, size_t bytes);
  // Refuses further copies, and waits until no copy uses the memory.
  void withdraw();

 private:
  const std::shared_ptr<const CopyEngine> engine_;
  const uint64_t begin_;
  const size_t length_;
  std::mutex mutex_;
  bool withdrawn_ = false;
};

}  // namespace pacecar
