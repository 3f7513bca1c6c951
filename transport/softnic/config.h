// SoftNicConfig: the configuration of a software NIC.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/base/packet_modes.h"
#include "transport/base/units.h"
#include "transport/security/packet_keys.h"
#include "transport/softnic/paths/path_selector.h"
#include "transport/wire/packet.h"

namespace pacecar {

// When a queue pair acknowledges received packets. A packet that is ECN marked, is a duplicate, or
// requests it is always acknowledged at once. An acknowledgement costs both hosts about as much as
// a small message, so by default one acknowledgement covers several packets: it leaves as soon as
// one of the following limits is reached.
struct AckPolicy {
  Bytes bytes = 0;  // payload received since the last acknowledgement; 0: two bursts
  // Packets received since the last acknowledgement, if they have less than 704 bytes on average.
  uint32_t small_packets = 8;
  Duration delay = Duration::from_us(100);  // since the first of these packets; max(): no limit
  // Time without a packet on any queue pair. The host then has time for all acknowledgements, and
  // their senders may be waiting for nothing else.
  Duration quiet = Duration::from_us(100);
  bool out_of_order_at_once = true;  // every packet is acknowledged while an earlier one is missing
  bool every_packet = false;         // every packet is acknowledged at once
  // The first packet after a pause of this length is acknowledged at once; max(): never for this.
  Duration idle = Duration::max();
};

// How a sender detects a lost packet that the receiver does not report.
struct LossRecovery {
  // A packet is lost if one that was sent more than this later has arrived. 0: a quarter of the
  // round trip, at least 5 us; max(): losses are not concluded from arrivals.
  Duration reordering;
  // Not 0: a packet not acknowledged for this time is lost, and no probe is sent. 0: when nothing
  // is acknowledged for a while, a probe asks the peer which packets have arrived.
  Duration packet_timeout;
  Duration initial_timeout = Duration::from_ms(5);  // before a round trip is known
  Duration min_probe = Duration::from_us(200);      // minimum silence before a probe
  Duration min_timeout = Duration::from_ms(2);      // minimum silence that counts as congestion
  Duration max_timeout = Duration::from_ms(200);
};

struct SoftNicConfig {
  Address address;  // to which peers send
  Rate line_rate;
  Bytes mtu = 4096;          // payload per packet
  Bytes burst_bytes = 4096;  // payload per turn of a flow and path; at least mtu
  Bytes receive_bytes = 0;   // buffer of the packet I/O; 0: unknown
  Duration jitter;           // NicCaps::jitter: the time that this kind of host adds to round trips
  Duration pause;            // NicCaps::pause: the time that such a host may do nothing
  // Overhead of a datagram on the link, so that a paced flow uses exactly its rate: Ethernet
  // (preamble, header, FCS, gap), IPv4 and UDP.
  Bytes wire_overhead_bytes = 38 + 20 + 8;
  // Which packets pass is found out for each connection (PathMtu). False: all do.
  bool searches_mtu = false;
  uint32_t paths = 1;
  PathPolicy path_policy = PathPolicy::kRoundRobin;
  uint32_t flows = 256;
  uint32_t queue_pairs = 1024;
  uint32_t regions = 4096;
  uint32_t receive_queues = 0;     // shared receive queues
  uint32_t window_packets = 1024;  // per data queue pair; a power of two
  uint32_t completions = 4096;     // most unpolled completions; beyond it packets are dropped
  uint32_t transmit_packets = 0;   // most per poll_transmit; 0: as many as requested
  bool full_checksum = true;       // checksums cover payloads: the network does not protect them
  // Peers address memory from a random base on, so only peers that know it can use the memory.
  // False, for simulations: they use the owner's addresses.
  bool random_addresses = true;
  // For connections in extended mode. kOff if the packet I/O elides payload (RxPacket::elided).
  Security security = Security::kOff;
  unsigned packets_per_key_log2 = kPacketsPerKeyLog2;
  // Seed of the key pair, for NICs that act as one; nullopt: random.
  std::optional<Secret> key_seed = std::nullopt;
  bool sees_ecn = false;
  // Acknowledgements and control writes leave before data, not after a first burst of data. For a
  // packet I/O that takes few packets at a time.
  bool control_first = false;
  // A datagram is expensive on this host. So acknowledgements and control writes travel with data
  // to the same peer: in the last datagram of a burst if that has room, otherwise behind the burst.
  bool joins_packets = false;
  // --- standard RC ---
  WireMode wire_mode = WireMode::kExtended;
  // UDP source ports: one per path, then one for control writes and answers. Not for kExtended.
  std::vector<uint16_t> source_ports;
  // The packet I/O sends and sees every field of the IP header that the ICRC covers.
  bool knows_ip_header = true;
  // PacketIoCaps::identifies_datagrams: over IPv4, in place of knows_ip_header.
  bool identifies_datagrams = false;
  // The slot of this process at its address (roce::port_of_slot): queue pair numbers begin with it,
  // and determine the UDP ports of peers. nullopt: all peers of standard RC have the standard port.
  std::optional<uint32_t> port_slot = std::nullopt;
  AckPolicy ack;
  LossRecovery loss;
  Duration silence_limit = Duration::from_s(10);
};

}  // namespace pacecar
