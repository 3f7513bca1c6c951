#include "transport/verbs/gid_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/base/to_number.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

constexpr uint32_t kMaxGidIndex = 255;  // the attribute has 8 bits
constexpr int kLinkLocal = 2;
constexpr int kUnusable = 3;

Address as_address(const GidEntry& entry) { return {.ip = entry.gid}; }

bool empty(const GidEntry& entry) {
  return std::ranges::all_of(entry.gid, [](uint8_t byte) { return byte == 0; });
}

// Lower is better.
int preference(const GidEntry& entry) {
  if (entry.kind != GidKind::kRoceV2 || empty(entry)) return kUnusable;
  if (is_ipv4(as_address(entry))) return 0;
  return is_link_local(as_address(entry)) ? kLinkLocal : 1;
}

std::string_view kind_name(GidKind kind) {
  constexpr std::string_view kNames[] = {"InfiniBand", "RoCE v1", "RoCE v2"};
  return kNames[static_cast<size_t>(kind)];
}

std::string list(std::span<const GidEntry> entries) {
  std::string text;
  for (const GidEntry& entry : entries) {
    text += fmt::format("{}{} ({}, {})", text.empty() ? "" : ", ", entry.index,
                        kind_name(entry.kind), gid_text(entry.gid));
  }
  return text.empty() ? "is empty" : "has " + text;
}

GidChoice chosen(const GidEntry& entry) {
  if (preference(entry) != kLinkLocal) return {entry, {}};
  return {entry, fmt::format("GID {} is link-local ({}): it reaches hosts of the same subnet only; "
                             "give the interface an IP address",
                             entry.index, gid_text(entry.gid))};
}

}  // namespace

Result<GidChoice> choose_gid(LinkLayer link, std::span<const GidEntry> entries,
                             std::optional<uint32_t> wanted) {
  const bool ethernet = link == LinkLayer::kEthernet;
  const auto usable = [&](const GidEntry& entry) {
    return !ethernet || preference(entry) != kUnusable;
  };
  const auto found = wanted     ? std::ranges::find(entries, *wanted, &GidEntry::index)
                     : ethernet ? std::ranges::min_element(entries, {}, preference)
                                : std::ranges::find(entries, 0U, &GidEntry::index);
  if (found != entries.end() && usable(*found)) return chosen(*found);
  const std::string_view kind = ethernet ? "RoCE v2" : "InfiniBand";
  if (wanted) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("PACECAR_GID_INDEX is {}, but that is no GID of {}: the port's table {}",
                    *wanted, kind, list(entries)));
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("the port has no GID of {} (its table {}): {}", kind, list(entries),
                          ethernet ? "give its network interface an IP address and bring it up"
                                   : "check that the subnet manager runs"));
}

Result<std::optional<uint32_t>> parse_gid_index(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const auto index = to_number<uint32_t>(text);
  if (index && *index <= kMaxGidIndex) return index;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("PACECAR_GID_INDEX='{}' is not valid: give a number from 0 to {}, or "
                          "nothing",
                          text, kMaxGidIndex));
}

std::string gid_text(const std::array<uint8_t, 16>& gid) {
  const Address address{.ip = gid};
  return (is_ipv4(address) ? "::ffff:" : "") + ip_to_string(address);
}

}  // namespace pacecar
