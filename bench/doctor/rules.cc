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
  return static_cast<size_t>(
      std::count_if(nic->flows.begin(), nic->flows.end(),
                    [](const Flow& flow) { return !flow.sending && flow.requests > 0; }));
}

bool is_broken(const Path& path) {
  return path.flow->state == "broken" || !path.flow->fault.empty();
}

std::string why_broken(const Path& path) {
  return fmt::format("the flow {} {} is broken: {}", path.flow->sending ? "to" : "from",
                     path.peer_name(),
                     path.flow->fault.empty() ? "the peer died, or was cut off" : path.flow->fault);
}

bool is_unacknowledged(const Path& path) {
  return path.flow->sending && stands_still(*path.flow) && !path.flow->awaits_peer;
}

std::string why_unacknowledged(const Path& path) {
  return fmt::format(
      "{} writes to {} have not been acknowledged for {:.0f} s: the network between drops them, or "
      "that process is stopped; 'pacecar bw' on the same path shows which",
      path.flow->unacknowledged_writes, path.peer_name(), path.flow->still_s);
}

bool awaits_buffer(const Path& path) {
  return path.flow->sending && stands_still(*path.flow) && path.flow->awaits_peer;
}

std::string why_awaits_buffer(const Path& path) {
  return fmt::format("{} has posted no buffer for {:.0f} s: it has not come to this message",
                     path.peer_name(), path.flow->still_s);
}

bool awaits_message(const Path& path) { return !path.flow->sending && stands_still(*path.flow); }

std::string why_awaits_message(const Path& path) {
  return fmt::format(
      "{} has sent nothing for {:.0f} s, and a buffer is posted: it has not come to this message",
      path.peer_name(), path.flow->still_s);
}

bool loses(const Path& path) {
  return path.flow->sending && path.flow->repeated_bytes >= kLossBytes &&
         loss_of(*path.flow) >= kLossShare;
}

std::string why_loses(const Path& path) {
  return fmt::format(
      "{:.1f}% of what was sent to {} was sent again: packets are lost on the way; "
      "'pacecar preflight --only fabric --watch 10' at both ends finds where",
      100 * loss_of(*path.flow), path.peer_name());
}

std::string why_host(const Path& path) {
  const auto sent = path.flow->goodput_bps;
  return fmt::format(
      "it may send {} to {} and sends {}: the processors of the two hosts are the limit, or the "
      "application pauses, or has too little under way at a time",
      rate_text(path.flow->rate_bps), path.peer_name(),
      sent ? rate_text(*sent) : "less than half of it");
}

std::string why_network(const Path& path) {
  const std::string core =
      path.flow->core_bps > 0 ? ", which has room for " + rate_text(path.flow->core_bps) : "";
  return fmt::format("the network to {} is congested{}; its round trip takes {:.0f} us",
                     path.peer_name(), core, path.flow->rtt_s * 1e6);
}

std::string why_grant(const Path& path) {
  const size_t senders = senders_to_peer(path);
  const double grant = path.flow->grant_bps;
  return fmt::format("{} grants it {}: {}", path.peer_name(),
                     grant > 0 ? rate_text(grant) : "credit as its link allows",
                     senders > 1 ? fmt::format("{} senders share the link there (incast)", senders)
                                 : "the link there is shared (incast), or slower");
}

std::string why_budget(const Path& path) {
  return fmt::format("PACECAR_RATE_MAX allows it {}", rate_text(path.flow->budget_bps));
}

std::string why_line(const Path& path) {
  return fmt::format("{} of {} has {}, and this flow its share of it: nothing is faster",
                     path.nic->name, name_of(*path.process), rate_text(path.nic->line_rate_bps));
}

std::string why_application(const Path& path) {
  return path.flow->sending ? "the application has nothing more to send"
                            : "what arrives is as fast as it is sent";
}

constexpr std::array kRules = {
    Rule{"fault", true, false, is_broken, why_broken},
    Rule{"unacknowledged", true, false, is_unacknowledged, why_unacknowledged},
    Rule{"no-buffer", true, true, awaits_buffer, why_awaits_buffer},
    Rule{"no-message", true, true, awaits_message, why_awaits_message},
    Rule{"loss", true, false, loses, why_loses},
    Rule{"host", false, false, nullptr, why_host},
    Rule{"network", false, false, nullptr, why_network},
    Rule{"grant", false, false, nullptr, why_grant},
    Rule{"budget", false, false, nullptr, why_budget},
    Rule{"line", false, false, nullptr, why_line},
    Rule{"application", false, false, nullptr, why_application},
};

}  // namespace

const Process* Path::peer() const {
  const auto place = job->find(flow->peer_identity);
  return place ? &job->processes()[place->process] : nullptr;
}

const Nic* Path::peer_nic() const {
  const auto place = job->find(flow->peer_identity);
  return place ? &job->processes()[place->process].nics[place->nic] : nullptr;
}

std::string Path::peer_name() const {
  if (const Process* const known = peer()) return name_of(*known);
  return flow->peer.empty() ? "an unknown peer" : flow->peer;
}

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
