// A simulated fabric: hosts' ports, switches and cables of a Topology, on the virtual clock of an
// EventLoop. A host's port is a PacketIo, so that the code above runs as in production.
//   host port (NIC queues) --cable--> switch: route, admit, queue --cable--> ... --> inbox --> wake
// A switch chooses among equally short ways by a hash of source, destination and path (UDP source
// port), salted per switch; so a flow that changes its path per packet sprays. Control packets and
// trimmed headers go before data. Faults are set from outside at any time. The same topology,
// configuration, seed and calls give the same run, which trace_hash() shows. Thread rule: one
// thread; ports live as long as the fabric.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/base/prng.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric_config.h"
#include "transport/sim/fabric_link.h"
#include "transport/sim/fabric_packet.h"
#include "transport/sim/host_port.h"
#include "transport/sim/packet_faults.h"
#include "transport/sim/routing.h"
#include "transport/sim/switch_buffer.h"
#include "transport/sim/topology.h"

namespace pacecar {

// TraceHash: a running hash over the events in a fabric. Two runs with equal hashes had the same
// events in the same order. It detects accidents, not forgery.
class TraceHash {
 public:
  enum class Event : uint8_t { kSent, kDuplicated, kCorrupted, kArrived, kDelivered, kDropped };

  uint64_t value() const { return hash_; }

  void add(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15U;  // odd, so no information is lost
    hash_ ^= hash_ >> 32U;
  }
  void add(Event event, Instant now, const FabricPacket& packet, uint64_t detail = 0) {
    add(static_cast<uint64_t>(now.ns()) << 4U | static_cast<uint64_t>(event));
    add(packet.flow_hash ^ detail << 32U);
    add(uint64_t{packet.wire_bytes} << 8U | static_cast<uint64_t>(packet.ecn));
  }
  // Adds only the bytes of a packet that identify queue pair and packet: later bytes may be memory
  // addresses, which differ from run to run.
  void add_head(std::span<const uint8_t> bytes) {
    constexpr size_t kTransportHeader = 12;
    std::array<uint64_t, 2> head{};
    std::memcpy(head.data(), bytes.data(), std::min(bytes.size(), kTransportHeader));
    add(head[0]);
    add(head[1]);
  }

 private:
  uint64_t hash_ = 0;
};

class Fabric final : private EventSink {
 public:
  // Errors: kInvalidArgument for a topology whose hosts cannot all reach each other, or a
  // configuration that makes no sense; one sentence with the cure.
  static Result<std::unique_ptr<Fabric>> create(EventLoop& loop, const Topology& topology,
                                                const FabricConfig& config, uint64_t seed);

  uint32_t hosts() const { return hosts_; }
  uint32_t processes() const { return topology_.all_processes(); }  // of all hosts
  // The port of a process, by number; with one process per host, of a host.
  HostPort& port(uint32_t process) { return ports_[process]; }

  // Links: both directions of cable i of the topology are 2i (a to b) and 2i + 1 (b to a).
  size_t links() const { return links_.size(); }
  LinkInfo link_info(LinkId id) const {
    const FabricLink& link = links_[id];
    return {.from = link.from, .to = link.to, .rate = link.clock.rate(), .delay = link.delay};
  }
  LinkStats link_stats(LinkId link) const;
  void reset_queue_max() {
    for (FabricLink& link : links_) link.stats.queue_max_bytes = link.data_bytes(loop_.now());
  }
  void reset_counters();  // All counters and statistics begin anew. Nothing is in flight.
  // Most bytes that waited at once in a switch, over all ports; a packet being sent does not wait.
  Bytes switch_buffer_max() const;
  // Bytes that a switch holds now; index: node minus hosts().
  Bytes switch_buffer(uint32_t index) const { return switches_[index].buffer.held_bytes(); }

  // Faults. Packets on a cable that goes down are lost.
  void set_cable_up(uint32_t cable, bool up);
  void set_cable_rate(uint32_t cable, Rate rate) {  // more than 0
    for (const LinkId link : {2 * cable, 2 * cable + 1}) links_[link].clock.set_rate(rate);
  }
  void set_cable_loss(uint32_t cable, double probability) {
    links_[2 * cable].loss = links_[2 * cable + 1].loss = probability;
  }
  // Random loss, duplication, reordering, corruption and partitions, at the first switch of each
  // packet's way; frozen processes. Islands, stalls and losses of control writes name processes.
  void set_faults(const SimFaults& faults) { faults_.set(faults); }

  // Writes the packets that leave a link to a pcap file from now on (Ethernet, IP and UDP headers
  // made up; payload carried as a length: zeros). Errors: kSystem, naming the file.
  Result<void> capture(LinkId link, const std::string& path);
  // Ends the captures. Errors: kSystem, naming the file that could not be written, now or before.
  Result<void> close_captures();

  FabricCounters counters() const;
  uint64_t trace_hash() const { return trace_.value(); }

 private:
  friend class HostPort;
  friend class PacketFaults;

  Fabric(EventLoop& loop, const Topology& topology, const FabricConfig& config, Routing routing,
         uint64_t seed);

  void on_event(Instant now, uint32_t what) override;

  // Host ports: packets in, at this instant, on the uplink that `choose_uplink` gave two hosts.
  LinkId choose_uplink(uint32_t host, uint32_t destination, uint64_t flow_hash) const;
  uint32_t sender_of(const FabricPacket& packet) const {
    return packet.source * topology_.processes + packet.source_process;
  }
  uint32_t receiver_of(const FabricPacket& packet) const {
    return packet.destination * topology_.processes + packet.destination_process;
  }
  HostPort& port_of(uint32_t host, uint32_t process) {
    return ports_[host * topology_.processes + process];
  }
  void send(LinkId link, FabricPacket& packet);
  // Calls the host of a link whose NIC was full when its transmitter is free again.
  void watch_room(LinkId link);
  void watch_store(uint32_t process);
  void deliver(FabricPacket& packet);  // has been handed to the reader
  void give_back(FabricPacket& packet);

  void enter_switch(FabricPacket& packet);  // Faults: a packet enters the first switch of its way.
  void drop(FabricPacket& packet, FabricDrop cause);

  bool store_is_full() const { return store_.in_use() >= config_.packets; }
  // Whether a packet's memory holds its payload.
  bool keeps_payload(const FabricPacket& packet) const {
    return config_.payload == PayloadMode::kBytes || packet.kind == PacketKind::kControl;
  }
  // The bytes of a packet that are there.
  std::span<uint8_t> carried(const FabricPacket& packet) const;

  enum class Event : uint32_t { kArrival, kFree, kFailover, kReroute, kStoreRoom };
  static constexpr unsigned kEventBits = 3;

  static uint32_t event(Event kind, LinkId link) {
    return link << kEventBits | static_cast<uint32_t>(kind);
  }

  void add_link(const Cable& cable, NodeId from, NodeId to);

  void forward_data(FabricPacket& packet, LinkId out);
  void forward_control(FabricPacket& packet, LinkId out);
  void overflow(FabricPacket& packet, LinkId out);
  void mark(FabricPacket& packet, FabricLink& link, Bytes queue_bytes);
  void leave_buffer(const FabricPacket& packet, NodeId at);

  bool can_start(const FabricLink& link, const FabricPacket& packet) const {
    return !link.clock.busy(loop_.now()) && !link.waiting() && !(link.paused && packet.is_data());
  }
  // Sends a packet that has been admitted, or lets it wait.
  void offer(LinkId id, FabricPacket& packet);
  void start_or_wait(LinkId id, bool was_waiting);  // Something waits, and `was_waiting` before.
  void start(LinkId id, FabricPacket& packet);
  void start_next(LinkId id);
  void finish_service(FabricLink& link);
  void arrive(LinkId id);
  void record(PcapWriter& capture, const FabricPacket& packet) const;
  void transmitter_free(LinkId id);
  void cut(LinkId id);
  void set_in_routes(uint32_t cable, bool in_routes);
  void reroute() { routing_ = make_routing(topology_, in_routes_); }
  // Priority flow control: pauses the sender on the other side, or is paused by it.
  void send_pause(LinkId from_sender, PacketKind kind);
  void on_pause(LinkId id, PacketKind kind);
  void set_paused(FabricLink& link, bool paused);

  void notify_waiting_for_store();

  EventLoop& loop_;
  const FabricConfig config_;
  const Topology topology_;
  const uint32_t hosts_;
  Routing routing_;
  Prng random_;
  PacketStore store_;
  FabricCounters counters_;
  TraceHash trace_;
  PacketFaults faults_;
  std::vector<FabricLink> links_;
  struct Switch {
    SwitchBuffer buffer;
    uint64_t salt;
  };
  std::vector<Switch> switches_;
  std::vector<std::vector<LinkId>> uplinks_;  // by host
  std::deque<HostPort> ports_;                // by process

  std::vector<EventLoop::TimerId> failover_timers_;  // by cable
  EventLoop::TimerId store_timer_;
  std::vector<uint32_t> waiting_for_store_;  // processes
  std::vector<bool> in_routes_;              // by cable
  EventLoop::TimerId reroute_timer_;
  std::vector<uint8_t> zeros_;  // in place of payload in captures
};

}  // namespace pacecar
