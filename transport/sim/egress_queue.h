// What waits in front of one direction of a cable: data and control packets, in two lists. Control
// goes first, or `control_weight` control packets before each waiting data packet.
// Knows nothing of bounds: who puts packets in has asked for the sizes. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <utility>

#include "transport/base/prefetch.h"
#include "transport/base/units.h"
#include "transport/sim/fabric_packet.h"

namespace pacecar {

class EgressQueue {
 public:
  explicit EgressQueue(uint32_t control_weight) : control_weight_(control_weight) {}

  bool empty() const { return data_.empty() && control_.empty(); }
  bool has_data() const { return !data_.empty(); }
  Bytes data_bytes() const { return data_bytes_; }
  Bytes control_bytes() const { return control_bytes_; }
  size_t count() const { return data_.count() + control_.count(); }

  void push(FabricPacket& packet) {
    if (packet.is_data()) {
      data_bytes_ += packet.wire_bytes;
      data_.push(packet);
    } else {
      control_bytes_ += packet.wire_bytes;
      control_.push(packet);
    }
  }

  // The next packet to send, nullptr if there is none; data waits while it is paused.
  FabricPacket* pop(bool data_paused) {
    const bool data = !data_paused && !data_.empty();
    const bool data_is_due = data && control_weight_ > 0 && control_run_ >= control_weight_;
    if (!control_.empty() && !data_is_due) {
      control_run_ = data ? control_run_ + 1 : 0;
      control_bytes_ -= control_.front().wire_bytes;
      return &control_.pop();
    }
    if (!data) return nullptr;
    control_run_ = 0;
    data_bytes_ -= data_.front().wire_bytes;
    return &data_.pop();
  }

  // Fetches what pop() will touch.
  void prefetch_next() const {
    if (!data_.empty()) prefetch(data_.front());
    if (!control_.empty()) prefetch(control_.front());
  }

  // The last data packet that waits; there is one.
  const FabricPacket& last_data() const { return data_.back(); }
  // Puts `packet` in the place of the last data packet and leaves that one in `packet`.
  void exchange_last_data(FabricPacket& packet) {
    FabricPacket& last = data_.back();
    data_bytes_ += packet.wire_bytes - Bytes{last.wire_bytes};
    std::swap(last, packet);
    last.next = nullptr;
  }

 private:
  PacketList data_;
  PacketList control_;
  Bytes data_bytes_ = 0;
  Bytes control_bytes_ = 0;
  uint32_t control_weight_;
  uint32_t control_run_ = 0;  // control packets sent since data had to wait for them
};

}  // namespace pacecar
