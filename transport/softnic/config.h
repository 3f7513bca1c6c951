// What a software NIC is told when it is made.
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

// When a queue pair's received packets are acknowledged. A packet that is marked, that was received
// before or whose sender asks is acknowledged at once under every policy. An acknowledgement costs
// both hosts about as much as a small message, so by default they are gathered.
struct AckPolicy {
  Bytes bytes = 0;  // payload received since the last acknowledgement; 0: two bursts
  // So many packets likewise, as long as they are less than a burst together.
  uint32_t small_packets = 8;
  Duration delay = Duration::from_us(100);  // since the first of them; max(): no limit
  // Since the newest that waits, on any queue pair: then the host has time for them all, and their
  // senders may have nothing else to wait for.
  Duration quiet = Duration::from_us(100);
  bool out_of_order_at_once = true;  // any packet while one before it is missing
  bool every_packet = false;         // at once, whatever it is
  // The first packet after so long without any is acknowledged at once; max(): it is not.
  Duration idle = Duration::max();
};

// How a sender finds that a packet is lost, unless the receiver tells it.
struct LossRecovery {
  // How much later than one that was sent after it a packet may come; 0: a quarter of the round
  // trip, at least 5 us; max(): arrivals say nothing about losses.
  Duration reordering;
  // A packet that is not acknowledged for so long is lost, each by itself and without a question.
  // 0: when nothing at all comes back for a while, the peer is asked what has arrived.
  Duration packet_timeout;
  Duration initial_timeout = Duration::from_ms(5);  // before a round trip is known
  Duration min_probe = Duration::from_us(200);      // of silence, before the question, at least
  Duration min_timeout = Duration::from_ms(2);      // of silence, before it means congestion
  Duration max_timeout = Duration::from_ms(200);
};

struct SoftNicConfig {
  Address address;  // where peers send to
  Rate line_rate;
  Bytes mtu = 4096;          // payload per packet
  Bytes burst_bytes = 4096;  // payload per turn of a flow and path; at least mtu
  Bytes receive_bytes = 0;   // what is buffered below us; 0 when unknown
  Duration jitter;           // NicCaps::jitter: what this kind of host adds to round trips
  Duration pause;            // NicCaps::pause: how long it may do nothing
  // What a datagram costs on the link beyond its own bytes, so that a paced flow fills its share
  // and not more: Ethernet (preamble, header, FCS, gap), IPv4 and UDP.
  Bytes wire_overhead_bytes = 38 + 20 + 8;
  uint32_t paths = 1;
  PathPolicy path_policy = PathPolicy::kRoundRobin;
  uint32_t flows = 256;
  uint32_t queue_pairs = 1024;
  uint32_t regions = 4096;
  uint32_t receive_queues = 0;     // to share
  uint32_t window_packets = 1024;  // per data queue pair; a power of two
  uint32_t completions = 4096;     // received and not polled; packets beyond are dropped
  uint32_t transmit_packets = 0;   // poll_transmit makes at most; 0: as many as it is asked for
  bool full_checksum = true;       // nothing below us protects the payload
  // Peers address memory from a random base on, which who was not told cannot guess. Else by the
  // owner's own addresses: for simulations, in which nobody guesses.
  bool random_addresses = true;
  // Of connections of the extended mode. Not with packets whose payload is left out.
  Security security = Security::kOff;
  unsigned packets_per_key_log2 = kPacketsPerKeyLog2;
  // From how long a write on its packets may come straight into place, where the packet I/O can
  // (PacketIo::predict): until it is complete, anything may lie there. 0: never.
  Bytes in_place_bytes = 0;
  // Of its key pair, for NICs that act as one; nothing: random.
  std::optional<Secret> key_seed = std::nullopt;
  bool sees_ecn = false;
  // Acknowledgements and control words go before data, not after a first burst of it: for a
  // packet I/O that takes few packets at a time.
  bool control_first = false;
  // A datagram costs this host so much that acknowledgements and control words go with data to the
  // same peer, in its last datagram or, by a packet I/O that sends a burst as one piece, behind it.
  bool joins_packets = false;
  // --- standard RC ---
  WireMode wire_mode = WireMode::kExtended;
  // UDP source ports: of each path, then of control words and answers. Only without kExtended.
  std::vector<uint16_t> source_ports;
  // The packet I/O sends and sees every field of the IP header that the ICRC covers.
  bool knows_ip_header = true;
  bool identifies_datagrams = false;  // PacketIoCaps; instead of that, over IPv4
  // One of many processes at this address (roce::port_of_slot): queue pairs' numbers begin with it,
  // and peers' ports follow from theirs. Nothing: whoever speaks standard RC has the standard port.
  std::optional<uint32_t> port_slot = std::nullopt;
  AckPolicy ack;
  LossRecovery loss;
  Duration silence_limit = Duration::from_s(10);
};

}  // namespace pacecar
