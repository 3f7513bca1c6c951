#include "bench/doctor/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace pacecar::doctor {
namespace {

// The library, too, reports a stall after this time.
constexpr double kStillSeconds = 5;
// Retransmissions are loss if they exceed both this share and this many bytes.
constexpr double kLossShare = 0.01;
constexpr uint64_t kLossBytes = 64U << 10;

double loss_of(const Flow& flow) {
  if (flow.tried_bytes == 0) return 0;
  return std::min(1.0,
                  static_cast<double>(flow.repeated_bytes) / static_cast<double>(flow.tried_bytes));
}

bool stands_still(const Flow& flow) { return flow.requests > 0 && flow.still_s >= kStillSeconds; }

// Flows to the peer's NIC with pending requests; 0: unknown.
size_t senders_to_peer(const Path& path) {
  const Nic* const nic = path.peer_nic();
  if (nic == nullptr) return 0;
  return static_cast<size_t>(std::ranges::count_if(
      nic->flows, [](const Flow& flow) { return !flow.sending && flow.requests > 0; }));
}

constexpr std::array kRules = {
    Rule{"fault", true, false,
         [](const Path& path) { return path.flow->state == "broken" || !path.flow->fault.empty(); },
         [](const Path& path) {
           const std::string& fault = path.flow->fault;
           return fmt::format("the flow {} is broken: {}", path.end(),
                              fault.empty() ? "the peer died, or was cut off" : fault);
         }},
    Rule{"unacknowledged", true, false,
         [](const Path& path) {
           return path.flow->sending && stands_still(*path.flow) && !path.flow->awaits_peer;
         },
         [](const Path& path) {
           return fmt::format(
               "{} writes to {} have not been acknowledged for {:.0f} s: the network between drops "
               "them, or that process is stopped; 'pacecar bw' on the same path shows which",
               path.flow->unacknowledged_writes, path.peer_name(), path.flow->still_s);
         }},
    Rule{"no-buffer", true, true,
         [](const Path& path) {
           return path.flow->sending && stands_still(*path.flow) && path.flow->awaits_peer;
         },
         [](const Path& path) {
           return fmt::format(
               "{} has posted no buffer for {:.0f} s: it has not come to this message",
               path.peer_name(), path.flow->still_s);
         }},
    Rule{"no-message", true, true,
         [](const Path& path) { return !path.flow->sending && stands_still(*path.flow); },
         [](const Path& path) {
           return fmt::format(
               "{} has sent nothing for {:.0f} s, and a buffer is posted: it has not come to this "
               "message",
               path.peer_name(), path.flow->still_s);
         }},
    Rule{"loss", true, false,
         [](const Path& path) {
           return path.flow->sending && path.flow->repeated_bytes >= kLossBytes &&
                  loss_of(*path.flow) >= kLossShare;
         },
         [](const Path& path) {
           return fmt::format(
               "{:.1f}% of what was sent to {} was sent again: packets are lost on the way; {} at "
               "both ends finds where",
               100 * loss_of(*path.flow), path.peer_name(),
               path.nic->name.starts_with("soft:")
                   ? "'nstat UdpRcvbufErrors; ip -s link'"
                   : "'pacecar preflight --only fabric --watch 10'");
         }},
    Rule{
        "path-mtu", true, false, [](const Path& path) { return path.flow->path_mtu_bytes > 0; },
        [](const Path& path) {
          return fmt::format(
              "packets above {} bytes do not pass to {}, although the interface of {} sends larger "
              "ones: smaller ones cost more; check the MTU of the switches between",
              path.flow->path_mtu_bytes, path.peer_name(), path.nic->name);
        }},
    Rule{"host", false, false, nullptr,
         [](const Path& path) {
           const auto sent = path.flow->goodput_bps;
           return fmt::format(
               "it may send {} to {} and sends {}: the processors of the two hosts are the limit, "
               "or the application pauses, or has too little under way at a time",
               rate_text(path.flow->rate_bps), path.peer_name(),
               sent ? rate_text(*sent) : "less than half of it");
         }},
    Rule{"network", false, false, nullptr,
         [](const Path& path) {
           const double core = path.flow->core_bps;
           return fmt::format(
               "the network to {} is congested{}; its round trip takes {:.0f} us", path.peer_name(),
               core > 0 ? ", which has room for " + rate_text(core) : "", path.flow->rtt_s * 1e6);
         }},
    Rule{"window", false, false, nullptr,
         [](const Path& path) {
           return fmt::format(
               "as much is in flight to {} as its congestion control allows, and acknowledgements "
               "take {:.0f} us: a host is late, or the path is longer than assumed",
               path.peer_name(), path.flow->rtt_s * 1e6);
         }},
    Rule{"grant", false, false, nullptr,
         [](const Path& path) {
           const size_t senders = senders_to_peer(path);
           const double grant = path.flow->grant_bps;
           return fmt::format("{} grants it {}: {}", path.peer_name(),
                              grant > 0 ? rate_text(grant) : "credit as its link allows",
                              senders > 1
                                  ? fmt::format("{} senders share the link there (incast)", senders)
                                  : "the link there is shared (incast), or slower");
         }},
    Rule{"budget", false, false, nullptr,
         [](const Path& path) {
           return fmt::format("PACECAR_RATE_MAX allows it {}", rate_text(path.flow->budget_bps));
         }},
    Rule{"line", false, false, nullptr,
         [](const Path& path) {
           return fmt::format("{} of {} has {}, and this flow its share of it: nothing is faster",
                              path.nic->name, name_of(*path.process),
                              rate_text(path.nic->line_rate_bps));
         }},
    Rule{"application", false, false, nullptr,
         [](const Path& path) -> std::string {
           return path.flow->sending ? "the application has nothing more to send"
                                     : "what arrives is as fast as it is sent";
         }},
};

}  // namespace

const Nic* Path::peer_nic() const { return job->find(flow->peer_identity).nic; }

std::string Path::peer_name() const {
  if (const Process* const known = job->find(flow->peer_identity).process) return name_of(*known);
  return flow->peer.empty() ? "an unknown peer" : flow->peer;
}

std::string Path::end() const { return (flow->sending ? "to " : "from ") + peer_name(); }

std::span<const Rule> rules() { return kRules; }

const Rule& diagnose(const Path& path) {
  for (const Rule& rule : kRules) {
    const bool limits = path.flow->sending && path.flow->limited_by == rule.name;
    if (rule.holds != nullptr ? rule.holds(path) : limits) return rule;
  }
  return kRules.back();
}

std::string rate_text(double bps) {
  return bps < 1e8 ? fmt::format("{:.3g} Mb/s", bps * 1e-6)
                   : fmt::format("{:.3g} Gb/s", bps * 1e-9);
}

}  // namespace pacecar::doctor
