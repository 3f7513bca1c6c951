#include "gdr/registration_cache.h"

#include <unistd.h>

#include <tuple>

#include "transport/base/check.h"

namespace pacecar {

RegistrationCache::RegistrationCache(Registrar& registrar, size_t capacity)
    : registrar_(registrar), capacity_(capacity), owner_(getpid()) {}

RegistrationCache::~RegistrationCache() {
  if (in_child()) return;
  for (const auto& [rights, ranges] : by_rights_) {
    for (const auto& [range, registration] : ranges.all) registrar_.remove(registration.key);
  }
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
  Ranges& ranges = by_rights_[rights];
  auto found = holder(ranges, range);
  if (found == ranges.all.end()) {
    const Result<uint32_t> key = registrar_.add(range, rights);
    if (!key) return tl::unexpected(key.error());
    bool is_new = false;
    std::tie(found, is_new) = ranges.all.emplace(range, Registration{.key = *key});
    PACECAR_CHECK(is_new);  // the index would have found it
    index(ranges, range);
  }
  ++found->second.users;
  ++leases_;
  return Lease{found->first, rights, found->second.key};
}

bool RegistrationCache::last(const Lease& lease) const {
  return by_rights_.at(lease.rights).all.at(lease.range).users == 1;
}

void RegistrationCache::release(const Lease& lease) {
  if (in_child()) return;
  Ranges& ranges = by_rights_.at(lease.rights);
  const auto found = ranges.all.find(lease.range);
  PACECAR_CHECK(found != ranges.all.end());
  --leases_;
  if (--found->second.users > 0) return;
  registrar_.remove(found->second.key);
  ranges.all.erase(found);
  unindex(ranges, lease.range);
}

// The registration that holds `range`, or the end.
std::map<AddressRange, RegistrationCache::Registration>::iterator RegistrationCache::holder(
    Ranges& ranges, const AddressRange& range) {
  const auto after = ranges.widest.upper_bound(range.begin);
  if (after == ranges.widest.begin()) return ranges.all.end();
  const auto [begin, end] = *std::prev(after);
  return end < range.end ? ranges.all.end() : ranges.all.find({begin, end});
}

// `range` is held by none of the index; those that it holds leave the index.
void RegistrationCache::index(Ranges& ranges, const AddressRange& range) {
  auto held = ranges.widest.lower_bound(range.begin);
  while (held != ranges.widest.end() && held->second <= range.end) {
    held = ranges.widest.erase(held);
  }
  ranges.widest.emplace(range.begin, range.end);
}

// `range` is registered no more; what only it held comes back into the index.
void RegistrationCache::unindex(Ranges& ranges, const AddressRange& range) {
  const auto indexed = ranges.widest.find(range.begin);
  if (indexed == ranges.widest.end() || indexed->second != range.end) return;
  ranges.widest.erase(indexed);
  for (auto next = ranges.all.lower_bound({range.begin, 0});
       next != ranges.all.end() && next->first.begin < range.end; ++next) {
    if (holder(ranges, next->first) == ranges.all.end()) index(ranges, next->first);
  }
}

bool RegistrationCache::in_child() const { return getpid() != owner_; }

}  // namespace pacecar
