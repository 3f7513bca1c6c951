// Copies between a GPU's memory and pinned memory of the host, for NICs that cannot reach the GPU.
// A GPU has one CopyEngine, with a stream each way; copies are asynchronous, and an event shows
// when all copies before it are done. Thread rule: CopyEngine and StagedRange may be used from any
// thread; the rest by one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "gdr/cuda_driver.h"

namespace pacecar {

enum class CopyWay : uint8_t { kToHost, kToDevice };

// Holds the GPU's primary context, which CUDA's runtime uses, too.
class CopyEngine {
 public:
  static Result<std::shared_ptr<CopyEngine>> open(std::shared_ptr<const CudaDriver> driver,
                                                  int device);  // Errors: kSystem.
  ~CopyEngine();                                                // waits for pending copies
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  // Makes the context current in this thread for as long as the object lives, as most calls of the
  // driver need it. They do not disturb a graph that another thread captures meanwhile.
  class Current {
   public:
    explicit Current(const CopyEngine& engine);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const CudaDriver& driver_;
    const bool pushed_;
    int capture_mode_;  // of this thread, otherwise
  };

  const CudaDriver& driver() const { return *driver_; }
  cuda::Stream stream(CopyWay way) const { return streams_[static_cast<size_t>(way)]; }
  void wait() const;  // Waits until no copy is pending.
  // Returns when everything that NICs have written to the GPU so far is visible to its kernels: for
  // NICs that cannot read GPU memory after their own writes. Errors: kSystem.
  Result<void> flush_writes() const;

 private:
  CopyEngine(std::shared_ptr<const CudaDriver> driver, cuda::Device device, cuda::Context context)
      : driver_(std::move(driver)), device_(device), context_(context) {}

  const std::shared_ptr<const CudaDriver> driver_;
  const cuda::Device device_;
  const cuda::Context context_;
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

  // Copies `device`, in this range, to or from `host`. Errors: kInvalidArgument, kSystem.
  Result<void> copy(CopyWay way, const void* device, void* host, size_t bytes);
  // As copy(), but with any memory of the host; waits until the copy is done.
  Result<void> copy_and_wait(CopyWay way, const void* device, void* host, size_t bytes);
  void withdraw();  // Refuses further copies, and waits until no copy uses the memory.

 private:
  const std::shared_ptr<const CopyEngine> engine_;
  const uint64_t begin_;
  const size_t length_;
  std::mutex mutex_;
  bool withdrawn_ = false;
};

// GPU memory that this process allocates, as an application would.
class GpuAllocation {
 public:
  // Its contents are undefined. Errors: kUnavailable (the GPU has less free memory), kSystem.
  static Result<std::unique_ptr<GpuAllocation>> make(std::shared_ptr<const CopyEngine> engine,
                                                     size_t bytes);
  ~GpuAllocation();
  GpuAllocation(const GpuAllocation&) = delete;
  GpuAllocation& operator=(const GpuAllocation&) = delete;

  // An address of the GPU: the host's processors cannot access it.
  uint8_t* address() const { return address_; }

  // Copy, and wait until it is done. The GPU's address must be in this allocation. Errors: kSystem.
  Result<void> write(uint8_t* to, std::span<const uint8_t> from);
  Result<void> read(std::span<uint8_t> to, const uint8_t* from);

 private:
  GpuAllocation(std::shared_ptr<const CopyEngine> engine, uint8_t* address, size_t bytes)
      : engine_(std::move(engine)), address_(address), range_(engine_, address, bytes) {}

  const std::shared_ptr<const CopyEngine> engine_;
  uint8_t* const address_;
  StagedRange range_;
};

}  // namespace pacecar
