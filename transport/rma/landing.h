// The landing: pinned memory of ours, a part for each rank, into which he puts what is for GPU
// memory that our NIC does not reach. He manages its space; each part is registered by itself, so
// that the NIC keeps every rank to his own.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gdr/staging.h"
#include "transport/api/pacecar.hpp"

namespace pacecar::rma {

class Landing {
 public:
  // Of one rank. What is on its way between two ranks at 100 Gb/s, copy included.
  static constexpr size_t kBytes = 1 << 20;
  // At most, at once: so that one piece is copied while others are on the wire.
  static constexpr size_t kPiece = kBytes / 4;

  // Errors: those of pinned memory and of registering it.
  static Result<std::unique_ptr<Landing>> make(std::shared_ptr<Context> context, size_t nic,
                                               std::shared_ptr<const CopyEngine> engine,
                                               size_t ranks);
  ~Landing();  // nothing is copied from it any more
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

  // What that rank is told.
  const Window& window(size_t rank) const { return windows_[rank]; }
  // Bytes of his part; nullptr: they are not in it.
  uint8_t* bytes(size_t rank, uint64_t offset, uint64_t length) const;

 private:
  Landing(std::shared_ptr<Context> context, size_t nic, std::unique_ptr<PinnedMemory> pinned)
      : context_(std::move(context)), nic_(nic), pinned_(std::move(pinned)) {}

  const std::shared_ptr<Context> context_;
  const size_t nic_;
  const std::unique_ptr<PinnedMemory> pinned_;
  std::vector<const Memory*> memory_;  // by rank
  std::vector<Window> windows_;        // likewise
};

}  // namespace pacecar::rma
