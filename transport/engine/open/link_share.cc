// The part of opening a NIC that divides its link among processes.
#include <fmt/format.h>

#include <utility>

#include "cc/host_link.h"
#include "transport/engine/clock.h"
#include "transport/engine/open/open_nic.h"

namespace pacecar {
namespace {

// The rate that the processes of the host divide. If the real rate is unknown, parts of the nominal
// one would limit a busy process even while the others are idle. Then the divided rate is so high
// that the processes only make their budgets even.
Rate divided_rate(const OpenedNic& nic) {
  constexpr Rate kUndivided = Rate::from_gbps(16'000);
  return nic.speed == Rate() ? kUndivided : std::as_const(*nic.port).nic().caps().line_rate;
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

}  // namespace pacecar
