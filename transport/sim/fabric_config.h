// The configuration of a simulated fabric, apart from its shape (topology.h); its counters,
// statistics, frames and faults: plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/prng.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/sim/topology.h"
#include "transport/wire/packet.h"

namespace pacecar {

// Explicit congestion notification, judged by the data queue of the egress port.
struct EcnConfig {
  enum class Kind : uint8_t { kOff, kStep, kRed };
  // kStep: marks from `low` on. kRed: never below `low`, always from `high` on, between them with
  // a probability that rises from 0 to `max_probability`.
  Kind kind = Kind::kOff;
  enum class When : uint8_t { kEnqueue, kDequeue };
  When when = When::kEnqueue;
  Bytes low = 0;
  Bytes high = 0;
  double max_probability = 1.0;
  bool host_links = true;  // false: not in front of a host, where other paths are of no use

  bool marks_at(When moment) const { return kind != Kind::kOff && when == moment; }
  bool marks(Bytes queue_bytes, Prng& random) const {
    if (queue_bytes < low) return false;
    if (kind == Kind::kStep || queue_bytes >= high) return true;
    const auto above = static_cast<double>(queue_bytes - low);
    return random.chance(max_probability * above / static_cast<double>(high - low));
  }
};

// Priority flow control (IEEE 802.1Qbb) of the data class, per ingress port: pause beyond
// alpha x free shared buffer, resume `resume_offset` below.
struct PfcConfig {
  bool enabled = false;
  double alpha = 0.125;
  Bytes headroom = 0;  // per ingress port, beyond the threshold; 0: what the cable needs
  Bytes resume_offset = 8192;
};

struct SwitchConfig {
  // Bound of one egress port's data queue; 0: only the shared buffer bounds it.
  Bytes queue_bytes = 0;
  // Bound of the whole switch; 0: none (then queue_bytes must bound each port).
  Bytes buffer_bytes = 0;
  EcnConfig ecn;
  PfcConfig pfc;
  // A data packet that finds its queue full loses its payload; its header joins the control queue.
  bool trimming = false;
  // A full queue trims the arriving packet or the last one queued, by a fair coin.
  bool trim_tail_at_random = true;
  Bytes trimmed_bytes = 64;       // of a trimmed packet, on the wire
  Bytes control_queue_bytes = 0;  // 0: as queue_bytes
  // Control packets that go before a waiting data packet must; 0: always control first.
  uint32_t control_weight = 0;
  bool telemetry = false;  // stamp every data packet (telemetry.h)
};

struct HostPortConfig {
  // The NIC's queue in front of the cable, the packet being sent included; when it is full, send()
  // takes no more. An empty queue takes any packet, so 0 means one packet at a time.
  Bytes data_queue_bytes = 16384;
  Bytes control_queue_bytes = 65536;  // control packets' own; holds the largest packet at least
  Bytes inbox_bytes = 4 << 20;        // packets wait here until they are read; dropped beyond
  Bytes datagram_bytes = 4096 + 128;  // largest datagram
  // Bytes of each packet on the wire beyond its datagram: Ethernet with preamble, gap; IPv4, UDP.
  Bytes overhead_bytes = 66;
  uint16_t paths = 64;  // UDP source ports
  Rate send_rate;       // onto its cable; 0: the cable's rate
  Rate drain_rate;      // of a slow host that reads no faster than this; 0: as fast as it likes
  Duration jitter;      // PacketIoCaps
  Duration pause;
  Bytes burst_bytes = 0;       // 0: one packet
  bool times_arrivals = true;  // RxPacket::waited is known

  Bytes largest_packet() const { return datagram_bytes + overhead_bytes; }  // on the wire
};

// A token bucket at the far end of a link, which drops what exceeds it (Policer). Sizes are those
// on the wire; packets of all classes count.
struct PolicerConfig {
  LinkId link = 0;
  Rate rate;
  Bytes burst = 0;  // holds the largest packet at least
};

// How a fabric carries payload.
enum class PayloadMode : uint8_t {
  kBytes,  // as it is: tests of correctness
  // Length only: an experiment's memory need not exist. Control words are bytes: hosts act on them.
  kLength,
};

struct FabricConfig {
  SwitchConfig switches;
  HostPortConfig hosts;
  std::vector<PolicerConfig> policers;  // at most one per link
  PayloadMode payload = PayloadMode::kLength;
  Bytes header_bytes = 256;  // kLength: the most of a packet that is carried as bytes
  size_t packets = 1 << 20;  // inside the whole fabric at once; a host's send() blocks beyond
  // After this long a failed cable is left out of all routes.
  Duration failover = Duration::from_us(0);
};

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
  uint64_t all_dropped() const {
    return std::accumulate(dropped.begin(), dropped.end(), uint64_t{0});
  }
  bool conserved() const { return sent + duplicated == delivered + all_dropped() + in_flight; }
};

// Statistics of one direction of a cable so far.
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
  Bytes kept_bytes = 0;      // that trimming leaves; 0: it is dropped rather than trimmed
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

// Half open: [from, until).
struct SimWindow {
  Instant from;
  Instant until = Instant::never();

  bool contains(Instant time) const { return from <= time && time < until; }
};

// Nothing passes between the island and the other ports.
struct SimPartition {
  SimWindow window;
  std::vector<size_t> island;  // ports, which are numbered as processes are
};

// The port neither sends nor receives, as if its process were stopped; its inbox fills meanwhile.
struct SimStall {
  SimWindow window;
  size_t port = 0;
};

// Loses control packets with payload: hosts' small RDMA writes, not acknowledgements.
struct SimWordLoss {
  double probability = 0;
  std::optional<size_t> port;  // that sends them; none: any
};

// By default no faults, which a test sets for its last phase to see that everything completes.
struct SimFaults {
  // Probabilities per packet, independent of each other.
  double loss = 0;
  double duplication = 0;
  double reordering = 0;  // the packet is late by up to reorder_delay, others overtake it
  double corruption = 0;  // one bit flips
  Duration reorder_delay = Duration::from_us(50);
  std::vector<SimPartition> partitions;
  std::vector<SimStall> stalls;
  std::vector<SimWordLoss> word_losses;
};

// Errors: kInvalidArgument for impossible values, one sentence with the cure.
Result<void> check_fabric_config(const FabricConfig& config, const Topology& topology);

}  // namespace pacecar
