// NicCaps: the capabilities and sizes of a NIC. NicCounters: its counters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

// Networks by name: see NicCaps::networks.
inline constexpr const char* kSoftNetwork = "soft";    // software NICs in their own packets
inline constexpr const char* kSoft6Network = "soft6";  // the same of IPv6 addresses
inline constexpr const char* kRoceNetwork = "roce";    // standard RC over RoCE v2
inline constexpr const char* kInfinibandNetwork = "infiniband";

struct NicCaps {
  Rate line_rate;             // nominal rate of the link
  Bytes mtu = 0;              // payload bytes per packet
  Bytes packet_overhead = 0;  // bytes of a packet on the link beyond its payload
  Bytes burst_bytes = 0;      // granularity of the pacer
  Bytes receive_bytes = 0;    // that the NIC buffers before it drops packets; 0: unknown
  Duration jitter;            // FlowEnvironment::jitter of this kind of host
  Duration pause;             // FlowEnvironment::pause of this kind of host
  uint32_t paths = 1;         // distinct paths that a queue pair can use
  uint32_t flows = 0;         // flow ids are below it
  uint32_t queue_pairs = 0;
  uint32_t regions = 0;
  Bytes write_bytes = Bytes{1} << 30;  // recommended maximum of one write
  uint32_t cores = 1;                  // processor cores that drive the NIC
  bool software = false;               // a packet costs more than a copy; host memory only
  bool paces_packets = true;  // set_flow_limits is applied to each packet; false: to whole writes.
  bool sees_ecn = false;
  bool times_arrivals = false;   // FlowArrival::transit_ns is valid
  bool manual_progress = false;  // makes progress only while it is polled
  // The GPU memory that the NIC can access: through a dma-buf (register_dmabuf), or by its address
  // (register_memory).
  bool dma_buf = false;
  bool peer_memory = false;
  // Any thread may call register_memory and register_dmabuf, also while another drives the NIC.
  bool registers_beside = false;
  // Writes without immediate wake a sleeping engine; else memory that peers write must be polled.
  bool silent_writes_wake = true;
  // silent_packets_received is counted: while it does not change, polled memory does not change.
  bool counts_silent_packets = false;
  // The networks that the NIC is on: two NICs can be connected if and only if they have one in
  // common. If a network does not leave the host, its name includes the host.
  std::vector<std::string> networks = {};
  // As text: which of the device's offloads are used, and why others are not. Empty: it has none.
  std::string offloads = {};
};

// One of the device's own counters. They count for all users of the port.
struct HardwareCounter {
  std::string name;  // the driver's name: "out_of_sequence"
  uint64_t count = 0;
};

// Monotonic counts since the NIC was opened.
struct NicCounters {
  uint64_t data_packets_sent = 0;
  uint64_t data_bytes_sent = 0;  // payload, retransmissions included
  uint64_t packets_retransmitted = 0;
  uint64_t packets_refused = 0;  // by the kernel, for another reason than want of room
  uint64_t timeouts = 0;
  uint64_t acks_sent = 0;
  uint64_t data_packets_received = 0;  // placed in memory
  uint64_t data_bytes_received = 0;
  uint64_t silent_packets_received = 0;  // data packets of writes without immediate
  uint64_t duplicates = 0;               // received again, not placed again
  uint64_t trimmed_packets = 0;          // received without their payload
  uint64_t trimmed_in_core = 0;          // trimmed before the last switch, if packets show it
  uint64_t marked_packets = 0;           // received with ECN CE
  uint64_t acks_received = 0;
  uint64_t malformed = 0;           // too short, unknown opcode or bad fields: dropped
  uint64_t bad_checksum = 0;        // dropped
  uint64_t forged = 0;              // wrong authentication tag: dropped
  uint64_t replayed = 0;            // accepted before, or too old to know: dropped
  uint64_t unknown_queue_pair = 0;  // dropped
  uint64_t wrong_source = 0;        // not from the connected peer: dropped
  uint64_t out_of_window = 0;       // PSN that no live sender uses: dropped
  uint64_t out_of_order = 0;        // standard RC: an earlier packet was missing; dropped
  uint64_t completions_full =
      0;  // dropped unacknowledged: no room for its completion, or no receive request
  uint64_t access_errors = 0;  // refused: key, bounds or rights; only connections answer with a NAK
};

}  // namespace pacecar
