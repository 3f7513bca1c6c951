// RcEndpoint: the address of a queue pair of standard RC (InfiniBand Architecture Specification,
// chapter 9) over RoCE v2 or InfiniBand, and its encoding for the bootstrap. All NICs that speak RC
// use it, so that hardware and software reach each other. A queue pair of ours may be several RC
// connections, its lanes. Lane i is connected to lane i of the peer; if their numbers of lanes
// differ, the smaller one is used. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/result.h"
#include "transport/nic/nic.h"

namespace pacecar {

enum class LinkLayer : uint8_t { kEthernet = 1, kInfiniband = 2 };

struct RcLane {
  uint32_t queue_pair = 0;  // 24 bits; 0 and 1 are for management
  uint32_t first_psn = 0;   // of the first packet that this end sends; 24 bits

  bool operator==(const RcLane&) const = default;
};

// Valid with a GID (Ethernet) or a unicast LID (InfiniBand), and each field within its bounds.
struct RcEndpoint {
  static constexpr size_t kMaxLanes = 8;
  // What the header and all lanes leave of QueuePairAddress::kMaxBytes.
  static constexpr size_t kMaxExtension = 142;

  std::array<uint8_t, 16> gid{};
  uint16_t lid = 0;  // InfiniBand only
  LinkLayer link_layer = LinkLayer::kEthernet;
  uint32_t mtu = 0;        // path MTU, payload bytes: 256, 512, 1024, 2048 or 4096
  uint8_t read_depth = 0;  // reads and atomics that the peer may have outstanding at this end
  uint8_t lanes = 1;       // number of lanes in `lane`
  std::array<RcLane, kMaxLanes> lane{};
  // Extra data for NICs of the same kind; other NICs skip it.
  uint8_t extension_bytes = 0;
  std::array<uint8_t, kMaxExtension> extension{};

  std::span<const RcLane> lane_view() const { return std::span(lane).first(lanes); }
  std::span<const uint8_t> extension_view() const {
    return std::span(extension).first(extension_bytes);
  }
  bool operator==(const RcEndpoint&) const = default;
};

QueuePairAddress encode(const RcEndpoint& endpoint);  // `endpoint` must be valid.
// Errors: kPeer (unknown format, wrong length, or not valid).
Result<RcEndpoint> decode_rc_endpoint(std::span<const uint8_t> bytes);

}  // namespace pacecar
