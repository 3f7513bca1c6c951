#include "transport/api/stall.h"

#include <fmt/format.h>

namespace pacecar {
namespace {

std::string gbps(Rate rate) {
  return fmt::format("{:.3g} Gb/s", static_cast<double>(rate.bps()) * 1e-9);
}

std::string limits_of(const Stall& stall) {
  const Explanation& flow = stall.explanation;
  std::string text = fmt::format("the flow may send {}, limited by {}", gbps(flow.rate),
                                 to_string(flow.limited_by));
  if (flow.grant > Rate()) {
    text += fmt::format(" (grant {}, {:.0f} ms old)", gbps(flow.grant), flow.grant_age.us() * 1e-3);
  }
  if (stall.rtt > Duration()) text += fmt::format("; last round trip {:.0f} us", stall.rtt.us());
  return text;
}

}  // namespace

LogLevel level_of(const Stall& stall) {
  return stall.awaits_peer ? LogLevel::kInfo : LogLevel::kWarn;
}

std::string describe(const Stall& stall, const std::string& end) {
  const std::string begin = fmt::format("{}: nothing has moved for {:.0f} s, {} requests wait", end,
                                        stall.lasted.seconds(), stall.requests);
  if (stall.awaits_peer) {
    return begin + ": the peer has not come to this message; if it does not compute, look there";
  }
  return fmt::format("{}, {} writes are not acknowledged; {}", begin, stall.writes,
                     limits_of(stall));
}

void StallWatch::report(const Attachment& at, std::string_view what,
                        const std::optional<Stall>& stall) {
  const std::string end = fmt::format("{} {} over {}", what, at.peer, at.nic.name);
  if (stall && !reported_) {
    reported_ = level_of(*stall);
    at.nic.log(*reported_, describe(*stall, end));
  } else if (!stall && reported_) {
    at.nic.log(*reported_, end + " moves again");
    reported_.reset();
  }
}

}  // namespace pacecar
