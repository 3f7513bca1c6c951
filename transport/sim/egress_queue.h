// What waits in front of one direction of a cable: data and control packets, in two lists. Control
// goes first, or `control_weight` control packets before each waiting data packet.
//
// In a NIC that several processes share each of them has its own two lists, and the processes with
// something to send take turns, packet by packet, in each class.
//
// Has no bounds: the caller checks sizes before it adds packets. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "transport/base/prefetch.h"
#include "transport/base/units.h"
#include "transport/sim/fabric_packet.h"
#include "transport/sim/process_turns.h"

namespace pacecar {

class EgressQueue {
 public:
  // `processes`: that share the queue; of a switch it is 1.
  EgressQueue(uint32_t control_weight, uint32_t processes) : control_weight_(control_weight) {
    if (processes > 1) shared_ = std::make_unique<Shared>(processes);
  }

  bool empty() const { return data_.empty() && control_.empty(); }
  bool has_data() const { return !data_.empty(); }
  Bytes data_bytes() const { return data_bytes_; }
  Bytes control_bytes() const { return control_bytes_; }
  // For one of several processes.
  Bytes data_bytes(uint8_t process) const { return bytes_of(data_, shared_->data, process); }
  Bytes control_bytes(uint8_t process) const {
    return bytes_of(control_, shared_->control, process);
  }
  size_t count() const {
    const size_t behind = shared_ ? shared_->data.count() + shared_->control.count() : 0;
    return data_.count() + control_.count() + behind;
  }

  void push(FabricPacket& packet) {
    if (packet.is_data()) {
      data_bytes_ += packet.wire_bytes;
      push(packet, data_, data_turns());
    } else {
      control_bytes_ += packet.wire_bytes;
      push(packet, control_, control_turns());
    }
  }

  // The next packet to send, nullptr if there is none; data waits while it is paused.
  FabricPacket* pop(bool data_paused) {
    const bool data = !data_paused && !data_.empty();
    const bool data_is_due = data && control_weight_ > 0 && control_run_ >= control_weight_;
    if (!control_.empty() && !data_is_due) {
      control_run_ = data ? control_run_ + 1 : 0;
      control_bytes_ -= control_.front().wire_bytes;
      return &pop(control_, control_turns());
    }
    if (!data) return nullptr;
    control_run_ = 0;
    data_bytes_ -= data_.front().wire_bytes;
    return &pop(data_, data_turns());
  }

  // Fetches what pop() will touch.
  void prefetch_next() const {
    if (!data_.empty()) prefetch(data_.front());
    if (!control_.empty()) prefetch(control_.front());
  }

  // The last waiting data packet; one must wait. Only in switches.
  const FabricPacket& last_data() const { return data_.back(); }
  // Puts `packet` in the place of the last data packet and leaves that one in `packet`.
  void exchange_last_data(FabricPacket& packet) {
    FabricPacket& last = data_.back();
    data_bytes_ += packet.wire_bytes - Bytes{last.wire_bytes};
    std::swap(last, packet);
    last.next = nullptr;
  }

 private:
  // For several processes: the packets that wait behind the one whose turn it is.
  struct Shared {
    explicit Shared(uint32_t processes) : data(processes), control(processes) {}
    ProcessTurns data;
    ProcessTurns control;
  };
  ProcessTurns* data_turns() const { return shared_ ? &shared_->data : nullptr; }
  ProcessTurns* control_turns() const { return shared_ ? &shared_->control : nullptr; }

  static void push(FabricPacket& packet, PacketList& list, ProcessTurns* turns) {
    if (turns != nullptr && !list.empty()) return turns->push(packet);
    list.push(packet);
  }
  static FabricPacket& pop(PacketList& list, ProcessTurns* turns) {
    FabricPacket& packet = list.pop();
    if (turns != nullptr && !turns->empty()) list.push(turns->pop(packet.source_process));
    return packet;
  }
  static Bytes bytes_of(const PacketList& list, const ProcessTurns& turns, uint8_t process) {
    const bool next = !list.empty() && list.front().source_process == process;
    return turns.bytes(process) + (next ? list.front().wire_bytes : 0);
  }

  PacketList data_;
  PacketList control_;
  Bytes data_bytes_ = 0;
  Bytes control_bytes_ = 0;
  uint32_t control_weight_;
  uint32_t control_run_ = 0;  // control packets sent since data had to wait for them
  std::unique_ptr<Shared> shared_;
};

}  // namespace pacecar
