// One direction of a channel between two ranks, as a block sees it: a ring of eight buffers, which
// the other end is a proxy thread of NCCL or another GPU. Both count steps, across all operations:
// `head` is how many the receiver has freed, `tail` how many the sender has filled.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/nccl/cpu_device/collectives/function_table.h"
#include "bench/nccl/cpu_device/collectives/raw.h"

namespace pacecar::nccl::cpu {

inline constexpr uint64_t kSteps = 8;

class Connection {
 public:
  Connection() = default;
  explicit Connection(char* info)
      : info_(info),
        tail_(pointer<uint64_t>(info, 48)),
        head_(pointer<uint64_t>(info, 56)),
        fifo_(pointer(info, 96)),
        step(field<uint64_t>(info, 104)) {}

  // The step that is next is kept for the operations to come.
  void save() const { set_field(info_, 104, step); }

  uint64_t filled() const { return load_acquire(tail_); }
  uint64_t freed() const { return load_acquire(head_); }
  void set_filled(uint64_t steps) const { store_release(tail_, steps); }
  void set_freed(uint64_t steps) const { store_release(head_, steps); }
  bool has_room(uint64_t steps) const { return freed() + kSteps >= step + steps; }

  // Whether the other end is a proxy thread, that is to say the network.
  bool over_network() const { return fifo_ != nullptr; }
  // Whether the proxy can let the NIC reach the user's buffers.
  bool reaches_users() const { return (field<int>(info_, 64) & kDirectNic) != 0; }
  // The proxy waits for a receiver that says so before it lets the NIC write.
  void allow_user_buffer() const {
    store_release(reinterpret_cast<int64_t*>(slot_of_fifo() + 8), int64_t{0});
  }
  // Whether the proxy has sent what the previous step announced.
  bool sent(uint64_t steps_each) const {
    const char* const slot = fifo_ + (step - steps_each) % kSteps * kSlotBytes;
    return load_acquire(reinterpret_cast<const int64_t*>(slot + 8)) == -1;
  }
  // Says to the proxy how many bytes this step has.
  void announce(size_t bytes) const {
    if (over_network()) {
      store_release(reinterpret_cast<int64_t*>(slot_of_fifo() + 8), static_cast<int64_t>(bytes));
    }
  }

  // The buffer of this step. LL and LL128 divide their whole buffer by kSteps.
  char* simple_buffer() const {
    constexpr int kByOffset = 1;
    char* const buffers = pointer(info_, 8 * static_cast<size_t>(Protocol::kSimple));
    if (over_network() && field<int>(slot_of_fifo(), 0) == kByOffset) {
      return buffers + load_acquire(reinterpret_cast<const int*>(slot_of_fifo() + 4));
    }
    return buffers + (step % kSteps) * field<uint32_t>(info_, 72);
  }
  char* flagged_buffer(Protocol protocol, size_t step_bytes) const {
    return pointer(info_, 8 * static_cast<size_t>(protocol)) + (step % kSteps) * step_bytes;
  }

 private:
  static constexpr int kDirectNic = 4;
  static constexpr size_t kSlotBytes = 24;

  char* slot_of_fifo() const { return fifo_ + (step % kSteps) * kSlotBytes; }

  char* info_ = nullptr;
  uint64_t* tail_ = nullptr;
  uint64_t* head_ = nullptr;
  char* fifo_ = nullptr;

 public:
  uint64_t step = 0;  // that is next
};

}  // namespace pacecar::nccl::cpu
