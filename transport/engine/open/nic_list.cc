#include "transport/engine/open/nic_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "transport/base/printable.h"
#include "transport/base/return_if_error.h"
#include "transport/base/take_until.h"
#include "transport/base/to_number.h"
#include "transport/engine/open/bootstrap_choice.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

using Candidates = std::span<const NicCandidate>;

constexpr std::string_view kDpdkPrefix = "soft:dpdk:";
constexpr std::string_view kOfiPrefix = "ofi:";
constexpr std::array<std::string_view, 5> kPrefixes = {"", "soft:udp:", "soft:raw:", kDpdkPrefix,
                                                       kOfiPrefix};  // by NicKind

// Removes the next entry of PACECAR_NICS from `list`. It ends at a comma, except that the arguments
// of a DPDK device (NAME=VALUE after a comma) belong to its entry.
std::string_view take_entry(std::string_view& list) {
  const std::string_view all = list;
  std::string_view entry = take_until(list, ',');
  while (entry.find(kDpdkPrefix) != std::string_view::npos && !list.empty()) {
    std::string_view rest = list;
    if (take_until(rest, ',').find('=') == std::string_view::npos) break;
    entry = all.substr(0, all.size() - rest.size());
    if (!rest.empty()) entry.remove_suffix(1);
    list = rest;
  }
  return entry;
}

// The NIC of an entry of a kind that is opened by name only, without being listed: ofi and DPDK.
std::optional<NicCandidate> nic_by_name(std::string_view entry) {
  const bool ofi = entry.starts_with(kOfiPrefix);
  if (!ofi && !entry.starts_with(kDpdkPrefix)) return std::nullopt;
  entry.remove_prefix(ofi ? kOfiPrefix.size() : kDpdkPrefix.size());
  const std::string_view device = take_until(entry, ',');
  return NicCandidate{.kind = ofi ? NicKind::kOfi : NicKind::kSoftDpdk,
                      .device = std::string(device),
                      .arguments = std::string(entry)};
}

std::string names_of(Candidates candidates) {
  std::string names;
  for (const NicCandidate& candidate : candidates) {
    if (!candidate.usable || candidate.kind == NicKind::kSoftRaw) continue;
    names += (names.empty() ? "" : ", ") + candidate.name();
  }
  return names.empty() ? "none" : names;
}

bool is_named(const NicCandidate& candidate, std::string_view entry) {
  return entry == candidate.device || entry == candidate.name();
}

Result<void> check_form(std::string_view entry, Candidates candidates) {
  const auto is_entry = [entry](const NicCandidate& c) { return is_named(c, entry); };
  if (std::ranges::any_of(candidates, is_entry)) return {};
  if (const auto named_nic = nic_by_name(entry); named_nic && !named_nic->device.empty()) return {};
  std::string_view device = entry;
  for (const std::string_view prefix : kPrefixes) {
    if (entry.starts_with(prefix)) device.remove_prefix(prefix.size());
  }
  if (!device.empty() && device.find(':') == std::string_view::npos) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("PACECAR_NICS has the entry '{}', which names no NIC of this version: "
                  "write soft:udp:INTERFACE, soft:dpdk:DEVICE, ofi:PROVIDER or the name of an RDMA "
                  "device",
                  printable(entry)));
}

Result<NicCandidate> find(std::string_view entry, Candidates candidates) {
  if (auto named_nic = nic_by_name(entry)) return std::move(*named_nic);
  for (const NicCandidate& candidate : candidates) {
    if (!is_named(candidate, entry)) continue;
    if (candidate.usable) return candidate;
    if (!candidate.flaw.empty()) {
      return fail(ErrorCode::kUnavailable,
                  fmt::format("PACECAR_NICS names '{}', which cannot be used: {}", printable(entry),
                              candidate.flaw));
    }
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("PACECAR_NICS names '{}', but there is no such NIC that is up and has an "
                          "address: choose from {}",
                          printable(entry), names_of(candidates)));
}

// The default: all NICs of the first kind of which the host has any.
std::vector<NicGroup> by_default(Candidates candidates) {
  struct Wanted {
    NicKind kind;
    bool secluded;
    bool loopback;
  };
  constexpr std::array kWanted = {
      Wanted{NicKind::kVerbs, false, false}, Wanted{NicKind::kSoftUdp, false, false},
      Wanted{NicKind::kSoftUdp, true, false}, Wanted{NicKind::kSoftUdp, false, true}};
  for (const Wanted& wanted : kWanted) {
    std::vector<NicGroup> chosen;
    for (const NicCandidate& candidate : candidates) {
      if (candidate.usable && candidate.kind == wanted.kind &&
          candidate.secluded == wanted.secluded && candidate.loopback == wanted.loopback) {
        chosen.push_back({candidate});
      }
    }
    if (!chosen.empty()) return chosen;
  }
  return {};
}

// Adds an entry's NICs (NAME or NAME+NAME) as a group, unless it is a single NIC that `groups` has.
Result<void> add_group(std::string_view entry, Candidates candidates,
                       std::vector<NicGroup>& groups) {
  const bool joined = entry.find('+') != std::string_view::npos;
  NicGroup group;
  while (!entry.empty()) {
    const std::string_view name = take_until(entry, '+');
    if (auto ok = check_form(name, candidates); !ok) return ok;
    ASSIGN_OR_RETURN(const auto found, find(name, candidates));
    const auto has_nic = [&](const NicGroup& other) {
      return std::ranges::any_of(other,
                                 [&](const NicCandidate& c) { return c.name() == found.name(); });
    };
    if (has_nic(group) || std::ranges::any_of(groups, has_nic)) {
      if (!joined) return {};
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("PACECAR_NICS names '{}' twice: a NIC can be joined with others once",
                              found.name()));
    }
    group.push_back(found);
  }
  groups.push_back(std::move(group));
  return {};
}

}  // namespace

std::string NicCandidate::name() const {
  return std::string(kPrefixes[static_cast<size_t>(kind)]) + device;
}

std::vector<NicCandidate> soft_candidates(std::span<const InterfaceInfo> interfaces,
                                          std::string_view selection) {
  std::vector<NicCandidate> nics;
  for (const NicKind kind : {NicKind::kSoftUdp, NicKind::kSoftRaw}) {
    for (const InterfaceInfo& interface : interfaces) {
      const auto address = preferred_address(interface);
      const bool shunned = !interface.running || interface.bridge ||
                           (address && is_link_local(*address)) ||
                           !names_interface(selection, interface.name);
      nics.push_back({.kind = kind,
                      .device = interface.name,
                      .usable = interface.up && address.has_value(),
                      .loopback = interface.loopback,
                      .secluded = shunned && !interface.loopback});
    }
  }
  return nics;
}

Result<std::vector<NicGroup>> choose_nics(std::string_view list, Candidates candidates) {
  const bool list_was_empty = list.empty();
  std::vector<NicGroup> named;
  std::vector<std::string_view> excluded;
  while (!list.empty()) {
    std::string_view entry = take_entry(list);
    if (entry.starts_with('^')) {
      entry.remove_prefix(1);
      RETURN_IF_ERROR(check_form(entry, candidates));
      excluded.push_back(entry);
    } else if (entry.empty()) {
      return tl::unexpected(check_form(entry, candidates).error());
    } else {
      RETURN_IF_ERROR(add_group(entry, candidates, named));
    }
  }
  const auto is_excluded = [&](const NicCandidate& candidate) {
    return std::ranges::any_of(excluded, [&](auto entry) { return is_named(candidate, entry); });
  };
  const bool by_name = !named.empty();
  for (NicGroup& group : named) std::erase_if(group, is_excluded);
  std::erase_if(named, [](const NicGroup& group) { return group.empty(); });
  std::vector<NicCandidate> others(candidates.begin(), candidates.end());
  std::erase_if(others, is_excluded);
  std::vector<NicGroup> chosen = by_name ? std::move(named) : by_default(others);
  if (chosen.empty() && list_was_empty) {
    return fail(
        ErrorCode::kNotFound,
        "this host has no NIC: no RDMA device, and no network interface is up with an IP address; "
        "bring one up (ip link set dev eth0 up), and 'pacecar preflight' shows more");
  }
  if (chosen.empty()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("PACECAR_NICS leaves no NIC: choose from {}", names_of(candidates)));
  }
  return chosen;
}

Result<std::optional<uint16_t>> rail_of(std::string_view list, const NicCandidate& nic) {
  std::optional<uint16_t> rail;
  while (!list.empty()) {
    const std::string_view entry = take_until(list, ',');
    std::string_view number = entry;
    const std::string_view name = take_until(number, '=');
    const auto value = to_number<uint16_t>(number);
    if (name.empty() || !value || *value > INT16_MAX) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("PACECAR_RAILS has the entry '{}': write NIC=NUMBER with a number of "
                              "0 to {}, such as mlx5_0=0",
                              entry, INT16_MAX));
    }
    if (is_named(nic, name)) rail = *value;
  }
  return rail;
}

}  // namespace pacecar
