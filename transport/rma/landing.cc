#include "transport/rma/landing.h"

#include <utility>

#include "transport/base/return_if_error.h"

namespace pacecar::rma {

Result<std::unique_ptr<Landing>> Landing::make(std::shared_ptr<Context> context, size_t nic,
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

Landing::~Landing() {
  for (const Memory* memory : memory_) (void)context_->deregister_memory(nic_, memory);
}

uint8_t* Landing::bytes(size_t rank, uint64_t offset, uint64_t length) const {
  if (length > kBytes || offset > kBytes - length) return nullptr;
  return pinned_->bytes().data() + rank * kBytes + offset;
}

}  // namespace pacecar::rma
