#include "transport/ofi/address.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

// Magic, provider, secret, rings, their key, number of endpoints, bytes of a name; then the names.
constexpr uint32_t kMagic = 0x50434F48;  // "PCOH"
constexpr size_t kProviderAt = 4;
constexpr size_t kSecretAt = 8;
constexpr size_t kRingsAt = 16;
constexpr size_t kRingsKeyAt = 24;
constexpr size_t kEndpointsAt = 32;
constexpr size_t kNameBytesAt = 33;
constexpr size_t kHeaderBytes = 34;

}  // namespace

// FNV-1a.
uint32_t ofi_provider_tag(std::string_view provider) {
  uint32_t tag = 2166136261;
  for (const char letter : provider) tag = (tag ^ static_cast<uint8_t>(letter)) * 16777619;
  return tag;
}

size_t max_endpoints(size_t name_bytes) {
  return (QueuePairAddress::kMaxBytes - kHeaderBytes) / std::max<size_t>(name_bytes, 1);
}

QueuePairAddress encode(const OfiAddress& address) {
  const size_t name_bytes = address.endpoints.front().size();
  PACECAR_CHECK(address.endpoints.size() <= max_endpoints(name_bytes));
  QueuePairAddress encoded;
  uint8_t* const to = encoded.bytes.data();
  wire::store_be32(kMagic, to);
  wire::store_be32(address.provider, to + kProviderAt);
  wire::store_be64(address.secret, to + kSecretAt);
  wire::store_be64(address.rings, to + kRingsAt);
  wire::store_be64(address.rings_key, to + kRingsKeyAt);
  to[kEndpointsAt] = static_cast<uint8_t>(address.endpoints.size());
  to[kNameBytesAt] = static_cast<uint8_t>(name_bytes);
  uint8_t* end = to + kHeaderBytes;
  for (const auto& name : address.endpoints) end = std::copy(name.begin(), name.end(), end);
  encoded.size = static_cast<uint8_t>(end - to);
  return encoded;
}

Result<OfiAddress> decode_ofi_address(std::span<const uint8_t> bytes) {
  const auto other = [] {
    return fail(ErrorCode::kPeer,
                "the peer's address is not that of a libfabric NIC: choose NICs of one kind on "
                "both sides with PACECAR_NICS, and run the same version of Pacecar");
  };
  if (bytes.size() < kHeaderBytes || wire::load_be32(bytes.data()) != kMagic) return other();
  const size_t count = bytes[kEndpointsAt];
  const size_t name_bytes = bytes[kNameBytesAt];
  if (count == 0 || name_bytes == 0 || bytes.size() != kHeaderBytes + count * name_bytes) {
    return other();
  }
  OfiAddress address{.provider = wire::load_be32(&bytes[kProviderAt]),
                     .secret = wire::load_be64(&bytes[kSecretAt]),
                     .rings = wire::load_be64(&bytes[kRingsAt]),
                     .rings_key = wire::load_be64(&bytes[kRingsKeyAt]),
                     .endpoints = {}};
  for (size_t i = 0; i < count; ++i) {
    const auto name = bytes.subspan(kHeaderBytes + i * name_bytes, name_bytes);
    address.endpoints.emplace_back(name.begin(), name.end());
  }
  return address;
}

}  // namespace pacecar
