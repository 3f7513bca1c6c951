// SoftEndpoint: one end of a queue pair of software NICs, and how the end is encoded as a
// QueuePairAddress. Pure. Thread rule: any.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/packet_modes.h"
#include "transport/base/seq.h"
#include "transport/nic/lanes/lane_recovery.h"
#include "transport/nic/nic.h"
#include "transport/nic/rc_endpoint.h"
#include "transport/security/key_exchange.h"
#include "transport/wire/packet.h"

namespace pacecar {

// An end in extended mode. The ends exchange it, encoded in a QueuePairAddress, when they connect.
struct SoftEndpoint {
  Address address;
  uint32_t queue_pair = 0;
  uint32_t first_psn = 0;       // of the packets that this end sends
  uint32_t window_packets = 0;  // packets that this end accepts beyond the cumulative PSN
  uint32_t writes = 0;          // writes with immediate that this end can track at a time
  uint32_t mtu = 0;
  bool full_checksum = false;  // this end requires checksums over payloads
  Security security = Security::kOff;
  // With security: the NIC's public key, and a random salt: each connection has its own key.
  KeyExchange::PublicKey public_key{};
  uint64_t salt = 0;
};

// A peer's end. Every queue pair address has the endpoint of standard RC. If the peer offers
// extended mode, the address also has its SoftEndpoint.
struct PeerEndpoint {
  RcEndpoint standard;
  std::optional<RcLane> standby;  // the standby lane, over which failed connections are recovered
  std::optional<SoftEndpoint> extended;
  std::vector<SoftEndpoint> further;  // of the same queue pair, on other NICs of the same host
};

// Encodes `local` as an address, with or without extended mode and a standby lane. `further`: if
// NICs act as one, the ends of the same queue pair on the other NICs. They differ from `local` in
// port, numbers and salt. At most RcEndpoint::kMaxLanes ends in all; only in extended mode.
QueuePairAddress encode(const SoftEndpoint& local, bool extended,
                        const std::optional<RcLane>& standby,
                        std::span<const SoftEndpoint> further = {});
// Errors: kPeer (values out of range, or not written by encode() or other NICs of standard RC).
Result<PeerEndpoint> decode_endpoint(std::span<const uint8_t> bytes);

// The largest payload of a packet of standard RC that fits in `mtu`: a power of two, at most 4096.
constexpr uint32_t standard_mtu(Bytes mtu) {
  return static_cast<uint32_t>(std::bit_floor(std::clamp<Bytes>(mtu, 256, 4096)));
}
// The 64-bit number of the first PSN. It is above 2^24, so numbers before it are not negative.
constexpr uint64_t wide_psn(uint32_t first) { return (uint64_t{1} << kPsnBits) + first; }
inline constexpr uint8_t kReadsAtOnce = 16;  // Most outstanding read requests, each way.

}  // namespace pacecar
