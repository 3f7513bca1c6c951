// What opening any kind of NIC has in common: its part of the link, and the check of its security.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cc/host_link.h"
#include "transport/engine/clock.h"
#include "transport/engine/open_nic.h"

namespace pacecar {
namespace {

// The rate that the processes of the host divide. If the real rate is unknown, parts of the nominal
// one would limit a busy process even while the others are idle. Then the divided rate is so high
// that the processes only make their budgets even.
Rate divided_rate(const OpenedNic& nic) {
  constexpr Rate kUndivided = Rate::from_gbps(16'000);
  return nic.speed == Rate() ? kUndivided : std::as_const(*nic.port).nic().caps().line_rate;
}

// Row of param_table().
bool is_default(const Params& params, std::string_view name) {
  const auto table = param_table();
  const auto row = std::ranges::find(table, name, &ParamInfo::name);
  return params.origin(static_cast<size_t>(row - table.begin())) == "default";
}

}  // namespace

// A NIC works without a share, but begins at a lower rate.
void share_link(OpenedNic& nic, const Params& params, const LogSink& log) {
  if (nic.host_only || params.share == AutoOrOff::kOff) return;
  auto share = HostShare::open(link_name(nic.device, nic.guid), divided_rate(nic), clock_now());
  if (share) {
    nic.share = std::move(*share);
    return;
  }
  log(LogLevel::kWarn,
      fmt::format("{}: its link is not divided among the processes of this host, which learn of "
                  "one another by congestion alone: {}",
                  nic.name, share.error().message));
}

// If the link's rate or its other users are unknown, the NIC begins at a low rate.
Rate first_rate(const OpenedNic& nic) {
  if (nic.host_only) return {};
  if (nic.speed == Rate()) return kUnknownLinkFirstRate;
  return nic.share != nullptr ? Rate() : Rate::from_bps(nic.speed.bps() / kUnseenProcesses);
}

Result<void> accept_without_tags(std::string_view nic, std::string_view packets, bool by_peer,
                                 const Params& params, const LogSink& log) {
  if (params.security == Security::kOff) return {};
  if (params.security == Security::kEncrypt && !by_peer) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} sends {}, which PACECAR_SECURITY=encrypt does not allow: choose a "
                            "software NIC with PACECAR_WIRE=extended, or PACECAR_SECURITY=auth",
                            nic, packets));
  }
  log(is_default(params, "PACECAR_SECURITY") ? LogLevel::kInfo : LogLevel::kWarn,
      fmt::format(
          "{}: {} carry no tags: anyone who can send into its network can forge them (SECURITY.md)",
          nic, packets));
  return {};
}

}  // namespace pacecar
