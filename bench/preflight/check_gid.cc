// Which GID a RoCE port is used with: RoCE v2; IPv4 first, then global IPv6, then link-local.
#include <fmt/format.h>

#include <algorithm>

#include "bench/preflight/checks.h"
#include "transport/wire/address.h"

namespace pacecar::preflight {
namespace {

enum class Reach : uint8_t { kIpv4, kGlobal, kLinkLocal };

// As transport/verbs/gid_choice.cc ranks them.
Reach reach_of(const Gid& gid) {
  const Address address{.ip = gid.address};
  if (is_ipv4(address)) return Reach::kIpv4;
  return is_link_local(address) ? Reach::kLinkLocal : Reach::kGlobal;
}

std::string describe(const Gid& gid) {
  return fmt::format("GID index {}, RoCE v2, {}", gid.index, ip_to_string({.ip = gid.address}));
}

// `best` is what would be used without the setting.
void check_index(const RdmaPort& port, const std::string& setting, const Gid& best,
                 Findings& findings) {
  const Subject subject{port.name(), {{"NUMBER", std::to_string(best.index)}}};
  const auto index = parse_number(setting);
  const auto named = std::ranges::find(port.gids, index, &Gid::index);
  if (named == port.gids.end() || !named->roce_v2) {
    findings.add("gid.index_unusable", subject, "PACECAR_GID_INDEX={} is {}; without it: {}",
                 setting,
                 !index                     ? "no number"
                 : named == port.gids.end() ? "an empty GID here"
                                            : "no RoCE v2 GID here",
                 describe(best));
  } else if (reach_of(*named) == Reach::kLinkLocal && reach_of(best) != Reach::kLinkLocal) {
    findings.add("gid.index_link_local", subject, "{}, link-local; without PACECAR_GID_INDEX: {}",
                 describe(*named), describe(best));
  } else {
    findings.add("gid.chosen", subject, "{}, as it is set", describe(*named));
  }
}

void check_gid(const RdmaPort& port, const std::string& setting, Findings& findings) {
  const Gid* best = choose_gid(port);
  if (best == nullptr) {
    findings.add("gid.none", about(port),
                 "no RoCE v2 GID: its interface has no address, or is down");
  } else if (!setting.empty()) {
    check_index(port, setting, *best, findings);
  } else if (reach_of(*best) == Reach::kLinkLocal) {
    findings.add("gid.link_local", about(port), "{}, link-local: reaches this network segment only",
                 describe(*best));
  } else {
    findings.add("gid.chosen", about(port), "{}", describe(*best));
  }
}

}  // namespace

const Gid* choose_gid(const RdmaPort& port) {
  const Gid* best = nullptr;
  for (const Gid& gid : port.gids) {
    if (!gid.roce_v2) continue;
    if (best == nullptr || reach_of(gid) < reach_of(*best)) best = &gid;
  }
  return best;
}

void check_gids(const Facts& facts, Findings& findings) {
  for (const RdmaDevice& device : facts.rdma) {
    for (const RdmaPort& port : device.ports) {
      if (port.ethernet && port.active()) check_gid(port, facts.settings.gid_index, findings);
    }
  }
}

}  // namespace pacecar::preflight
