// A simulated fabric: hosts' ports, switches and cables of a Topology, on the virtual clock of an
// EventLoop. A host's port is a PacketIo, so that the code above runs as in production.
//
//   host port (NIC queues) --cable--> switch: route, admit, queue --cable--> ... --> inbox --> wake
//
// A switch chooses among equally short ways by a hash of source, destination and path (UDP source
// port), salted per switch; so a flow that changes its path per packet sprays. Control packets and
// trimmed headers go before data.
//
// Faults are set from outside at any time. The same topology, configuration, seed and calls give
// the same run, which trace_hash() shows. Thread rule: one thread; ports live as long as the
// fabric.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/io/packet_io.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric_config.h"
#include "transport/sim/sim_faults.h"
#include "transport/sim/topology.h"

namespace pacecar {

enum class FabricDrop : uint8_t {
  kNoRoute,
  kQueueFull,
  kInboxFull,
  kLinkDown,   // on a failed cable, in the queue before it, or without another route
  kLoss,       // injected
  kPartition,  // injected
  kPolicer,
  kCount
};

struct FabricCounters {
  uint64_t sent = 0;        // taken from hosts
  uint64_t duplicated = 0;  // injected
  uint64_t corrupted = 0;   // injected
  uint64_t delayed = 0;     // injected
  uint64_t marked = 0;
  uint64_t trimmed = 0;    // their headers are delivered or dropped like any packet
  uint64_t delivered = 0;  // handed to the reader
  std::array<uint64_t, static_cast<size_t>(FabricDrop::kCount)> dropped{};
  uint64_t in_flight = 0;  // in queues, on cables, in inboxes
  uint64_t pauses = 0;     // PFC pause frames

  uint64_t dropped_for(FabricDrop cause) const { return dropped[static_cast<size_t>(cause)]; }
  uint64_t all_dropped() const;
  bool conserved() const { return sent + duplicated == delivered + all_dropped() + in_flight; }
};

// What one direction of a cable has done so far.
struct LinkStats {
  Bytes sent_bytes = 0;  // on the wire
  uint64_t sent_packets = 0;
  Bytes queue_bytes = 0;      // data waiting now, the packet being sent included
  Bytes queue_max_bytes = 0;  // since the begin or reset_queue_max()
  uint64_t marked = 0;
  uint64_t trimmed = 0;
  uint64_t dropped = 0;
  Duration paused;  // by PFC
};

// A frame of a real network as a packet: it has its own ECN field, and receive() of the
// destination's port returns it.
struct FabricFrame {
  std::span<const uint8_t> bytes;
  Bytes kept_bytes = 0;      // what trimming leaves of it; 0: it is dropped rather than trimmed
  uint32_t destination = 0;  // process
  TrafficClass traffic_class = TrafficClass::kData;
  Ecn ecn = Ecn::kNotCapable;
};

struct LinkInfo {
  NodeId from = 0;
  NodeId to = 0;
  Rate rate;
  Duration delay;
};

class Fabric {
 public:
  class Impl;  // for the fabric's own parts

  // Errors: kInvalidArgument for a topology whose hosts cannot all reach each other, or a
  // configuration that makes no sense; one sentence with the cure.
  static Result<std::unique_ptr<Fabric>> create(EventLoop& loop, const Topology& topology,
                                                const FabricConfig& config, uint64_t seed);
  ~Fabric();

  uint32_t hosts() const;
  uint32_t processes() const;  // of all hosts
  // The port of a process, by number; with one process per host, of a host.
  PacketIo& port(uint32_t process);
  const Address& address(uint32_t process) const;
  // Sends a frame from a process, with PayloadMode::kBytes. False: it is longer than a datagram, or
  // the host's NIC has no room for it.
  bool send_frame(uint32_t process, const FabricFrame& frame);
  // Calls `sink` (with `what`) at once when something arrives in an empty inbox, or when a blocked
  // send() may continue: in virtual time, never from within a call of the host.
  void set_listener(uint32_t process, EventSink& sink, uint32_t what);

  // Links: both directions of cable i of the topology are 2i (a to b) and 2i + 1 (b to a).
  size_t links() const;
  LinkInfo link_info(LinkId link) const;
  LinkStats link_stats(LinkId link) const;
  void reset_queue_max();
  // Counts, from now on, the payload that arrives at one process from another; every packet of it,
  // so needless retransmissions count again.
  void count_arrivals(uint32_t source, uint32_t destination);
  // 0 for a pair that is not counted.
  Bytes arrived_bytes(uint32_t source, uint32_t destination) const;
  // Most bytes that waited in any switch at once, all ports together; a packet that is being sent
  // is not in the buffer any more.
  Bytes switch_buffer_max() const;
  // What a switch holds now; index: node minus hosts().
  Bytes switch_buffer(uint32_t index) const;

  // Faults. What is on a cable that goes down is lost.
  void set_cable_up(uint32_t cable, bool up);
  void set_cable_rate(uint32_t cable, Rate rate);  // more than 0
  void set_cable_loss(uint32_t cable, double probability);
  // Random loss, duplication, reordering, corruption and partitions, at the first switch of each
  // packet's way; frozen processes. Islands, stalls and losses of control writes name processes.
  void set_faults(const SimFaults& faults);

  // Writes what comes out of a link as a pcap file from now on (Ethernet, IP and UDP headers made
  // up; payload as zeros where it is carried as a length). Errors: kSystem, naming the file.
  Result<void> capture(LinkId link, const std::string& path);

  FabricCounters counters() const;
  uint64_t trace_hash() const;

 private:
  explicit Fabric(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pacecar
