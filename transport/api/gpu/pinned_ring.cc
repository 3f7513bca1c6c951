#include "transport/api/gpu/pinned_ring.h"

#include <utility>

namespace pacecar {

Result<std::unique_ptr<PinnedRing>> PinnedRing::create(std::shared_ptr<Context> context, size_t nic,
                                                       std::shared_ptr<const CopyEngine> engine) {
  auto pinned = PinnedMemory::allocate(engine, kBytes);
  if (!pinned) return tl::unexpected(pinned.error());
  const auto memory = context->register_memory(nic, (*pinned)->bytes().data(), kBytes);
  if (!memory) return tl::unexpected(memory.error());
  return std::unique_ptr<PinnedRing>(
      new PinnedRing(std::move(context), nic, std::move(engine), std::move(*pinned), *memory));
}

PinnedRing::PinnedRing(std::shared_ptr<Context> context, size_t nic,
                       std::shared_ptr<const CopyEngine> engine,
                       std::unique_ptr<PinnedMemory> pinned, const Memory* memory)
    : context_(std::move(context)),
      nic_(nic),
      engine_(std::move(engine)),
      pinned_(std::move(pinned)),
      memory_(memory) {}

PinnedRing::~PinnedRing() {
  engine_->wait();
  (void)context_->deregister_memory(nic_, memory_);  // the NIC exists, so no error
}

uint8_t* PinnedRing::take(size_t bytes) {
  const auto offset = space_.take(bytes);
  return offset ? pinned_->bytes().data() + *offset : nullptr;
}

void PinnedRing::give_back(uint8_t* piece) {
  space_.give_back(static_cast<size_t>(piece - pinned_->bytes().data()));
}

}  // namespace pacecar
