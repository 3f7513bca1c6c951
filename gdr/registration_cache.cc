#include "gdr/registration_cache.h"

#include <utility>

namespace pacecar {

RegistrationCache::~RegistrationCache() {
  if (!in_child()) return;
  for (auto& [memory, entry] : entries_) new Hold(std::move(entry.hold));  // never destroyed
}

Result<uint32_t> RegistrationCache::acquire(const Memory& memory, const Register& make) {
  if (in_child()) {
    return fail(ErrorCode::kUnavailable,
                "a process that was forked cannot use its parent's NIC: open one after fork()");
  }
  if (memory.range.begin == 0 || memory.range.end <= memory.range.begin) {
    return fail(
        ErrorCode::kInvalidArgument,
        "cannot register an empty or wrapping memory range: pass a valid address and length");
  }
  std::unique_lock lock(mutex_);
  auto entry = entries_.end();
  if (memory.allocation != kUnknown) {
    changed_.wait(lock, [&] {
      entry = entries_.find(memory);
      return entry == entries_.end() || entry->second.hold != nullptr;
    });
  }
  if (users_ == capacity_) {
    return fail(
        ErrorCode::kUnavailable,
        "all memory regions of the NIC are used: deregister some or raise PACECAR_MAX_REGIONS");
  }
  ++users_;
  if (entry == entries_.end()) {
    entry = entries_.emplace(memory, Entry());
    lock.unlock();
    Result<Registration> made = make();
    lock.lock();
    changed_.notify_all();
    if (!made) {
      --users_;
      entries_.erase(entry);
      return tl::unexpected(made.error());
    }
    entry->second.hold = std::move(made->hold);
    entry->second.key = made->key;
    by_key_.emplace(made->key, entry);
  }
  ++entry->second.users;
  return entry->second.key;
}

bool RegistrationCache::last(uint32_t key) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  return found == by_key_.end() || found->second->second.users == 1;
}

RegistrationCache::Hold RegistrationCache::release(uint32_t key) {
  if (in_child()) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  Entry& entry = found->second->second;
  --users_;
  if (--entry.users > 0) return nullptr;
  Hold hold = std::move(entry.hold);
  entries_.erase(found->second);
  by_key_.erase(found);
  return hold;
}

}  // namespace pacecar
