// PinnedRing: the pinned memory of one staged connection, registered with the GPU and the NIC.
//
// Bound: kBytes. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "gdr/ring_space.h"
#include "gdr/staging.h"
#include "transport/api/pacecar.hpp"

namespace pacecar {

class PinnedRing {
 public:
  // Twice the bytes that NCCL has in flight on a connection: 4 slices of 1 MiB, or 8 of 512 KiB.
  static constexpr size_t kBytes = 8 << 20;

  // Errors: kSystem, and those of registering host memory.
  static Result<std::unique_ptr<PinnedRing>> create(std::shared_ptr<Context> context, size_t nic,
                                                    std::shared_ptr<const CopyEngine> engine);
  // The connection that used the ring must be closed.
  ~PinnedRing();
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;

  // The space that a piece of `bytes` takes.
  static constexpr size_t rounded(size_t bytes) {
    return (bytes + RingSpace::kAlignment - 1) / RingSpace::kAlignment * RingSpace::kAlignment;
  }
  // nullptr: the ring is full.
  uint8_t* take(size_t bytes);
  void give_back(uint8_t* piece);
  const Memory* memory() const { return memory_; }

 private:
  PinnedRing(std::shared_ptr<Context> context, size_t nic, std::shared_ptr<const CopyEngine> engine,
             std::unique_ptr<PinnedMemory> pinned, const Memory* memory);

  const std::shared_ptr<Context> context_;
  const size_t nic_;
  const std::shared_ptr<const CopyEngine> engine_;
  const std::unique_ptr<PinnedMemory> pinned_;
  const Memory* const memory_;
  RingSpace space_{kBytes};
};

}  // namespace pacecar
