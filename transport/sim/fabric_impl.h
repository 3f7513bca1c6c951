// The inside of a Fabric. Packets move in three files: host ports (host_port.cc), switches
// (fabric_switches.cc), and the cables between them (fabric_links.cc); packet_faults.cc applies
// faults to them.
//
// Events per packet and cable: its arrival; and the end of the packet before it, when it had to
// wait. Invariant: a link whose transmitter is busy has its free_timer armed if anything waits.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "transport/base/prng.h"
#include "transport/sim/ecn_marker.h"
#include "transport/sim/fabric.h"
#include "transport/sim/fabric_link.h"
#include "transport/sim/fabric_packet.h"
#include "transport/sim/host_port.h"
#include "transport/sim/packet_faults.h"
#include "transport/sim/packet_store.h"
#include "transport/sim/routing.h"
#include "transport/sim/switch_buffer.h"

namespace pacecar {

// Whether a configuration makes sense. Errors: kInvalidArgument, one sentence that names the
// setting and its cure.
Result<void> check_fabric_config(const FabricConfig& config, const Topology& topology);

// A running hash over what happened: two runs with equal hashes did the same, in the same order. It
// detects accidents, not forgery.
class TraceHash {
 public:
  void add(uint64_t word) {
    state_ = (state_ ^ word) * 0x9E3779B97F4A7C15U;  // odd, so no information is lost
    state_ ^= state_ >> 32U;
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

class Fabric::Impl final : public EventSink {
 public:
  Impl(EventLoop& loop, const Topology& topology, const FabricConfig& config, Routing routing,
       uint64_t seed);

  void on_event(Instant now, uint32_t what) override;
  void prepare(uint32_t what, unsigned events_before) override;

  // Host ports: packets in, at this instant, on the uplink that `choose_uplink` gave two hosts.
  LinkId choose_uplink(uint32_t host, uint32_t destination, uint64_t flow_hash) const;
  uint32_t sender_of(const FabricPacket& packet) const {
    return packet.source * topology.processes + packet.source_process;
  }
  uint32_t receiver_of(const FabricPacket& packet) const {
    return packet.destination * topology.processes + packet.destination_process;
  }
  HostPort& port_of(uint32_t host, uint32_t process) {
    return ports[host * topology.processes + process];
  }
  void send(LinkId link, FabricPacket& packet);
  // Calls the host of a link whose NIC was full when its transmitter is free again.
  void watch_room(LinkId link);
  void watch_store(uint32_t process);
  void deliver(FabricPacket& packet);  // has been handed to the reader
  void give_back(FabricPacket& packet);

  // Faults: a packet enters the first switch of its way.
  void enter_switch(FabricPacket& packet);
  void drop(FabricPacket& packet, FabricDrop cause);

  enum class TraceKind : uint8_t { kSent, kDuplicated, kCorrupted, kArrived, kDelivered, kDropped };
  void trace(TraceKind kind, const FabricPacket& packet, uint64_t detail = 0);
  void trace_bytes(const FabricPacket& packet);
  // Whether a packet's memory holds its payload.
  bool keeps_payload(const FabricPacket& packet) const {
    return config.payload == PayloadMode::kBytes || packet.kind == PacketKind::kControl;
  }
  // The bytes of a packet that are there.
  std::span<uint8_t> carried(const FabricPacket& packet) const;

  // Cables.
  void set_cable_up(uint32_t cable, bool up);

  // Queues, cables and inboxes, one by one.
  uint64_t count_in_flight() const;

  EventLoop& loop;
  const FabricConfig config;
  const Topology topology;
  const uint32_t hosts;
  Routing routing;
  Prng random;
  PacketStore store;
  FabricCounters counters;
  TraceHash trace_hash;
  EcnMarker ecn;
  PacketFaults faults;
  std::vector<FabricLink> links;
  struct Switch {
    SwitchBuffer buffer;
    uint64_t salt;
  };
  std::vector<Switch> switches;
  std::vector<std::vector<LinkId>> uplinks;  // by host
  std::deque<HostPort> ports;                // by process

 private:
  enum class Event : uint32_t { kArrival, kFree, kFailover, kReroute, kStoreRoom };
  static constexpr unsigned kEventBits = 3;

  static uint32_t event(Event kind, LinkId link) {
    return link << kEventBits | static_cast<uint32_t>(kind);
  }

  void add_link(const Cable& cable, NodeId from, NodeId to);

  // Switches.
  // The link on which a packet leaves a switch; nothing if there is none.
  std::optional<LinkId> way_on(const FabricPacket& packet, NodeId at) const;
  void forward_data(FabricPacket& packet, LinkId out);
  void forward_control(FabricPacket& packet, LinkId out);
  void overflow(FabricPacket& packet, LinkId out);
  void mark(FabricPacket& packet, FabricLink& link, Bytes queue_bytes);
  void leave_buffer(const FabricPacket& packet, NodeId at);

  // Cables.
  bool can_start(const FabricLink& link, const FabricPacket& packet) const {
    return !link.clock.busy(loop.now()) && !link.waiting() && !(link.paused && packet.is_data());
  }
  // Sends a packet that has been admitted, or lets it wait.
  void offer(LinkId id, FabricPacket& packet);
  // Something waits, and `was_waiting` before.
  void poke(LinkId id, bool was_waiting);
  void start(LinkId id, FabricPacket& packet);
  void start_next(LinkId id);
  void leave(FabricLink& link);
  void arrive(LinkId id);
  void transmitter_free(LinkId id);
  void cut(LinkId id);
  void set_in_routes(uint32_t cable, bool in_routes);
  void reroute();
  // Priority flow control: pauses the sender on the other side, or is paused by it.
  void send_pause(LinkId from_sender, PacketKind kind);
  void be_paused(LinkId id, PacketKind kind);
  void set_paused(FabricLink& link, bool paused);

  void notify_waiting_for_store();

  std::vector<EventLoop::TimerId> failover_timers_;  // by cable
  EventLoop::TimerId store_timer_;
  std::vector<uint32_t> waiting_for_store_;  // processes
  std::vector<bool> in_routes_;              // by cable
  EventLoop::TimerId reroute_timer_;
};

}  // namespace pacecar
