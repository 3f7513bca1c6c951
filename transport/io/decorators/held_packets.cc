#include "transport/io/decorators/held_packets.h"

#include <algorithm>

#include "transport/base/check.h"

namespace pacecar {

HeldPackets::HeldPackets(size_t slots, size_t slot_bytes)
    : slot_bytes_(slot_bytes), memory_(new uint8_t[slots * slot_bytes]), packets_(slots) {
  free_.reserve(slots);
  popped_.reserve(slots);
  queue_.reserve(slots);
  while (free_.size() < slots) free_.push_back(static_cast<uint32_t>(free_.size()));
}

bool HeldPackets::leaves_later(const Entry& a, const Entry& b) {
  return a.due != b.due ? a.due > b.due : a.sequence > b.sequence;
}

HeldPackets::Packet& HeldPackets::hold(Instant due, size_t size) {
  PACECAR_CHECK(!free_.empty() && size <= slot_bytes_);
  const uint32_t slot = free_.back();
  free_.pop_back();
  queue_.push_back({due, held_count_++, slot});
  std::push_heap(queue_.begin(), queue_.end(), leaves_later);
  packets_[slot] = Packet();
  packets_[slot].bytes = {memory_.get() + slot * slot_bytes_, size};
  return packets_[slot];
}

const HeldPackets::Packet* HeldPackets::next(Instant now) const {
  if (queue_.empty() || queue_.front().due > now) return nullptr;
  return &packets_[queue_.front().slot];
}

void HeldPackets::pop() {
  PACECAR_CHECK(!queue_.empty());
  popped_.push_back(queue_.front().slot);
  std::pop_heap(queue_.begin(), queue_.end(), leaves_later);
  queue_.pop_back();
}

void HeldPackets::give_back() {
  free_.insert(free_.end(), popped_.begin(), popped_.end());
  popped_.clear();
}

}  // namespace pacecar
