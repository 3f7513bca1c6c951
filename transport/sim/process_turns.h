// Packets of one class that the processes of a host have given to their NIC: a list for each, which
// take turns by the packet. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/base/units.h"
#include "transport/sim/fabric_packet.h"

namespace pacecar {

class ProcessTurns {
 public:
  explicit ProcessTurns(uint32_t processes) : lists_(processes) {}

  bool empty() const { return count_ == 0; }
  size_t count() const { return count_; }
  Bytes bytes(uint8_t process) const { return lists_[process].bytes; }

  void push(FabricPacket& packet) {
    List& list = lists_[packet.source_process];
    list.packets.push(packet);
    list.bytes += packet.wire_bytes;
    ++count_;
  }
  // Of the first process after this one that has something. There is something.
  FabricPacket& pop(uint8_t after) {
    size_t process = after;
    do {
      process = process + 1 < lists_.size() ? process + 1 : 0;
    } while (lists_[process].packets.empty());
    FabricPacket& packet = lists_[process].packets.pop();
    lists_[process].bytes -= packet.wire_bytes;
    --count_;
    return packet;
  }

 private:
  struct List {
    PacketList packets;
    Bytes bytes = 0;
  };
  std::vector<List> lists_;
  size_t count_ = 0;
};

}  // namespace pacecar
