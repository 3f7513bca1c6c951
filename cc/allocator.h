// Allocator: divides one receiving NIC's link among the flows that send to it, and advertises their
// rates in grants. Purity as for Controller. Flows are numbered by the caller, 0 .. max_flows-1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/controller.h"

namespace pacecar {

inline constexpr uint32_t kMaxWeight = 64;

struct GrantUpdate {
  uint32_t flow = 0;
  Grant grant;
};

// The application's hint of the traffic to come. 0: unknown.
struct TrafficHint {
  uint32_t peers = 0;  // that may send to this NIC at the same time

  bool operator==(const TrafficHint&) const = default;
};

// A packet's one-way delay by two hosts' clocks, modulo 2^32: only differences in a flow matter.
struct Transit {
  uint32_t ns = 0;
  uint32_t payload = 0;  // of that packet, bytes
};

// The peers' data packets that have arrived over the NIC's link since it was opened.
struct ArrivalCounts {
  uint64_t packets = 0;          // whole packets
  uint64_t marked = 0;           // whole packets with ECN congestion experienced
  uint64_t trimmed = 0;          // packets without their payload
  uint64_t trimmed_in_core = 0;  // packets trimmed before the last hop
};

class Allocator {
 public:
  virtual ~Allocator() = default;

  virtual void add_flow(Instant now, uint32_t flow) = 0;
  virtual void remove_flow(Instant now, uint32_t flow) = 0;
  // Bytes that a posted receive will accept from this flow.
  virtual void on_posted(Instant now, uint32_t flow, Bytes bytes) = 0;
  // Bytes of posted receives that are complete: arrived, cancelled, or never sent.
  virtual void on_finished(Instant now, uint32_t flow, Bytes bytes) = 0;
  virtual void on_demand(Instant now, uint32_t flow, const Demand& demand) = 0;
  // Payload that has arrived, each byte once, and the delay of its fastest packet.
  virtual void on_arrival(Instant, uint32_t /*flow*/, Bytes, const Transit&) {}
  virtual bool wants_arrivals() const { return false; }
  // Payload that has arrived on flows that do not obey our grants.
  virtual void on_foreign_arrival(Instant, Bytes) {}
  // The least round trip to a peer so far; only where FlowEnvironment::base_rtt is unknown.
  virtual void on_round_trip(Duration) {}
  // Only where FlowEnvironment::oversubscription is above 1.
  virtual void on_counts(Instant, const ArrivalCounts&) {}
  // A flow of weight w gets w times the rate of weight 1 if both could use more. 1 to kMaxWeight.
  virtual void set_weight(Instant, uint32_t /*flow*/, uint32_t /*weight*/) {}
  // The newest hint counts; before the first, nothing is known. Traffic may differ from it.
  virtual void on_hint(Instant, const TrafficHint&) {}
  // Grants that changed or must be repeated; call again while it fills the span.
  virtual size_t poll_grants(Instant now, std::span<GrantUpdate> updates) = 0;
  // When poll_grants has something to do even if nothing happens; Instant::never(): nothing.
  virtual Instant next_deadline() const = 0;
  // The grant in force, for a flow's CTS slots. Not aligned: the delay of a CTS slot is not known.
  virtual Grant grant(uint32_t flow) const = 0;
};

}  // namespace pacecar
