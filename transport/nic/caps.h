// What a NIC can do, and its counters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

// Networks by name: see NicCaps::networks.
inline constexpr const char* kSoftNetwork = "soft";  // software NICs in their own packets
inline constexpr const char* kRoceNetwork = "roce";  // standard RC over RoCE v2
inline constexpr const char* kInfinibandNetwork = "infiniband";

struct NicCaps {
  Rate line_rate;             // nominal rate of the link
  Bytes mtu = 0;              // payload bytes per packet
  Bytes packet_overhead = 0;  // bytes of a packet on the link beyond its payload
  Bytes burst_bytes = 0;      // granularity of the pacer
  Bytes receive_bytes = 0;    // what the NIC buffers before it drops; 0 when unknown
  Duration jitter;            // FlowEnvironment::jitter, of this kind of end host
  Duration pause;             // FlowEnvironment::pause
  uint32_t paths = 1;         // distinct paths that a queue pair can use
  uint32_t flows = 0;         // bound of FlowId
  uint32_t queue_pairs = 0;
  uint32_t regions = 0;
  Bytes write_bytes = Bytes{1} << 30;  // most that one write should carry
  uint32_t cores = 1;                  // processor cores that drive it
  bool reliable = true;                // repairs losses by itself
  bool software = false;               // a packet costs more than a copy; host memory only
  bool ordered = false;  // writes of one queue pair are placed in the order of posting
  bool paces_packets =
      true;  // set_flow_limits is applied to each packet; otherwise to whole writes
  bool sees_ecn = false;
  bool times_arrivals = false;   // FlowArrival::transit_ns is valid
  bool sends = false;            // Opcode::kSend and receive requests
  bool reads = false;            // Opcode::kRead
  bool standard = false;         // Service::kStandard and kDatagram, and what goes with them
  bool manual_progress = false;  // makes progress only while it is polled
  // Which GPU memory it can access: behind a dma-buf (register_dmabuf), or by its address
  // (register_memory).
  bool dma_buf = false;
  bool peer_memory = false;
  // register_memory and register_dmabuf may be called by any thread, also while another drives the
  // NIC.
  bool registers_beside = false;
  // Writes without immediate wake a sleeping engine; otherwise memory that peers write must be
  // polled from time to time.
  bool silent_writes_wake = true;
  // silent_packets_received is counted: while it does not change, neither does polled memory.
  bool counts_silent_packets = false;
  // The networks that it is on: two NICs can be joined if and only if they have one in common. The
  // name of a network that ends at the host includes the host.
  std::vector<std::string> networks = {};
  // As text: which of the device's offloads are used, and why others are not. Empty: it has none.
  std::string offloads = {};
};

// One of the device's own counters, which count all users of the port.
struct HardwareCounter {
  std::string name;  // as the driver has it: "out_of_sequence"
  uint64_t count = 0;
};

// Monotonic counts since the NIC was opened.
struct NicCounters {
  uint64_t data_packets_sent = 0;
  uint64_t data_bytes_sent = 0;  // payload, retransmissions included
  uint64_t packets_retransmitted = 0;
  uint64_t timeouts = 0;
  uint64_t acks_sent = 0;
  uint64_t data_packets_received = 0;  // placed in memory
  uint64_t data_bytes_received = 0;
  uint64_t silent_packets_received = 0;  // of these, of writes without immediate
  uint64_t duplicates = 0;               // received again, not placed again
  uint64_t trimmed_packets = 0;          // received without their payload
  uint64_t trimmed_in_core = 0;  // of these, by another switch than the last, where packets show it
  uint64_t marked_packets = 0;   // received with ECN CE
  uint64_t acks_received = 0;
  uint64_t malformed = 0;           // too short, unknown opcode or bad fields: dropped
  uint64_t bad_checksum = 0;        // dropped
  uint64_t forged = 0;              // authentication tag is not the peer's: dropped
  uint64_t replayed = 0;            // taken before, or too old to be sure: dropped
  uint64_t unknown_queue_pair = 0;  // dropped
  uint64_t wrong_source = 0;        // not from the connected peer: dropped
  uint64_t out_of_window = 0;       // a sequence number that no live sender uses: dropped
  uint64_t out_of_order = 0;        // standard RC: an earlier one was missing; dropped
  uint64_t completions_full = 0;    // dropped unacknowledged: the completion queue was full
  uint64_t access_errors = 0;       // refused: key, bounds or rights; the sender gets a NAK
};

}  // namespace pacecar
