// Registrations that users share: memory is registered with a device once for all whose ranges lie
// within what is registered already.
//
// Each registration counts its users; the last one's release deregisters it, so that nothing stays
// registered that its owner may free. Ranges that overlap without one holding the other are
// registrations apart, and so are buffers that merely have a page in common: were they one, a peer
// could write late into memory that one of them has given up, and its owner has used anew.
//
// Among live ranges of the same rights, the widest (those that no other holds) are indexed by where
// they begin. None of them holds another, so their ends are in the same order, and the last one
// that begins at or before a range is the only one that needs to be asked whether it holds it.
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

  bool holds(const AddressRange& other) const { return begin <= other.begin && other.end <= end; }
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
    AddressRange range;  // of the registration; no less than what was asked for
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
  // The live ranges of the same rights.
  struct Ranges {
    std::map<AddressRange, Registration> all;
    std::map<uint64_t, uint64_t> widest;  // begin to end
  };

  static std::map<AddressRange, Registration>::iterator holder(Ranges& ranges,
                                                               const AddressRange& range);
  static void index(Ranges& ranges, const AddressRange& range);
  static void unindex(Ranges& ranges, const AddressRange& range);
  bool in_child() const;

  Registrar& registrar_;
  const size_t capacity_;
  const pid_t owner_;
  size_t leases_ = 0;
  std::map<uint32_t, Ranges> by_rights_;
};

}  // namespace pacecar
