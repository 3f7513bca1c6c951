// Registrations that users share: the same range with the same rights is registered with a device
// once, however many use it; the last one's release deregisters it.
//
// Nothing less than the same range is shared, neither a part of it nor a page: of memory that its
// owner has given up nothing may stay registered. A peer could write there late, into what its
// owner has used anew; and an address that was mapped anew would be found with the pages that it
// had.
//
// A child process after fork() has no registrations: it acquires none, and what it releases is the
// parent's and stays. Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "transport/base/result.h"

namespace pacecar {

// Addresses from `begin` up to and without `end`.
struct AddressRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  auto operator<=>(const AddressRange&) const = default;
};

// The device. `rights` are its own flags.
class Registrar {
 public:
  virtual ~Registrar() = default;
  // The key of the memory. Errors: as the device says.
  virtual Result<uint32_t> add(const AddressRange& range, uint32_t rights) = 0;
  virtual void remove(uint32_t key) = 0;
};

class RegistrationCache {
 public:
  // What a user has until it releases it.
  struct Lease {
    AddressRange range;
    uint32_t rights = 0;
    uint32_t key = 0;
  };

  // `registrar` outlives it; at most `capacity` leases at a time.
  RegistrationCache(Registrar& registrar, size_t capacity);
  // Deregisters what is still registered.
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // `length` bytes, which stay mapped until the lease is released. Errors: kInvalidArgument (an
  // empty or wrapping range), kUnavailable (all leases are used, or this is a child process), and
  // the registrar's.
  Result<Lease> acquire(uint64_t address, size_t length, uint32_t rights);
  // Whether nobody else uses the registration: its owner must see to it that the device is done
  // with the memory before release().
  bool last(const Lease& lease) const;
  // Of acquire(), once each.
  void release(const Lease& lease);

  size_t leases() const { return leases_; }

 private:
  struct Registration {
    uint32_t key = 0;
    uint32_t users = 0;
  };
  bool in_child() const;

  Registrar& registrar_;
  const size_t capacity_;
  const pid_t owner_;
  size_t leases_ = 0;
  std::map<std::pair<AddressRange, uint32_t>, Registration> registrations_;  // by range and rights
};

}  // namespace pacecar
