#include "transport/softnic/queue_pair.h"

#include <algorithm>
#include <bit>

#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

constexpr uint32_t kMagic = 0x50435351;  // "PCSQ": a Pacecar soft queue pair, with CRC-32C
constexpr size_t kBytes = 32;

void store(const SoftEndpoint& endpoint, uint8_t* to) {
  wire::store_be32(kMagic, to);
  wire::store_be32(endpoint.address.port, to + 4);
  wire::store_be32(endpoint.queue_pair, to + 8);
  wire::store_be32(endpoint.first_psn, to + 12);
  wire::store_be32(endpoint.window_packets, to + 16);
  wire::store_be32(endpoint.writes, to + 20);
  wire::store_be32(endpoint.mtu, to + 24);
  wire::store_be32(endpoint.full_checksum ? 1 : 0, to + 28);
}

// Its IP is the standard one's.
Result<SoftEndpoint> load(std::span<const uint8_t> bytes, const std::array<uint8_t, 16>& ip) {
  const auto refuse = [](const char* what) {
    return fail(ErrorCode::kPeer, std::string("the peer's queue pair address has ") + what +
                                      ": both sides must run the same version of Pacecar");
  };
  if (bytes.size() != kBytes) return refuse("another form");
  const uint8_t* from = bytes.data();
  SoftEndpoint endpoint;
  endpoint.address.ip = ip;
  const uint32_t port = wire::load_be32(from + 4);
  endpoint.address.port = static_cast<uint16_t>(port);
  endpoint.queue_pair = wire::load_be32(from + 8);
  endpoint.first_psn = wire::load_be32(from + 12);
  endpoint.window_packets = wire::load_be32(from + 16);
  endpoint.writes = wire::load_be32(from + 20);
  endpoint.mtu = wire::load_be32(from + 24);
  const uint32_t full_checksum = wire::load_be32(from + 28);
  endpoint.full_checksum = full_checksum == 1;
  if (port == 0 || port > 0xFFFF) return refuse("no valid UDP port");
  if (endpoint.queue_pair > 0xFFFFFF || endpoint.first_psn > 0xFFFFFF) {
    return refuse("a number of more than 24 bits");
  }
  if (!std::has_single_bit(endpoint.window_packets) || endpoint.window_packets < 64 ||
      endpoint.window_packets > wire::kMaxBitmapWords * 64) {
    return refuse("an impossible window");
  }
  if (endpoint.writes == 0) return refuse("no room for writes");
  if (endpoint.mtu < 256 || endpoint.mtu > wire::kMaxDatagramBytes) {
    return refuse("an impossible MTU");
  }
  if (full_checksum > 1) return refuse("an unknown option");
  return endpoint;
}

}  // namespace

QueuePairAddress encode(const SoftEndpoint& local, bool extended,
                        const std::optional<RcLane>& standby) {
  RcEndpoint standard{
      .gid = local.address.ip, .mtu = standard_mtu(local.mtu), .read_depth = kReadsAtOnce};
  standard.lane[0] = {.queue_pair = local.queue_pair, .first_psn = local.first_psn};
  if (extended) {
    standard.extension_bytes = kBytes;
    store(local, standard.extension.data());
  }
  if (standby) announce_standby(*standby, standard);
  return encode(standard);
}

Result<PeerEndpoint> decode_endpoint(std::span<const uint8_t> bytes) {
  return decode_rc_endpoint(bytes).and_then([](const RcEndpoint& standard) -> Result<PeerEndpoint> {
    PeerEndpoint peer{
        .standard = standard, .standby = announced_standby(standard), .extended = std::nullopt};
    if (standard.link_layer != LinkLayer::kEthernet) {
      return fail(ErrorCode::kPeer,
                  "the peer's queue pair is on InfiniBand, which no software NIC reaches: "
                  "use the same kind of NIC on both sides");
    }
    auto extension = standard.extension_view();
    if (peer.standby) extension = extension.first(extension.size() - kStandbyBytes);
    const bool ours = extension.size() >= 4 && wire::load_be32(extension.data()) == kMagic;
    if (!ours) return peer;
    auto extended = load(extension, standard.gid);
    if (!extended) return tl::unexpected(std::move(extended.error()));
    peer.extended = *extended;
    return peer;
  });
}

}  // namespace pacecar
