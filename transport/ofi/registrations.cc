#include "transport/ofi/registrations.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/uio.h>

#include <utility>

#include "transport/base/random_word.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

uint64_t rights_of(Access access) {
  uint64_t rights = FI_WRITE;  // the source of our writes
  if (allows(access, Access::kRemoteWrite)) rights |= FI_REMOTE_WRITE;
  if (allows(access, Access::kRemoteRead)) rights |= FI_REMOTE_READ;
  return rights;
}

constexpr int kKeyTries = 8;  // Tries to choose a key that is not in use.

}  // namespace

Result<void> OfiRegistrations::check(uint64_t address, size_t length) const {
  if (address == 0 || length == 0 || address + length < address) {
    return fail(
        ErrorCode::kInvalidArgument,
        "cannot register an empty or wrapping memory range: pass a valid address and length");
  }
  if (regions_.size() == capacity_) {
    return fail(
        ErrorCode::kUnavailable,
        "all memory regions of the NIC are used: deregister some or raise PACECAR_MAX_REGIONS");
  }
  return {};
}

Result<MemoryRegion> OfiRegistrations::add(void* address, size_t length, Access access) {
  RETURN_IF_ERROR(check(reinterpret_cast<uint64_t>(address), length));
  return insert(add_own(address, length, access));
}

#ifdef FI_MR_DMABUF
Result<MemoryRegion> OfiRegistrations::add_dmabuf(const DmaBufMemory& memory, Access access) {
  RETURN_IF_ERROR(check(memory.address, memory.length));
  const fi_mr_dmabuf buffer{.fd = memory.fd,
                            .offset = memory.offset,
                            .len = memory.length,
                            .base_addr = reinterpret_cast<void*>(memory.address - memory.offset)};
  fi_mr_attr attributes{.dmabuf = &buffer, .iov_count = 1};
  attributes.iface = FI_HMEM_CUDA;
  auto region =
      register_at_provider(attributes, memory.address, memory.length, access, FI_MR_DMABUF);
  if (region) region->in_gpu = true;
  return insert(std::move(region));
}
#else
Result<MemoryRegion> OfiRegistrations::add_dmabuf(const DmaBufMemory& /*memory*/,
                                                  Access /*access*/) {
  return fail(ErrorCode::kInvalidArgument,
              "this build knows no dma-bufs of libfabric: build it with version 1.20 or later");
}
#endif

Result<OfiRegistrations::Region> OfiRegistrations::add_own(void* address, size_t length,
                                                           Access access) {
  const iovec range{.iov_base = address, .iov_len = length};
  fi_mr_attr attributes{.mr_iov = &range, .iov_count = 1};
  return register_at_provider(attributes, reinterpret_cast<uint64_t>(address), length, access, 0);
}

Result<OfiRegistrations::Region> OfiRegistrations::register_at_provider(
    fi_mr_attr& attributes, uint64_t address, size_t length, Access access, uint64_t flags) {
  const OfiTraits& traits = domain_.traits();
  attributes.access = rights_of(access);
  fid_mr* memory = nullptr;
  int error = -FI_ENOKEY;
  for (int i = 0; i < kKeyTries && error == -FI_ENOKEY; ++i) {
    attributes.requested_key = random_u64() & traits.key_mask;
    error = fi_mr_regattr(domain_.domain(), &attributes, flags, &memory);
  }
  if (error != 0) return domain_.failed("fi_mr_regattr", error);
  Region region{.memory = FidHandle<fid_mr>(memory),
                .address = address,
                .place = traits.virtual_addresses ? address : 0,
                .provider_key = 0,
                .length = length,
                .access = access};
  if (traits.endpoint_memory) {
    error = fi_mr_bind(memory, &endpoint_->fid, 0);
    if (error == 0) error = fi_mr_enable(memory);
    if (error != 0) return domain_.failed("fi_mr_enable", error);
  }
  region.provider_key = fi_mr_key(memory);
  return region;
}

Result<MemoryRegion> OfiRegistrations::insert(Result<Region> region) {
  if (!region) return tl::unexpected(region.error());
  uint32_t key = 0;
  while (key == 0 || regions_.contains(key)) key = random_word();
  const MemoryRegion advertised{reinterpret_cast<uint8_t*>(region->address), region->length, key,
                                region->address};
  regions_.emplace(key, std::move(*region));
  return advertised;
}

const OfiRegistrations::Region* OfiRegistrations::find(uint32_t key) const {
  const auto found = regions_.find(key);
  return found == regions_.end() ? nullptr : &found->second;
}

}  // namespace pacecar
