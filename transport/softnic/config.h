// The configuration of a software NIC.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/base/security.h"
#include "transport/base/units.h"
#include "transport/base/wire_mode.h"
#include "transport/security/packet_keys.h"
#include "transport/softnic/path_selector.h"
#include "transport/wire/packet.h"

namespace pacecar {

// When a queue pair's received packets are acknowledged. Every policy acknowledges at once a packet
// that is marked, is a duplicate, or asks for it. An acknowledgement costs both hosts about as much
// as a small message, so by default they are gathered.
struct AckPolicy {
  Bytes bytes = 0;  // payload received since the last acknowledgement; 0: two bursts
  // Likewise so many packets, if together they are less than a burst.
  uint32_t small_packets = 8;
  Duration delay = Duration::from_us(100);  // since the first of them; max(): no limit
  // Since the newest packet that waits, on any queue pair: the host then has time for all
  // acknowledgements, and their senders may be waiting for nothing else.
  Duration quiet = Duration::from_us(100);
  bool out_of_order_at_once = true;  // any packet while one before it is missing
  bool every_packet = false;         // each packet at once
  // The first packet after so long without any is acknowledged at once; max(): it is not.
  Duration idle = Duration::max();
};

// How a sender detects a lost packet that the receiver does not report.
struct LossRecovery {
  // How much later than a packet sent after it a packet may arrive; 0: a quarter of the round trip,
  // at least 5 us; max(): arrivals show no losses.
  Duration reordering;
  // Each packet that is not acknowledged for so long is lost, without a probe. 0: when nothing at
  // all is acknowledged for a while, the peer is probed for what has arrived.
  Duration packet_timeout;
  Duration initial_timeout = Duration::from_ms(5);  // before a round trip is known
  Duration min_probe = Duration::from_us(200);      // least silence before the probe
  Duration min_timeout = Duration::from_ms(2);      // least silence that means congestion
  Duration max_timeout = Duration::from_ms(200);
};

struct SoftNicConfig {
  Address address;  // where peers send to
  Rate line_rate;
  Bytes mtu = 4096;          // payload per packet
  Bytes burst_bytes = 4096;  // payload per turn of a flow and path; at least mtu
  Bytes receive_bytes = 0;   // buffer below us; 0: unknown
  Duration jitter;           // NicCaps::jitter: what this kind of host adds to round trips
  Duration pause;            // NicCaps::pause: how long it may do nothing
  // Bytes of a datagram on the link beyond its own, so that a paced flow fills exactly its share:
  // Ethernet (preamble, header, FCS, gap), IPv4 and UDP.
  Bytes wire_overhead_bytes = 38 + 20 + 8;
  uint32_t paths = 1;
  PathPolicy path_policy = PathPolicy::kRoundRobin;
  uint32_t flows = 256;
  uint32_t queue_pairs = 1024;
  uint32_t regions = 4096;
  uint32_t receive_queues = 0;     // to share
  uint32_t window_packets = 1024;  // per data queue pair; a power of two
  uint32_t completions = 4096;     // most that are not polled; further packets are dropped
  uint32_t transmit_packets = 0;   // most per poll_transmit; 0: as many as requested
  bool full_checksum = true;       // nothing below us protects the payload
  // Peers address memory from a random base on, which only those who know it can use. False, for
  // simulations: by the owner's addresses.
  bool random_addresses = true;
  // Of connections of the extended mode. Not with packets without payload (RxPacket::elided).
  Security security = Security::kOff;
  unsigned packets_per_key_log2 = kPacketsPerKeyLog2;
  // Least length of a write whose packets may be received straight into place, if the packet I/O
  // can (PacketIo::predict): until the write is complete its memory has undefined content. 0:
  // never.
  Bytes in_place_bytes = 0;
  // Seed of the key pair, for NICs that act as one; nothing: random.
  std::optional<Secret> key_seed = std::nullopt;
  bool sees_ecn = false;
  // Acknowledgements and control words leave before data, not after a first burst of it: for a
  // packet I/O that takes few packets at a time.
  bool control_first = false;
  // Datagrams are costly on this host: acknowledgements and control words travel with data to the
  // same peer, in its last datagram or, if the packet I/O sends a burst as one piece, behind it.
  bool joins_packets = false;
  // --- standard RC ---
  WireMode wire_mode = WireMode::kExtended;
  // UDP source ports: of each path, then of control words and answers. Only without kExtended.
  std::vector<uint16_t> source_ports;
  // The packet I/O sends and sees every field of the IP header that the ICRC covers.
  bool knows_ip_header = true;
  bool identifies_datagrams = false;  // PacketIoCaps; instead of knows_ip_header, over IPv4
  // The slot of this process at its address (roce::port_of_slot): queue pairs' numbers begin with
  // it, and peers' ports follow from their numbers. Nothing: all peers of standard RC have the
  // standard port.
  std::optional<uint32_t> port_slot = std::nullopt;
  AckPolicy ack;
  LossRecovery loss;
  Duration silence_limit = Duration::from_s(10);
};

}  // namespace pacecar
