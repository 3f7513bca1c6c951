// ClassQueue: the packets of one class that wait in front of a cable. In a NIC that several
// processes of a host share, the processes take turns, packet by packet.
//
// Has no bounds: the caller checks sizes before it adds packets. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transport/base/units.h"
#include "transport/sim/fabric_packet.h"

namespace pacecar {

class ClassQueue {
 public:
  // `processes`: that share the queue; of a switch it is 1.
  explicit ClassQueue(uint32_t processes) {
    if (processes > 1) behind_ = std::make_unique<Behind>(processes);
  }

  bool empty() const { return list_.empty(); }
  Bytes bytes() const { return bytes_; }
  Bytes bytes(uint8_t process) const {
    if (!behind_) return bytes_;
    const bool next = !list_.empty() && list_.front().source_process == process;
    return behind_->lists[process].bytes + (next ? list_.front().wire_bytes : 0);
  }
  size_t count() const { return list_.count() + (behind_ ? behind_->count : 0); }
  const FabricPacket& front() const { return list_.front(); }
  // Only in switches.
  const FabricPacket& last() const { return list_.back(); }

  void push(FabricPacket& packet) {
    bytes_ += packet.wire_bytes;
    if (behind_ && !list_.empty()) return behind_->push(packet);
    list_.push(packet);
  }
  FabricPacket& pop() {
    FabricPacket& packet = list_.pop();
    bytes_ -= packet.wire_bytes;
    if (behind_ && behind_->count > 0) list_.push(behind_->pop(packet.source_process));
    return packet;
  }
  // Puts `packet` in the place of the last one and leaves that one in `packet`. Only in switches.
  void exchange_last(FabricPacket& packet) {
    FabricPacket& last = list_.back();
    bytes_ += packet.wire_bytes - Bytes{last.wire_bytes};
    std::swap(last, packet);
    last.next = nullptr;
  }

 private:
  // For several processes: the packets that wait behind the one whose turn it is.
  struct Behind {
    struct List {
      PacketList packets;
      Bytes bytes = 0;
    };

    explicit Behind(uint32_t processes) : lists(processes) {}
    void push(FabricPacket& packet) {
      List& list = lists[packet.source_process];
      list.packets.push(packet);
      list.bytes += packet.wire_bytes;
      ++count;
    }
    // Takes a packet of the first process after this one that has some; one has.
    FabricPacket& pop(uint8_t after) {
      size_t process = after;
      do {
        process = process + 1 < lists.size() ? process + 1 : 0;
      } while (lists[process].packets.empty());
      FabricPacket& packet = lists[process].packets.pop();
      lists[process].bytes -= packet.wire_bytes;
      --count;
      return packet;
    }

    std::vector<List> lists;  // by process
    size_t count = 0;
  };

  PacketList list_;  // in a NIC of several processes: only the packet whose turn it is
  Bytes bytes_ = 0;
  std::unique_ptr<Behind> behind_;
};

}  // namespace pacecar
