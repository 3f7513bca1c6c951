// Memory registration: fi_mr_reg and its like.
#include <fmt/format.h>

#include "gdr/gpu_memory.h"
#include "net_plugin/libfabric/endpoint.h"
#include "net_plugin/libfabric/info.h"
#include "net_plugin/libfabric/objects.h"
#include "transport/base/random_word.h"
#include "transport/base/return_if_error.h"

namespace pacecar::fabric {
namespace {

int close_region(fid* object) {
  return guarded([&] {
    delete reinterpret_cast<MemoryRegion*>(object);
    return 0;
  });
}

int bind_region(fid* object, fid* other, uint64_t flags) {
  auto& region = *reinterpret_cast<MemoryRegion*>(object);
  if (other->fclass == FI_CLASS_EP) return 0;  // a region is valid for all endpoints of the domain
  if (other->fclass != FI_CLASS_CNTR || (flags & FI_REMOTE_WRITE) == 0) return -FI_EINVAL;
  const std::lock_guard lock(region.domain.mutex);
  region.counter = reinterpret_cast<Counter*>(other);
  return 0;
}

int control_region(fid* /*object*/, int command, void* /*argument*/) {
  return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

fi_ops kRegionObject = object_calls(close_region, control_region, bind_region);

Result<std::unique_ptr<StagedRange>> gpu_memory(const iovec& range, int ordinal) {
  ASSIGN_OR_RETURN(const auto gpus, gpus_of_process());
  ASSIGN_OR_RETURN(const auto kind,
                   kind_of_gpu_range(gpus->driver(), range.iov_base, range.iov_len));
  if (kind.device != ordinal) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("this memory is of GPU {}, not {}: fi_mr_attr::device.cuda says whose",
                            kind.device, ordinal));
  }
  ASSIGN_OR_RETURN(auto engine, gpus->engine(ordinal));
  return std::make_unique<StagedRange>(std::move(engine), range.iov_base, range.iov_len);
}

int register_attr(fid* object, const fi_mr_attr* attr, uint64_t /*flags*/, fid_mr** made) {
  return guarded([&]() -> int {
    if (object->fclass != FI_CLASS_DOMAIN || attr->iov_count != 1) return -FI_EINVAL;
    const bool gpu = attr->iface == FI_HMEM_CUDA;
    if (attr->iface != FI_HMEM_SYSTEM && !gpu) return -FI_ENOSYS;
    auto& domain = *reinterpret_cast<Domain*>(object);
    const std::lock_guard lock(domain.mutex);
    const bool own_key = (domain.mr_mode() & FI_MR_PROV_KEY) == 0;
    if (own_key && domain.regions.contains(attr->requested_key)) return -FI_ENOKEY;
    std::unique_ptr<StagedRange> device;
    if (gpu) {
      auto found = gpu_memory(attr->mr_iov[0], attr->device.cuda);
      if (!found) return failed(found.error());
      device = std::move(*found);
    }
    auto* const region = new MemoryRegion(domain, *attr);
    region->device = std::move(device);
    region->fid = {.fclass = FI_CLASS_MR, .context = attr->context, .ops = &kRegionObject};
    region->mem_desc = region;
    region->key = own_key ? attr->requested_key : domain.next_key++;
    domain.regions[region->key] = region;
    *made = region;
    return 0;
  });
}

int register_pieces(fid* object, const iovec* iov, size_t count, uint64_t access, uint64_t offset,
                    uint64_t requested_key, uint64_t flags, fid_mr** made, void* context) {
  const fi_mr_attr attr{.mr_iov = iov,
                        .iov_count = count,
                        .access = access,
                        .offset = offset,
                        .requested_key = requested_key,
                        .context = context};
  return register_attr(object, &attr, flags, made);
}

int register_one(fid* object, const void* buffer, size_t length, uint64_t access, uint64_t offset,
                 uint64_t requested_key, uint64_t flags, fid_mr** made, void* context) {
  const iovec iov{const_cast<void*>(buffer), length};
  return register_pieces(object, &iov, 1, access, offset, requested_key, flags, made, context);
}

}  // namespace

fi_ops_mr memory_calls = {.size = sizeof(fi_ops_mr),
                          .reg = register_one,
                          .regv = register_pieces,
                          .regattr = register_attr};

MemoryRegion::MemoryRegion(Domain& its_domain, const fi_mr_attr& attr)
    : fid_mr{},
      InDomain(its_domain),
      base(static_cast<uint8_t*>(attr.mr_iov[0].iov_base)),
      length(attr.mr_iov[0].iov_len),
      access(attr.access),
      first((its_domain.mr_mode() & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<uint64_t>(base)
                                                          : attr.offset),
      guard(random_u64() | 1) {}

MemoryRegion::~MemoryRegion() {
  const std::lock_guard lock(domain.mutex);
  guard = 0;  // from now on no peer reads the memory, which is the application's again
  for (Endpoint* const endpoint : domain.endpoints) endpoint->forget(*this);
  domain.regions.erase(key);
  for (const auto& [nic, memory] : registered) {
    (void)domain.pacecar().deregister_memory(nic, memory);
  }
}

Result<const Memory*> MemoryRegion::on(size_t nic) {
  const auto known = registered.find(nic);
  if (known != registered.end()) return known->second;
  auto memory = domain.pacecar().register_memory(nic, base, length);
  if (memory) registered[nic] = *memory;
  return memory;
}

uint8_t* MemoryRegion::find(uint64_t address, uint64_t bytes) const {
  const uint64_t offset = address - first;
  return bytes <= length && offset <= length - bytes ? base + offset : nullptr;
}

}  // namespace pacecar::fabric
