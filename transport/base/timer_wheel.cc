#include "transport/base/timer_wheel.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "transport/base/check.h"

namespace pacecar {

namespace {

// Flips the sign bit: Instants in order become unsigned numbers in order.
constexpr uint64_t kSignBit = uint64_t{1} << 63;

}  // namespace

uint64_t TimerWheel::tick_of(Instant instant) {
  return (static_cast<uint64_t>(instant.ns()) ^ kSignBit) >> kTickShift;
}

Instant TimerWheel::start_of(uint64_t tick) {
  return Instant::from_ns(static_cast<int64_t>((tick << kTickShift) ^ kSignBit));
}

TimerWheel::TimerWheel(uint32_t capacity, Instant start)
    : capacity_(capacity), tick_(tick_of(start)) {
  PACECAR_CHECK(capacity <= std::numeric_limits<uint32_t>::max() - kLevels * kSlots);
  nodes_.resize(size_t{capacity} + size_t{kLevels} * kSlots);
  for (uint32_t i = 0; i < nodes_.size(); ++i) nodes_[i].next = nodes_[i].previous = i;
}

bool TimerWheel::armed(uint32_t id) const {
  PACECAR_CHECK(id < capacity_);
  return nodes_[id].next != id;
}

void TimerWheel::arm(uint32_t id, Instant deadline) {
  cancel(id);
  if (deadline == Instant::never()) return;
  nodes_[id].deadline = deadline;
  link(id);
}

void TimerWheel::cancel(uint32_t id) {
  if (armed(id)) unlink(id);
}

// Appends the timer to its slot: the level of the highest digit (of base kSlots) in which its tick
// differs from the present tick.
void TimerWheel::link(uint32_t id) {
  const uint64_t tick = std::max(tick_of(nodes_[id].deadline), tick_);
  const unsigned highest_bit = static_cast<unsigned>(std::bit_width((tick ^ tick_) | 1)) - 1;
  const unsigned level = highest_bit / kDigitBits;
  const auto index = static_cast<uint32_t>(tick >> (level * kDigitBits)) % kSlots;
  const uint32_t head = capacity_ + level * kSlots + index;
  const uint32_t last = nodes_[head].previous;
  nodes_[id].next = head;
  nodes_[id].previous = last;
  nodes_[last].next = id;
  nodes_[head].previous = id;
  occupied_[level] |= uint64_t{1} << index;
  levels_ |= 1U << level;
}

void TimerWheel::unlink(uint32_t id) {
  const uint32_t next = nodes_[id].next;
  const uint32_t previous = nodes_[id].previous;
  nodes_[previous].next = next;
  nodes_[next].previous = previous;
  nodes_[id].next = id;
  if (next == previous) {  // only the head is left
    const uint32_t slot = next - capacity_;
    const uint32_t level = slot / kSlots;
    occupied_[level] &= ~(uint64_t{1} << (slot % kSlots));
    if (occupied_[level] == 0) levels_ &= ~(1U << level);
  }
}

std::optional<TimerWheel::Slot> TimerWheel::earliest_slot() const {
  if (levels_ == 0) return std::nullopt;
  const auto level = static_cast<unsigned>(std::countr_zero(levels_));
  const auto index = static_cast<uint32_t>(std::countr_zero(occupied_[level]));
  const unsigned shift = level * kDigitBits;
  const uint64_t above = tick_ >> shift >> kDigitBits << kDigitBits;
  return Slot{level, capacity_ + level * kSlots + index, (above | index) << shift};
}

// Moves the timers of a slot that the wheel has reached to the levels below.
void TimerWheel::cascade(const Slot& slot) {
  for (uint32_t id = nodes_[slot.head].next; id != slot.head; id = nodes_[slot.head].next) {
    unlink(id);
    link(id);
  }
}

size_t TimerWheel::take_due(const Slot& slot, Instant now, std::span<uint32_t> out) {
  size_t taken = 0;
  for (uint32_t id = nodes_[slot.head].next; id != slot.head && taken < out.size();) {
    const uint32_t next = nodes_[id].next;
    if (nodes_[id].deadline <= now) {
      unlink(id);
      out[taken++] = id;
    }
    id = next;
  }
  return taken;
}

size_t TimerWheel::expire(Instant now, std::span<uint32_t> out) {
  const uint64_t last_tick = tick_of(now);
  size_t taken = 0;
  while (taken < out.size()) {
    const std::optional<Slot> slot = earliest_slot();
    if (!slot || slot->first_tick > last_tick) {
      tick_ = std::max(tick_, last_tick);
      break;
    }
    tick_ = slot->first_tick;
    if (slot->level > 0) {
      cascade(*slot);
      continue;
    }
    taken += take_due(*slot, now, out.subspan(taken));
    if (slot->first_tick == last_tick) break;  // the remaining timers are due later in this tick
  }
  return taken;
}

Instant TimerWheel::next_deadline() const {
  const std::optional<Slot> slot = earliest_slot();
  if (!slot) return Instant::never();
  if (slot->level > 0) return start_of(slot->first_tick);
  Instant earliest = Instant::never();
  for (uint32_t id = nodes_[slot->head].next; id != slot->head; id = nodes_[id].next) {
    earliest = std::min(earliest, nodes_[id].deadline);
  }
  return earliest;
}

}  // namespace pacecar
