#include "transport/nic/rc_endpoint.h"

#include <algorithm>
#include <bit>
#include <string>

#include "transport/base/check.h"
#include "transport/base/seq.h"
#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

// Magic, GID, LID, MTU, link layer, read depth, lanes, extension size; 6 bytes a lane; extension.
constexpr uint32_t kMagic = 0x50435243;  // "PCRC": a Pacecar queue pair of RC
constexpr size_t kGidAt = 4;
constexpr size_t kLidAt = 20;
constexpr size_t kMtuAt = 22;
constexpr size_t kLinkLayerAt = 24;
constexpr size_t kReadDepthAt = 25;
constexpr size_t kLanesAt = 26;
constexpr size_t kExtensionBytesAt = 27;
constexpr size_t kHeaderBytes = 28;
constexpr size_t kLaneBytes = 6;
static_assert(kHeaderBytes + RcEndpoint::kMaxLanes * kLaneBytes + RcEndpoint::kMaxExtension <=
              QueuePairAddress::kMaxBytes);

using wire::load_be16;
using wire::store_be16;

constexpr uint16_t kMaxUnicastLid = 0xBFFF;

uint32_t load_be24(const uint8_t* from) {
  return static_cast<uint32_t>(from[0]) << 16 | load_be16(from + 1);
}

void store_be24(uint32_t value, uint8_t* to) {
  to[0] = static_cast<uint8_t>(value >> 16);
  store_be16(static_cast<uint16_t>(value), to + 1);
}

// The error in the endpoint, as text; nullptr: none.
const char* flaw(const RcEndpoint& endpoint) {
  const bool ethernet = endpoint.link_layer == LinkLayer::kEthernet;
  if (!ethernet && endpoint.link_layer != LinkLayer::kInfiniband) return "an unknown link layer";
  const bool no_gid = std::ranges::all_of(endpoint.gid, [](uint8_t byte) { return byte == 0; });
  if (ethernet && no_gid) return "no GID";
  if (!ethernet && (endpoint.lid == 0 || endpoint.lid > kMaxUnicastLid)) return "no valid LID";
  if (!std::has_single_bit(endpoint.mtu) || endpoint.mtu < 256 || endpoint.mtu > 4096) {
    return "an impossible MTU";
  }
  if (endpoint.lanes == 0 || endpoint.lanes > RcEndpoint::kMaxLanes) {
    return "an impossible number of lanes";
  }
  for (const RcLane& lane : endpoint.lane_view()) {
    if (lane.queue_pair <= 1 || lane.queue_pair > kPsnMask)
      return "an impossible queue pair number";
    if (lane.first_psn > kPsnMask) return "a sequence number of more than 24 bits";
  }
  return nullptr;
}

}  // namespace

QueuePairAddress encode(const RcEndpoint& endpoint) {
  PACECAR_CHECK(flaw(endpoint) == nullptr);
  PACECAR_CHECK(endpoint.extension_bytes <= RcEndpoint::kMaxExtension);
  QueuePairAddress out;
  uint8_t* to = out.bytes.data();
  wire::store_be32(kMagic, to);
  std::ranges::copy(endpoint.gid, to + kGidAt);
  store_be16(endpoint.lid, to + kLidAt);
  store_be16(endpoint.mtu, to + kMtuAt);
  to[kLinkLayerAt] = static_cast<uint8_t>(endpoint.link_layer);
  to[kReadDepthAt] = endpoint.read_depth;
  to[kLanesAt] = endpoint.lanes;
  to[kExtensionBytesAt] = endpoint.extension_bytes;
  to += kHeaderBytes;
  for (const RcLane& lane : endpoint.lane_view()) {
    store_be24(lane.queue_pair, to);
    store_be24(lane.first_psn, to + 3);
    to += kLaneBytes;
  }
  to = std::ranges::copy(endpoint.extension_view(), to).out;
  out.size = static_cast<uint8_t>(to - out.bytes.data());
  return out;
}

Result<RcEndpoint> decode_rc_endpoint(std::span<const uint8_t> bytes) {
  const auto refuse = [](const char* what) {
    return fail(ErrorCode::kPeer, std::string("the peer's queue pair address has ") + what +
                                      ": both sides must run the same version of Pacecar, over "
                                      "NICs that reach each other");
  };
  if (bytes.size() < kHeaderBytes || wire::load_be32(bytes.data()) != kMagic) {
    return refuse("an unknown format");
  }
  const uint8_t* from = bytes.data();
  RcEndpoint endpoint;
  std::copy_n(from + kGidAt, endpoint.gid.size(), endpoint.gid.begin());
  endpoint.lid = load_be16(from + kLidAt);
  endpoint.mtu = load_be16(from + kMtuAt);
  endpoint.link_layer = static_cast<LinkLayer>(from[kLinkLayerAt]);
  endpoint.read_depth = from[kReadDepthAt];
  endpoint.lanes = from[kLanesAt];
  endpoint.extension_bytes = from[kExtensionBytesAt];
  if (endpoint.lanes > RcEndpoint::kMaxLanes ||
      endpoint.extension_bytes > RcEndpoint::kMaxExtension ||
      bytes.size() != kHeaderBytes + endpoint.lanes * kLaneBytes + endpoint.extension_bytes) {
    return refuse("a length that differs from its header");
  }
  from += kHeaderBytes;
  for (RcLane& lane : std::span(endpoint.lane).first(endpoint.lanes)) {
    lane = {.queue_pair = load_be24(from), .first_psn = load_be24(from + 3)};
    from += kLaneBytes;
  }
  std::copy_n(from, endpoint.extension_bytes, endpoint.extension.begin());
  if (const char* what = flaw(endpoint)) return refuse(what);
  return endpoint;
}

}  // namespace pacecar
