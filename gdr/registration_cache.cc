#include "gdr/registration_cache.h"

#include <unistd.h>

#include "transport/base/check.h"

namespace pacecar {

RegistrationCache::RegistrationCache(Registrar& registrar, size_t capacity)
    : registrar_(registrar), capacity_(capacity), owner_(getpid()) {}

RegistrationCache::~RegistrationCache() {
  if (in_child()) return;
  for (const auto& [what, registration] : registrations_) registrar_.remove(registration.key);
}

Result<RegistrationCache::Lease> RegistrationCache::acquire(uint64_t address, size_t length,
                                                            uint32_t rights) {
  if (in_child()) {
    return fail(ErrorCode::kUnavailable,
                "a process that was forked cannot use its parent's NIC: open one after fork()");
  }
  if (address == 0 || length == 0 || address + length < address) {
    return fail(
        ErrorCode::kInvalidArgument,
        "cannot register an empty or wrapping memory range: pass a valid address and length");
  }
  if (leases_ == capacity_) {
    return fail(
        ErrorCode::kUnavailable,
        "all memory regions of the NIC are used: deregister some or raise PACECAR_MAX_REGIONS");
  }
  const AddressRange range{address, address + length};
  auto found = registrations_.find({range, rights});
  if (found == registrations_.end()) {
    const Result<uint32_t> key = registrar_.add(range, rights);
    if (!key) return tl::unexpected(key.error());
    found = registrations_.emplace(std::pair{range, rights}, Registration{.key = *key}).first;
  }
  ++found->second.users;
  ++leases_;
  return Lease{range, rights, found->second.key};
}

bool RegistrationCache::last(const Lease& lease) const {
  return registrations_.at({lease.range, lease.rights}).users == 1;
}

void RegistrationCache::release(const Lease& lease) {
  if (in_child()) return;
  const auto found = registrations_.find({lease.range, lease.rights});
  PACECAR_CHECK(found != registrations_.end());
  --leases_;
  if (--found->second.users > 0) return;
  registrar_.remove(found->second.key);
  registrations_.erase(found);
}

bool RegistrationCache::in_child() const { return getpid() != owner_; }

}  // namespace pacecar
