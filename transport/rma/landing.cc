#include "transport/rma/landing.h"

#include <utility>

namespace pacecar::rma {

Result<std::unique_ptr<Landing>> Landing::make(std::shared_ptr<Context> context, size_t nic,
                                               std::shared_ptr<const CopyEngine> engine,
                                               size_t ranks) {
  auto pinned = PinnedMemory::allocate(std::move(engine), ranks * kBytes);
  if (!pinned) return tl::unexpected(pinned.error());
  std::unique_ptr<Landing> landing(new Landing(std::move(context), nic, std::move(*pinned)));
  for (size_t rank = 0; rank < ranks; ++rank) {
    uint8_t* const part = landing->pinned_->bytes().data() + rank * kBytes;
    const auto memory = landing->context_->register_memory(nic, part, kBytes);
    if (!memory) return tl::unexpected(memory.error());
    landing->memory_.push_back(*memory);
    const auto window = window_of(**memory);
    if (!window) return tl::unexpected(window.error());
    landing->windows_.push_back(*window);
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
