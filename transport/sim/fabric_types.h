// Counters, statistics and frames of a simulated fabric. Pure values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "transport/base/units.h"
#include "transport/sim/topology.h"
#include "transport/wire/packet.h"

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

}  // namespace pacecar
