// Chooses our entry of a port's GID table. On Ethernet only RoCE v2 entries are usable: IPv4-mapped
// is preferred, then global IPv6, then link-local, which works within one subnet only. A wrong
// choice is the most common reason why RoCE connections fail. Pure. Thread rule: any.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/nic/rc_endpoint.h"

namespace pacecar {

enum class GidKind : uint8_t { kInfiniband, kRoceV1, kRoceV2 };

struct GidEntry {
  uint32_t index = 0;  // in the port's table
  GidKind kind = GidKind::kRoceV2;
  std::array<uint8_t, 16> gid{};
};

struct GidChoice {
  GidEntry entry;
  std::string warning;  // empty: none
};

// `entries` are the valid ones of the port; `wanted` is the index that the user has set. On
// InfiniBand the choice is entry 0, which has the subnet's prefix, or the wanted one. Errors:
// kNotFound, if no entry is usable; kInvalidArgument, if the wanted one is not.
Result<GidChoice> choose_gid(LinkLayer link, std::span<const GidEntry> entries,
                             std::optional<uint32_t> wanted);

// The value of PACECAR_GID_INDEX; nullopt if it is empty. Error: kInvalidArgument.
Result<std::optional<uint32_t>> parse_gid_index(std::string_view text);

// "::ffff:192.0.2.1", as RDMA tools print it.
std::string gid_text(const std::array<uint8_t, 16>& gid);

}  // namespace pacecar
