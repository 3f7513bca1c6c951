#include "transport/softnic/memory_table.h"

#include <bit>

#include "transport/base/check.h"

namespace pacecar {

MemoryTable::MemoryTable(uint32_t capacity, RandomSource random)
    : memory_(make_fresh_pages(std::bit_ceil(capacity * 2) * sizeof(Slot))),
      slots_(reinterpret_cast<Slot*>(memory_.get())),
      mask_(std::bit_ceil(capacity * 2) - 1),
      capacity_(capacity),
      random_(random) {
  PACECAR_CHECK(capacity > 0 && capacity <= (1U << 24));
}

Result<MemoryRegion> MemoryTable::add(void* address, size_t length, Access access) {
  const auto start = reinterpret_cast<uint64_t>(address);
  if (address == nullptr || length == 0 || start + length < start) {
    return fail(
        ErrorCode::kInvalidArgument,
        "cannot register an empty or wrapping memory range: pass a valid address and length");
  }
  if (size_ == capacity_) {
    return fail(
        ErrorCode::kUnavailable,
        "all memory regions of the NIC are used: deregister some or raise PACECAR_MAX_REGIONS");
  }
  // Keys are random and spread evenly by themselves: the low bits serve as the hash.
  uint32_t key = 0;
  while (key == 0 || slots_[index_of(key)].key == key) key = random_();
  slots_[index_of(key)] = Slot{start, length, key, access};
  ++size_;
  return MemoryRegion{static_cast<uint8_t*>(address), length, key, start};
}

bool MemoryTable::remove(uint32_t key) {
  uint32_t hole = index_of(key);
  if (key == 0 || slots_[hole].key != key) return false;
  slots_[hole] = Slot{};
  --size_;
  // Close the gap, so that a search may stop at the first free slot.
  for (uint32_t i = (hole + 1) & mask_; slots_[i].key != 0; i = (i + 1) & mask_) {
    const uint32_t home = slots_[i].key & mask_;
    const bool reachable_without_hole = ((i - home) & mask_) < ((i - hole) & mask_);
    if (reachable_without_hole) continue;
    slots_[hole] = slots_[i];
    slots_[i] = Slot{};
    hole = i;
  }
  return true;
}

uint8_t* MemoryTable::writable(uint32_t key, uint64_t address, Bytes length) const {
  const Slot* slot = find(key, address, length);
  if (slot == nullptr || !allows(slot->access, Access::kRemoteWrite)) return nullptr;
  return reinterpret_cast<uint8_t*>(address);
}

const uint8_t* MemoryTable::readable(uint32_t key, uint64_t address, Bytes length) const {
  const Slot* slot = find(key, address, length);
  if (slot == nullptr || !allows(slot->access, Access::kRemoteRead)) return nullptr;
  return reinterpret_cast<const uint8_t*>(address);
}

bool MemoryTable::owner_may_write(uint32_t key, const uint8_t* address, Bytes length) const {
  const Slot* slot = find(key, reinterpret_cast<uint64_t>(address), length);
  return slot != nullptr && slot->access != Access::kLocalRead;
}

bool MemoryTable::covers(uint32_t key, const uint8_t* address, Bytes length) const {
  return find(key, reinterpret_cast<uint64_t>(address), length) != nullptr;
}

const MemoryTable::Slot* MemoryTable::find(uint32_t key, uint64_t address, Bytes length) const {
  const Slot& slot = slots_[index_of(key)];
  if (key == 0 || slot.key != key) return nullptr;
  // Written so that no sum can wrap.
  if (address < slot.address || length > slot.length) return nullptr;
  if (address - slot.address > slot.length - length) return nullptr;
  return &slot;
}

// The slot of `key`, or the free slot where it would go.
uint32_t MemoryTable::index_of(uint32_t key) const {
  uint32_t i = key & mask_;
  while (slots_[i].key != 0 && slots_[i].key != key) i = (i + 1) & mask_;
  return i;
}

}  // namespace pacecar
