// The landing: pinned memory of this rank, with a part for each rank. That rank puts data there for
// GPU memory that our NIC does not reach, and manages the space. Each part is registered
// separately, so that the NIC lets every rank write only to its own. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gdr/staging.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/return_if_error.h"

namespace pacecar::rma {

class Landing {
 public:
  // Per rank: the bytes in flight between two ranks at 100 Gb/s, copy included.
  static constexpr size_t kBytes = 1 << 20;
  // The largest piece: one is copied while others are on the wire.
  static constexpr size_t kPiece = kBytes / 4;

  // Errors: the errors of pinning and of registering memory.
  static Result<std::unique_ptr<Landing>> make(std::shared_ptr<Context> context, size_t nic,
                                               std::shared_ptr<const CopyEngine> engine,
                                               size_t ranks) {
    ASSIGN_OR_RETURN(auto pinned, PinnedMemory::allocate(std::move(engine), ranks * kBytes));
    std::unique_ptr<Landing> landing(new Landing(std::move(context), nic, std::move(pinned)));
    for (size_t rank = 0; rank < ranks; ++rank) {
      uint8_t* const part = landing->pinned_->bytes().data() + rank * kBytes;
      ASSIGN_OR_RETURN(const auto memory, landing->context_->register_memory(nic, part, kBytes));
      landing->memory_.push_back(memory);
      ASSIGN_OR_RETURN(const auto window, window_of(*memory));
      landing->windows_.push_back(window);
    }
    return landing;
  }
  // No copy may still use it.
  ~Landing() {
    for (const Memory* memory : memory_) (void)context_->deregister_memory(nic_, memory);
  }
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

  // The window of that rank's part, to be advertised to it.
  const Window& window(size_t rank) const { return windows_[rank]; }
  // Bytes of that rank's part; nullptr: out of bounds.
  uint8_t* bytes(size_t rank, uint64_t offset, uint64_t length) const {
    if (length > kBytes || offset > kBytes - length) return nullptr;
    return pinned_->bytes().data() + rank * kBytes + offset;
  }

 private:
  Landing(std::shared_ptr<Context> context, size_t nic, std::unique_ptr<PinnedMemory> pinned)
      : context_(std::move(context)), nic_(nic), pinned_(std::move(pinned)) {}

  const std::shared_ptr<Context> context_;
  const size_t nic_;
  const std::unique_ptr<PinnedMemory> pinned_;
  std::vector<const Memory*> memory_;  // by rank
  std::vector<Window> windows_;        // by rank
};

}  // namespace pacecar::rma
