#include "transport/api/gpu/pinned_ring.h"

#include <utility>

#include "transport/base/return_if_error.h"

namespace pacecar {

Result<std::unique_ptr<PinnedRing>> PinnedRing::create(std::shared_ptr<Context> context, size_t nic,
                                                       std::shared_ptr<const CopyEngine> engine) {
  ASSIGN_OR_RETURN(auto pinned, PinnedMemory::allocate(engine, kBytes));
  ASSIGN_OR_RETURN(const auto memory,
                   context->register_memory(nic, pinned->bytes().data(), kBytes));
  return std::unique_ptr<PinnedRing>(
      new PinnedRing(std::move(context), nic, std::move(engine), std::move(pinned), memory));
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
