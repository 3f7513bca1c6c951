// What of opening a NIC is about who else uses its link.
#include <fmt/format.h>

#include <utility>

#include "cc/host_link.h"
#include "transport/engine/clock.h"
#include "transport/engine/open_nic.h"

namespace pacecar {
namespace {

// What the processes of the host divide. A part of a nominal rate would hold back whoever runs
// while others do not: where nobody knows the rate, they only even out what they have learnt.
Rate divided_rate(const OpenedNic& nic) {
  constexpr Rate kUndivided = Rate::from_gbps(16'000);
  return nic.speed == Rate() ? kUndivided : std::as_const(*nic.port).nic().caps().line_rate;
}

}  // namespace

// A NIC works without it, only more carefully.
void share_link(OpenedNic& nic, const Params& params, const LogSink& log) {
  if (nic.host_only || params.share == Sharing::kOff) return;
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

// Who does not know the link, or who else uses it, begins carefully.
Rate first_rate(const OpenedNic& nic) {
  if (nic.host_only) return {};
  if (nic.speed == Rate()) return kUntoldFirstRate;
  return nic.share != nullptr ? Rate() : Rate::from_bps(nic.speed.bps() / kUnseenProcesses);
}

}  // namespace pacecar
