// The registered regions of a NIC, by key. Every packet that wants to write is checked here: known
// key, within bounds, right to write.
//
// Peers address a region from a random base on, not from where it lies: a process's addresses are
// known well enough. A peer that was not told must guess key and base at once, 32 + 42 bits, as
// nothing tells it that one of them is right; each 2 MiB of a region are another place to hit. At
// 10^7 packets in a second, with 1 TiB registered, that takes a century: so refusals are counted
// (NicCounters::access_errors), and none ends a queue pair.
//
// Bounded: an open-addressing table of twice the number of regions, set aside once; what of it is
// not used takes no memory.
#pragma once

#include <cstdint>

#include "transport/base/fresh_pages.h"
#include "transport/nic/nic.h"
#include "transport/softnic/random_source.h"

namespace pacecar {

class MemoryTable {
 public:
  // `random_addresses`: SoftNicConfig's.
  MemoryTable(uint32_t capacity, RandomSource random, bool random_addresses = true);

  // Errors: kInvalidArgument (empty or wrapping range, or half of all addresses and more),
  // kUnavailable (all regions used).
  Result<MemoryRegion> add(void* address, size_t length, Access access);
  // Addressed by peers from `remote` on, whatever `random_addresses` says.
  Result<MemoryRegion> add_as(void* address, size_t length, Access access, uint64_t remote);
  // As another table has it, which has the same regions as this one.
  void adopt(const MemoryRegion& region, Access access);
  // True when the key was registered.
  bool remove(uint32_t key);

  // A region as peers see it, of which several packets are placed.
  class Range {
   public:
    // As writable(), in this region.
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
  // What a peer may write with this key, perhaps nothing. Until a region is added or removed.
  Range writable_range(uint32_t key) const;

  // Where a peer's write of `length` bytes at remote address `address` goes; nullptr when it is not
  // allowed.
  uint8_t* writable(uint32_t key, uint64_t address, Bytes length) const;
  // Likewise where a peer's read comes from.
  const uint8_t* readable(uint32_t key, uint64_t address, Bytes length) const;
  // Where a peer's atomic takes effect; nullptr where it may not, or is not aligned.
  uint64_t* atomic_word(uint32_t key, uint64_t address) const;
  // True when what comes in may be written there by the owner's own receives and reads.
  bool owner_may_write(uint32_t key, const uint8_t* address, Bytes length) const;
  // True when `key` covers the local range.
  bool covers(uint32_t key, const uint8_t* address, Bytes length) const;

  uint32_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t address = 0;
    uint64_t remote = 0;  // what peers call it
    uint64_t length = 0;
    uint32_t key = 0;  // 0: free
    Access access = Access::kLocalRead;
  };
  uint32_t index_of(uint32_t key) const;
  uint64_t remote_address(uint64_t address);
  const Slot* find_remote(uint32_t key, uint64_t address, Bytes length) const;
  const Slot* find_local(uint32_t key, const uint8_t* address, Bytes length) const;

  FreshPages memory_;  // of slots_
  Slot* slots_;
  uint32_t mask_;
  uint32_t capacity_;
  uint32_t size_ = 0;
  RandomSource random_;
  bool random_addresses_;
};

}  // namespace pacecar
