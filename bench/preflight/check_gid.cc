// Which GID a RoCE port is used with: RoCE v2; IPv4 first, then global IPv6, then link-local.
#include <fmt/format.h>

#include <algorithm>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
namespace {

enum class Reach : uint8_t { kIpv4, kGlobal, kLinkLocal };

Reach reach_of(const Gid& gid) {
  const auto& a = gid.address;
  const bool mapped = std::all_of(a.begin(), a.begin() + 10, [](uint8_t b) { return b == 0; }) &&
                      a[10] == 0xff && a[11] == 0xff;
  if (mapped) return a[12] == 169 && a[13] == 254 ? Reach::kLinkLocal : Reach::kIpv4;
  return a[0] == 0xfe && (a[1] & 0xc0) == 0x80 ? Reach::kLinkLocal : Reach::kGlobal;
}

std::string describe(const Gid& gid) {
  const auto& a = gid.address;
  const bool mapped = reach_of(gid) == Reach::kIpv4;
  return fmt::format("GID index {}, RoCE v2, {}", gid.index,
                     mapped ? fmt::format("{}.{}.{}.{}", a[12], a[13], a[14], a[15]) : gid.text);
}

// Why the index that is set cannot be used on this port; empty when it can.
std::string index_problem(const std::string& setting, const RdmaPort& port) {
  const auto index = parse_number(setting);
  if (!index) return fmt::format("PACECAR_GID_INDEX={} is no number", setting);
  const auto gid = std::ranges::find(port.gids, *index, &Gid::index);
  if (gid == port.gids.end()) {
    return fmt::format("PACECAR_GID_INDEX={} is an empty GID here", setting);
  }
  if (!gid->roce_v2) {
    return fmt::format("PACECAR_GID_INDEX={} is no RoCE v2 GID here", setting);
  }
  return "";
}

// `best` is what would be used without the setting.
void check_index(const RdmaPort& port, const std::string& setting, const Gid& best,
                 Findings& findings) {
  const std::string number = std::to_string(best.index);
  if (const std::string problem = index_problem(setting, port); !problem.empty()) {
    findings.add(FindingId::kGidIndexUnusable, port.name(),
                 fmt::format("{}; without it: {}", problem, describe(best)), {{"NUMBER", number}});
    return;
  }
  const Gid& named = *std::ranges::find(port.gids, *parse_number(setting), &Gid::index);
  if (reach_of(named) == Reach::kLinkLocal && reach_of(best) != Reach::kLinkLocal) {
    findings.add(FindingId::kGidIndexLinkLocal, port.name(),
                 fmt::format("{}, link-local; without PACECAR_GID_INDEX: {}", describe(named),
                             describe(best)),
                 {{"NUMBER", number}});
  } else {
    findings.add(FindingId::kGidChosen, port.name(), describe(named) + ", as it is set");
  }
}

void check_port(const RdmaPort& port, const std::string& setting, Findings& findings) {
  const Gid* best = choose_gid(port);
  if (best == nullptr) {
    findings.add(FindingId::kGidNone, port.name(),
                 "no RoCE v2 GID: its interface has no address, or is down",
                 {{"NETDEV", port.netdev}});
  } else if (!setting.empty()) {
    check_index(port, setting, *best, findings);
  } else if (reach_of(*best) == Reach::kLinkLocal) {
    findings.add(FindingId::kGidLinkLocal, port.name(),
                 describe(*best) + ", link-local: reaches this network segment only",
                 {{"NETDEV", port.netdev}});
  } else {
    findings.add(FindingId::kGidChosen, port.name(), describe(*best));
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
      if (port.ethernet && port.active()) check_port(port, facts.settings.gid_index, findings);
    }
  }
}

}  // namespace pacecar::preflight
