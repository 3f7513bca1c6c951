// ShareSeat: the slot that a process has in a ShareTable. Each use checks that the slot is still
// ours: a process that was stopped for long may have lost it, and takes another. No locks: a slot
// is taken by one compare-and-swap, and given up by one. Pure; one thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "transport/share/share_table.h"

namespace pacecar {

// A process that uses a ShareTable, and its knowledge of the other processes. The class itself is a
// process of a simulated host: its owner word is a unique number, and the others never end.
class ShareProcess {
 public:
  explicit ShareProcess(uint64_t owner) : owner_(owner) {}
  virtual ~ShareProcess() = default;
  ShareProcess(const ShareProcess&) = delete;
  ShareProcess& operator=(const ShareProcess&) = delete;

  // The word for its slot; 0: no longer that process (a forked child).
  virtual uint64_t owner() const { return owner_; }
  // The process with this owner's word has certainly ended.
  virtual bool ended(uint64_t /*owner*/) const { return false; }
  // The process is in another process namespace, so its end cannot be detected.
  virtual bool hidden(uint64_t /*owner*/) const { return false; }

 private:
  const uint64_t owner_;
};

template <typename Word>
class BasicShareSeat {
 public:
  using Table = BasicShareTable<Word>;
  using Slot = typename Table::Slot;
  static constexpr size_t kNone = kShareSlots;

  // Both outlive it.
  BasicShareSeat(Table& table, const ShareProcess& process, std::string_view name, Rate capacity)
      : table_(table),
        process_(process),
        name_(name),
        capacity_(std::clamp<uint64_t>(capacity.bps(), 1, ClaimWord::kMostDemand)) {}
  ~BasicShareSeat() { leave(); }
  BasicShareSeat(const BasicShareSeat&) = delete;
  BasicShareSeat& operator=(const BasicShareSeat&) = delete;

  // False: all slots are in use, or this is a forked child of the process that it was made for.
  bool take(Instant now) {
    const uint64_t own = process_.owner();
    if (own == 0) return false;
    if (holds()) return true;
    index_ = kNone;
    for (size_t i = 0; i < kShareSlots; ++i) {
      if (take(i, 0, own)) return true;
    }
    for (size_t i = 0; i < kShareSlots; ++i) {
      const uint64_t other = table_.slots[i].owner.load();
      const bool lost = other == 0 || process_.ended(other) ||
                        (process_.hidden(other) && silent_for_long(i, now));
      if (lost && take(i, other, own)) return true;
    }
    return false;
  }

  // The slot is still ours.
  bool holds() const {
    const uint64_t own = process_.owner();
    return own != 0 && index_ != kNone && slot().owner.load() == own;
  }

  // Frees the slot of a process that has ended.
  void release_if_ended(size_t index) {
    uint64_t owner = table_.slots[index].owner.load();
    if (owner == 0 || owner == process_.owner() || !process_.ended(owner)) return;
    if (!table_.slots[index].owner.compare_exchange_strong(owner, 0)) return;
    for (auto& generation : table_.generations) generation.number.fetch_add(1);
  }

  Table& table() const { return table_; }
  size_t index() const { return index_; }
  // The link's rate as this process has it, and as the process in a slot has it.
  uint64_t capacity() const { return capacity_; }
  uint64_t capacity_of(size_t index) const {
    return std::min(table_.slots[index].capacity.load(), ClaimWord::kMostDemand);
  }
  Slot& slot() const { return table_.slots[index_]; }

 private:
  // A process of another namespace loses its slot after this silence, if no other slot is free.
  static constexpr Duration kLongSilence = Duration::from_s(60);

  bool take(size_t index, uint64_t from, uint64_t own) {
    Slot& slot = table_.slots[index];
    if (slot.owner.load() != from || !slot.owner.compare_exchange_strong(from, own)) return false;
    index_ = index;
    slot.capacity.store(capacity_);
    for (auto& direction : slot.directions) {
      direction.claim.store(0);
      direction.taking.store(0);
      direction.learnt.store(0);
    }
    for (size_t i = 0; i < slot.name.size(); ++i) {
      uint64_t letters = 0;
      const std::string part = name_.substr(std::min(i * sizeof letters, name_.size()));
      std::memcpy(&letters, part.data(), std::min(part.size(), sizeof letters));
      slot.name[i].store(letters);
    }
    return true;
  }

  bool silent_for_long(size_t index, Instant now) const {
    const auto& directions = table_.slots[index].directions;
    return !share_beat_lives(directions[0].beat.load(), now, kLongSilence) &&
           !share_beat_lives(directions[1].beat.load(), now, kLongSilence);
  }

  // A forked child leaves its parent's slot alone.
  void leave() {
    uint64_t own = process_.owner();
    if (index_ == kNone || own == 0) return;
    if (!slot().owner.compare_exchange_strong(own, 0)) return;
    for (auto& generation : table_.generations) generation.number.fetch_add(1);
  }

  Table& table_;
  const ShareProcess& process_;
  const std::string name_;
  const uint64_t capacity_;
  size_t index_ = kNone;
};

}  // namespace pacecar
