// The landing: pinned memory of this rank, with a part for each rank. That rank puts data there for
// GPU memory that our NIC does not reach, and manages the space. Each part is registered
// separately, so that the NIC lets every rank write only to its own.
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
  // Per rank: the bytes in flight between two ranks at 100 Gb/s, copy included.
  static constexpr size_t kBytes = 1 << 20;
  // The largest piece: one is copied while others are on the wire.
  static constexpr size_t kPiece = kBytes / 4;

  // Errors: those of pinned memory and of registering it.
  static Result<std::unique_ptr<Landing>> make(std::shared_ptr<Context> context, size_t nic,
                                               std::shared_ptr<const CopyEngine> engine,
                                               size_t ranks);
  ~Landing();  // no copy may still use it
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

  // The window of that rank's part, to be advertised to it.
  const Window& window(size_t rank) const { return windows_[rank]; }
  // Bytes of that rank's part; nullptr: out of bounds.
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
