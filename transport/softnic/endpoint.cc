#include "transport/softnic/endpoint.h"

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

constexpr uint32_t kMagic = 0x50435351;  // "PCSQ": a Pacecar soft queue pair, with CRC-32C
constexpr size_t kBytes = 32;
// With security, behind those bytes.
constexpr size_t kPublicKeyAt = kBytes;
constexpr size_t kSaltAt = kPublicKeyAt + sizeof(KeyExchange::PublicKey);
constexpr size_t kSecuredBytes = kSaltAt + 8;
static_assert(kSecuredBytes + kStandbyBytes <= RcEndpoint::kMaxExtension);
// Then per further end its port, and with security its salt; its numbers are in an RcLane.
constexpr size_t kPortBytes = 2;
constexpr size_t kSaltBytes = 8;
static_assert(kSecuredBytes + (RcEndpoint::kMaxLanes - 1) * (kPortBytes + kSaltBytes) <=
              RcEndpoint::kMaxExtension);

// Behind magic and port.
constexpr std::array kWords{&SoftEndpoint::queue_pair, &SoftEndpoint::first_psn,
                            &SoftEndpoint::window_packets, &SoftEndpoint::writes,
                            &SoftEndpoint::mtu};
// Bits of the last word of the first kBytes.
constexpr uint32_t kFullChecksum = 1;
constexpr unsigned kSecurityShift = 8;

size_t size_of(const SoftEndpoint& endpoint) {
  return endpoint.security == Security::kOff ? kBytes : kSecuredBytes;
}

size_t size_of_further(const SoftEndpoint& endpoint) {
  return kPortBytes + (endpoint.security == Security::kOff ? 0 : kSaltBytes);
}

void store(const SoftEndpoint& endpoint, uint8_t* to) {
  wire::store_be32(kMagic, to);
  wire::store_be32(endpoint.address.port, to + 4);
  for (size_t i = 0; i < kWords.size(); ++i) wire::store_be32(endpoint.*kWords[i], to + 8 + 4 * i);
  wire::store_be32((endpoint.full_checksum ? kFullChecksum : 0) |
                       static_cast<uint32_t>(endpoint.security) << kSecurityShift,
                   to + 28);
  if (endpoint.security == Security::kOff) return;
  std::ranges::copy(endpoint.public_key, to + kPublicKeyAt);
  wire::store_be64(endpoint.salt, to + kSaltAt);
}

void store_further(const SoftEndpoint& endpoint, uint8_t* to) {
  wire::store_be16(endpoint.address.port, to);
  if (endpoint.security != Security::kOff) wire::store_be64(endpoint.salt, to + kPortBytes);
}

tl::unexpected<Error> refuse(const char* what) {
  return fail(ErrorCode::kPeer, std::string("the peer's queue pair address has ") + what +
                                    ": both sides must run the same version of Pacecar");
}

// Decodes the first end from the beginning of `bytes`. Its IP address is that of the RC endpoint.
Result<SoftEndpoint> load(std::span<const uint8_t> bytes, const std::array<uint8_t, 16>& ip) {
  if (bytes.size() < kBytes) return refuse("an unknown format");
  const uint8_t* from = bytes.data();
  SoftEndpoint endpoint;
  endpoint.address.ip = ip;
  const uint32_t port = wire::load_be32(from + 4);
  endpoint.address.port = static_cast<uint16_t>(port);
  for (size_t i = 0; i < kWords.size(); ++i)
    endpoint.*kWords[i] = wire::load_be32(from + 8 + 4 * i);
  const uint32_t options = wire::load_be32(from + 28);
  endpoint.full_checksum = (options & kFullChecksum) != 0;
  if (port == 0 || port > 0xFFFF) return refuse("no valid UDP port");
  if (endpoint.queue_pair > 0xFFFFFF || endpoint.first_psn > 0xFFFFFF) {
    return refuse("a number of more than 24 bits");
  }
  if (endpoint.queue_pair <= 1) return refuse("an impossible queue pair number");
  if (!std::has_single_bit(endpoint.window_packets) || endpoint.window_packets < 64 ||
      endpoint.window_packets > wire::kMaxBitmapWords * 64) {
    return refuse("an impossible window");
  }
  if (endpoint.writes == 0) return refuse("no room for writes");
  if (endpoint.mtu < 256 || endpoint.mtu > wire::kMaxDatagramBytes) {
    return refuse("an impossible MTU");
  }
  if (options >> kSecurityShift > static_cast<uint32_t>(Security::kEncrypt) ||
      (options & ~kFullChecksum & ((1U << kSecurityShift) - 1)) != 0) {
    return refuse("an unknown option");
  }
  endpoint.security = static_cast<Security>(options >> kSecurityShift);
  if (bytes.size() < size_of(endpoint)) return refuse("an unknown format");
  if (endpoint.security != Security::kOff) {
    std::copy_n(from + kPublicKeyAt, endpoint.public_key.size(), endpoint.public_key.begin());
    endpoint.salt = wire::load_be64(from + kSaltAt);
  }
  return endpoint;
}

// The ends of the same queue pair on other NICs, which follow the first one's bytes.
Result<std::vector<SoftEndpoint>> load_further(const SoftEndpoint& first,
                                               std::span<const RcLane> lanes,
                                               std::span<const uint8_t> bytes) {
  if (bytes.size() != lanes.size() * size_of_further(first)) return refuse("an unknown format");
  std::vector<SoftEndpoint> further(lanes.size(), first);
  const uint8_t* from = bytes.data();
  for (size_t i = 0; i < lanes.size(); ++i, from += size_of_further(first)) {
    further[i].queue_pair = lanes[i].queue_pair;
    further[i].first_psn = lanes[i].first_psn;
    further[i].address.port = wire::load_be16(from);
    if (further[i].address.port == 0) return refuse("no valid UDP port");
    if (first.security != Security::kOff) further[i].salt = wire::load_be64(from + kPortBytes);
  }
  return further;
}

}  // namespace

QueuePairAddress encode(const SoftEndpoint& local, bool extended,
                        const std::optional<RcLane>& standby,
                        std::span<const SoftEndpoint> further) {
  PACECAR_CHECK(further.size() < RcEndpoint::kMaxLanes);
  PACECAR_CHECK(further.empty() || (extended && !standby));
  RcEndpoint standard{
      .gid = local.address.ip, .mtu = standard_mtu(local.mtu), .read_depth = kReadsAtOnce};
  standard.lane[0] = {.queue_pair = local.queue_pair, .first_psn = local.first_psn};
  if (extended) {
    standard.extension_bytes = static_cast<uint8_t>(size_of(local));
    store(local, standard.extension.data());
  }
  for (const SoftEndpoint& end : further) {
    standard.lane[standard.lanes++] = {.queue_pair = end.queue_pair, .first_psn = end.first_psn};
    store_further(end, &standard.extension[standard.extension_bytes]);
    standard.extension_bytes += static_cast<uint8_t>(size_of_further(local));
  }
  if (standby) announce_standby(*standby, standard);
  return encode(standard);
}

Result<PeerEndpoint> decode_endpoint(std::span<const uint8_t> bytes) {
  return decode_rc_endpoint(bytes).and_then([](const RcEndpoint& standard) -> Result<PeerEndpoint> {
    PeerEndpoint peer{.standard = standard,
                      .standby = announced_standby(standard),
                      .extended = std::nullopt,
                      .further = {}};
    if (standard.link_layer != LinkLayer::kEthernet) {
      return fail(ErrorCode::kPeer,
                  "the peer's queue pair is on InfiniBand, which no software NIC reaches: "
                  "use the same kind of NIC on both sides");
    }
    auto extension = standard.extension_view();
    if (peer.standby) extension = extension.first(extension.size() - kStandbyBytes);
    const bool ours = extension.size() >= 4 && wire::load_be32(extension.data()) == kMagic;
    if (!ours) return peer;
    ASSIGN_OR_RETURN(auto extended, load(extension, standard.gid));
    peer.extended = extended;
    ASSIGN_OR_RETURN(auto further, load_further(extended, standard.lane_view().subspan(1),
                                                extension.subspan(size_of(extended))));
    peer.further = std::move(further);
    return peer;
  });
}

}  // namespace pacecar
