// Registrations that users share: the same range of the same memory with the same rights is
// registered with a device once for all users; the last release deregisters it.
// Only equal ranges are shared, not parts or pages, because nothing of memory that its owner has
// freed may stay registered: a late write of a peer could reach reused memory, and a registration
// that is found again for a new mapping at the same address would refer to the old pages. GPU
// addresses may be reused while the old memory is still registered; there the allocation's number
// distinguishes old and new memory.
// A child process after fork() has no registrations: it acquires none, and its releases leave the
// parent's alone. Thread rule: any thread; no lock is held while a device works.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "transport/base/result.h"

namespace pacecar {

// Addresses from `begin` up to and without `end`.
struct AddressRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  auto operator<=>(const AddressRange&) const = default;
};

class RegistrationCache {
 public:
  // Values of Memory::allocation.
  static constexpr uint64_t kHost = 0;
  static constexpr uint64_t kUnknown = ~uint64_t{0};  // never shared

  struct Memory {
    AddressRange range;
    uint32_t rights = 0;          // the device's own flags
    uint64_t allocation = kHost;  // of GPU memory: the allocation's number
    auto operator<=>(const Memory&) const = default;
  };
  // The memory is deregistered when the last of these is destroyed.
  using Hold = std::shared_ptr<void>;
  struct Registration {
    uint32_t key = 0;
    Hold hold;
  };
  using Register = std::function<Result<Registration>()>;

  // At most `capacity` users at a time, each of one registration.
  explicit RegistrationCache(size_t capacity) : capacity_(capacity), owner_(getpid()) {}
  ~RegistrationCache();

  // The key of the memory; `make` registers it with the device if it is not registered yet. The
  // caller keeps the memory mapped until release(). Errors: kInvalidArgument (an empty or wrapping
  // range), kUnavailable (too many users, or this is a child process), and as for `make`.
  Result<uint32_t> acquire(const Memory& memory, const Register& make);
  // Whether the key has at most one user. That user must wait until the device is done with the
  // memory before it calls release().
  bool last(uint32_t key) const;
  // Ends one acquire(). Returns the registration if this was its last user: destroying it
  // deregisters the memory. Null if there are other users, and for an unknown key.
  [[nodiscard]] Hold release(uint32_t key);

  size_t users() const {
    const std::lock_guard lock(mutex_);
    return users_;
  }

 private:
  struct Entry {
    Hold hold;  // null: being registered
    uint32_t key = 0;
    uint32_t users = 0;
  };
  using Entries = std::multimap<Memory, Entry>;
  bool in_child() const { return getpid() != owner_; }

  const size_t capacity_;
  const pid_t owner_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a registration has succeeded or failed
  Entries entries_;
  std::unordered_map<uint32_t, Entries::iterator> by_key_;
  size_t users_ = 0;
};

}  // namespace pacecar
