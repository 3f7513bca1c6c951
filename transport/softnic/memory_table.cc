#include "transport/softnic/memory_table.h"

#include <bit>

#include "transport/base/check.h"

namespace pacecar {
namespace {

// Remote addresses begin below this, so that regions end before addresses wrap.
constexpr uint64_t kMostBytes = uint64_t{1} << 63;

tl::unexpected<Error> no_room() {
  return fail(
      ErrorCode::kUnavailable,
      "all memory regions of the NIC are used: deregister some or raise PACECAR_MAX_REGIONS");
}

bool addressable(uint64_t start, size_t length, uint64_t remote) {
  return start != 0 && start + length > start && length <= kMostBytes && remote + length > remote;
}

// Whether [offset, offset + length) is within `size` bytes. An address before the region gives a
// wrapped offset, which is beyond the region's end, because regions do not wrap.
bool within(uint64_t offset, Bytes length, uint64_t size) {
  return length <= size && offset <= size - length;
}

}  // namespace

MemoryTable::MemoryTable(uint32_t capacity, RandomSource random, bool random_addresses)
    : mask_(std::bit_ceil(capacity * 2) - 1),
      memory_(make_fresh_pages((size_t{mask_} + 1) * sizeof(Slot))),
      slots_(reinterpret_cast<Slot*>(memory_.get())),
      capacity_(capacity),
      random_(random),
      random_addresses_(random_addresses) {
  PACECAR_CHECK(capacity > 0 && capacity <= (1U << 24));
}

Result<MemoryRegion> MemoryTable::add(void* address, size_t length, Access access) {
  return add_as(address, length, access, remote_address(reinterpret_cast<uint64_t>(address)));
}

Result<MemoryRegion> MemoryTable::add_as(void* address, size_t length, Access access,
                                         uint64_t remote, DomainId domain) {
  const auto start = reinterpret_cast<uint64_t>(address);
  if (!addressable(start, length, remote)) {
    return fail(
        ErrorCode::kInvalidArgument,
        "cannot register an empty or wrapping memory range: pass a valid address and length");
  }
  if (size_ == capacity_) return no_room();
  // Keys are random, so their low bits serve as the hash.
  uint32_t key = 0;
  while (key == 0 || slots_[index_of(key)].key == key) key = random_();
  slots_[index_of(key)] = Slot{start, remote, length, key, access, domain};
  ++size_;
  return MemoryRegion{static_cast<uint8_t*>(address), length, key, remote};
}

Result<void> MemoryTable::bind(const MemoryWindow& window) {
  const auto start = reinterpret_cast<uint64_t>(window.address);
  if (window.key == 0 || !addressable(start, window.length, window.remote_address)) {
    return fail(ErrorCode::kInvalidArgument, "cannot bind an empty or wrapping memory window");
  }
  if (size_ == capacity_) return no_room();
  Slot& slot = slots_[index_of(window.key)];
  if (slot.key != 0) {
    return fail(ErrorCode::kUnavailable, "the key of the memory window is in use: choose another");
  }
  slot =
      Slot{start, window.remote_address, window.length, window.key, window.access, window.domain};
  ++size_;
  if (window.queue_pair) bound_[window.key] = *window.queue_pair;
  return {};
}

bool MemoryTable::window_of(uint32_t key, QueuePairId queue_pair) const {
  const auto bound = bound_.find(key);
  return bound != bound_.end() && bound->second == queue_pair;
}

bool MemoryTable::bound_to_another(uint32_t key, QueuePairId by) const {
  const auto bound = bound_.find(key);
  return bound != bound_.end() && bound->second != by;
}

void MemoryTable::adopt(const MemoryRegion& region, Access access) {
  PACECAR_CHECK(size_ < capacity_ && slots_[index_of(region.key)].key == 0);
  slots_[index_of(region.key)] = Slot{reinterpret_cast<uint64_t>(region.address),
                                      region.remote_address,
                                      region.length,
                                      region.key,
                                      access,
                                      kNoDomain};
  ++size_;
}

// All bits above kRemoteAlignment are random.
uint64_t MemoryTable::remote_address(uint64_t address) {
  if (!random_addresses_) return address;
  const uint64_t high = uint64_t{random_()} << 32;
  return ((high | random_()) % kMostBytes & ~(kRemoteAlignment - 1)) | address % kRemoteAlignment;
}

bool MemoryTable::remove(uint32_t key) {
  uint32_t hole = index_of(key);
  if (key == 0 || slots_[hole].key != key) return false;
  slots_[hole] = Slot{};
  --size_;
  bound_.erase(key);
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

MemoryTable::Range MemoryTable::writable_range(uint32_t key) const {
  Range range;
  const Slot& slot = slots_[index_of(key)];
  if (slot.key != key || !allows(slot.access, Access::kRemoteWrite)) return range;
  range.start_ = reinterpret_cast<uint8_t*>(slot.address);
  range.remote_ = slot.remote;
  range.length_ = slot.length;
  return range;
}

uint8_t* MemoryTable::allowed(uint32_t key, uint64_t address, Bytes length, Access right) const {
  const Slot& slot = slots_[index_of(key)];
  const uint64_t offset = address - slot.remote;
  if (slot.key != key || !allows(slot.access, right)) return nullptr;
  return within(offset, length, slot.length) ? reinterpret_cast<uint8_t*>(slot.address + offset)
                                             : nullptr;
}

uint64_t* MemoryTable::atomic_word(uint32_t key, uint64_t address) const {
  uint8_t* const word = allowed(key, address, sizeof(uint64_t), Access::kRemoteAtomic);
  const bool aligned = (reinterpret_cast<uint64_t>(word) | address) % sizeof(uint64_t) == 0;
  return aligned ? reinterpret_cast<uint64_t*>(word) : nullptr;
}

bool MemoryTable::owner_may_write(uint32_t key, const uint8_t* address, Bytes length) const {
  const Slot* slot = find_local(key, address, length);
  return slot != nullptr && slot->access != Access::kLocalRead;
}

bool MemoryTable::covers(uint32_t key, const uint8_t* address, Bytes length) const {
  return find_local(key, address, length) != nullptr;
}

const MemoryTable::Slot* MemoryTable::find_local(uint32_t key, const uint8_t* address,
                                                 Bytes length) const {
  const Slot& slot = slots_[index_of(key)];
  if (key == 0 || slot.key != key) return nullptr;
  const uint64_t offset = reinterpret_cast<uint64_t>(address) - slot.address;
  return within(offset, length, slot.length) ? &slot : nullptr;
}

// The slot of `key`, or the free slot where it would go.
uint32_t MemoryTable::index_of(uint32_t key) const {
  uint32_t i = key & mask_;
  while (slots_[i].key != 0 && slots_[i].key != key) i = (i + 1) & mask_;
  return i;
}

}  // namespace pacecar
