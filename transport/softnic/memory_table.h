// MemoryTable: the registered regions and bound windows of a NIC, by key. It checks every access of
// a packet: the key is known, the range is within bounds, and the right is granted.
// Peers address a region from a random base on, not by its local address, which is easy to guess.
// An attacker must guess key and base together, 32 + 42 bits, because no answer reveals that one of
// them is right; each 2 MiB of a region is another target. At 10^7 packets per second, with 1 TiB
// registered, that takes a century. Therefore refusals are only counted
// (NicCounters::access_errors) in extended mode, and end no queue pair.
// Bounded: an open-addressing table of twice the number of regions, allocated once; untouched pages
// take no memory. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "transport/base/fresh_pages.h"
#include "transport/nic/standard_nic.h"
#include "transport/softnic/random_source.h"

namespace pacecar {

class MemoryTable {
 public:
  // `random_addresses`: see SoftNicConfig.
  MemoryTable(uint32_t capacity, RandomSource random, bool random_addresses = true);

  // Errors: kInvalidArgument (empty, wrapping, half of all addresses), kUnavailable (no room).
  Result<MemoryRegion> add(void* address, size_t length, Access access);
  // As add(), but peers address the region from `remote` on, whatever `random_addresses` is.
  Result<MemoryRegion> add_as(void* address, size_t length, Access access, uint64_t remote,
                              DomainId domain = kNoDomain);
  // Adds a region of another table that has the same regions.
  void adopt(const MemoryRegion& region, Access access);
  // Errors: kInvalidArgument, kUnavailable (no room, or the key is in use).
  Result<void> bind(const MemoryWindow& window);
  bool remove(uint32_t key);  // Deregisters or unbinds; false: the key is unknown.
  // Whether the peer of queue pair `by`, which is in `domain`, may use the key, if it is known.
  bool usable(uint32_t key, QueuePairId by, DomainId domain) const {
    const DomainId of_key = slots_[index_of(key)].domain;
    const bool shared = domain == kNoDomain || of_key == kNoDomain || of_key == domain;
    return shared && (bound_.empty() || !bound_to_another(key, by));
  }
  // Whether the key is a window that only this queue pair's peer may use.
  bool window_of(uint32_t key, QueuePairId queue_pair) const;

  // The writable range of a key, looked up once for several packets.
  class Range {
   public:
    // As MemoryTable::writable(), in this region.
    uint8_t* writable(uint64_t address, Bytes length) const {
      const uint64_t offset = address - remote_;
      return length <= length_ && offset <= length_ - length ? start_ + offset : nullptr;
    }

   private:
    friend class MemoryTable;
    uint8_t* start_ = nullptr;
    uint64_t remote_ = 0;
    uint64_t length_ = 0;
  };
  // The range that a peer may write with this key, perhaps empty; valid until regions change.
  Range writable_range(uint32_t key) const;

  // The local address for a peer's write of `length` bytes at remote `address`; nullptr: refused.
  uint8_t* writable(uint32_t key, uint64_t address, Bytes length) const {
    return allowed(key, address, length, Access::kRemoteWrite);
  }
  // As writable(), for a peer's read.
  const uint8_t* readable(uint32_t key, uint64_t address, Bytes length) const {
    return allowed(key, address, length, Access::kRemoteRead);
  }
  // As writable(), for a peer's atomic; nullptr also if the word is not aligned.
  uint64_t* atomic_word(uint32_t key, uint64_t address) const;
  // True when the owner's own receives and reads may write there.
  bool owner_may_write(uint32_t key, const uint8_t* address, Bytes length) const;
  bool covers(uint32_t key, const uint8_t* address, Bytes length) const;

  uint32_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t address = 0;
    uint64_t remote = 0;  // remote address
    uint64_t length = 0;
    uint32_t key = 0;  // 0: free
    Access access = Access::kLocalRead;
    DomainId domain : 24 = kNoDomain;
  };
  static_assert(sizeof(Slot) == 32);
  uint32_t index_of(uint32_t key) const;
  uint64_t remote_address(uint64_t address);
  bool bound_to_another(uint32_t key, QueuePairId by) const;
  uint8_t* allowed(uint32_t key, uint64_t address, Bytes length, Access right) const;
  const Slot* find_local(uint32_t key, const uint8_t* address, Bytes length) const;

  uint32_t mask_;
  FreshPages memory_;  // of slots_
  Slot* slots_;        // free slots have no rights
  uint32_t capacity_;
  uint32_t size_ = 0;
  std::unordered_map<uint32_t, QueuePairId> bound_;  // windows of one queue pair, by key
  RandomSource random_;
  bool random_addresses_;
};

}  // namespace pacecar
