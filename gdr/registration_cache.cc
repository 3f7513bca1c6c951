#include "gdr/registration_cache.h"

#include <unistd.h>

#include <bit>
#include <tuple>

#include "transport/base/check.h"

namespace pacecar {

RegistrationCache::RegistrationCache(Registrar& registrar, size_t page_bytes, size_t capacity)
    : registrar_(registrar), page_mask_(page_bytes - 1), capacity_(capacity), owner_(getpid()) {
  PACECAR_CHECK(std::has_single_bit(page_bytes));
}

RegistrationCache::~RegistrationCache() {
  if (in_child()) return;
  for (const auto& [rights, ranges] : by_rights_) {
    for (const auto& [pages, registration] : ranges.all) registrar_.remove(registration.key);
  }
}

Result<RegistrationCache::Lease> RegistrationCache::acquire(uint64_t address, size_t length,
                                                            uint32_t rights) {
  if (in_child()) {
    return fail(ErrorCode::kUnavailable,
                "a process that was forked cannot use its parent's NIC: open one after fork()");
  }
  const uint64_t rounded_end = (address + length + page_mask_) & ~page_mask_;
  if (length == 0 || rounded_end <= address || rounded_end - address < length) {
    return fail(
        ErrorCode::kInvalidArgument,
        "cannot register an empty or wrapping memory range: pass a valid address and length");
  }
  if (leases_ == capacity_) {
    return fail(
        ErrorCode::kUnavailable,
        "all memory regions of the NIC are used: deregister some or raise PACECAR_MAX_REGIONS");
  }
  const PageRange pages{address & ~page_mask_, rounded_end};
  Ranges& ranges = by_rights_[rights];
  auto found = holder(ranges, pages);
  if (found == ranges.all.end()) {
    const Result<uint32_t> key = registrar_.add(pages, rights);
    if (!key) return tl::unexpected(key.error());
    bool is_new = false;
    std::tie(found, is_new) = ranges.all.emplace(pages, Registration{.key = *key});
    PACECAR_CHECK(is_new);  // the index would have found it
    index(ranges, pages);
  }
  ++found->second.users;
  ++leases_;
  return Lease{found->first, rights, found->second.key};
}

bool RegistrationCache::last(const Lease& lease) const {
  return by_rights_.at(lease.rights).all.at(lease.pages).users == 1;
}

void RegistrationCache::release(const Lease& lease) {
  if (in_child()) return;
  Ranges& ranges = by_rights_.at(lease.rights);
  const auto found = ranges.all.find(lease.pages);
  PACECAR_CHECK(found != ranges.all.end());
  --leases_;
  if (--found->second.users > 0) return;
  registrar_.remove(found->second.key);
  ranges.all.erase(found);
  unindex(ranges, lease.pages);
}

// The registration that holds `pages`, or the end.
std::map<PageRange, RegistrationCache::Registration>::iterator RegistrationCache::holder(
    Ranges& ranges, const PageRange& pages) {
  const auto after = ranges.widest.upper_bound(pages.begin);
  if (after == ranges.widest.begin()) return ranges.all.end();
  const auto [begin, end] = *std::prev(after);
  return end < pages.end ? ranges.all.end() : ranges.all.find({begin, end});
}

// `pages` is held by no range of the index; those that it holds leave the index.
void RegistrationCache::index(Ranges& ranges, const PageRange& pages) {
  auto held = ranges.widest.lower_bound(pages.begin);
  while (held != ranges.widest.end() && held->second <= pages.end) {
    held = ranges.widest.erase(held);
  }
  ranges.widest.emplace(pages.begin, pages.end);
}

// `pages` are registered no more; what only they held comes back into the index.
void RegistrationCache::unindex(Ranges& ranges, const PageRange& pages) {
  const auto indexed = ranges.widest.find(pages.begin);
  if (indexed == ranges.widest.end() || indexed->second != pages.end) return;
  ranges.widest.erase(indexed);
  for (auto next = ranges.all.lower_bound({pages.begin, 0});
       next != ranges.all.end() && next->first.begin < pages.end; ++next) {
    if (holder(ranges, next->first) == ranges.all.end()) index(ranges, next->first);
  }
}

bool RegistrationCache::in_child() const { return getpid() != owner_; }

}  // namespace pacecar
