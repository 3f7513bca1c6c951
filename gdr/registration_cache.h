// Registrations that users share: the same range of the same memory with the same rights is
// registered with a device once, however many use it; the last one's release deregisters it.
//
// Nothing less than the same range is shared, neither a part of it nor a page: of memory that its
// owner has given up nothing may stay registered. A peer could write there late, into what its
// owner has used anew; and an address that was mapped anew would be found with the pages that it
// had. A GPU's addresses come back while its old memory is registered still: there an allocation's
// number tells what is the same.
//
// A child process after fork() has no registrations: it acquires none, and what it releases is the
// parent's and stays. Thread rule: any thread; no lock is held while a device works.
#pragma once

#include <sys/types.h>

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
  static constexpr uint64_t kHost = 0;
  static constexpr uint64_t kUnknown = ~uint64_t{0};  // never shared

  struct Memory {
    AddressRange range;
    uint32_t rights = 0;          // the device's own flags
    uint64_t allocation = kHost;  // that the range lies in: a GPU's, by its number
    auto operator<=>(const Memory&) const = default;
  };
  // The device has forgotten the memory when the last of these has gone.
  using Hold = std::shared_ptr<void>;
  struct Registration {
    uint32_t key = 0;
    Hold hold;
  };
  using Register = std::function<Result<Registration>()>;

  // At most `capacity` users at a time, each of one registration.
  explicit RegistrationCache(size_t capacity);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // The key of the memory, which stays mapped until it is released; `make` registers it with the
  // device where nobody has yet. Errors: kInvalidArgument (an empty or wrapping range),
  // kUnavailable (there are as many users as can be, or this is a child process), and make's.
  Result<uint32_t> acquire(const Memory& memory, const Register& make);
  // Whether one user at most has it: who must see to it that the device is done with the memory
  // before release().
  bool last(uint32_t key) const;
  // Once for each acquire(). Null while there are others, and of a key that there is not.
  [[nodiscard]] Hold release(uint32_t key);

  size_t users() const;

 private:
  struct Entry {
    Hold hold;  // null: being registered
    uint32_t key = 0;
    uint32_t users = 0;
  };
  using Entries = std::multimap<Memory, Entry>;
  bool in_child() const;

  const size_t capacity_;
  const pid_t owner_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // something has been registered, or was refused
  Entries entries_;
  std::unordered_map<uint32_t, Entries::iterator> by_key_;
  size_t users_ = 0;
};

}  // namespace pacecar
