// One direction of a cable: its transmitter, the queue in front of it, and the packets on it.
// fabric_links.cc moves packets through it. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/base/units.h"
#include "transport/io/decorators/pcap_writer.h"
#include "transport/sim/egress_queue.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric_config.h"
#include "transport/sim/fabric_packet.h"
#include "transport/sim/serial_clock.h"
#include "transport/sim/switch_buffer.h"
#include "transport/sim/topology.h"

namespace pacecar {

// Members that every packet touches come first: the transmitter, the cable, the queue, the
// counters, each in about a cache line.
struct alignas(64) FabricLink {
  // `processes`: that send on it; from a switch it is 1.
  FabricLink(Rate rate, Duration delay_, NodeId from_, NodeId to_, uint32_t control_weight,
             uint32_t processes)
      : clock(rate), delay(delay_), from(from_), to(to_), queue(control_weight, processes) {}

  // Data that waits or is being sent at `now`.
  Bytes data_bytes(Instant now) const {
    const bool sending = in_service != nullptr && clock.busy(now);
    return queue.data().bytes() + (sending ? in_service_data : 0);
  }
  // Of one process.
  Bytes data_bytes(Instant now, uint8_t process) const {
    const bool sending =
        in_service != nullptr && in_service->source_process == process && clock.busy(now);
    return queue.data().bytes(process) + (sending ? in_service_data : 0);
  }
  bool waiting() const { return !queue.empty() || pause_due != PacketKind::kData; }

  SerialClock clock;
  Duration delay;
  FabricPacket* in_service = nullptr;    // also the last of `flight`; null once it has left
  PacketList flight;                     // in order of arrival
  EventLoop::TimerId arrival_timer = 0;  // of the first in `flight`
  EventLoop::TimerId free_timer = 0;     // of the transmitter; armed only if something waits
  NodeId from;
  NodeId to;
  uint32_t in_service_data = 0;  // bytes of the data packet in service; 0: another kind
  bool up = true;
  bool paused = false;       // data, by the far end
  bool room_wanted = false;  // the host in front of it waits until it has sent a packet
  PacketKind pause_due = PacketKind::kData;  // kPause or kResume: to be sent before all else
  std::unique_ptr<PcapWriter> capture;       // of what comes out; null: none
  double loss = 0;
  std::unique_ptr<Policer> policer;  // of what comes out; null: none
  EgressQueue queue;
  LinkStats stats;       // without what is known from elsewhere
  Instant paused_since;  // when paused
  IngressShare ingress;  // of the switch at the far end
};

}  // namespace pacecar
