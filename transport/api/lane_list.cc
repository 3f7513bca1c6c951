#include "transport/api/lane_list.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/engine/bootstrap/auth.h"

namespace pacecar {
namespace {

// A listener's name: what its NICs' identities have in common, how many there are, their numbers.
constexpr size_t kCommonBytes = sizeof(NicIdentity) - 1;
constexpr size_t kCountAt = kCommonBytes;
constexpr size_t kNumbersAt = kCountAt + 1;
static_assert(kNumbersAt + kMaxLanes <= sizeof(bootstrap::Identity));

constexpr size_t kLengthBytes = 2;

}  // namespace

NicIdentity random_identity() {
  NicIdentity identity{};
  PACECAR_CHECK(bootstrap::fill_random(identity));
  return identity;
}

NicIdentity identity_of_nic(NicIdentity process, uint8_t number) {
  process.back() = number;
  return process;
}

bootstrap::Identity name_nics(std::span<const NicIdentity> nics) {
  PACECAR_CHECK(!nics.empty() && nics.size() <= kMaxLanes);
  bootstrap::Identity name{};
  std::copy_n(nics.front().begin(), kCommonBytes, name.begin());
  name[kCountAt] = static_cast<uint8_t>(nics.size());
  for (size_t i = 0; i < nics.size(); ++i) name[kNumbersAt + i] = nics[i].back();
  return name;
}

Result<std::vector<NicIdentity>> named_nics(const bootstrap::Identity& identity) {
  const size_t count = identity[kCountAt];
  if (count == 0 || count > kMaxLanes) {
    return fail(ErrorCode::kInvalidArgument,
                "the listener's handle names no NIC: run the same version of Pacecar on both "
                "sides");
  }
  NicIdentity process{};
  std::copy_n(identity.begin(), kCommonBytes, process.begin());
  std::vector<NicIdentity> nics;
  for (size_t i = 0; i < count; ++i) {
    nics.push_back(identity_of_nic(process, identity[kNumbersAt + i]));
  }
  return nics;
}

Blob pack_lanes(std::span<const Blob> lanes) {
  Blob packed;
  packed.push_back(static_cast<uint8_t>(lanes.size()));
  for (const Blob& lane : lanes) {
    packed.push_back(static_cast<uint8_t>(lane.size() >> 8));
    packed.push_back(static_cast<uint8_t>(lane.size()));
    packed.insert(packed.end(), lane.begin(), lane.end());
  }
  PACECAR_CHECK(packed.size() <= kMaxBootstrapPayload);
  return packed;
}

Result<std::vector<Blob>> unpack_lanes(std::span<const uint8_t> bytes) {
  const auto malformed = [] {
    return fail(ErrorCode::kPeer,
                "the peer names its lanes in another form: run the same version of Pacecar on both "
                "sides");
  };
  if (bytes.empty() || bytes[0] == 0 || bytes[0] > kMaxLanes) return malformed();
  std::vector<Blob> lanes(bytes[0]);
  bytes = bytes.subspan(1);
  for (Blob& lane : lanes) {
    if (bytes.size() < kLengthBytes) return malformed();
    const size_t length = size_t{bytes[0]} << 8 | bytes[1];
    bytes = bytes.subspan(kLengthBytes);
    if (bytes.size() < length) return malformed();
    lane.assign(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length));
    bytes = bytes.subspan(length);
  }
  if (!bytes.empty()) return malformed();
  return lanes;
}

}  // namespace pacecar
