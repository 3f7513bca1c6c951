// EgressQueue: the data and control packets that wait in front of one direction of a cable. Control
// goes first, or `control_weight` control packets before each waiting data packet. Thread rule: one
// thread.
#pragma once

#include <cstdint>

#include "transport/base/prefetch.h"
#include "transport/sim/class_queue.h"
#include "transport/sim/fabric_packet.h"

namespace pacecar {

class EgressQueue {
 public:
  // `processes`: as ClassQueue's.
  EgressQueue(uint32_t control_weight, uint32_t processes)
      : data_(processes), control_(processes), control_weight_(control_weight) {}

  bool empty() const { return data_.empty() && control_.empty(); }
  size_t count() const { return data_.count() + control_.count(); }
  const ClassQueue& data() const { return data_; }
  const ClassQueue& control() const { return control_; }

  void push(FabricPacket& packet) { (packet.is_data() ? data_ : control_).push(packet); }
  // The next packet to send, nullptr if there is none; data waits while it is paused.
  FabricPacket* pop(bool data_paused) {
    const bool data = !data_paused && !data_.empty();
    const bool data_is_due = data && control_weight_ > 0 && control_run_ >= control_weight_;
    if (!control_.empty() && !data_is_due) {
      control_run_ = data ? control_run_ + 1 : 0;
      return &control_.pop();
    }
    if (!data) return nullptr;
    control_run_ = 0;
    return &data_.pop();
  }
  void exchange_last_data(FabricPacket& packet) { data_.exchange_last(packet); }

  // Fetches what pop() will touch.
  void prefetch_next() const {
    if (!data_.empty()) prefetch(data_.front());
    if (!control_.empty()) prefetch(control_.front());
  }

 private:
  ClassQueue data_;
  ClassQueue control_;
  uint32_t control_weight_;
  uint32_t control_run_ = 0;  // control packets sent since data had to wait for them
};

}  // namespace pacecar
