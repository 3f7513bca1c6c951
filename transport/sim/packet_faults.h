// Applies SimFaults to packets at the first switch of their path, and stalls to the ports of
// processes. Thread rule: the fabric's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/sim/event_loop.h"
#include "transport/sim/fabric_config.h"
#include "transport/sim/fabric_packet.h"

namespace pacecar {

class Fabric;

class PacketFaults final : public EventSink {
 public:
  explicit PacketFaults(Fabric& fabric);

  void set(const SimFaults& faults);
  // Whether a fault of packets is set; stalls do not count.
  bool active() const { return active_; }
  // Forwards the packet to its first switch: at once, late, changed, twice, or not at all.
  void pass(FabricPacket& packet);
  bool frozen(uint32_t process) const;
  size_t delayed() const { return late_.size(); }

  void on_event(Instant now, uint32_t what) override;  // A late packet goes on, or a stall ends.

 private:
  enum What : uint32_t { kLatePacket, kStallEnd };

  // A packet that is held back until `time`, so that others overtake it.
  struct Late {
    Instant time;
    uint64_t number;
    FabricPacket* packet;
  };
  static bool later(const Late& a, const Late& b) {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }

  bool partitioned(uint32_t a, uint32_t b) const;
  bool loses_word(const FabricPacket& packet);
  void duplicate(const FabricPacket& packet);
  void corrupt_and_delay(FabricPacket& packet);
  void corrupt(FabricPacket& packet);
  void arm_stall_timer();

  Fabric& fabric_;
  SimFaults faults_;
  bool active_ = false;
  std::vector<Late> late_;
  uint64_t late_number_ = 0;
  EventLoop::TimerId late_timer_;
  EventLoop::TimerId stall_timer_;
};

}  // namespace pacecar
